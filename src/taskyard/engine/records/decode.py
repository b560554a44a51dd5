"""From bytes back to records; the counterpart of each record's `encode`."""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.events import CorruptRecord, UnknownRecord
from taskyard.engine.model.job import NewJob, Notify, Origin, Policy
from taskyard.engine.model.queue import OVERFLOW_DEAD, OVERFLOW_REFUSE, QueueSettings
from taskyard.engine.model.state import PRODUCER_BYTES
from taskyard.engine.records import entities as s
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.entities import (
    ScheduleSet,
    ScheduleSnapshot,
    read_schedule,
    read_schedule_event,
)
from taskyard.engine.records.snapshots import (
    read_job_snapshot,
    read_limit_settings,
    read_queue_snapshot,
    read_snapshot,
)
from taskyard.engine.records.wire import FieldReader

_CACHED: Final = 4096  # origins and policies repeat; this many of each are kept while reading
SIZE_PREFIX_BYTES: Final = 4  # bytes of the size that stands before each record
# bytes behind that: kind, version, time, origin and the size of a blob
_MIN_RECORD_BYTES: Final = 17
# The newest version of each kind; of those that are not here it is 1.
VERSIONS: Final = {
    r.BOOT: 2,
    r.PUSH: 2,
    r.FINISH: 2,
    r.REMOVE: 2,
    r.QUEUE: 2,
    r.BATCH: 3,
    r.SNAPSHOT_JOB: 4,
    r.SNAPSHOT_QUEUE: 2,
    r.SNAPSHOT_CONSUMER: 3,
    r.SNAPSHOT_TOMBSTONES: 2,
}
_ORIGIN_AT: Final = SIZE_PREFIX_BYTES + 10  # behind size, kind, version and time


def record_size_at(data: bytes, at: i64) -> i64:
    """Bytes of the whole record that begins at `data[at]`."""
    return SIZE_PREFIX_BYTES + i64(read_i32_le(data, at))


def record_end(data: bytes, at: i64, end: i64) -> i64:
    """Where the record ends that begins at `data[at]`, in records that end at `end`.

    An intact checksum says that this is what was written, not that it makes sense.
    """
    if at + SIZE_PREFIX_BYTES > end:
        raise CorruptRecord(f"no room for a record at byte {at}")
    size = i64(read_i32_le(data, at))
    if size < _MIN_RECORD_BYTES or at + SIZE_PREFIX_BYTES + size > end:
        raise CorruptRecord(f"a record of {size} bytes does not fit at byte {at}")
    return at + SIZE_PREFIX_BYTES + size


def kind_at(data: bytes, at: i64) -> i64:
    return data[at + SIZE_PREFIX_BYTES]


def job_id_at(data: bytes, at: i64) -> i64:
    """Return the job's id in a record that has one, without reading the rest of it."""
    at += _ORIGIN_AT + 1
    user: i64 = data[at]
    at += 1 + user
    holder: i64 = data[at]
    return read_i64_le(data, at + 1 + holder)


@mypyc_attr(acyclic=True)
class Decoder:
    """Reads records one after the other.

    `blobs` says whether their blobs are wanted; recovery only needs their positions.
    """

    __slots__ = ("blobs", "next_at", "origins", "policies")

    def __init__(self, blobs: bool) -> None:
        self.blobs = blobs
        self.next_at: i64 = 0  # where the record after the one just read begins
        self.origins: dict[bytes, Origin] = {}
        self.policies: dict[bytes, Policy] = {}

    def read(self, data: bytes, at: i64, position: i64) -> r.Record:
        """The record at `data[at:]`; `position` is where data[0] stands in the journal."""
        if at + SIZE_PREFIX_BYTES > len(data):
            raise CorruptRecord(f"no room for a record at byte {at}")
        size = i64(read_i32_le(data, at))
        end = at + SIZE_PREFIX_BYTES + size
        if size < 2 or end > len(data):
            raise CorruptRecord(f"a record of {size} bytes does not fit at byte {at}")
        self.next_at = end
        fields = FieldReader(data, at + SIZE_PREFIX_BYTES, end)
        kind = fields.u8()
        version = fields.u8()
        if version != 1 and not 1 < version <= VERSIONS.get(kind, 1):
            raise UnknownRecord(f"unknown version {version} of kind {kind}")
        time = fields.s64()
        origin = self._origin(fields)
        try:
            record = self._fields(kind, version, fields, time, origin)
        except UnicodeDecodeError as error:
            raise CorruptRecord(f"a text at byte {at} is not UTF-8") from error
        blob_size = fields.u32()
        if fields.at + blob_size != end:
            raise CorruptRecord(f"a record at byte {at} is longer or shorter than what is in it")
        record.size = size + SIZE_PREFIX_BYTES
        record.blob_size = blob_size
        record.blob_at = position + fields.at
        if blob_size and self.blobs:
            record.blob = fields.raw_bytes(blob_size)
        return record

    def _origin(self, fields: FieldReader) -> Origin:
        start = fields.at
        dialect = fields.u8()
        user_size = fields.u8()
        user = fields.raw_bytes(user_size)
        holder_size = fields.u8()
        holder = fields.raw_bytes(holder_size)
        encoded = fields.data[start : fields.at]
        known = self.origins.get(encoded)
        if known is not None:
            return known
        origin = Origin(dialect, user.decode(errors="replace"), holder.decode(errors="replace"))
        if len(self.origins) >= _CACHED:
            self.origins.clear()
        self.origins[encoded] = origin
        return origin

    def _policy(self, encoded: bytes) -> Policy:
        known = self.policies.get(encoded)
        if known is not None:
            return known
        fields = FieldReader(encoded, 0, len(encoded))
        ttr = fields.s64()
        max_attempts = fields.u32()
        max_fails = fields.s64()
        max_losses = fields.u32()
        backoff = fields.u8()
        base = fields.s64()
        cap = fields.s64()
        dead_queue = fields.text()
        lost = fields.u8() != 0
        policy = Policy(
            ttr, max_attempts, max_fails, max_losses, backoff, base, cap, dead_queue, lost
        )
        if len(self.policies) >= _CACHED:
            self.policies.clear()
        self.policies[encoded] = policy
        return policy

    def _fields(
        self, kind: i64, version: i64, fields: FieldReader, time: i64, origin: Origin
    ) -> r.Record:
        if kind == r.PUSH:
            return self._push(fields, time, origin)
        if r.LEASE <= kind <= r.REPLAY:
            return _job_record(kind, fields, time, origin)
        if kind == r.PROGRESS:
            return _progress(fields, time, origin)
        if kind == r.SNAPSHOT_JOB:
            id = fields.s64()
            queue = fields.short_bytes()
            name = fields.text()
            policy = self._policy(fields.short_bytes())
            return read_job_snapshot(fields, time, origin, id, queue, name, policy, version)
        if kind == r.SNAPSHOT_QUEUE:
            queue = fields.short_bytes()
            number = fields.s64()
            return read_queue_snapshot(
                version, fields, time, origin, queue, number, _settings(fields)
            )
        if kind == r.SCHEDULE:
            return ScheduleSet(
                time, origin, read_schedule(fields, self._policy(fields.short_bytes()))
            )
        if kind in (r.SCHEDULE_GONE, r.SCHEDULE_TICK):
            return read_schedule_event(kind, fields, time, origin)
        if kind == r.SNAPSHOT_SCHEDULE:
            return ScheduleSnapshot(
                time, origin, read_schedule(fields, self._policy(fields.short_bytes()))
            )
        if kind >= r.FIRST_SNAPSHOT:
            return read_snapshot(kind, version, fields, time, origin)
        if kind == r.QUEUE:
            queue = fields.short_bytes()
            settings = _settings(fields)
            if version >= 2:
                read_limit_settings(fields, settings)
            return s.QueueSet(time, origin, queue, settings)
        return _entity_record(kind, version, fields, time, origin)

    def _push(self, fields: FieldReader, time: i64, origin: Origin) -> r.PushRecord:
        id = fields.s64()
        queue = fields.short_bytes()
        flags = fields.u8()
        content = fields.u8()
        priority = fields.s64()
        name = fields.text()
        policy = self._policy(fields.short_bytes())
        run_at: i64 = fields.s64() if flags & r.HAS_RUN_AT else 0
        uid = fields.raw_bytes(16) if flags & r.HAS_UID else None
        key = fields.short_bytes() if flags & r.HAS_KEY else None
        ttl_ms = fields.u64() if flags & r.HAS_TTL else 0
        blockers = fields.ids() if flags & r.HAS_BLOCKERS else None
        notify: Notify | None = None
        if flags & r.HAS_NOTIFY:
            session = fields.s64()
            label = fields.u64()
            notify = Notify(session, label, fields.u8())
        limit_key = fields.short_bytes() if flags & r.HAS_LIMIT_KEY else None
        job = NewJob(
            "",  # the record has it in bytes
            name,
            b"",
            policy,
            priority,
            run_at,
            content,
            flags & r.AT_FRONT != 0,
            ttl_ms,
            uid,
            key,
            blockers,
            notify,
            limit_key,
        )
        return r.PushRecord(time, origin, id, queue, job, blockers)


def _job_record(kind: i64, fields: FieldReader, time: i64, origin: Origin) -> r.Record:
    id = fields.s64()
    queue = fields.short_bytes()
    if kind == r.LEASE:
        owner = fields.s64()
        bound = fields.u8() != 0
        epoch = fields.u32()
        attempt = fields.u32()
        return r.LeaseRecord(time, origin, id, queue, owner, bound, epoch, attempt, fields.s64())
    if kind == r.FINISH:
        attempt = fields.u32()
        way = fields.u8()
        flags = fields.u8()
        uid = fields.raw_bytes(16) if flags & 1 else None
        kept_until = fields.s64() if flags & 2 else i64(0)
        producer = fields.raw_bytes(PRODUCER_BYTES) if flags & 4 else b""
        return r.FinishRecord(
            time, origin, id, queue, attempt, way, kept_until, uid, producer=producer
        )
    if kind == r.RETRY:
        attempt = fields.u32()
        run_at = fields.s64()
        return j.RetryRecord(time, origin, id, queue, attempt, run_at, fields.u8() != 0)
    if kind == r.RELEASE:
        attempt = fields.u32()
        cause = fields.u8()
        return j.ReleaseRecord(time, origin, id, queue, attempt, cause, fields.u8() != 0)
    if kind == r.FAIL:
        attempt = fields.u32()
        explicit = fields.u8() != 0
        reason = fields.text()
        return j.FailRecord(time, origin, id, queue, attempt, explicit, reason, fields.text())
    if kind == r.WAKE:
        return j.WakeRecord(time, origin, id, queue)
    if kind == r.UNBLOCK:
        return j.UnblockRecord(time, origin, id, queue, fields.s64())
    if kind == r.REMOVE:
        cause = fields.u8()
        flags = fields.u8()
        uid = fields.raw_bytes(16) if flags & 1 else None
        producer = fields.raw_bytes(PRODUCER_BYTES) if flags & 4 else b""
        return j.RemoveRecord(time, origin, id, queue, cause, flags & 2 != 0, uid, producer)
    if kind == r.MOVE:
        to = fields.short_bytes()
        return j.MoveRecord(time, origin, id, queue, to, fields.u8() != 0)
    if kind == r.RESCORE:
        return j.RescoreRecord(time, origin, id, queue, fields.s64())
    if kind == r.EXTEND:
        attempt = fields.u32()
        return j.ExtendRecord(time, origin, id, queue, attempt, fields.s64())
    return j.ReplayRecord(time, origin, id, queue, fields.u8() != 0)


def _progress(fields: FieldReader, time: i64, origin: Origin) -> j.ProgressRecord:
    id = fields.s64()
    queue = fields.short_bytes()
    attempt = fields.u32()
    permille = fields.u32()
    return j.ProgressRecord(time, origin, id, queue, attempt, permille, fields.text())


def _batch(version: i64, fields: FieldReader, time: i64, origin: Origin) -> s.BatchRecord:
    consumer = fields.text()
    owner = fields.s64()
    number = fields.s64()
    epoch = fields.u32()
    deadline = fields.s64()
    ids = fields.ids()
    counts = fields.ids()
    queues = [fields.short_bytes() for _ in counts]
    attempts = [fields.u32() if version >= 2 else 0 for _ in ids]
    user = fields.text() if version >= 3 else ""
    return s.BatchRecord(
        time, origin, consumer, owner, number, epoch, deadline, ids, queues, counts, attempts, user
    )


def _entity_record(
    kind: i64, version: i64, fields: FieldReader, time: i64, origin: Origin
) -> r.Record:
    if kind == r.BATCH:
        return _batch(version, fields, time, origin)
    if kind == r.BOOT:
        epoch = fields.s64()
        release = fields.text()
        next_id = fields.s64() if version >= 2 else i64(0)
        return r.BootRecord(time, origin, epoch, release, next_id)
    if kind == r.QUEUE_GONE:
        return s.QueueGone(time, origin, fields.short_bytes())
    if kind == r.VALUE:
        key = fields.short_bytes()
        expires_at = fields.s64()
        return s.ValueSet(time, origin, key, expires_at, fields.u8() != 0)
    if kind == r.VALUE_GONE:
        return s.ValueGone(time, origin, fields.short_bytes())
    if kind == r.SESSION:
        id = fields.s64()
        event = fields.u8()
        return s.SessionChange(time, origin, id, event, fields.s64())
    if kind == r.BATCH_DONE:
        consumer = fields.text()
        number = fields.s64()
        flags = fields.u8()
        return s.BatchDone(time, origin, consumer, number, flags & 1 != 0, flags & 2 != 0)
    if kind == r.FORGET:
        return s.ForgetUids(time, origin, fields.s64())
    if kind == r.READER:
        name = fields.text()
        next_seq = fields.s64()
        return s.ReaderSet(time, origin, name, next_seq, fields.s64())
    if kind == r.READER_GONE:
        return s.ReaderGone(time, origin, fields.text())
    raise UnknownRecord(f"unknown kind {kind}")


def _settings(fields: FieldReader) -> QueueSettings:
    flags = fields.u8()
    retries = fields.s64()
    result_retention = fields.s64()
    dead_retention = fields.s64()
    backoff = fields.s64()
    backoff_base = fields.s64()
    backoff_cap = fields.s64()
    max_jobs = fields.s64()
    return QueueSettings(
        flags & 1 != 0,
        flags & 2 != 0,
        retries,
        result_retention,
        dead_retention,
        backoff,
        backoff_base,
        backoff_cap,
        max_jobs,
        fields.s64(),
        OVERFLOW_DEAD if flags & 4 else OVERFLOW_REFUSE,
        flags & 8 != 0,
    )
