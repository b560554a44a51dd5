"""Clients of Workq that do whatever comes to their mind, and keep a ledger of it. No I/O.

As with the clients of Masenko, who carries the bytes is not the business of a conversation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from support.ledger_workq import Asked, Entry, Floor, Ledger, Result
from support.replies_workq import Reply, ReplyReader, Shape

QUEUES = ("low", "mid", "high")
LONG_TTR = 60.0
LONG_TTL_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Handler = Callable[[Reply], None]


@dataclass(frozen=True, slots=True)
class Habits:
    """What the jobs of a client are like."""

    longest_delay: float = 3.0
    largest_payload: int = 400
    short_ttr: float = 0.5
    waits_ms: Sequence[int] = (0, 0, 5, 50)
    disk_fails: bool = False  # so a job may outlive its run


class Conversation:
    """One client of a server, from its first to its last request."""

    def __init__(
        self,
        ledger: Ledger,
        chance: Random,
        name: str,
        clock: Callable[[], float],
        habits: Habits | None = None,
    ) -> None:
        self.name = name
        self._ledger = ledger
        self._chance = chance
        self._clock = clock
        self._habits = habits or Habits()
        self._replies = ReplyReader()
        self._pending: deque[tuple[Shape, Handler]] = deque()
        self._results = 0
        self.held: list[Entry] = []  # leased, and not yet finished by this client

    def is_idle(self) -> bool:
        """Whether every request has its reply."""
        return not self._pending

    def leave(self) -> None:
        """Go away with no request open: what was leased stays so until its time is over."""

    def receive(self, data: bytes) -> None:
        self._replies.feed(data)
        while self._pending:
            reply = self._replies.next(self._pending[0][0])
            if reply is None:
                return
            self._pending.popleft()[1](reply)
        assert self._replies.is_empty(), f"{self.name} got something for nothing"

    # Requests

    def request(self) -> bytes:
        """One at random. Who holds jobs mostly finishes them."""
        chance = self._chance
        if self.held and chance.random() < 0.6:
            entry = self.held.pop(chance.randrange(len(self.held)))
            if chance.random() < 0.2:
                return self.lease()  # and forget about the other
            return chance.choice([self.complete, self.complete, self.fail])(entry)
        if self._ledger.recent and chance.random() < 0.25:
            return self._about_any()
        makers = [self.add] * 4 + [self.schedule] + [self.lease] * 4
        return self.run() if chance.random() < 0.03 else chance.choice(makers)()

    def _about_any(self) -> bytes:
        """Something with any job, whoever asked for it and whoever has it."""
        chance = self._chance
        everything = list(self._ledger.entries.values())
        entry = chance.choice([chance.choice(self._ledger.recent), chance.choice(everything)])
        makers: list[Callable[[Entry], bytes]] = [self.result, self.inspect] * 3
        makers += [self.complete, self.fail]
        if not entry.repeated:
            makers.append(self.delete)
        if not entry.delete_asked and not entry.momentary:
            makers.append(self.add_again)
        return chance.choice(makers)(entry)

    def add(self) -> bytes:
        return self._add(self._new_entry())

    def schedule(self) -> bytes:
        delay = self._chance.random() * self._habits.longest_delay
        return self._add(self._new_entry(not_before=round(self._clock() + delay, 3)))

    def add_again(self, entry: Entry) -> bytes:
        """As a client does that got no answer, and as none should."""
        self._ledger.adding_again(entry)
        return self._ask_to_add(entry)

    def lease(self, names: Sequence[str] = (), wait_ms: int = -1) -> bytes:
        chosen = names or self._chance.sample(QUEUES, self._chance.randint(1, len(QUEUES)))
        wait = wait_ms if wait_ms >= 0 else self._wait()
        asked = self._ask()
        self._ledger.leasing(chosen)

        def reply(reply: Reply) -> None:
            if reply.error:
                assert reply.error == "TIMEOUT" or is_refusal(reply), reply
                self._ledger.got_nothing(chosen)
                return
            id, name, _ = reply.words
            self.held.append(
                self._ledger.handed_out(asked, chosen, id, name, reply.data, self._clock())
            )

        self._pending.append((Shape.BLOCK, reply))
        return f"lease {' '.join(chosen)} {wait}\r\n".encode()

    def complete(self, entry: Entry) -> bytes:
        data = self._new_result()
        return self._finish("complete", entry, data, self._ledger.completing(entry, data))

    def fail(self, entry: Entry) -> bytes:
        data = self._new_result()
        return self._finish("fail", entry, data, self._ledger.failing(entry, data))

    def delete(self, entry: Entry) -> bytes:
        self._ledger.deleting(entry)
        asked = self._ask()

        def reply(reply: Reply) -> None:
            if not self._is_missing(reply, entry, asked) and not is_refusal(reply):
                assert not reply.error, reply
                self._ledger.deleted(entry, asked)

        self._pending.append((Shape.NOTHING, reply))
        return f"delete {entry.id}\r\n".encode()

    def result(self, entry: Entry, wait_ms: int = -1) -> bytes:
        asked = self._ask()

        def reply(reply: Reply) -> None:
            if self._is_missing(reply, entry, asked) or is_refusal(reply):
                return
            if reply.error:
                assert reply.error == "TIMEOUT", reply
                self._ledger.no_result(entry, asked)
                return
            self._ledger.shown_result(entry, asked, result_of(entry, reply))

        self._pending.append((Shape.BLOCK, reply))
        wait = wait_ms if wait_ms >= 0 else self._wait()
        return f"result {entry.id} {wait}\r\n".encode()

    def run(self) -> bytes:
        entry = self._new_entry(momentary=True)
        self._ledger.adding(entry)
        asked = self._ask()

        def reply(reply: Reply) -> None:
            if is_refusal(reply):
                return
            if reply.error == "NOT-FOUND":
                assert entry.delete_asked, f"{entry.id} is lost"
            else:
                assert reply.error in ("", "TIMEOUT"), reply
            result = None if reply.error else result_of(entry, reply)
            self._ledger.ran(entry, result, asked, gone=not self._habits.disk_fails)

        self._pending.append((Shape.BLOCK, reply))
        return lines(
            f"run {entry.id} {entry.name} {ms(entry.ttr)} {self._wait()} {len(entry.payload)}"
            f" -priority={entry.priority}",
            entry.payload,
        )

    def inspect(self, entry: Entry) -> bytes:
        asked, floor = self._ask(), Floor.of(entry)

        def reply(reply: Reply) -> None:
            if self._is_missing(reply, entry, asked) or is_refusal(reply):
                return
            assert not reply.error, reply
            check_keys(entry, reply)
            state, attempts, fails = (
                int(reply.keys[key]) for key in ("state", "attempts", "fails")
            )
            self._ledger.inspected(
                entry, asked, state=state, attempts=attempts, fails=fails, floor=floor
            )

        self._pending.append((Shape.KEYS, reply))
        return f"inspect job {entry.id}\r\n".encode()

    # Parts of requests

    def _ask(self) -> Asked:
        return self._ledger.ask(self._clock())

    def _wait(self) -> int:
        return self._chance.choice(self._habits.waits_ms)

    def _new_entry(self, *, not_before: float = 0.0, momentary: bool = False) -> Entry:
        chance = self._chance
        id = str(UUID(int=chance.getrandbits(128), version=4))
        short = momentary or chance.random() < 0.2
        return Entry(
            id=id,
            maker=self.name,
            name=chance.choice(QUEUES),
            payload=id.encode() + chance.randbytes(chance.randint(0, self._habits.largest_payload)),
            ttr=self._habits.short_ttr if short else LONG_TTR,
            ttl_ms=0 if momentary else LONG_TTL_MS,
            priority=chance.choice([0, 0, 0, 7, -7]),
            max_attempts=1 if momentary else chance.choice([0, 0, 0, 1, 2, 3]),
            max_fails=0 if momentary else chance.choice([0, 0, 1, 2, 3]),
            not_before=not_before,
            momentary=momentary,
        )

    def _add(self, entry: Entry) -> bytes:
        self._ledger.adding(entry)
        return self._ask_to_add(entry)

    def _ask_to_add(self, entry: Entry) -> bytes:
        asked = self._ask()

        def reply(reply: Reply) -> None:
            if is_refusal(reply):
                self._ledger.refused(entry)
            elif reply.error:
                assert reply.error == "CLIENT-ERROR Duplicate job", reply
                self._ledger.duplicate_job(entry)
            else:
                self._ledger.added(entry, asked)

        self._pending.append((Shape.NOTHING, reply))
        limits = f"{ms(entry.ttr)} {entry.ttl_ms}"
        flags = f"-priority={entry.priority}"
        flags += f" -max-attempts={entry.max_attempts} -max-fails={entry.max_fails}"
        size = len(entry.payload)
        if entry.not_before:
            at = rfc_3339(entry.not_before)
            head = f"schedule {entry.id} {entry.name} {limits} {at} {size} {flags}"
        else:
            head = f"add {entry.id} {entry.name} {limits} {size} {flags}"
        return lines(head, entry.payload)

    def _finish(self, verb: str, entry: Entry, data: bytes, result: Result) -> bytes:
        asked, leases = self._ask(), entry.sure_leases

        def reply(reply: Reply) -> None:
            if self._is_missing(reply, entry, asked, result) or is_refusal(reply):
                return
            if reply.error:
                assert reply.error == "CLIENT-ERROR Duplicate result", reply
                self._ledger.duplicate_result(entry, result)
            elif result.success:
                self._ledger.completed(entry, asked, result, leases)
            else:
                self._ledger.failed(entry, asked, result, leases)

        self._pending.append((Shape.NOTHING, reply))
        return lines(f"{verb} {entry.id} {len(data)}", data)

    def _new_result(self) -> bytes:
        """No two of them are the same, and some look like the end of a reply."""
        self._results += 1
        return f"{self.name}.{self._results}\r\n".encode() + b"x" * self._chance.choice([0, 300])

    def _is_missing(
        self, reply: Reply, entry: Entry, asked: Asked, result: Result | None = None
    ) -> bool:
        if reply.error != "NOT-FOUND":
            return False
        self._ledger.not_found(entry, asked, result)
        return True


def is_refusal(reply: Reply) -> bool:
    """Only a disk that fails can make the server say that."""
    return reply.error.startswith("SERVER-ERROR ")


def result_of(entry: Entry, reply: Reply) -> Result:
    id, success, _ = reply.words
    assert id == entry.id, f"{id} instead of {entry.id}"
    assert success in ("0", "1"), reply.words
    return Result(success == "1", reply.data)


def check_keys(entry: Entry, reply: Reply) -> None:
    """That inspect tells of a job what was asked for."""
    assert reply.words[0] == entry.id, reply.words
    assert reply.keys["name"] == entry.name.encode()
    assert reply.keys["payload"] == entry.payload
    assert ("time" in reply.keys) == bool(entry.not_before)
    asked = {
        "ttr": ms(entry.ttr),
        "ttl": entry.ttl_ms,
        "priority": entry.priority,
        "max-attempts": entry.max_attempts,
        "max-fails": entry.max_fails,
    }
    if entry.momentary:  # how the server limits a run is its own business
        del asked["ttl"], asked["max-attempts"]
    told = {key: int(reply.keys[key]) for key in asked}
    assert told == asked, f"{entry.id} is {told} instead of {asked}"


def lines(head: str, data: bytes) -> bytes:
    return head.encode() + b"\r\n" + data + b"\r\n"


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def rfc_3339(moment: float) -> str:
    time = _EPOCH + timedelta(milliseconds=round(moment * 1000))
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
