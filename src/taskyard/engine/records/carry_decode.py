"""Decodes snapshot records; the counterpart of each one's `encode`."""

from __future__ import annotations

from array import array

from mypy_extensions import i64

from taskyard.engine.model.errors import CorruptRecord, UnknownRecord
from taskyard.engine.model.job import SYSTEM_ORIGIN, JobExtras, Lease, Notify, Origin, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import BatchConsumer, DurableSession, SessionNotice
from taskyard.engine.model.uid import ANY_PRODUCER, PRODUCER_BYTES
from taskyard.engine.records import carry_records as c
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.wire import FieldReader


def read_job_snapshot(
    fields: FieldReader,
    time: i64,
    origin: Origin,
    id: i64,
    queue: bytes,
    name: str,
    policy: Policy,
    version: i64,
) -> c.JobSnapshot:
    """Read the fields of a job behind those that are in a push as well."""
    moves = fields.u8()
    flags = fields.u8()
    record = c.JobSnapshot(time, origin, id, queue, name, policy, moves)
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
    if flags & c.HAS_LEASE:
        record.lease = _lease(fields)
    if flags & c.HAS_EXTRAS:
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
    extra.has_result = flags & c.HAS_RESULT != 0
    if flags & c.HAS_UID:
        extra.uid = fields.raw_bytes(16)
    if flags & c.HAS_KEY:
        extra.key = fields.short_bytes()
    if flags & c.HAS_NOTIFY:
        session = fields.s64()
        label = fields.u64()
        extra.notify = Notify(session, label, fields.u8())
    if flags & c.HAS_BLOCKERS:
        extra.blockers = set(fields.ids())
    if flags & c.HAS_LIMIT_KEY:
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
) -> c.QueueSnapshot:
    counters = fields.ids()
    tat: i64 = 0
    if version >= 2:
        read_limit_settings(fields, settings)
        tat = fields.s64()
    return c.QueueSnapshot(time, origin, queue, number, settings, counters, tat)


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
        return c.ValueSnapshot(time, origin, key, fields.s64())
    if kind == r.SNAPSHOT_SESSION:
        return c.SessionSnapshot(time, origin, _session(fields))
    if kind == r.SNAPSHOT_CONSUMER:
        return c.ConsumerSnapshot(time, origin, _consumer(version, fields))
    if kind == r.SNAPSHOT_READER:
        name = fields.text()
        next_seq = fields.s64()
        return c.ReaderSnapshot(time, origin, name, next_seq, fields.s64())
    if kind == r.SNAPSHOT_KEY_LIMITS:
        queue = fields.short_bytes()
        tats = fields.ids()
        return c.KeyLimitsSnapshot(time, origin, queue, [fields.short_bytes() for _ in tats], tats)
    if kind == r.SNAPSHOT_TOMBSTONES:
        since = fields.s64()
        first = fields.u8() != 0
        ids = fields.ids()
        uids = [fields.raw_bytes(16) for _ in ids]
        producers = [
            fields.raw_bytes(PRODUCER_BYTES) if version >= 2 else ANY_PRODUCER for _ in ids
        ]
        return c.TombstonesSnapshot(time, origin, since, first, uids, ids, producers)
    if kind == r.CHECKPOINT:
        if origin.encoded != SYSTEM_ORIGIN.encoded:
            raise CorruptRecord("a base is the server's own doing")
        base = fields.s64()
        epoch = fields.s64()
        next_id = fields.s64()
        return c.Checkpoint(time, base, epoch, next_id, fields.ids())
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
