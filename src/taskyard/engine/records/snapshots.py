"""Snapshot records: compaction copies live entities to the end of the journal, so that old segments
can be removed.

Each has everything about one thing at this point of the journal, so that a replay which begins
after the thing's own records need not have read them. Nothing happens in a snapshot; readers of
events skip them. Layout and version rules are those of job_lifecycle.py.
"""

from __future__ import annotations

from array import array
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i32, i64, mypyc_attr

from taskyard.engine.limits import ensure_key_limit, forget_rate, remember_arrival
from taskyard.engine.model.events import CorruptRecord, UnknownRecord
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    GONE,
    LEASED,
    READY,
    SUCCEEDED,
    SYSTEM_ORIGIN,
    Job,
    JobExtras,
    Lease,
    Notify,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.model.state import (
    ANY_PRODUCER,
    PRODUCER_BYTES,
    BatchConsumer,
    DurableSession,
    SessionNotice,
    State,
    Value,
    consumer_record_bytes,
    queue_record_bytes,
    session_record_bytes,
    value_record_bytes,
)
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.entities import (
    ScheduleSnapshot,
    place_schedule,
    place_value,
    put_limit_settings,
    put_settings,
    set_queue_settings,
    set_reader,
    set_value_expiry_timer,
)
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
from taskyard.engine.records.wire import (
    FieldReader,
    put_array,
    put_i64,
    put_ids,
    put_short_bytes,
    put_text,
    put_u8,
    put_u32,
    put_u64,
)
from taskyard.engine.transitions import (
    arm_tombstone_timer,
    claim_key,
    dead_letter_expiry,
    is_synchronous_call,
    move_to_dead_letters,
    set_error,
    set_job_expiry,
    set_lease,
    set_result,
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

# Records


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
        self.producers = producers  # of each: see ProducerHashes

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


# Decoding: the counterpart of each record's `encode`


def read_job_snapshot(
    fields: FieldReader,
    time: i64,
    origin: Origin,
    id: i64,
    queue: bytes,
    name: str,
    policy: Policy,
    version: i64,
) -> JobSnapshot:
    """Read the fields of a job behind those that are in a push as well."""
    moves = fields.u8()
    flags = fields.u8()
    record = JobSnapshot(time, origin, id, queue, name, policy, moves)
    record.state = fields.u8()
    record.dialect = fields.u8()
    record.content = fields.u8()
    record.priority = fields.s64()
    record.position = fields.s64()
    record.attempts = fields.u32()
    record.fails = fields.u32()
    record.losses = fields.u32()
    record.pushed_at = fields.s64()
    record.run_at = fields.s64()
    record.finished_at = fields.s64()
    record.payload_at = fields.s64()
    record.payload_size = fields.u32()
    record.record_bytes = fields.u32()
    if flags & HAS_LEASE:
        record.lease = _lease(fields)
    if flags & HAS_EXTRAS:
        record.extras = _extras(fields, flags)
    # An older version has set them back together with the attempts, or never had to.
    record.leases = fields.u32() if version >= 3 else record.attempts
    extra = record.extras
    if version >= 4 and extra is not None:
        extra.producer = fields.raw_bytes(PRODUCER_BYTES)
    return record


def _lease(fields: FieldReader) -> Lease:
    owner = fields.s64()
    bound = fields.u8() != 0
    holder = fields.text()
    epoch = fields.u32()
    attempt = fields.u32()
    since = fields.s64()
    return Lease(owner, bound, holder, epoch, attempt, since, fields.s64())


def _extras(fields: FieldReader, flags: i64) -> JobExtras:
    extra = JobExtras()
    extra.ttl_ms = fields.u64()
    extra.expires_at = fields.s64()
    extra.result_at = fields.s64()
    extra.result_size = fields.u32()
    extra.error_at = fields.s64()
    extra.error_size = fields.u32()
    extra.reason = fields.text()
    extra.has_result = flags & HAS_RESULT != 0
    if flags & HAS_UID:
        extra.uid = fields.raw_bytes(16)
    if flags & HAS_KEY:
        extra.key = fields.short_bytes()
    if flags & HAS_NOTIFY:
        session = fields.s64()
        label = fields.u64()
        extra.notify = Notify(session, label, fields.u8())
    if flags & HAS_BLOCKERS:
        extra.blockers = set(fields.ids())
    if flags & HAS_LIMIT_KEY:
        extra.limit_key = fields.short_bytes()
    return extra


def read_queue_snapshot(
    version: i64,
    fields: FieldReader,
    time: i64,
    origin: Origin,
    queue: bytes,
    number: i64,
    settings: QueueSettings,
) -> QueueSnapshot:
    counters = fields.ids()
    tat: i64 = 0
    if version >= 2:
        read_limit_settings(fields, settings)
        tat = fields.s64()
    return QueueSnapshot(time, origin, queue, number, settings, counters, tat)


def read_limit_settings(fields: FieldReader, settings: QueueSettings) -> None:
    settings.ttr = fields.s64()
    settings.concurrency = fields.s64()
    settings.rate_count = fields.s64()
    settings.rate_period = fields.s64()
    settings.key_concurrency = fields.s64()
    settings.key_rate_count = fields.s64()
    settings.key_rate_period = fields.s64()
    settings.idle_expiry = fields.s64()


def read_snapshot(
    kind: i64, version: i64, fields: FieldReader, time: i64, origin: Origin
) -> r.Record:
    """Read any snapshot that has no part in common with another record."""
    if kind == r.SNAPSHOT_VALUE:
        key = fields.short_bytes()
        return ValueSnapshot(time, origin, key, fields.s64())
    if kind == r.SNAPSHOT_SESSION:
        return SessionSnapshot(time, origin, _session(fields))
    if kind == r.SNAPSHOT_CONSUMER:
        return ConsumerSnapshot(time, origin, _consumer(version, fields))
    if kind == r.SNAPSHOT_READER:
        name = fields.text()
        next_seq = fields.s64()
        return ReaderSnapshot(time, origin, name, next_seq, fields.s64())
    if kind == r.SNAPSHOT_KEY_LIMITS:
        queue = fields.short_bytes()
        tats = fields.ids()
        return KeyLimitsSnapshot(time, origin, queue, [fields.short_bytes() for _ in tats], tats)
    if kind == r.SNAPSHOT_TOMBSTONES:
        since = fields.s64()
        first = fields.u8() != 0
        ids = fields.ids()
        uids = [fields.raw_bytes(16) for _ in ids]
        producers = [
            fields.raw_bytes(PRODUCER_BYTES) if version >= 2 else ANY_PRODUCER for _ in ids
        ]
        return TombstonesSnapshot(time, origin, since, first, uids, ids, producers)
    if kind == r.CHECKPOINT:
        if origin.encoded != SYSTEM_ORIGIN.encoded:
            raise CorruptRecord("a base is the server's own doing")
        base = fields.s64()
        epoch = fields.s64()
        next_id = fields.s64()
        return Checkpoint(time, base, epoch, next_id, fields.ids())
    raise UnknownRecord(f"unknown kind {kind}")


def _session(fields: FieldReader) -> DurableSession:
    id = fields.s64()
    attached = fields.u8() != 0
    session = DurableSession(id, fields.s64(), 0)
    session.attached = attached
    session.numbered = fields.s64()
    session.delivered = fields.s64()
    for _ in range(fields.u32()):
        number = fields.s64()
        time = fields.s64()
        job = fields.s64()
        label = fields.u64()
        session.outbox.append(SessionNotice(number, time, job, label, fields.u8()))
    return session


def _consumer(version: i64, fields: FieldReader) -> BatchConsumer:
    name = fields.text()
    consumer = BatchConsumer(name, fields.s64())
    consumer.number = fields.s64()
    flags = fields.u8()
    consumer.open = flags & 1 != 0
    consumer.expired = flags & 2 != 0
    consumer.deadline = fields.s64()
    ids = fields.ids()
    consumer.ids = array("q", ids)
    consumer.attempts = array("I", [fields.u32() if version >= 2 else 0 for _ in ids])
    if version >= 2:
        count = fields.u32()
        consumer.queues = {fields.short_bytes(): None for _ in range(count)}
    if version >= 3:
        consumer.user = fields.text()
    return consumer


# Applying


def apply_snapshot(state: State, record: r.Record) -> None:
    """Apply a snapshot: a known thing gets its new position, an unknown one is created.

    Known things are exactly as the snapshot says already, except in what a partial replay could not
    know of queues, sessions and the like; those are set to what it says.
    """
    state.time = record.time
    if isinstance(record, JobSnapshot):
        apply_job_snapshot(state, record)
    elif isinstance(record, ValueSnapshot):
        apply_value_snapshot(state, record)
    elif isinstance(record, QueueSnapshot):
        apply_queue_snapshot(state, record)
    elif isinstance(record, SessionSnapshot):
        apply_session_snapshot(state, record)
    elif isinstance(record, ConsumerSnapshot):
        apply_consumer_snapshot(state, record)
    elif isinstance(record, ReaderSnapshot):
        apply_reader_snapshot(state, record)
    elif isinstance(record, ScheduleSnapshot):
        apply_schedule_snapshot(state, record)
    elif isinstance(record, KeyLimitsSnapshot):
        apply_key_limits_snapshot(state, record)
    elif isinstance(record, TombstonesSnapshot):
        apply_tombstones_snapshot(state, record)
    elif isinstance(record, Checkpoint):
        apply_checkpoint(state, record)


def _require_partial_replay(state: State, record: r.Record) -> None:
    """Only a replay that began behind the thing's own records may find it in a snapshot first."""
    if not state.is_partial_replay:
        raise CorruptRecord(f"record {record.seq} carries what there is not at this point")


def apply_job_snapshot(state: State, record: JobSnapshot) -> None:
    job = state.jobs.get(record.id)
    if job is None:
        job = _create_job(state, record)
    elif job.state == GONE:
        raise CorruptRecord(f"job {job.id} is gone")
    moves = record.moves
    at = record.blob_at
    if moves & MOVES_PAYLOAD:
        state.live_bytes.subtract(job.payload_at, i64(job.record_bytes))
        job.record_bytes = i32(record.size - record.blob_size + job.payload_size)
        state.live_bytes.add(at, i64(job.record_bytes))
        job.payload_at = at
        at += job.payload_size
    extra = job.extras
    if extra is None:
        return
    if moves & MOVES_RESULT:
        set_result(state, extra, at, extra.result_size)
        at += extra.result_size
    if moves & ERROR_IS_RESULT:
        set_error(state, extra, extra.result_at, extra.error_size)
    elif moves & MOVES_ERROR:
        set_error(state, extra, at, extra.error_size)


def _create_job(state: State, record: JobSnapshot) -> Job:
    """A job that was pushed before the point where this replay began."""
    _require_partial_replay(state, record)
    queue = state.get_or_create_queue(record.queue, record.seq, record.blob_at)
    job = Job(
        record.id,
        queue,
        queue.intern_name(record.name),
        queue.intern_policy(record.policy),
        record.priority,
        record.dialect,
        record.content,
        record.payload_at,
        record.payload_size,
        record.pushed_at,
        record.run_at,
    )
    job.order_key = record.position
    job.attempts = i32(record.attempts)
    job.fails = i32(record.fails)
    job.losses = i32(record.losses)
    job.leases = i32(record.leases)
    job.finished_at = record.finished_at
    job.extras = record.extras
    state.jobs.add(job)
    job.record_bytes = i32(record.record_bytes)
    state.live_bytes.add(job.payload_at, record.record_bytes)
    extra = job.extras
    if extra is not None:
        _index_extras(state, job)
    _enter_state(state, job, record)
    return job


def _index_extras(state: State, job: Job) -> None:
    extra = job.ensure_extras()
    if extra.result_size:
        state.live_bytes.add(extra.result_at, extra.result_size)
    if extra.error_size:
        state.live_bytes.add(extra.error_at, extra.error_size)
    uid = extra.uid
    if uid is not None:
        state.uids[uid] = job
        producers = state.producer_hashes
        producer = extra.producer  # an old record only has the queue where the job is by now
        extra.producer = (
            producers.intern(producer) if producer else producers.hash_of_queue(job.queue.utf8)
        )
    if is_synchronous_call(extra):
        state.synchronous_jobs.add(job.id)
    if extra.expires_at:
        set_job_expiry(state, job, extra, extra.expires_at)
    blockers = extra.blockers
    if blockers is not None:
        for blocker in blockers:
            state.dependents.setdefault(blocker, {})[job.id] = None


def _enter_state(state: State, job: Job, record: JobSnapshot) -> None:
    queue = job.queue
    which = record.state
    if which != SUCCEEDED and which != FAILED:
        queue.unfinished_bytes += job.payload_size
    if which == READY:
        job.state = READY
        if not job.attempts:  # else only the records before this one have when it became ready
            job.ready_at = max(job.pushed_at, job.run_at)
        claim_key(job)
        queue.ready.add(job)
    elif which == LEASED:
        lease = record.lease
        if lease is None:
            raise CorruptRecord(f"job {job.id} is leased to nobody")
        set_lease(state, job, lease)
    elif which == DELAYED:
        job.state = DELAYED
        claim_key(job)
        queue.delayed.insert(job)
        state.timers.set(queue.wake_timer, queue.delayed.first().order_key)
    elif which == BLOCKED:
        job.state = BLOCKED
        claim_key(job)
        queue.blocked.insert(job)
    elif which == SUCCEEDED:
        job.state = SUCCEEDED
        queue.done.insert(job)
    elif which == FAILED:
        move_to_dead_letters(state, job)
    else:
        raise CorruptRecord(f"job {job.id} is in no state that is carried")


def apply_queue_snapshot(state: State, record: QueueSnapshot) -> None:
    if record.queue not in state.queues:
        _require_partial_replay(state, record)
    queue = state.get_or_create_queue(record.queue, record.number, record.blob_at)
    state.live_bytes.subtract(queue.record_at, queue_record_bytes(queue))
    state.live_bytes.add(record.blob_at, queue_record_bytes(queue))
    queue.record_at = record.blob_at
    if queue.created_seq != record.number:
        # Until now this replay did not know its settings: what it took for the rates of its keys
        # may be wrong, and the right ones are in the next snapshot.
        for gate in list(queue.key_limits.values()) if queue.key_limits is not None else []:
            forget_rate(state, gate)
    queue.created_seq = record.number
    if queue.settings is not record.settings:
        set_queue_settings(state, queue, record.settings)
    queue.theoretical_arrival_ns = record.tat
    queue.set_counters(record.counters)
    if queue.dead.size:
        state.timers.set(queue.dead_timer, dead_letter_expiry(state, queue, queue.dead.first()))


def apply_key_limits_snapshot(state: State, record: KeyLimitsSnapshot) -> None:
    """The queue's own snapshot is before it, perhaps before the point where this replay began."""
    if record.queue not in state.queues:
        _require_partial_replay(state, record)
    queue = state.get_or_create_queue(record.queue, record.seq, record.blob_at)
    for index, key in enumerate(record.keys):
        remember_arrival(state, ensure_key_limit(queue, key), record.tats[index])


def apply_value_snapshot(state: State, record: ValueSnapshot) -> None:
    value = state.values.get(record.key)
    if value is None:
        _require_partial_replay(state, record)
        value = Value(record.key)
        value.value_at = record.blob_at
        state.values[record.key] = value
        state.live_bytes.add(value.value_at, value_record_bytes(value))
    place_value(state, value, record.blob_at, record.blob_size)
    set_value_expiry_timer(state, value, record.expires_at)


def apply_session_snapshot(state: State, record: SessionSnapshot) -> None:
    session = record.session
    known = state.sessions.get(session.id)
    if known is None:
        _require_partial_replay(state, record)
        known = session
        state.sessions[session.id] = session
        state.live_bytes.unplaced += session_record_bytes(session)
        if not session.attached:
            state.timers.set(session.timer, session.since + state.settings.outbox_age)
    elif known is not session:
        state.live_bytes.unplaced -= session_record_bytes(known)
        known.outbox = session.outbox
        state.live_bytes.unplaced += session_record_bytes(known)
        known.numbered = session.numbered
        known.delivered = session.delivered
    known.record_seq = record.seq
    known.changed_since_snapshot = False


def apply_consumer_snapshot(state: State, record: ConsumerSnapshot) -> None:
    consumer = record.consumer
    known = state.consumers.get(consumer.name)
    if known is None:
        _require_partial_replay(state, record)
        known = consumer
        state.consumers[consumer.name] = consumer
        state.live_bytes.unplaced += consumer_record_bytes(consumer)
        if consumer.deadline:
            state.timers.set(consumer.timer, consumer.deadline)
    elif known is not consumer:
        # Of a batch that was leased in several records, the first may be before the beginning.
        state.live_bytes.unplaced -= consumer_record_bytes(known)
        known.ids = consumer.ids
        known.attempts = consumer.attempts
        known.queues = consumer.queues
        known.user = consumer.user
        state.live_bytes.unplaced += consumer_record_bytes(known)
    known.record_seq = record.seq


def apply_reader_snapshot(state: State, record: ReaderSnapshot) -> None:
    if record.name not in state.readers:
        _require_partial_replay(state, record)
    set_reader(state, record.name, record.next_seq, record.lease_until, record.seq)


def apply_schedule_snapshot(state: State, record: ScheduleSnapshot) -> None:
    known = state.schedules.get(record.schedule.name)
    if known is None:
        _require_partial_replay(state, record)
        place_schedule(state, record.schedule, record.seq)
    else:
        known.record_seq = record.seq


def apply_tombstones_snapshot(state: State, record: TombstonesSnapshot) -> None:
    tombstones = state.tombstones
    since = record.since
    seq = record.seq
    for index, uid in enumerate(record.uids):
        producer = state.producer_hashes.intern(record.producers[index])
        tombstones.add(uid, record.ids[index], producer, since, seq)
    if record.first:
        grave = tombstones.buckets.get(since - since % tombstones.bucket_width_us)
        if grave is not None:  # none, if uids are not remembered any more
            grave.record_seq = seq
    arm_tombstone_timer(state)


def apply_checkpoint(state: State, record: Checkpoint) -> None:
    """From here on everything is known to a replay that began at this base, or before it."""
    if state.is_partial_replay:
        if record.base < state.partial_start:
            return  # of an earlier compaction: others were made after it
        state.is_partial_replay = False
        queues = sorted(
            state.queues.values(), key=_created_seq
        )  # they were created in another order
        state.queues = {queue.utf8: queue for queue in queues}
        state.epoch = record.epoch
        state.next_id = max(state.next_id, record.next_id)
    elif record.epoch != state.epoch or record.next_id != state.next_id:
        raise CorruptRecord("the next id or the epoch is not what compaction has seen")
    counts = state.entity_counts()[: len(record.counts)]  # an older server knows of fewer kinds
    if counts != record.counts:
        raise CorruptRecord(
            "compaction has seen other numbers of jobs, queues, values, sessions, consumers, "
            f"readers and schedules: {record.counts} instead of {counts}"
        )
    state.replay_start = max(state.replay_start, record.base)


def _created_seq(queue: Queue) -> int:
    return queue.created_seq
