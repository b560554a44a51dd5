"""Records of what else can happen to a job: attempts without success, and records that say little
more than which job.

Layout and version rules are those of job_lifecycle.py.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import Origin
from taskyard.engine.records.job_lifecycle import (
    EXTEND,
    FAIL,
    MOVE,
    NO_BLOB,
    PROGRESS,
    RELEASE,
    REMOVE,
    REPLAY,
    RESCORE,
    RETRY,
    UNBLOCK,
    WAKE,
    Record,
)
from taskyard.engine.records.wire import put_i64, put_short_bytes, put_text, put_u8, put_u32


@mypyc_attr(acyclic=True)
class JobRecord(Record):
    """Base: which job. The most frequent records, in job_lifecycle.py, encode it themselves."""

    __slots__ = ("id", "queue")

    def __init__(
        self, time: i64, origin: Origin, id: i64, queue: bytes, blob: bytes = NO_BLOB
    ) -> None:
        super().__init__(time, origin, blob)
        self.id = id
        self.queue = queue

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.id)
        put_short_bytes(out, self.queue)


@mypyc_attr(acyclic=True)
class AttemptRecord(JobRecord):
    """Base: which attempt at it."""

    __slots__ = ("attempt",)

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        attempt: i64,
        blob: bytes = NO_BLOB,
    ) -> None:
        super().__init__(time, origin, id, queue, blob)
        self.attempt = attempt

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_u32(out, self.attempt)


@mypyc_attr(acyclic=True)
class RetryRecord(AttemptRecord):
    """An attempt failed and the job is tried again at run_at. The blob is the error."""

    __slots__ = ("keyless", "run_at")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        attempt: i64,
        run_at: i64,
        keyless: bool = False,
        error: bytes = NO_BLOB,
    ) -> None:
        super().__init__(time, origin, id, queue, attempt, error)
        self.run_at = run_at  # 0: at once, in its old place
        self.keyless = keyless  # another job has its key by now

    def kind(self) -> i64:
        return RETRY

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_i64(out, self.run_at)
        put_u8(out, 1 if self.keyless else 0)


@mypyc_attr(acyclic=True)
class ReleaseRecord(AttemptRecord):
    """A lease ended without a verdict; the job is ready again in its old place."""

    __slots__ = ("keyless", "reason")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        attempt: i64,
        reason: i64,
        keyless: bool = False,
    ) -> None:
        super().__init__(time, origin, id, queue, attempt)
        self.reason = reason
        self.keyless = keyless  # another job has its key by now

    def kind(self) -> i64:
        return RELEASE

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_u8(out, self.reason)
        put_u8(out, 1 if self.keyless else 0)


@mypyc_attr(acyclic=True)
class FailRecord(AttemptRecord):
    """A job failed for good. The blob is the error, or the result a worker failed it with."""

    __slots__ = ("dead_queue", "explicit", "reason")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        attempt: i64,
        explicit: bool,
        reason: str,
        dead_queue: str,
        error: bytes = NO_BLOB,
    ) -> None:
        super().__init__(time, origin, id, queue, attempt, error)
        self.explicit = explicit  # a worker reported it: it counts as a fail, and there is a result
        self.reason = reason
        self.dead_queue = dead_queue  # "": kept among the dead letters of its queue

    def kind(self) -> i64:
        return FAIL

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_u8(out, 1 if self.explicit else 0)
        put_text(out, self.reason)
        put_text(out, self.dead_queue)


@mypyc_attr(acyclic=True)
class WakeRecord(JobRecord):
    """A delayed job became ready: its time has come, or a client requested it."""

    __slots__ = ()

    def kind(self) -> i64:
        return WAKE


@mypyc_attr(acyclic=True)
class UnblockRecord(JobRecord):
    """One of the jobs that this one waits for has succeeded."""

    __slots__ = ("blocker",)

    def __init__(self, time: i64, origin: Origin, id: i64, queue: bytes, blocker: i64) -> None:
        super().__init__(time, origin, id, queue)
        self.blocker = blocker

    def kind(self) -> i64:
        return UNBLOCK

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_i64(out, self.blocker)


@mypyc_attr(acyclic=True)
class RemoveRecord(JobRecord):
    """A job is gone without having been finished, or a kept one was forgotten."""

    __slots__ = ("cause", "ended", "producer", "uid")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        cause: i64,
        ended: bool,
        uid: bytes | None,
        producer: bytes = b"",
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.cause = cause
        self.ended = ended  # it had succeeded or failed before
        self.uid = uid
        self.producer = producer  # of the uid that is remembered from here on: see ProducerHashes

    def kind(self) -> i64:
        return REMOVE

    def format_version(self) -> i64:
        return 2 if self.producer else 1

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        uid = self.uid
        put_u8(out, self.cause)
        flags: i64 = 1 if uid is not None else 0
        if self.ended:
            flags |= 2
        if self.producer:
            flags |= 4
        put_u8(out, flags)
        if uid is not None:
            out.write(uid)
        if self.producer:
            out.write(self.producer)


@mypyc_attr(acyclic=True)
class MoveRecord(JobRecord):
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

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_short_bytes(out, self.to)
        put_u8(out, 1 if self.front else 0)


@mypyc_attr(acyclic=True)
class RescoreRecord(JobRecord):
    """A job has another priority and stands at the back of it."""

    __slots__ = ("priority",)

    def __init__(self, time: i64, origin: Origin, id: i64, queue: bytes, priority: i64) -> None:
        super().__init__(time, origin, id, queue)
        self.priority = priority

    def kind(self) -> i64:
        return RESCORE

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_i64(out, self.priority)


@mypyc_attr(acyclic=True)
class ExtendRecord(AttemptRecord):
    """A lease lasts until another time."""

    __slots__ = ("deadline",)

    def __init__(
        self, time: i64, origin: Origin, id: i64, queue: bytes, attempt: i64, deadline: i64
    ) -> None:
        super().__init__(time, origin, id, queue, attempt)
        self.deadline = deadline

    def kind(self) -> i64:
        return EXTEND

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_i64(out, self.deadline)


@mypyc_attr(acyclic=True)
class ProgressRecord(AttemptRecord):
    """Its holder has reported how far a job is; that is forgotten with the lease."""

    __slots__ = ("message", "permille")

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
        super().__init__(time, origin, id, queue, attempt)
        self.permille = permille
        self.message = message

    def kind(self) -> i64:
        return PROGRESS

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_u32(out, self.permille)
        put_text(out, self.message)


@mypyc_attr(acyclic=True)
class ReplayRecord(JobRecord):
    """A dead letter is ready again, with its counts at zero."""

    __slots__ = ("keyless",)

    def __init__(
        self, time: i64, origin: Origin, id: i64, queue: bytes, keyless: bool = False
    ) -> None:
        super().__init__(time, origin, id, queue)
        self.keyless = keyless  # another job has its key by now

    def kind(self) -> i64:
        return REPLAY

    def encode(self, out: BytesWriter) -> None:
        super().encode(out)
        put_u8(out, 1 if self.keyless else 0)
