"""What happened: the records that the engine emits, the journal keeps and Spark reads.

A record is persistent; a job in memory (job.py) is what applying records gives. Each record says by
itself when, by whom, on which queue and which job, so that a reader needs no state to understand
it.

Layout of every record (all integers little endian):

    u32 size of what follows | u8 kind | u8 version | i64 time | origin | fields | u32 + blob

`origin` is u8 dialect, u8 + user, u8 + holder. The blob is the record's one large value: payload,
result, error or value. Version rules: fields are only ever added at the end of the fields, in a
new version of that kind; a reader keeps reading every older version; kinds are never reused.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import NewJob, Origin, Policy
from taskyard.engine.records.wire import (
    put_i64,
    put_ids,
    put_short_bytes,
    put_text,
    put_u8,
    put_u32,
    put_u64,
)

BOOT: Final = 1
PUSH: Final = 2
LEASE: Final = 3
FINISH: Final = 4
RETRY: Final = 5
RELEASE: Final = 6
FAIL: Final = 7
WAKE: Final = 8
UNBLOCK: Final = 9
REMOVE: Final = 10
MOVE: Final = 11
RESCORE: Final = 12
EXTEND: Final = 13
REPLAY: Final = 14
QUEUE: Final = 15
QUEUE_GONE: Final = 16
VALUE: Final = 17
VALUE_GONE: Final = 18
SESSION: Final = 19
BATCH: Final = 20
BATCH_DONE: Final = 21
FORGET: Final = 22
READER: Final = 23
READER_GONE: Final = 24
SCHEDULE: Final = 25
SCHEDULE_GONE: Final = 26
SCHEDULE_TICK: Final = 27
PROGRESS: Final = 28
# What compaction writes forward out of old segments: no events, nothing happens in them.
FIRST_SNAPSHOT: Final = 64
SNAPSHOT_JOB: Final = 64
SNAPSHOT_QUEUE: Final = 65
SNAPSHOT_VALUE: Final = 66
SNAPSHOT_SESSION: Final = 67
SNAPSHOT_CONSUMER: Final = 68
SNAPSHOT_TOMBSTONES: Final = 69
CHECKPOINT: Final = 70
SNAPSHOT_READER: Final = 71
SNAPSHOT_SCHEDULE: Final = 72
SNAPSHOT_KEY_LIMITS: Final = 73

EVENT_NAMES: Final = {
    BOOT: "boot",
    PUSH: "push",
    LEASE: "lease",
    FINISH: "finish",
    RETRY: "retry",
    RELEASE: "release",
    FAIL: "fail",
    WAKE: "wake",
    UNBLOCK: "unblock",
    REMOVE: "remove",
    MOVE: "move",
    RESCORE: "rescore",
    EXTEND: "extend",
    REPLAY: "replay",
    QUEUE: "queue",
    QUEUE_GONE: "queue_gone",
    VALUE: "value",
    VALUE_GONE: "value_gone",
    SESSION: "session",
    BATCH: "batch",
    BATCH_DONE: "batch_done",
    FORGET: "forget",
    READER: "reader",
    READER_GONE: "reader_gone",
    SCHEDULE: "schedule",
    SCHEDULE_GONE: "schedule_gone",
    SCHEDULE_TICK: "schedule_tick",
    PROGRESS: "progress",
    SNAPSHOT_JOB: "carry_job",
    SNAPSHOT_QUEUE: "carry_queue",
    SNAPSHOT_VALUE: "carry_value",
    SNAPSHOT_SESSION: "carry_session",
    SNAPSHOT_CONSUMER: "carry_consumer",
    SNAPSHOT_TOMBSTONES: "carry_grave",
    CHECKPOINT: "base",
    SNAPSHOT_READER: "carry_reader",
    SNAPSHOT_SCHEDULE: "carry_schedule",
    SNAPSHOT_KEY_LIMITS: "carry_keys",
}

# Why a lease ended without a verdict.
EXPIRED: Final = 0
LOST: Final = 1  # its holder's connection is gone
RETURNED: Final = 2  # released by its holder
RESTARTED: Final = 3  # bound to a connection of an earlier run of the server
RELEASE_REASONS: Final = ("expired", "lost", "returned", "restarted")

# Why a job was removed.
DELETED: Final = 0
PURGED: Final = 1
TTL_OVER: Final = 2
WITHDRAWN: Final = 3
RETENTION_OVER: Final = 4
REMOVE_CAUSES: Final = ("deleted", "purged", "ttl", "withdrawn", "retention")

# How a job was finished.
ACKED: Final = 0
COMPLETED: Final = 1
POPPED: Final = 2
REMOVED_FROM_LIST: Final = 3  # removed from a list by its payload
FINISH_WAYS: Final = ("ack", "complete", "pop", "remove")

# What happened to a session.
OPENED: Final = 0
DETACHED: Final = 1
ATTACHED: Final = 2
DELIVERED: Final = 3
CLOSED: Final = 4

# Which optional fields a Push has.
HAS_UID: Final = 1
HAS_KEY: Final = 2
HAS_TTL: Final = 4
HAS_BLOCKERS: Final = 8
HAS_NOTIFY: Final = 16
HAS_RUN_AT: Final = 32
AT_FRONT: Final = 64
HAS_LIMIT_KEY: Final = 128  # from version 2 on

NO_BLOB: Final = b""


@mypyc_attr(acyclic=True, allow_interpreted_subclasses=False)
class Record:
    """Base: what all records have. `seq`, `size` and `blob_at` are given by the log."""

    __slots__ = ("blob", "blob_at", "blob_size", "origin", "seq", "size", "time")

    def __init__(self, time: i64, origin: Origin, blob: bytes = NO_BLOB) -> None:
        self.time = time
        self.origin = origin
        self.seq: i64 = 0
        self.size: i64 = 0  # in the journal, blob and all
        self.blob = blob  # left empty by a reader that only wants its position
        self.blob_at: i64 = 0
        self.blob_size: i64 = len(blob)

    def kind(self) -> i64:
        raise NotImplementedError

    def format_version(self) -> i64:
        """Which version it is written in: the oldest that can say it, for older servers to read."""
        return 1

    def encode(self, out: BytesWriter) -> None:
        """Write the fields; the log writes what is around them."""
        raise NotImplementedError

    def same_template(self, other: Record) -> bool:
        """Whether it is the same as another of its kind, but for its job and its blob. Those of
        pushes, leases and finishes can be: their first field is the job."""
        return False

    def job_id(self) -> i64:
        """That job."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class BootRecord(Record):
    """The server started; leases bound to connections of an earlier run end here."""

    __slots__ = ("epoch", "next_id", "version")

    def __init__(
        self, time: i64, origin: Origin, epoch: i64, version: str, next_id: i64 = 0
    ) -> None:
        super().__init__(time, origin)
        self.epoch = epoch
        self.version = version
        # Ids before this one may have been used by a journal that continued from a backup; 0: none.
        self.next_id = next_id

    def kind(self) -> i64:
        return BOOT

    def format_version(self) -> i64:
        return 2 if self.next_id else 1

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.epoch)
        put_text(out, self.version)
        if self.next_id:
            put_i64(out, self.next_id)


@mypyc_attr(acyclic=True, free_list_len=1)
class PushRecord(Record):
    """A job was pushed. The blob is its payload."""

    __slots__ = ("blockers", "id", "job", "queue")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        job: NewJob,
        blockers: list[int] | None = None,
    ) -> None:
        super().__init__(time, origin, job.payload)
        self.id = id
        self.queue = queue
        self.job = job
        self.blockers = blockers  # those of job.blocked_by that had not finished

    def kind(self) -> i64:
        return PUSH

    def format_version(self) -> i64:
        return 1 if self.job.limit_key is None else 2

    def job_id(self) -> i64:
        return self.id

    def same_template(self, other: Record) -> bool:
        if self.time != other.time or self.origin is not other.origin:
            return False
        if not isinstance(other, PushRecord):
            return False
        job = self.job
        like = other.job
        if job is like:  # with another payload
            return self.queue is other.queue and self.has_no_options()
        return (
            self.has_no_options()
            and other.has_no_options()
            and job.policy is like.policy
            and job.priority == like.priority
            and job.content == like.content
            and job.front == like.front
            and self.queue == other.queue
            and job.name == like.name
        )

    def has_no_options(self) -> bool:
        """Without any of the optional fields."""
        job = self.job
        return (
            job.uid is None
            and job.key is None
            and not job.ttl_ms
            and not self.blockers
            and job.notify is None
            and not job.run_at
            and job.limit_key is None
        )

    def encode(self, out: BytesWriter) -> None:
        job = self.job
        put_i64(out, self.id)
        put_short_bytes(out, self.queue)
        flags = self._flags()
        uid = job.uid
        key = job.key
        notify = job.notify
        blockers = self.blockers
        put_u8(out, flags)
        put_u8(out, job.content)
        put_i64(out, job.priority)
        put_text(out, job.name)
        put_short_bytes(out, encode_policy(job.policy))
        if job.run_at:
            put_i64(out, job.run_at)
        if uid is not None:
            out.write(uid)
        if key is not None:
            put_short_bytes(out, key)
        if job.ttl_ms:
            put_u64(out, job.ttl_ms)
        if blockers:
            put_ids(out, blockers)
        if notify is not None:
            put_i64(out, notify.session)
            put_u64(out, notify.label)
            put_u8(out, notify.stages)
        limit_key = job.limit_key
        if limit_key is not None:
            put_short_bytes(out, limit_key)

    def _flags(self) -> i64:
        job = self.job
        flags: i64 = 0
        if job.uid is not None:
            flags |= HAS_UID
        if job.key is not None:
            flags |= HAS_KEY
        if job.ttl_ms:
            flags |= HAS_TTL
        if self.blockers:
            flags |= HAS_BLOCKERS
        if job.notify is not None:
            flags |= HAS_NOTIFY
        if job.front:
            flags |= AT_FRONT
        if job.run_at:
            flags |= HAS_RUN_AT
        if job.limit_key is not None:
            flags |= HAS_LIMIT_KEY
        return flags


@mypyc_attr(acyclic=True, free_list_len=1)
class LeaseRecord(Record):
    """A job was handed to a holder."""

    __slots__ = ("attempt", "bound", "deadline", "epoch", "id", "owner", "queue")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        owner: i64,
        bound: bool,
        epoch: i64,
        attempt: i64,
        deadline: i64,
    ) -> None:
        super().__init__(time, origin)
        self.id = id
        self.queue = queue
        self.owner = owner
        self.bound = bound
        self.epoch = epoch
        self.attempt = attempt
        self.deadline = deadline

    def kind(self) -> i64:
        return LEASE

    def job_id(self) -> i64:
        return self.id

    def same_template(self, other: Record) -> bool:
        return (
            self.time == other.time
            and self.origin is other.origin
            and isinstance(other, LeaseRecord)
            and self.queue is other.queue
            and self.owner == other.owner
            and self.bound == other.bound
            and self.epoch == other.epoch
            and self.attempt == other.attempt
            and self.deadline == other.deadline
        )

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.id)
        put_short_bytes(out, self.queue)
        put_i64(out, self.owner)
        put_u8(out, 1 if self.bound else 0)
        put_u32(out, self.epoch)
        put_u32(out, self.attempt)
        put_i64(out, self.deadline)


@mypyc_attr(acyclic=True, free_list_len=1)
class FinishRecord(Record):
    """A job succeeded. The blob is its result."""

    __slots__ = ("attempt", "id", "kept_until", "producer", "queue", "uid", "way")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        attempt: i64,
        way: i64,
        kept_until: i64 = 0,
        uid: bytes | None = None,
        result: bytes = NO_BLOB,
        producer: bytes = b"",
    ) -> None:
        super().__init__(time, origin, result)
        self.id = id
        self.queue = queue
        self.attempt = attempt
        self.way = way
        self.kept_until = kept_until  # with its result; 0: it is removed at once
        self.uid = uid
        self.producer = producer  # of the uid that is remembered from here on: see uid.py

    def kind(self) -> i64:
        return FINISH

    def format_version(self) -> i64:
        return 2 if self.producer else 1

    def job_id(self) -> i64:
        return self.id

    def same_template(self, other: Record) -> bool:
        return (
            self.time == other.time
            and self.origin is other.origin
            and isinstance(other, FinishRecord)
            and self.queue is other.queue
            and self.attempt == other.attempt
            and self.way == other.way
            and self.kept_until == other.kept_until
            and self.uid is None
            and other.uid is None
        )

    def encode(self, out: BytesWriter) -> None:
        uid = self.uid
        put_i64(out, self.id)
        put_short_bytes(out, self.queue)
        put_u32(out, self.attempt)
        put_u8(out, self.way)
        flags: i64 = 1 if uid is not None else 0
        if self.kept_until:
            flags |= 2
        if self.producer:
            flags |= 4
        put_u8(out, flags)
        if uid is not None:
            out.write(uid)
        if self.kept_until:
            put_i64(out, self.kept_until)
        if self.producer:
            out.write(self.producer)


def encode_policy(policy: Policy) -> bytes:
    """The policy as it stands in a Push; made once, since jobs share policies."""
    encoded = policy.encoded
    if encoded is None:
        out = BytesWriter()
        put_i64(out, policy.ttr)
        put_u32(out, policy.max_attempts)
        put_i64(out, policy.max_fails)
        put_u32(out, policy.max_losses)
        put_u8(out, policy.backoff)
        put_i64(out, policy.backoff_base)
        put_i64(out, policy.backoff_cap)
        put_text(out, policy.dead_queue)
        put_u8(out, 1 if policy.lost_is_failed else 0)
        encoded = out.getvalue()
        policy.encoded = encoded
    return encoded
