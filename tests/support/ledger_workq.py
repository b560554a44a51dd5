"""What clients of Workq asked a server for and were told by it, and whether that can all be true.

Anybody may finish, fail or delete any job by its id, so a reply is judged by what was known when
its request was made; replies that cross each other are no contradiction. After a crash whatever
had no reply may have happened or not. What cannot be is an AssertionError at once, or at the end
in `check`, when the server was drained. Knows no bytes of the protocol and no broker.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 62

NEW, COMPLETED, FAILED, PENDING, LEASED = range(5)


class Result(NamedTuple):
    success: bool
    data: bytes


EXHAUSTED = Result(False, b"")  # the result of a job that has used up its attempts


class Asked(NamedTuple):
    """When a request was made: in the order of all that the ledger hears of, and by the clock."""

    tick: int
    time: float


class Lease(NamedTuple):
    """A job was delivered at some time between these two."""

    sent: float
    got: float


@dataclass(kw_only=True, eq=False)
class Entry:
    """One job that a client asked for."""

    id: str
    maker: str  # the client
    name: str
    payload: bytes
    ttr: float
    ttl_ms: int
    priority: int = 0
    max_attempts: int = 0
    max_fails: int = 0
    not_before: float = 0.0  # on the server's clock
    momentary: bool = False  # a run, gone with its answer

    number: int = 0  # in the order in which they were asked for

    # What is sure, and from which request on: those made before may have come before it.
    there_since: int = NEVER  # it has been acknowledged or seen, so it is or was there
    over_since: int = NEVER  # it has a result
    deleted_since: int = NEVER
    refused: bool = False

    asked: list[Result] = field(default_factory=list)  # those that it may have
    result: Result | None = None  # the one that it has for sure
    delete_asked: bool = False
    delete_done: bool = False  # acknowledged
    repeated: bool = False  # it was asked for more than once
    lease: Lease | None = None  # nobody else may have it before this ends
    seen_leases: int = 0
    sure_leases: int = 0  # that the server knows of
    kept_leases: int = 0  # that it knows of after a crash too
    open_fails: int = 0  # requests without a reply
    fail_heard: int = 0  # the last reply to one
    possible_fails: int = 0
    sure_fails: int = 0
    state: int = NEW  # as inspect has shown it last
    untouched: bool = False  # the same before the server was drained

    def used_up(self, attempts: int) -> bool:
        return 0 < self.max_attempts <= attempts


class Ledger:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.recent: deque[Entry] = deque(maxlen=30)
        self.draining = False  # one client takes all there is, and nothing else happens
        self._tick = 0
        self._open_leases: Counter[str] = Counter()  # requests without a reply, by name of a queue
        self._last_drained: dict[str, Entry] = {}  # of those nobody had touched, by queue

    def ask(self, now: float) -> Asked:
        self._tick += 1
        return Asked(self._tick, now)

    # Requests, before they are sent

    def adding(self, entry: Entry) -> None:
        assert entry.id not in self.entries, f"{entry.id} was added before"
        entry.number = len(self.entries)
        self.entries[entry.id] = entry
        self.recent.append(entry)

    def adding_again(self, entry: Entry) -> None:
        assert not entry.delete_asked, f"{entry.id} may be free again"
        entry.repeated = True
        entry.refused = False

    def leasing(self, names: Sequence[str]) -> None:
        self._open_leases.update(names)

    def completing(self, entry: Entry, data: bytes) -> Result:
        result = Result(True, data)
        entry.asked.append(result)
        return result

    def failing(self, entry: Entry, data: bytes) -> Result:
        result = Result(False, data)
        entry.asked.append(result)
        entry.open_fails += 1
        entry.possible_fails += 1
        return result

    def deleting(self, entry: Entry) -> None:
        assert not entry.repeated, f"{entry.id} may be added after that"
        entry.delete_asked = True

    # Replies

    def added(self, entry: Entry, asked: Asked) -> None:
        assert not entry.there_since <= asked.tick, f"{entry.id} was added twice"
        self._is_there(entry)

    def duplicate_job(self, entry: Entry) -> None:
        assert entry.repeated, f"{entry.id} is new, and was called a duplicate"
        self._is_there(entry)

    def refused(self, entry: Entry) -> None:
        """Its add was answered with an error of the server."""
        if not entry.repeated:
            entry.refused = True

    def got_nothing(self, names: Sequence[str]) -> None:
        self._open_leases.subtract(names)

    def handed_out(
        self, asked: Asked, names: Sequence[str], id: str, name: str, payload: bytes, now: float
    ) -> Entry:
        """The reply to a lease of these names."""
        entry = self.entries.get(id)
        assert entry is not None, f"{id} was never added"
        assert name == entry.name, f"{id} of {entry.name} came as one of {name}"
        assert name in names, f"{id} of {name} came for {names}"
        assert payload == entry.payload, f"{id} came with another payload: {payload!r}"
        assert not entry.refused, f"{id} was refused"
        assert not entry.over_since <= asked.tick, f"{id} is back after it was finished"
        assert not entry.deleted_since <= asked.tick, f"{id} is back after it was deleted"
        assert now >= entry.not_before, f"{id} came {entry.not_before - now} s too early"
        assert not entry.used_up(entry.sure_leases), f"{id} came more than {entry.max_attempts} x"
        if entry.lease is not None and not entry.open_fails:
            assert self._apart(entry, entry.lease, Lease(asked.time, now)), (
                f"{id} came again while it was leased"
            )
        if self.draining and entry.untouched and not entry.seen_leases:
            self._check_order(entry)
        self._open_leases.subtract(names)
        self._is_there(entry)
        # A fail that was answered meanwhile may have ended it already.
        entry.lease = Lease(asked.time, now) if entry.fail_heard <= asked.tick else None
        entry.seen_leases += 1
        entry.sure_leases += 1
        if entry.max_attempts == 1:  # the reply has waited for its record
            entry.kept_leases = 1
        return entry

    def completed(self, entry: Entry, asked: Asked, result: Result, leases: int) -> None:
        """`leases` is how many the server was sure to know of when it was asked."""
        self._is_alive(entry, asked)
        assert entry.result in (None, result), f"{entry.id} has two results"
        entry.kept_leases = max(entry.kept_leases, leases)
        self._has_result(entry, result)

    def failed(self, entry: Entry, asked: Asked, result: Result, leases: int) -> None:
        self._is_alive(entry, asked)
        self._is_there(entry)
        self._fail_answered(entry)
        entry.sure_fails += 1
        entry.kept_leases = max(entry.kept_leases, leases)
        if not self._may_be_final(entry):
            entry.asked.remove(result)
        elif not entry.max_fails or entry.used_up(leases):
            assert entry.result in (None, result), f"{entry.id} has two results"
            self._has_result(entry, result)
        elif entry.sure_fails >= entry.max_fails:
            self._is_over(entry)  # by this fail or by one that came before its reply

    def duplicate_result(self, entry: Entry, result: Result) -> None:
        """It was not completed or failed, since it had a result before."""
        self.not_done(entry, result)
        assert entry.result is not None or entry.asked or self._may_be_exhausted(entry), (
            f"{entry.id} has a result that nobody gave it"
        )
        self._is_there(entry)
        self._is_over(entry)

    def not_done(self, entry: Entry, result: Result) -> None:
        """It was not completed or failed."""
        entry.asked.remove(result)
        if not result.success:
            self._fail_answered(entry)
            entry.possible_fails -= 1

    def deleted(self, entry: Entry, asked: Asked) -> None:
        assert not entry.deleted_since <= asked.tick, f"{entry.id} was deleted twice"
        assert not entry.delete_done, f"{entry.id} was deleted twice"
        assert not entry.refused, f"{entry.id} was refused"
        entry.delete_done = True
        self._is_there(entry)
        self._is_gone(entry)

    def not_found(self, entry: Entry, asked: Asked, unhappened: Result | None = None) -> None:
        """With the result that it was asked to have, if that was what it was about."""
        if unhappened is not None:
            self.not_done(entry, unhappened)
        if not entry.there_since <= asked.tick:
            return  # it may come yet
        assert entry.delete_asked or entry.momentary, f"{entry.id} is lost"
        self._is_gone(entry)

    def shown_result(self, entry: Entry, asked: Asked, result: Result) -> None:
        assert not entry.deleted_since <= asked.tick, f"{entry.id} was deleted, and has a result"
        assert entry.result in (None, result), (
            f"{entry.id} has the result {result}, and had {entry.result}"
        )
        assert result in entry.asked or self._is_exhaustion(entry, result), (
            f"{entry.id} has a result that nobody gave it: {result}"
        )
        self._has_result(entry, result)

    def no_result(self, entry: Entry, asked: Asked) -> None:
        assert not entry.over_since <= asked.tick, f"the result of {entry.id} is lost"

    def ran(self, entry: Entry, result: Result | None, asked: Asked, *, gone: bool) -> None:
        """The reply to a run: a result or none. Where the disk can be written, the job is gone."""
        if result is not None:
            self.shown_result(entry, asked, result)
        if gone:
            self._is_gone(entry)

    def inspected(
        self, entry: Entry, asked: Asked, *, state: int, attempts: int, fails: int, floor: Floor
    ) -> None:
        assert not entry.deleted_since <= asked.tick, f"{entry.id} was deleted, and is there"
        assert floor.fails <= fails <= entry.possible_fails, (
            f"{entry.id} failed {fails} times, but {floor.fails} to {entry.possible_fails} times"
        )
        possible = self._possible_leases(entry)
        assert floor.leases <= attempts <= possible, (
            f"{entry.id} was leased {attempts} times, but {floor.leases} to {possible} times"
        )
        self._is_there(entry)
        if state in (COMPLETED, FAILED):
            known = entry.asked if entry.result is None else [entry.result]
            assert any(each.success == (state == COMPLETED) for each in known) or (
                state == FAILED and self._may_be_exhausted(entry)
            ), f"{entry.id} is in state {state} without a reason"
            self._is_over(entry)
        else:
            assert not entry.over_since <= asked.tick, f"{entry.id} had a result, and has none"
            assert state != NEW or not attempts, f"{entry.id} is new after {attempts} attempts"
        entry.state = state
        entry.untouched = state == NEW and not entry.not_before

    def dropped(self, entry: Entry) -> None:
        """Who has leased it goes away, and that ends the lease."""
        entry.lease = None

    # What happens to the server

    def crashed(self) -> None:
        """Leases and attempts that nobody has waited for may be forgotten."""
        for entry in self.entries.values():
            entry.lease = None
            entry.open_fails = 0
            entry.sure_leases = entry.kept_leases

    # The end

    def unfinished(self) -> list[Entry]:
        """The jobs that are there and have no result yet, as far as is known."""
        return [
            entry
            for entry in self.entries.values()
            if entry.there_since != NEVER
            and entry.over_since == NEVER
            and entry.deleted_since == NEVER
            and not entry.momentary  # who asked for it is gone, and it may be gone with that
        ]

    def check(self) -> None:
        """The server was drained and every result read: is anything missing?"""
        lost = [
            entry.id
            for entry in self.entries.values()
            if entry.there_since != NEVER
            and entry.result is None
            and entry.deleted_since == NEVER
            and not entry.momentary
        ]
        assert not lost, f"acknowledged and lost: {lost}"

    def _next(self) -> int:
        """Of the first request that is made after this."""
        return self._tick + 1

    def _is_there(self, entry: Entry) -> None:
        entry.there_since = min(entry.there_since, self._next())

    def _is_over(self, entry: Entry) -> None:
        entry.over_since = min(entry.over_since, self._next())

    def _is_gone(self, entry: Entry) -> None:
        entry.deleted_since = min(entry.deleted_since, self._next())

    def _has_result(self, entry: Entry, result: Result) -> None:
        self._is_there(entry)
        self._is_over(entry)
        entry.result = result

    def _is_alive(self, entry: Entry, asked: Asked) -> None:
        """It could be completed or failed, as it was just now."""
        assert not entry.refused, f"{entry.id} was refused"
        assert not entry.over_since <= asked.tick, f"{entry.id} had a result before"
        assert not entry.deleted_since <= asked.tick, f"{entry.id} was deleted before"

    def _fail_answered(self, entry: Entry) -> None:
        """Anybody may have got the job since it was asked for."""
        entry.open_fails -= 1
        entry.fail_heard = self._next()
        entry.lease = None

    def _may_be_final(self, entry: Entry) -> bool:
        """Whether a fail can have been the last one."""
        if entry.possible_fails >= entry.max_fails:
            return True
        return entry.used_up(self._possible_leases(entry))

    def _is_exhaustion(self, entry: Entry, result: Result) -> bool:
        return result == EXHAUSTED and self._may_be_exhausted(entry)

    def _may_be_exhausted(self, entry: Entry) -> bool:
        return entry.used_up(self._possible_leases(entry))

    def _possible_leases(self, entry: Entry) -> int:
        """Each request whose reply has not come may have got any job."""
        return entry.seen_leases + self._open_leases[entry.name]

    def _apart(self, entry: Entry, one: Lease, other: Lease) -> bool:
        """Whether one may have ended by the time the other began."""
        return one.sent + entry.ttr <= other.got or other.sent + entry.ttr <= one.got

    def _check_order(self, entry: Entry) -> None:
        """Jobs that nobody has touched come by priority, and those of one client as it asked."""
        last = self._last_drained.get(entry.name)
        if last is not None:
            assert entry.priority <= last.priority, (
                f"{entry.id} of priority {entry.priority} came after one of {last.priority}"
            )
            if self._follows(last, entry):
                assert entry.number > last.number, (
                    f"{entry.id} came after {last.id}, which was added later"
                )
        self._last_drained[entry.name] = entry

    def _follows(self, last: Entry, entry: Entry) -> bool:
        """Whether the order of the two is that in which they were asked for."""
        once = not (last.repeated or entry.repeated)
        return once and last.priority == entry.priority and last.maker == entry.maker


class Floor(NamedTuple):
    """What the server was sure to know of a job when it was asked about it."""

    fails: int
    leases: int

    @classmethod
    def of(cls, entry: Entry) -> Floor:
        return cls(entry.sure_fails, entry.sure_leases)
