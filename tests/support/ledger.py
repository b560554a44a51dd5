"""What clients asked a server for and were told by it, and whether that can all be true.

Knows no protocol and no broker: it is told of each request before it is sent and of each reply
when it is read, and of crashes, after which whatever had no reply may have happened or not. What
cannot be is an AssertionError at once, or at the end in `check`, when the server was drained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Entry:
    """One job that a client asked for, under a token that its payload carries."""

    def __init__(
        self,
        token: str,
        queue: str,
        dead_queue: str,
        retries: int,
        not_before: float,
        blockers: tuple[Entry, ...],
    ) -> None:
        self.token = token
        self.queue = queue
        self.dead_queue = dead_queue
        self.retries = retries
        self.not_before = not_before  # on the server's clock
        self.blockers = blockers
        self.id = 0
        self.sure = False  # it has been acknowledged or seen, so it is or was there
        self.refused = False
        self.holder = ""  # the client that has it now
        self.held_in = ""  # from the queue of this name
        self.delivered = False
        self.finish_asked = False  # since it was delivered the last time
        self.finished = False  # acknowledged
        self.fails = Fails()  # in its queue
        self.dead_fails = Fails()  # in its dead queue, where it has as many tries again
        self.seen_dead = False  # in its dead queue

    def is_plain(self) -> bool:
        """Whether its place in its queue is that of its push."""
        return not self.not_before and not self.blockers and not self.fails.possible

    def may_be_dead(self) -> bool:
        """Whether it may have failed for good in its own queue."""
        return self.fails.possible > self.retries or any(
            blocker.may_be_dead() for blocker in self.blockers
        )

    def is_dead(self) -> bool:
        return self.seen_dead or self.fails.sure() > self.retries

    def may_be_gone(self) -> bool:
        """Whether it may have failed with nobody left to hear of it."""
        if not self.dead_queue:
            return self.may_be_dead()
        return self.may_be_dead() and self.dead_fails.possible > self.retries

    def is_gone(self) -> bool:
        if not self.dead_queue:
            return self.is_dead()
        return self.is_dead() and self.dead_fails.sure() > self.retries


class Fails:
    """How often a job has failed."""

    def __init__(self) -> None:
        self.possible = 0  # at most
        self.acknowledged = 0
        self.shown = 0  # with the job, the last time it was delivered

    def sure(self) -> int:
        """At least."""
        return max(self.acknowledged, self.shown)


class Transaction:
    """Pushes and finishes that happen together or not at all."""

    def __init__(self, pushes: list[Entry], finishes: list[Entry]) -> None:
        self.pushes = pushes
        self.finishes = finishes
        self.applied: bool | None = None  # as far as anything has shown it


class Ledger:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.recent: deque[Entry] = deque(maxlen=30)
        self._ids: dict[int, Entry] = {}
        self._held: dict[str, dict[str, Entry]] = {}  # by client and token
        self._undecided: list[Transaction] = []
        self._of_push: dict[str, Transaction] = {}  # by token
        self._last_id: dict[str, int] = {}  # of the plain jobs that were drained, by queue
        self.draining = False  # one client takes all there is, and nothing else happens

    # Requests, before they are sent

    def pushing(
        self,
        token: str,
        queue: str,
        *,
        dead_queue: str = "",
        retries: int,
        not_before: float = 0,
        blockers: Iterable[Entry] = (),
    ) -> Entry:
        assert token not in self.entries, f"{token} was pushed before"
        entry = Entry(token, queue, dead_queue, retries, not_before, tuple(blockers))
        self.entries[token] = entry
        self.recent.append(entry)
        return entry

    def finishing(self, entry: Entry) -> None:
        entry.finish_asked = True
        self._let_go(entry)

    def failing(self, entry: Entry) -> Fails:
        """Gives what its reply is to be told with."""
        fails = self._fails(entry)
        fails.possible += 1
        self._let_go(entry)
        return fails

    def transacting(self, pushes: list[Entry], finishes: list[Entry]) -> Transaction:
        transaction = Transaction(pushes, finishes)
        self._undecided.append(transaction)
        for entry in pushes:
            self._of_push[entry.token] = transaction
        for entry in finishes:
            self.finishing(entry)
        return transaction

    def leaving(self, client: str) -> None:
        """A client goes away with no request open, and fails with that what it holds."""
        for entry in self.held_by(client):
            self.failing(entry)

    # Replies

    def pushed(self, entry: Entry, id: int) -> None:
        self._identify(entry, id)
        entry.sure = True

    def refused(self, entry: Entry) -> None:
        """Its push was answered with an error."""
        entry.refused = True

    def finished(self, entry: Entry) -> None:
        entry.finished = True

    def failed(self, fails: Fails) -> None:
        fails.acknowledged += 1

    def kept(self, client: str, entry: Entry) -> None:
        """It was not finished after all: the server refused that, and the client still has it."""
        entry.finish_asked = False
        entry.holder = client
        self._held.setdefault(client, {})[entry.token] = entry

    def not_failed(self, client: str, entry: Entry, fails: Fails) -> None:
        fails.possible -= 1
        self.kept(client, entry)

    def not_transacted(self, client: str, transaction: Transaction) -> None:
        for entry in transaction.pushes:
            self.refused(entry)
        transaction.applied = False
        self._undecided.remove(transaction)
        for entry in transaction.finishes:
            self.kept(client, entry)

    def transacted(self, transaction: Transaction, ids: list[int]) -> None:
        assert len(ids) == len(transaction.pushes), ids
        for entry, id in zip(transaction.pushes, ids, strict=True):
            self._identify(entry, id)
        self._applied(transaction)

    def handed_out(
        self, client: str, token: str, id: int, queue: str, fails: int, now: float
    ) -> Entry:
        """A client has got a job."""
        entry = self.entries.get(token)
        assert entry is not None, f"{token} was never pushed"
        self._identify(entry, id)
        assert not entry.refused, f"{token} was refused"
        assert not entry.holder, f"{token} is held by {entry.holder}, and now also by {client}"
        assert not entry.finished, f"{token} is back after it was finished"
        assert not entry.is_gone(), f"{token} is back after it failed for good"
        self._check_place(entry, queue, now)
        entry.holder = client
        entry.held_in = queue
        self._held.setdefault(client, {})[token] = entry
        counted = self._fails(entry)
        assert counted.sure() <= fails <= counted.possible, (
            f"{token} failed {fails} times, but {counted.sure()} to {counted.possible} are known of"
        )
        if self.draining and not entry.delivered and entry.is_plain():
            self._check_order(entry)
        entry.sure = True
        entry.delivered = True
        entry.finish_asked = False  # whatever was asked before has not happened
        counted.shown = fails
        self._believe_place(entry, queue)
        self._look_at_transactions(entry)
        return entry

    # What happens to the server

    def crashed(self) -> None:
        """All connections are gone, and with them what was held; no failure is counted."""
        for client in list(self._held):
            for entry in self.held_by(client):
                self._let_go(entry)

    def held_by(self, client: str) -> list[Entry]:
        return list(self._held.get(client, {}).values())

    # The end

    def check(self) -> None:
        """Every job has been delivered and finished that could be: is any missing?"""
        for transaction in self._undecided:
            if transaction.pushes:
                self._check_undone(transaction)
        lost = [
            entry.token
            for entry in self.entries.values()
            if entry.sure and not entry.finish_asked and not entry.may_be_gone()
        ]
        assert not lost, f"acknowledged and lost: {lost}"

    def _check_undone(self, transaction: Transaction) -> None:
        """None of its pushes was seen, so its finishes have not happened either."""
        if any(entry.may_be_gone() for entry in transaction.pushes):
            return  # they may have come and gone
        gone = [entry.token for entry in transaction.finishes if not entry.may_be_gone()]
        assert not gone, f"half of a transaction: {gone} finished, the pushes are missing"

    def _identify(self, entry: Entry, id: int) -> None:
        assert entry.id in (0, id), f"{entry.token} had id {entry.id}, and now has {id}"
        known = self._ids.setdefault(id, entry)
        assert known is entry, f"{id} is the id of {known.token} and of {entry.token}"
        entry.id = id

    def _let_go(self, entry: Entry) -> None:
        self._held.get(entry.holder, {}).pop(entry.token, None)
        entry.holder = ""

    def _check_order(self, entry: Entry) -> None:
        """Jobs that were never delivered come in the order of their pushes."""
        last = self._last_id.get(entry.queue, 0)
        assert entry.id > last, f"{entry.token} with id {entry.id} came after {last}"
        self._last_id[entry.queue] = entry.id

    def _fails(self, entry: Entry) -> Fails:
        dead = entry.dead_queue and entry.held_in == entry.dead_queue
        return entry.dead_fails if dead else entry.fails

    def _check_place(self, entry: Entry, queue: str, now: float) -> None:
        if queue != entry.queue:
            assert queue == entry.dead_queue, f"{entry.token} came from {queue}"
            assert entry.may_be_dead(), f"{entry.token} came from {queue} without having failed"
            return
        assert not entry.is_dead(), f"{entry.token} failed for good, and came from {queue}"
        assert now >= entry.not_before, f"{entry.token} came {entry.not_before - now} s too early"
        for blocker in entry.blockers:
            done = blocker.finish_asked or blocker.may_be_gone()  # before this one was pushed
            assert done, f"{entry.token} came before {blocker.token} was done"

    def _believe_place(self, entry: Entry, queue: str) -> None:
        """What made the job ready has been shown with it, so it cannot be undone any more."""
        if queue != entry.queue:
            entry.seen_dead = True
            return
        for blocker in entry.blockers:
            if not blocker.may_be_gone():
                blocker.finished = True

    def _look_at_transactions(self, entry: Entry) -> None:
        """That a job is seen shows whether transactions it had a part in have happened."""
        own = self._of_push.get(entry.token)
        if own is not None and not own.applied:
            assert own.applied is None, f"{entry.token} is of a transaction that did not happen"
            self._applied(own)
        for transaction in self._undecided.copy():
            if entry in transaction.finishes:
                self._not_applied(transaction)

    def _not_applied(self, transaction: Transaction) -> None:
        transaction.applied = False
        self._undecided.remove(transaction)
        for push in transaction.pushes:
            assert not push.sure, f"{push.token} is of a transaction that did not happen"
        for finish in transaction.finishes:
            finish.finish_asked = False

    def _applied(self, transaction: Transaction) -> None:
        assert transaction.applied is not False, "it was thought not to have happened"
        if transaction.applied is None:
            self._undecided.remove(transaction)
        transaction.applied = True
        for entry in transaction.pushes:
            entry.sure = True
        for entry in transaction.finishes:
            assert not entry.holder, f"{entry.token} was finished, and is held by {entry.holder}"
            entry.finished = True
