"""Masenko as the conformance suite speaks it: JSON lines."""

import json
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec
from protocols.interop.adapters.base import (
    Adapter,
    BadName,
    Can,
    Counts,
    NotFound,
    NotHeld,
    Options,
    Taken,
)
from support.wire import error_of


class Delivery(msgspec.Struct):
    """What FETCH is answered with; the payload stays as it is spelt."""

    id: int
    queue: str
    name: str
    payload: msgspec.Raw = msgspec.Raw()
    failures: int = 0


class MasenkoAdapter(Adapter):
    dialect = "masenko"
    can: ClassVar = frozenset(
        {
            Can.PUSH,
            Can.TAKE,
            Can.DELAY,
            Can.MAX_FAILS,
            Can.DEAD_QUEUE,
            Can.BLOCKED_BY,
            Can.NAME,
            Can.ANY_NAME,
            Can.WAIT,
            Can.FAIL,
            Can.BOUND_LEASE,
            Can.SHOW_FAILS,
            Can.SHOW_ID,
            Can.COUNT_READY,
            Can.COUNT_DELAYED,
            Can.COUNT_LEASED,
            Can.LIST_QUEUES,
        }
    )
    result_outlives_job = False
    loss_is_failure = True
    default_fails = 21
    max_losses = 10
    shows_json = True

    @classmethod
    def pause_after_fail(cls, fails: int) -> int:
        return int(fails**4)

    def keep_alive(self) -> None:
        if not self.waiting:
            self.peer.send(b"PING\n")
            self.peer.expect(b"PONG {}\n")

    def push(self, queue: str, payload: bytes, options: Options) -> str:
        message: dict[str, object] = {
            "queue": queue,
            "name": options.name or queue,
        }
        if payload:
            message["payload"] = msgspec.Raw(payload)
        if options.run_at is not None:
            message["execute_at"] = datetime.fromtimestamp(options.run_at, UTC).isoformat()
        if options.fails is not None:
            message["retry"] = options.fails - 1
        if options.dead_queue is not None:
            message["deadqueue"] = options.dead_queue
        if options.blocked_by:
            message["blocked_by"] = list(options.blocked_by)
        self.peer.send(b"PUSH " + msgspec.json.encode(message) + b"\n")
        self._reply()
        return ""

    def ask(self, queue: str, wait: float) -> None:
        nanoseconds = max(round(wait * 1e9), 1)
        message = {"queues": [queue], "timeout": nanoseconds}
        self.peer.send(b"FETCH " + msgspec.json.encode(message) + b"\n")
        self.waiting = True

    def arrived(self) -> Taken:
        status, body = self._line()
        assert status == b"OK", (status, body)
        self.waiting = False
        told = msgspec.json.decode(body, type=Delivery)
        return Taken(
            told.queue, bytes(told.payload), name=told.name, number=told.id, fails=told.failures
        )

    def came_to_nothing(self) -> None:
        self.peer.expect(b"EMPTY {}\n")
        self.waiting = False

    def finish(self, taken: Taken, result: bytes = b"") -> None:
        assert not result, "Masenko has no results"
        self.peer.send(b'ACK {"id":%d}\n' % self._number(taken))
        self._reply()

    def fail(self, taken: Taken, error: bytes = b"") -> None:
        assert not error, "Masenko does not say why"
        self.peer.send(b'NACK {"id":%d}\n' % self._number(taken))
        self._reply()

    def counts(self, queue: str) -> Counts:
        for told in self._info():
            if told["name"] == queue:
                return {
                    "ready": told["ready"],
                    "delayed": told["delayed"],
                    "leased": told["to_ack"],
                }
        raise NotFound(queue)

    def queues(self) -> list[str]:
        return [queue["name"] for queue in self._info()]

    def _info(self) -> list[dict[str, Any]]:
        self.peer.send(b"INFO\n")
        queues: list[dict[str, Any]] = self._reply()["queues"]
        return queues

    def _number(self, taken: Taken) -> int:
        assert taken.number is not None, "only Masenko's own deliveries can be finished in it"
        return taken.number

    def _reply(self) -> dict[str, Any]:
        line = self.peer.read_line()
        if line.startswith(b"OK "):
            reply: dict[str, Any] = json.loads(line[3:])
            return reply
        text = error_of(line)
        if text == "task not acquired":
            raise NotHeld
        if text.startswith("invalid queue name"):
            raise BadName(text)
        raise AssertionError(text)

    def _line(self) -> tuple[bytes, bytes]:
        status, _, body = self.peer.read_line().partition(b" ")
        return status, body
