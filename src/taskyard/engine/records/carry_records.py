"""Snapshot records: compaction copies live entities to the end of the journal, so that old segments
can be removed.

Each has everything about one thing at this point of the journal, so that a replay which begins
after the thing's own records need not have read them. Nothing happens in a snapshot; readers of
events skip them. Layout and version rules are those of job_lifecycle.py.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import SYSTEM_ORIGIN, JobExtras, Lease, Origin, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import BatchConsumer, DurableSession, SessionNotice
from taskyard.engine.records.job_lifecycle import (
    CHECKPOINT,
    SNAPSHOT_CONSUMER,
    SNAPSHOT_JOB,
    SNAPSHOT_KEY_LIMITS,
    SNAPSHOT_QUEUE,
    SNAPSHOT_READER,
    SNAPSHOT_SESSION,
    SNAPSHOT_TOMBSTONES,
    SNAPSHOT_VALUE,
    Record,
    encode_policy,
)
from taskyard.engine.records.side_records import put_limit_settings, put_settings
from taskyard.engine.records.wire import (
    put_array,
    put_i64,
    put_ids,
    put_short_bytes,
    put_text,
    put_u8,
    put_u32,
    put_u64,
)

# Which of a job's blobs are in the snapshot itself, one behind the other; others stay elsewhere.
MOVES_PAYLOAD: Final = 1
MOVES_RESULT: Final = 2
MOVES_ERROR: Final = 4
ERROR_IS_RESULT: Final = 8  # both are the same bytes

# Which optional fields it has.
HAS_LEASE: Final = 1
HAS_EXTRAS: Final = 2
HAS_UID: Final = 4
HAS_KEY: Final = 8
HAS_NOTIFY: Final = 16
HAS_BLOCKERS: Final = 32
HAS_RESULT: Final = 64
HAS_LIMIT_KEY: Final = 128  # from version 2 on


@mypyc_attr(acyclic=True)
class JobSnapshot(Record):
    """A job as it is now. The blob is what is moved of payload, result and error, in this order."""

    __slots__ = (
        "attempts",
        "content",
        "dialect",
        "extras",
        "fails",
        "finished_at",
        "id",
        "lease",
        "leases",
        "losses",
        "moves",
        "name",
        "payload_at",
        "payload_size",
        "policy",
        "position",
        "priority",
        "pushed_at",
        "queue",
        "record_bytes",
        "run_at",
        "state",
    )

    def __init__(
        self,
        time: i64,
        origin: Origin,
        id: i64,
        queue: bytes,
        name: str,
        policy: Policy,
        moves: i64,
        blob: bytes = b"",
    ) -> None:
        super().__init__(time, origin, blob)
        self.id = id
        self.queue = queue
        self.name = name
        self.policy = policy
        self.moves = moves
        self.state: i64 = 0
        self.priority: i64 = 0
        self.position: i64 = 0
        self.dialect: i64 = 0
        self.content: i64 = 0
        self.attempts: i64 = 0
        self.fails: i64 = 0
        self.losses: i64 = 0
        self.leases: i64 = 0
        self.payload_at: i64 = 0
        self.payload_size: i64 = 0
        self.record_bytes: i64 = 0  # of the record that has the payload, if that stays where it is
        self.pushed_at: i64 = 0
        self.run_at: i64 = 0
        self.finished_at: i64 = 0
        self.lease: Lease | None = None
        self.extras: JobExtras | None = None  # its places are those before the move

    def kind(self) -> i64:
        return SNAPSHOT_JOB

    def format_version(self) -> i64:
        extra = self.extras
        if extra is not None and extra.producer:
            return 4
        if self.leases != self.attempts:
            return 3
        return 1 if extra is None or extra.limit_key is None else 2

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.id)
        put_short_bytes(out, self.queue)
        put_text(out, self.name)
        put_short_bytes(out, encode_policy(self.policy))
        put_u8(out, self.moves)
        put_u8(out, self._flags())
        put_u8(out, self.state)
        put_u8(out, self.dialect)
        put_u8(out, self.content)
        put_i64(out, self.priority)
        put_i64(out, self.position)
        put_u32(out, self.attempts)
        put_u32(out, self.fails)
        put_u32(out, self.losses)
        put_i64(out, self.pushed_at)
        put_i64(out, self.run_at)
        put_i64(out, self.finished_at)
        put_i64(out, self.payload_at)
        put_u32(out, self.payload_size)
        put_u32(out, self.record_bytes)
        lease = self.lease
        if lease is not None:
            put_i64(out, lease.owner)
            put_u8(out, 1 if lease.bound else 0)
            put_text(out, lease.holder)
            put_u32(out, lease.epoch)
            put_u32(out, lease.attempt)
            put_i64(out, lease.since)
            put_i64(out, lease.deadline)
        extra = self.extras
        if extra is not None:
            _put_extras(out, extra)
        if self.format_version() >= 3:
            put_u32(out, self.leases)
        if extra is not None and extra.producer:
            out.write(extra.producer)

    def _flags(self) -> i64:
        flags: i64 = 0
        if self.lease is not None:
            flags |= HAS_LEASE
        extra = self.extras
        if extra is not None:
            flags |= HAS_EXTRAS
            if extra.uid is not None:
                flags |= HAS_UID
            if extra.key is not None:
                flags |= HAS_KEY
            if extra.notify is not None:
                flags |= HAS_NOTIFY
            if extra.blockers:
                flags |= HAS_BLOCKERS
            if extra.has_result:
                flags |= HAS_RESULT
            if extra.limit_key is not None:
                flags |= HAS_LIMIT_KEY
        return flags


def _put_extras(out: BytesWriter, extra: JobExtras) -> None:
    put_u64(out, extra.ttl_ms)
    put_i64(out, extra.expires_at)
    put_i64(out, extra.result_at)
    put_u32(out, extra.result_size)
    put_i64(out, extra.error_at)
    put_u32(out, extra.error_size)
    put_text(out, extra.reason)
    uid = extra.uid
    if uid is not None:
        out.write(uid)
    key = extra.key
    if key is not None:
        put_short_bytes(out, key)
    notify = extra.notify
    if notify is not None:
        put_i64(out, notify.session)
        put_u64(out, notify.label)
        put_u8(out, notify.stages)
    blockers = extra.blockers
    if blockers:
        put_ids(out, sorted(blockers))
    limit_key = extra.limit_key
    if limit_key is not None:
        put_short_bytes(out, limit_key)


@mypyc_attr(acyclic=True)
class QueueSnapshot(Record):
    """A queue as it is now: its settings and its counters. Its jobs have records of their own."""

    __slots__ = ("counters", "number", "queue", "settings", "tat")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        queue: bytes,
        number: i64,
        settings: QueueSettings,
        counters: list[int],
        tat: i64 = 0,
    ) -> None:
        super().__init__(time, origin)
        self.queue = queue
        self.number = number
        self.settings = settings
        self.counters = counters  # in the order of Queue.counters
        self.tat = tat  # of its rate

    def kind(self) -> i64:
        return SNAPSHOT_QUEUE

    def format_version(self) -> i64:
        return 2

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.queue)
        put_i64(out, self.number)
        put_settings(out, self.settings)
        put_ids(out, self.counters)
        put_limit_settings(out, self.settings)
        put_i64(out, self.tat)


@mypyc_attr(acyclic=True)
class KeyLimitsSnapshot(Record):
    """What is remembered of the rates of some limit keys of a queue, as it is now."""

    __slots__ = ("keys", "queue", "tats")

    def __init__(
        self, time: i64, origin: Origin, queue: bytes, keys: list[bytes], tats: list[int]
    ) -> None:
        super().__init__(time, origin)
        self.queue = queue
        self.keys = keys
        self.tats = tats

    def kind(self) -> i64:
        return SNAPSHOT_KEY_LIMITS

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.queue)
        put_ids(out, self.tats)
        for key in self.keys:
            put_short_bytes(out, key)


@mypyc_attr(acyclic=True)
class ValueSnapshot(Record):
    """A keyed value as it is now. The blob is the value."""

    __slots__ = ("expires_at", "key")

    def __init__(
        self, time: i64, origin: Origin, key: bytes, expires_at: i64, value: bytes = b""
    ) -> None:
        super().__init__(time, origin, value)
        self.key = key
        self.expires_at = expires_at

    def kind(self) -> i64:
        return SNAPSHOT_VALUE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.key)
        put_i64(out, self.expires_at)


class SessionSnapshot(Record):
    """A durable session as it is now, with all notices in its outbox."""

    __slots__ = ("session",)

    def __init__(self, time: i64, origin: Origin, session: DurableSession) -> None:
        super().__init__(time, origin)
        self.session = session

    def kind(self) -> i64:
        return SNAPSHOT_SESSION

    def encode(self, out: BytesWriter) -> None:
        session = self.session
        put_i64(out, session.id)
        put_u8(out, 1 if session.attached else 0)
        put_i64(out, session.since)
        put_i64(out, session.numbered)
        put_i64(out, session.delivered)
        put_u32(out, len(session.outbox))
        for letter in session.outbox:
            _put_notice(out, letter)


def _put_notice(out: BytesWriter, letter: SessionNotice) -> None:
    put_i64(out, letter.number)
    put_i64(out, letter.time)
    put_i64(out, letter.job)
    put_u64(out, letter.label)
    put_u8(out, letter.stage)


class ConsumerSnapshot(Record):
    """A consumer of batches as it is now."""

    __slots__ = ("consumer",)

    def __init__(self, time: i64, origin: Origin, consumer: BatchConsumer) -> None:
        super().__init__(time, origin)
        self.consumer = consumer

    def kind(self) -> i64:
        return SNAPSHOT_CONSUMER

    def format_version(self) -> i64:
        return 3 if self.consumer.user else 2

    def encode(self, out: BytesWriter) -> None:
        consumer = self.consumer
        put_text(out, consumer.name)
        put_i64(out, consumer.owner)
        put_i64(out, consumer.number)
        put_u8(out, (1 if consumer.open else 0) | (2 if consumer.expired else 0))
        put_i64(out, consumer.deadline)
        put_u32(out, len(consumer.ids))
        put_array(out, consumer.ids)
        put_array(out, consumer.attempts)
        put_u32(out, len(consumer.queues))
        for queue in consumer.queues:
            put_short_bytes(out, queue)
        if consumer.user:
            put_text(out, consumer.user)


@mypyc_attr(acyclic=True)
class ReaderSnapshot(Record):
    """A reader of the journal as it is now."""

    __slots__ = ("lease_until", "name", "next_seq")

    def __init__(
        self, time: i64, origin: Origin, name: str, next_seq: i64, lease_until: i64
    ) -> None:
        super().__init__(time, origin)
        self.name = name
        self.next_seq = next_seq
        self.lease_until = lease_until

    def kind(self) -> i64:
        return SNAPSHOT_READER

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_i64(out, self.next_seq)
        put_i64(out, self.lease_until)


@mypyc_attr(acyclic=True)
class TombstonesSnapshot(Record):
    """Uids that are remembered, all of one stretch of time; the first of several such, or not."""

    __slots__ = ("first", "ids", "producers", "since", "uids")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        since: i64,
        first: bool,
        uids: list[bytes],
        ids: list[int],
        producers: list[bytes],
    ) -> None:
        super().__init__(time, origin)
        self.since = since
        self.first = first
        self.uids = uids
        self.ids = ids
        self.producers = producers  # of each: see uid.py

    def kind(self) -> i64:
        return SNAPSHOT_TOMBSTONES

    def format_version(self) -> i64:
        return 2

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.since)
        put_u8(out, 1 if self.first else 0)
        put_ids(out, self.ids)
        for uid in self.uids:
            out.write(uid)
        for producer in self.producers:
            out.write(producer)


@mypyc_attr(acyclic=True)
class Checkpoint(Record):
    """All that lived before position `base` has a snapshot: a replay may start there.

    It has the numbers of all entities too, which a replay checks.
    """

    __slots__ = ("base", "counts", "epoch", "next_id")

    def __init__(self, time: i64, base: i64, epoch: i64, next_id: i64, counts: list[int]) -> None:
        super().__init__(time, SYSTEM_ORIGIN)
        self.base = base
        self.epoch = epoch
        self.next_id = next_id
        self.counts = counts  # in the order of State.counts

    def kind(self) -> i64:
        return CHECKPOINT

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.base)
        put_i64(out, self.epoch)
        put_i64(out, self.next_id)
        put_ids(out, self.counts)
