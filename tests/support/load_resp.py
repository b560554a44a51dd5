"""Clients of the RESP listener that talk at random and check each reply."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from support.ledger_resp import Entry, Ledger
from support.model_resp import Model, Request
from support.replies_resp import Failure, Incomplete, ReplyReader, ask, command
from support.wire import Peer

QUEUES = ("work", "mail")
LISTS = ("a", "b")
KEYS = ("k", "l")
ITEMS = (b"x", b"y", b"z")
DATABASES = range(1, 16)
FOR_LONG = 1_000_000_000  # seconds: beyond whatever somebody sets the clock to
TTR_MS = 3_600_000
RETRIED_AT_ONCE = ("FAILS", 0, "BACKOFF", 0, 0)

Heard = Callable[[Any], None]


class Conversation:
    """Requests with what becomes of their replies."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self._reader = ReplyReader()
        self._open: deque[Heard] = deque()

    def request(self) -> bytes:
        raise NotImplementedError

    def ask(self, request: Request, heard: Heard) -> bytes:
        self._open.append(heard)
        return command(*request)

    def receive(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._open:
            try:
                reply = self._reader.next()
            except Incomplete:
                return
            self._open.popleft()(reply)
        assert self._reader.is_empty(), "a reply to nothing"

    def is_idle(self) -> bool:
        return not self._open

    def leave(self) -> None:
        """It goes away with nothing said."""


class LoneTalk(Conversation):
    """The only client of a database: each reply must be exactly that of its model."""

    def __init__(
        self, model: Model, database: int, loners: Loners, chance: Random, largest: int
    ) -> None:
        super().__init__(chance)
        self._model = model
        self._loners = loners
        self._database = database
        self._largest = largest
        self._selected = False

    def request(self) -> bytes:
        if not self._selected:
            self._selected = True
            return self.ask(("SELECT", self._database), expect_ok)
        request = self._choose()
        self._model.asked(request)
        return self.ask(request, self._model.answered)

    def leave(self) -> None:
        self._loners.release_database(self._database)

    def _choose(self) -> Request:
        chance = self.chance
        name, other, key = chance.choice(LISTS), chance.choice(LISTS), chance.choice(KEYS)
        sides = ("LEFT", "RIGHT")
        return chance.choice(
            (
                ("RPUSH", name, *(self._payload() for _ in range(chance.choice([1, 1, 3])))),
                ("LPUSH", name, *(self._payload() for _ in range(chance.choice([1, 1, 3])))),
                ("JOB.PUSH", name, self._payload(), "PRIORITY", chance.choice([-1, 0, 1])),
                ("LPOP", name, chance.choice([1, 2, 300])),
                ("RPOP", name, chance.choice([1, 2])),
                ("LREM", name, chance.choice([0, 1, -1, -2]), self._payload()),
                ("LMOVE", name, other, chance.choice(sides), chance.choice(sides)),
                ("LLEN", name),
                ("DEL", chance.choice((name, key, key))),
                *([("UPDATE", chance.choice(ITEMS), chance.choice([1, 2, -1]))] * 3),
                ("NEXT",),
                ("SETEX", key, FOR_LONG, self._payload()),
                ("SET", key, self._payload(), *chance.choice([(), ("NX",), ("KEEPTTL",)])),
                ("EXPIRE", key, FOR_LONG),
                ("PERSIST", key),
                ("GET", key),
            )
        )

    def _payload(self) -> bytes:
        """Few of them, so that equal ones meet; some of them large."""
        size = self.chance.choice([0, 1, 5, self._largest])
        return self.chance.choice(b"pq").to_bytes(1, "big") * size


class SharedTalk(Conversation):
    """One of several who push, pop and work on the jobs of the same queues."""

    def __init__(self, ledger: Ledger, chance: Random, largest: int) -> None:
        super().__init__(chance)
        self._ledger = ledger
        self._largest = largest
        self._held: list[tuple[bytes, Entry]] = []  # refs of leases, while nothing is done to them
        self.refs: dict[bytes, Entry] = {}  # of those whose end was not heard of
        self.open_pops = 0  # jobs that requests without a reply may have popped
        self.open_takes = 0  # and leased

    def request(self) -> bytes:
        action = self.chance.random()
        if action < 0.3:
            return self._push()
        if action < 0.4:
            return self._push_job() if self.chance.random() < 0.6 else self._push_all()
        if action < 0.6:
            return self._pop()
        if action < 0.8 or not self._held:
            return self._take(self.chance.choice([1, 3]))
        return self._end(*self._held.pop(self.chance.randrange(len(self._held))))

    def _push(self) -> bytes:
        entries = [self._new(retried=False) for _ in range(self.chance.choice([1, 1, 2, 4]))]
        verb = self.chance.choice(["RPUSH", "LPUSH"])
        payloads = [entry.payload for entry in entries]
        return self.ask((verb, self._queue(), *payloads), Pushed(entries))

    def _push_job(self) -> bytes:
        entry = self._new(retried=True)
        words = ("TTR", TTR_MS, *RETRIED_AT_ONCE, "PRIORITY", self.chance.choice([-1, 0, 1]))
        return self.ask(("JOB.PUSH", self._queue(), entry.payload, *words), Pushed([entry]))

    def _push_all(self) -> bytes:
        entries = [self._new(retried=True) for _ in range(self.chance.choice([1, 2, 5]))]
        jobs: list[str | int | bytes] = []
        for entry in entries:
            jobs += [7, self._queue(), entry.payload, *RETRIED_AT_ONCE]
        return self.ask(("JOB.PUSHALL", len(entries), *jobs), Pushed(entries))

    def _pop(self) -> bytes:
        queue = self._queue()
        request: Request = self.chance.choice(
            (
                ("LPOP", queue, 1),
                ("RPOP", queue, 3),
                ("BLPOP", *QUEUES, "0.05"),
                ("BRPOP", queue, "0.05"),
            )
        )
        most = 3 if request[0] == "RPOP" else 1
        self.open_pops += most
        blocks = str(request[0]).startswith("B")

        def heard(reply: Any) -> None:
            self.open_pops -= most
            for payload in (reply or ())[1 if blocks else 0 :]:
                self._ledger.popped(payload)

        return self.ask(request, heard)

    def _take(self, count: int) -> bytes:
        self.open_takes += count

        def heard(reply: Any) -> None:
            self.open_takes -= count
            assert isinstance(reply, list), reply
            for job in reply:
                self._held.append((job[0], self._ledger.taken(job[8], job[6])))
            self.refs.update(self._held)

        words = ("WAIT", 50, "TTR", TTR_MS, "COUNT", count)
        return self.ask(("JOB.TAKE", len(QUEUES), *QUEUES, *words), heard)

    def _end(self, ref: bytes, entry: Entry) -> bytes:
        action = self.chance.random()
        if action < 0.5:
            return self._done(ref, entry)
        if action < 0.65:
            return self._return(ref)
        if action < 0.75:
            self._held.append((ref, entry))
            return self.ask(("JOB.EXTEND", ref, TTR_MS), expect_number)
        words = self.chance.choice([(), ("IN", 0), ("FINAL",)])
        return self._fail(ref, entry, *words)

    def _return(self, ref: bytes) -> bytes:
        def heard(reply: Any) -> None:
            expect_ok(reply)
            del self.refs[ref]

        return self.ask(("JOB.RETURN", ref), heard)

    def _done(self, ref: bytes, entry: Entry) -> bytes:
        entry.maybe_over = True

        def heard(reply: Any) -> None:
            expect_ok(reply)
            del self.refs[ref]
            entry.maybe_over = False
            entry.over = "done"

        return self.ask(("JOB.DONE", ref, "result"), heard)

    def _fail(self, ref: bytes, entry: Entry, *words: str | int) -> bytes:
        final = words == ("FINAL",) or not (entry.retried or words)
        entry.maybe_over = final
        entry.maybe_fails += 1

        def heard(reply: Any) -> None:
            assert reply == ("failed" if final else "ready"), reply
            del self.refs[ref]
            entry.maybe_fails -= 1
            entry.fails += 1
            entry.maybe_over = False
            if final:  # else somebody may have popped it, and heard of that first
                entry.over = "failed"

        return self.ask(("JOB.FAIL", ref, "error", *words), heard)

    def _new(self, *, retried: bool) -> Entry:
        return self._ledger.new(self.chance.choice([0, 0, 10, self._largest]), retried=retried)

    def _queue(self) -> str:
        return self.chance.choice(QUEUES)


class Crowd:
    """All who share the queues, and what is left when they have gone."""

    def __init__(self, chance: Random, largest: int) -> None:
        self.ledger = Ledger()
        self._chance = chance
        self._largest = largest
        self._talks: list[SharedTalk] = []
        self._refs: dict[bytes, Entry] = {}  # of leases that may go on

    def meet(self, name: str) -> SharedTalk:
        self._talks.append(SharedTalk(self.ledger, self._chance, self._largest))
        return self._talks[-1]

    def crashed(self, leases_end: bool) -> None:
        """The server is gone, and with it every reply that has not come."""
        for talk in self._talks:
            self.ledger.lost_sight(talk.open_pops)
            if not leases_end:  # within the time of this test
                self.ledger.lost_sight(talk.open_takes)
            self._refs.update(talk.refs)
        self._talks.clear()

    def take_everything(self, peer: Peer) -> None:
        """End every lease that somebody knows of, then take and finish the rest."""
        for ref, entry in self._refs.items():
            reply = ask(peer, "JOB.DONE", ref)
            if reply == "OK":
                assert not entry.over, f"{ref!r} was leased after it was {entry.over}"
                entry.over = "done"
            else:
                assert str(reply).startswith("STALE"), reply
        while jobs := ask(peer, "JOB.TAKE", len(QUEUES), *QUEUES, "COUNT", 20):
            for job in jobs:
                self.ledger.taken(job[8], job[6]).over = "done"
                assert ask(peer, "JOB.DONE", job[0]) == "OK"
        assert [ask(peer, "LLEN", queue) for queue in QUEUES] == [0, 0]
        self.ledger.check()


class Loners:
    """A model for each database, and clients that have one to themselves."""

    def __init__(self, chance: Random, largest: int) -> None:
        self._chance = chance
        self._largest = largest
        self._models = {database: Model() for database in DATABASES}
        self._free = list(DATABASES)

    def meet(self, name: str) -> LoneTalk:
        assert self._free, "more clients than databases"
        database = self._free.pop(0)
        return LoneTalk(self._models[database], database, self, self._chance, self._largest)

    def release_database(self, database: int) -> None:
        self._free.append(database)

    def look(self, peer: Peer) -> None:
        """After a crash: everything that was answered is there."""
        for database, model in self._models.items():
            assert ask(peer, "SELECT", database) == "OK"
            model.found(seen(peer))
        self._free = list(DATABASES)

    def empty(self, peer: Peer) -> None:
        """The items leave in the order of their scores."""
        for database, model in self._models.items():
            assert ask(peer, "SELECT", database) == "OK"
            order = [key.decode() for key in model.sure.item_order()]
            assert [ask(peer, "NEXT") for _ in order] == order
            assert ask(peer, "NEXT") is None


def seen(peer: Peer) -> dict[str, Any]:
    """The contents of a database, in the form of the model."""
    lists = {name: ask(peer, "LRANGE", name, 0, -1) for name in LISTS}
    scores = {key: ask(peer, "SCORE", key) for key in ITEMS}
    first = ask(peer, "PEEK")
    values = {}
    for key in KEYS:
        value = ask(peer, "GET", key)
        if value is not None:
            values[key] = (value, ask(peer, "TTL", key) > 0)
    return {
        "lists": {name: jobs for name, jobs in lists.items() if jobs},
        "scores": {key: score for key, score in scores.items() if score is not None},
        "first": first.encode() if first is not None else None,
        "values": values,
    }


class Pushed:
    """Hears that jobs are there."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    def __call__(self, reply: Any) -> None:
        assert isinstance(reply, int) or len(reply) == len(self._entries), reply
        assert not isinstance(reply, Failure), reply
        for entry in self._entries:
            entry.acknowledged = True


def expect_ok(reply: Any) -> None:
    assert reply == "OK", reply
    assert not isinstance(reply, Failure), reply


def expect_number(reply: Any) -> None:
    assert isinstance(reply, int), reply
