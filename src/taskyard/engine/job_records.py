"""Records that say little more than which job: what else can happen to one.

Layout and version rules are those of records.py.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.job import Origin
from taskyard.engine.records import (
    EXTEND,
    MOVE,
    PROGRESS,
    REMOVE,
    REPLAY,
    RESCORE,
    UNBLOCK,
    WAKE,
    Record,
)
from taskyard.engine.wire import put_i64, put_short, put_text, put_u8, put_u32


@mypyc_attr(acyclic=True)
class JobRecord(Record):
    """Base of the records that say little more than which job."""

    __slots__ = ("id", "queue")

    def __init__(self, time: i64, origin: Origin, id: i64, queue: bytes) -> None:
        super().__init__(time, origin)
        self.id = id
        self.queue = queue

    def put(self, out: BytesWriter) -> None:
        put_i64(out, self.id)
        put_short(out, self.queue)


@mypyc_attr(acyclic=True)
class Wake(JobRecord):
    """A delayed job became ready: its time has come, or somebody said so."""

    __slots__ = ()

    def kind(self) -> i64:
        return WAKE


@mypyc_attr(acyclic=True)
class Unblock(JobRecord):
    """One of the jobs that this one waits for has succeeded."""

    __slots__ = ("blocker",)

    def __init__(self, time: i64, origin: Origin, id: i64, queue: bytes, blocker: i64) -> None:
        super().__init__(time, origin, id, queue)
        self.blocker = blocker

    def kind(self) -> i64:
        return UNBLOCK

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        put_i64(out, self.blocker)


@mypyc_attr(acyclic=True)
class Remove(JobRecord):
    """A job is gone without having been finished, or a kept one was forgotten."""

    __slots__ = ("cause", "ended", "uid")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        cause: i64,
        ended: bool,
        uid: bytes | None,
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.cause = cause
        self.ended = ended  # it had succeeded or failed before
        self.uid = uid

    def kind(self) -> i64:
        return REMOVE

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        uid = self.uid
        put_u8(out, self.cause)
        put_u8(out, (1 if uid is not None else 0) | (2 if self.ended else 0))
        if uid is not None:
            out.write(uid)


@mypyc_attr(acyclic=True)
class Move(JobRecord):
    """A job went to another queue (or to the other end of its own) and is ready there."""

    __slots__ = ("front", "to")

    def __init__(
        self, time: i64, origin: Origin, id: i64, queue: bytes, to: bytes, front: bool
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.to = to
        self.front = front

    def kind(self) -> i64:
        return MOVE

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        put_short(out, self.to)
        put_u8(out, 1 if self.front else 0)


@mypyc_attr(acyclic=True)
class Rescore(JobRecord):
    """A job has another priority and stands at the back of it."""

    __slots__ = ("priority",)

    def __init__(self, time: i64, origin: Origin, id: i64, queue: bytes, priority: i64) -> None:
        super().__init__(time, origin, id, queue)
        self.priority = priority

    def kind(self) -> i64:
        return RESCORE

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        put_i64(out, self.priority)


@mypyc_attr(acyclic=True)
class Extend(JobRecord):
    """A lease lasts until another time."""

    __slots__ = ("attempt", "deadline")

    def __init__(
        self, time: i64, origin: Origin, id: i64, queue: bytes, attempt: i64, deadline: i64
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.attempt = attempt
        self.deadline = deadline

    def kind(self) -> i64:
        return EXTEND

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        put_u32(out, self.attempt)
        put_i64(out, self.deadline)


@mypyc_attr(acyclic=True)
class Progress(JobRecord):
    """Its holder has told how far a job is; that is forgotten with the lease."""

    __slots__ = ("attempt", "message", "permille")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        attempt: i64,
        permille: i64,
        message: str,
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.attempt = attempt
        self.permille = permille
        self.message = message

    def kind(self) -> i64:
        return PROGRESS

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        put_u32(out, self.attempt)
        put_u32(out, self.permille)
        put_text(out, self.message)


@mypyc_attr(acyclic=True)
class Replay(JobRecord):
    """A dead letter is ready again, with its counts at zero."""

    __slots__ = ("keyless",)

    def __init__(
        self, time: i64, origin: Origin, id: i64, queue: bytes, keyless: bool = False
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.keyless = keyless  # another job has its key by now

    def kind(self) -> i64:
        return REPLAY

    def put(self, out: BytesWriter) -> None:
        super().put(out)
        put_u8(out, 1 if self.keyless else 0)
