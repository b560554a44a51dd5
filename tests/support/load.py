"""Clients of Masenko that do whatever comes to their mind, and keep a ledger of it. No I/O.

A Conversation makes the bytes of requests and takes the bytes of replies; who carries them, a
simulated peer or a socket, is not its business.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from support.ledger import Entry, Ledger, Transaction

QUEUES = ("low", "mid", "high")
DEAD = "dead"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Reply = dict[str, Any]
Handler = Callable[[str, Reply], None]


class Conversation:
    """One client of a server, from its first to its last request."""

    def __init__(
        self,
        ledger: Ledger,
        chance: Random,
        name: str,
        clock: Callable[[], float],
        *,
        longest_delay: float = 3.0,
        largest_payload: int = 400,
        retries: Sequence[int] = (0, 0, 1, 1, 2),
    ) -> None:
        self.name = name
        self._ledger = ledger
        self._chance = chance
        self._clock = clock
        self._longest_delay = longest_delay
        self._largest_payload = largest_payload
        self._retries = retries
        self._pending: deque[Handler] = deque()
        self._unread = b""
        self._pushes = 0
        self.read_only = False  # the server has said so
        self.waiting_jobs = -1  # as the last INFO counted them

    def is_idle(self) -> bool:
        """Whether every request has its reply."""
        return not self._pending

    def leave(self) -> None:
        """Go away with no request open."""
        self._ledger.leaving(self.name)

    # Replies

    def receive(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, _, text = line.decode().partition(" ")
            assert self._pending, f"{self.name} got {line!r} for nothing"
            self._pending.popleft()(verb, json.loads(text))

    # Requests

    def request(self) -> bytes:
        """One at random. Who holds jobs mostly finishes them."""
        chance = self._chance
        held = self._ledger.held_by(self.name)
        if held and chance.random() < 0.6:
            return chance.choice([self.finish, self.finish, self.fail])(chance.choice(held))
        makers: Sequence[Callable[[], bytes]] = (
            self.push,
            self.push,
            self.fetch,
            self.fetch,
            self.fetch,
            self.transaction,
            self.info,
            self.ping,
        )
        return chance.choice(makers)()

    def push(self) -> bytes:
        entry, line = self._push()

        def reply(verb: str, body: Reply) -> None:
            if self._is_refused(verb, body):
                self._ledger.refused(entry)
            else:
                self._ledger.pushed(entry, body["id"])

        self._pending.append(reply)
        return line

    def fetch(self, timeout_ms: int = 0, queues: Sequence[str] = ()) -> bytes:
        chosen = queues or self._chance.sample((*QUEUES, DEAD), self._chance.randint(1, 4))
        timeout = timeout_ms or self._chance.choice([1, 5, 50])
        self._pending.append(self._fetched)
        return _line("FETCH", {"queues": list(chosen), "timeout": f"{timeout}ms"})

    def finish(self, entry: Entry) -> bytes:
        self._ledger.finishing(entry)
        self._pending.append(
            self._then(
                lambda: self._ledger.finished(entry),
                lambda: self._ledger.kept(self.name, entry),
            )
        )
        return _line("ACK", {"id": entry.id})

    def fail(self, entry: Entry) -> bytes:
        fails = self._ledger.failing(entry)
        self._pending.append(
            self._then(
                lambda: self._ledger.failed(fails),
                lambda: self._ledger.not_failed(self.name, entry, fails),
            )
        )
        return _line("NACK", {"id": entry.id})

    def transaction(self) -> bytes:
        chance = self._chance
        held = self._ledger.held_by(self.name)
        finishes = chance.sample(held, chance.randint(0, min(len(held), 3)))
        pushes: list[Entry] = []
        lines: list[bytes] = []
        for _ in range(chance.randint(0, 4)):
            entry, line = self._push(pushes)
            pushes.append(entry)
            lines.append(line)
        for entry in finishes:
            lines.insert(chance.randint(0, len(lines)), _line("ACK", {"id": entry.id}))
        transaction = self._ledger.transacting(pushes, finishes)
        self._pending.append(self._transacted(transaction))
        return b"ATOMIC\n" + b"".join(lines) + b"DONE\n"

    def info(self) -> bytes:
        def reply(verb: str, body: Reply) -> None:
            if not self._is_refused(verb, body):
                self.waiting_jobs = sum(
                    queue["ready"] + queue["delayed"] + queue["to_ack"] for queue in body["queues"]
                )

        self._pending.append(reply)
        return b"INFO\n"

    def ping(self) -> bytes:
        def reply(verb: str, body: Reply) -> None:
            assert (verb, body) == ("PONG", {})

        self._pending.append(reply)
        return b"PING\n"

    # Parts of requests

    def _push(self, before: Sequence[Entry] | None = None) -> tuple[Entry, bytes]:
        """A push; inside of a transaction with those that are `before` it."""
        chance = self._chance
        self._pushes += 1
        token = f"{self.name}.{self._pushes}"
        fields: dict[str, object] = {
            "name": token,
            "queue": chance.choice(QUEUES),
            "retry": chance.choice(self._retries),
            "payload": payload_of(token, self._largest_payload),
        }
        if chance.random() < 0.3:
            fields["deadqueue"] = DEAD
        not_before = 0.0
        if chance.random() < 0.15:
            not_before = round(self._clock() + chance.random() * self._longest_delay, 3)
            fields["execute_at"] = _rfc_3339(not_before)
        blockers, ids = self._blockers(before)
        if ids:
            fields["blocked_by"] = ids
        entry = self._ledger.pushing(
            token,
            str(fields["queue"]),
            dead_queue=str(fields.get("deadqueue", "")),
            retries=int(str(fields["retry"])),
            not_before=not_before,
            blockers=blockers,
        )
        return entry, _line("PUSH", fields)

    def _blockers(self, before: Sequence[Entry] | None) -> tuple[list[Entry], list[int]]:
        chance = self._chance
        if chance.random() > 0.15:
            return [], []
        if before:
            back = chance.randint(1, len(before))
            return [before[-back]], [-back]
        known = [entry for entry in self._ledger.recent if entry.id and not entry.may_be_dead()]
        blockers = chance.sample(known, min(len(known), chance.randint(1, 2)))
        return blockers, [entry.id for entry in blockers]

    def _fetched(self, verb: str, body: Reply) -> None:
        if verb == "EMPTY" or self._is_refused(verb, body):
            return
        token = body["name"]
        assert body["payload"] == payload_of(token, self._largest_payload), token
        self._ledger.handed_out(
            self.name, token, body["id"], body["queue"], body.get("failures", 0), self._clock()
        )

    def _then(self, tell: Callable[[], None], undo: Callable[[], None]) -> Handler:
        """`undo` is for what was refused for the moment and can be asked for again."""

        def reply(verb: str, body: Reply) -> None:
            if not self._is_refused(verb, body):
                tell()
            elif not self.read_only:
                undo()

        return reply

    def _transacted(self, transaction: Transaction) -> Handler:
        def reply(verb: str, body: Reply) -> None:
            if self._is_refused(verb, body):
                if not self.read_only:
                    self._ledger.not_transacted(self.name, transaction)
                    return
                for entry in transaction.pushes:
                    self._ledger.refused(entry)
            else:
                self._ledger.transacted(transaction, body.get("ids", []))

        return reply

    def _is_refused(self, verb: str, body: Reply) -> bool:
        """Nothing these clients ask for is wrong, so only a disk that fails can refuse it."""
        if verb == "OK":
            return False
        assert verb == "ERR", (verb, body)
        if body["msg"].startswith("no space: "):
            return True
        assert body["msg"].startswith("read only: "), body
        self.read_only = True
        return True


def payload_of(token: str, largest: int) -> object:
    """What a job of this token carries: the same each time it is asked for."""
    chance = Random(token)
    return {"of": token, "pad": "x" * chance.randint(0, largest)}


def _line(verb: str, body: object) -> bytes:
    return f"{verb} {json.dumps(body)}\n".encode()


def _rfc_3339(moment: float) -> str:
    return (_EPOCH + timedelta(milliseconds=round(moment * 1000))).isoformat()
