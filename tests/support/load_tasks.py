"""Workers of Masenko that take, finish and fail the jobs of Workq clients. No I/O."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from support.ledger_workq import Entry, Ledger
from support.load_workq import QUEUES

Body = dict[str, Any]
Handler = Callable[[str, Body], None]
ID_SIZE = 36


class TaskWorker:
    """One worker, from its first to its last request. It keeps the same ledger as the others."""

    def __init__(
        self, ledger: Ledger, chance: Random, name: str, clock: Callable[[], float]
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._chance = chance
        self._clock = clock
        self._pending: deque[Handler] = deque()
        self._unread = b""
        self._held: dict[int, Entry] = {}

    def is_idle(self) -> bool:
        return not self._pending

    def leave(self) -> None:
        for entry in self._held.values():
            self._ledger.dropped(entry)

    def receive(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            verb, _, text = line.decode().partition(" ")
            assert self._pending, f"{self._name} got {line!r} for nothing"
            self._pending.popleft()(verb, json.loads(text))

    def request(self) -> bytes:
        if self._held and self._chance.random() < 0.6:
            return self._finish()
        return self._fetch()

    def _fetch(self) -> bytes:
        queues = self._chance.sample(QUEUES, self._chance.randint(1, len(QUEUES)))
        asked = self._ledger.ask(self._clock())
        self._ledger.leasing(queues)

        def reply(verb: str, body: Body) -> None:
            if verb == "EMPTY":
                self._ledger.got_nothing(queues)
                return
            assert verb == "OK", (verb, body)
            payload = payload_of(body["payload"])
            id, queue = payload[:ID_SIZE].decode(), body["queue"]
            self._held[body["id"]] = self._ledger.handed_out(
                asked, queues, id, queue, payload, self._clock()
            )

        self._pending.append(reply)
        timeout = self._chance.choice([1, 5, 50])
        return f"FETCH {json.dumps({'queues': queues, 'timeout': f'{timeout}ms'})}\n".encode()

    def _finish(self) -> bytes:
        """ACK or NACK: the result is empty in either case."""
        ledger = self._ledger
        number = self._chance.choice(list(self._held))
        entry = self._held.pop(number)
        success = self._chance.random() < 0.7
        result = ledger.completing(entry, b"") if success else ledger.failing(entry, b"")
        asked, leases = ledger.ask(self._clock()), entry.sure_leases

        def reply(verb: str, body: Body) -> None:
            if verb == "ERR":  # its time was over, or somebody else was quicker
                assert "not acquired" in body["msg"], body
                ledger.not_done(entry, result)
            elif success:
                ledger.completed(entry, asked, result, leases)
            else:
                ledger.failed(entry, asked, result, leases)

        self._pending.append(reply)
        return f"{'ACK' if success else 'NACK'} {json.dumps({'id': number})}\n".encode()


def payload_of(value: object) -> bytes:
    """The bytes of a payload as Masenko shows those that are not JSON."""
    if isinstance(value, str):
        return value.encode()
    assert isinstance(value, dict)
    return base64.b64decode(value["base64"])
