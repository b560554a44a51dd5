"""Glovebox as the conformance suite speaks it: JSON messages, each with an answer of its own."""

from typing import Any, ClassVar, cast

from protocols.interop.adapters.base import (
    Adapter,
    BadName,
    Can,
    Counts,
    NotHeld,
    Options,
    Taken,
)
from support.wire import MessagePeer

A_MINUTE = 60.0
LABEL = 7


class GloveboxAdapter(Adapter):
    dialect = "glovebox"
    can: ClassVar = frozenset(
        {
            Can.PUSH,
            Can.TAKE,
            Can.ANY_BYTES,
            Can.ANY_NAME,
            Can.WAIT,
            Can.TIMED_LEASE,
            Can.SHOW_ID,
        }
    )
    result_outlives_job = False
    loss_is_failure = False
    default_fails = 21  # all of its attempts
    max_losses = 21
    shows_json = False

    @classmethod
    def pause_after_fail(cls, fails: int) -> int:
        return 0

    def reconnect(self) -> None:
        super().reconnect()
        self._greeted()

    def keep_alive(self) -> None:
        """A WebSocket library answers the server's pings."""

    def push(self, queue: str, payload: bytes, options: Options) -> str:
        self._create(queue)
        try:
            message: object = payload.decode()
        except UnicodeDecodeError:
            message = list(payload)
        self._say(type="post", queue=queue, message=message, notify=["ready", "sync"])
        told = self._hear()["notice"]
        if told == "ready":
            assert self._hear()["notice"] == "sync"
        else:
            assert told == "finish"  # one who waited to pop was given it at once
        return ""

    def ask(self, queue: str, wait: float) -> None:
        if wait:
            self._create(queue)
        self._queue = queue
        self._say(type="fetch", queue=queue, block_timeout=wait, work_timeout=A_MINUTE)
        self.waiting = True

    def arrived(self) -> Taken:
        told = self._hear()
        assert told["type"] == "message", told
        self.waiting = False
        body = told["body"]
        payload = body.encode() if isinstance(body, str) else bytes(body)
        return Taken(self._queue, payload, name=self._queue, number=told["sequence"])

    def came_to_nothing(self) -> None:
        told = self._hear()
        assert told["type"] == "nomessage" or told["code"] == "NoObject", told
        self.waiting = False

    def finish(self, taken: Taken, result: bytes = b"") -> None:
        assert not result, "Glovebox has no results"
        self._say(type="finish", queue=taken.queue, sequence=taken.number, shard=0, response="sync")
        told = self._hear()
        if told.get("code") == "NoObject":
            raise NotHeld
        assert told["notice"] == "finish", told

    def fail(self, taken: Taken, error: bytes = b"") -> None:
        raise NotImplementedError(self.dialect)

    def counts(self, queue: str) -> Counts:
        raise NotImplementedError(self.dialect)

    def _greeted(self) -> None:
        assert self._hear()["type"] == "hello"

    def _create(self, queue: str) -> None:
        """Only here a queue must be made before it can be used; it may be there already."""
        self._say(type="create", queue=queue)
        told = self._hear()
        if told.get("code") == "BadRequest":
            raise BadName(queue)
        assert told["type"] == "notice" or told["code"] == "ObjectAlreadyExists", told

    def _say(self, **fields: object) -> None:
        cast("MessagePeer", self.peer).send_json(label=LABEL, **fields)

    def _hear(self) -> dict[str, Any]:
        return cast("MessagePeer", self.peer).next()
