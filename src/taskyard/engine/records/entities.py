"""Records of what the engine keeps beside jobs: queues, values, sessions, consumers and the like.

Layout and version rules are those of job_lifecycle.py.
"""

from __future__ import annotations

from array import array
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.limits import (
    change_effective_settings,
    forget_changed_rates,
    forget_key_limits,
)
from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import FOREVER, READY, NewJob, Origin, Policy
from taskyard.engine.model.queue import OVERFLOW_DEAD, Queue, QueueSettings
from taskyard.engine.model.state import (
    BatchConsumer,
    DurableSession,
    NamedReader,
    State,
    Value,
    consumer_record_bytes,
    queue_record_bytes,
    reader_record_bytes,
    schedule_record_bytes,
    session_record_bytes,
    value_record_bytes,
)
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.job_lifecycle import (
    BATCH,
    BATCH_DONE,
    FORGET,
    QUEUE,
    QUEUE_GONE,
    READER,
    READER_GONE,
    SCHEDULE,
    SCHEDULE_GONE,
    SCHEDULE_TICK,
    SESSION,
    SNAPSHOT_SCHEDULE,
    VALUE,
    VALUE_GONE,
    Record,
    encode_policy,
)
from taskyard.engine.records.wire import (
    FieldReader,
    put_i64,
    put_ids,
    put_short_bytes,
    put_text,
    put_u8,
    put_u32,
    put_u64,
)
from taskyard.engine.schedules.schedule import BY_HAND, RAN, SKIPPED, Schedule
from taskyard.engine.structures.index import NOTICE_RECORD_BYTES
from taskyard.engine.transitions import arm_tombstone_timer, dead_letter_expiry, lease_to


def put_settings(out: BytesWriter, settings: QueueSettings) -> None:
    # In records of older servers the bits of overflow and draining are never set.
    flags = (1 if settings.created else 0) | (2 if settings.paused else 0)
    flags |= (4 if settings.overflow == OVERFLOW_DEAD else 0) | (8 if settings.draining else 0)
    put_u8(out, flags)
    put_i64(out, settings.retries)
    put_i64(out, settings.result_retention)
    put_i64(out, settings.dead_retention)
    put_i64(out, settings.backoff)
    put_i64(out, settings.backoff_base)
    put_i64(out, settings.backoff_cap)
    put_i64(out, settings.max_jobs)
    put_i64(out, settings.max_bytes)


def put_limit_settings(out: BytesWriter, settings: QueueSettings) -> None:
    """Encode the settings that were added in version 2."""
    put_i64(out, settings.ttr)
    put_i64(out, settings.concurrency)
    put_i64(out, settings.rate_count)
    put_i64(out, settings.rate_period)
    put_i64(out, settings.key_concurrency)
    put_i64(out, settings.key_rate_count)
    put_i64(out, settings.key_rate_period)
    put_i64(out, settings.idle_expiry)


@mypyc_attr(acyclic=True)
class QueueSet(Record):
    """A queue was made, or has other settings now."""

    __slots__ = ("queue", "settings")

    def __init__(self, time: i64, origin: Origin, queue: bytes, settings: QueueSettings) -> None:
        super().__init__(time, origin)
        self.queue = queue
        self.settings = settings

    def kind(self) -> i64:
        return QUEUE

    def format_version(self) -> i64:
        return 2

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.queue)
        put_settings(out, self.settings)
        put_limit_settings(out, self.settings)


@mypyc_attr(acyclic=True)
class QueueGone(Record):
    """A queue was deleted; its jobs were removed one by one before."""

    __slots__ = ("queue",)

    def __init__(self, time: i64, origin: Origin, queue: bytes) -> None:
        super().__init__(time, origin)
        self.queue = queue

    def kind(self) -> i64:
        return QUEUE_GONE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.queue)


@mypyc_attr(acyclic=True)
class ValueSet(Record):
    """A keyed value was set. The blob is the value, unless only its expiry changed."""

    __slots__ = ("expires_at", "keep", "key")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        key: bytes,
        expires_at: i64,
        keep: bool,
        value: bytes = b"",
    ) -> None:
        super().__init__(time, origin, value)
        self.key = key
        self.expires_at = expires_at  # 0: never
        self.keep = keep  # the value stays what it is

    def kind(self) -> i64:
        return VALUE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.key)
        put_i64(out, self.expires_at)
        put_u8(out, 1 if self.keep else 0)


@mypyc_attr(acyclic=True)
class ValueGone(Record):
    """A keyed value was deleted or has expired."""

    __slots__ = ("key",)

    def __init__(self, time: i64, origin: Origin, key: bytes) -> None:
        super().__init__(time, origin)
        self.key = key

    def kind(self) -> i64:
        return VALUE_GONE

    def encode(self, out: BytesWriter) -> None:
        put_short_bytes(out, self.key)


@mypyc_attr(acyclic=True)
class SessionChange(Record):
    """Something happened to a durable session."""

    __slots__ = ("event", "id", "upto")

    def __init__(self, time: i64, origin: Origin, id: i64, event: i64, upto: i64 = 0) -> None:
        super().__init__(time, origin)
        self.id = id
        self.event = event
        self.upto = upto  # DELIVERED: entries of the outbox up to this number are with the client

    def kind(self) -> i64:
        return SESSION

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.id)
        put_u8(out, self.event)
        put_i64(out, self.upto)


@mypyc_attr(acyclic=True)
class BatchRecord(Record):
    """A consumer leased batch `number`: these jobs, until `deadline` if there is one.

    A record with the number of a leased batch says that these jobs are in it as well.
    """

    __slots__ = (
        "attempts",
        "consumer",
        "consumer_user",
        "counts",
        "deadline",
        "epoch",
        "ids",
        "number",
        "owner",
        "queues",
    )

    def __init__(
        self,
        time: i64,
        origin: Origin,
        consumer: str,
        owner: i64,
        number: i64,
        epoch: i64,
        deadline: i64,
        ids: list[int],
        queues: list[bytes],
        counts: list[int],
        attempts: list[int],
        consumer_user: str = "",
    ) -> None:
        super().__init__(time, origin)
        self.consumer = consumer
        self.owner = owner
        self.number = number
        self.epoch = epoch
        self.deadline = deadline
        self.ids = ids
        self.queues = queues  # that they were taken from, one after the other
        self.counts = counts  # and how many of each
        self.attempts = attempts  # which one this is of each job; 0: not said, in version 1
        self.consumer_user = consumer_user  # the consumer's user; "": none

    def kind(self) -> i64:
        return BATCH

    def format_version(self) -> i64:
        return 3 if self.consumer_user else 2

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.consumer)
        put_i64(out, self.owner)
        put_i64(out, self.number)
        put_u32(out, self.epoch)
        put_i64(out, self.deadline)
        put_ids(out, self.ids)
        put_ids(out, self.counts)
        for queue in self.queues:
            put_short_bytes(out, queue)
        for attempt in self.attempts:
            put_u32(out, attempt)
        if self.consumer_user:
            put_text(out, self.consumer_user)


@mypyc_attr(acyclic=True)
class BatchDone(Record):
    """A consumer is done with its batch; its jobs were finished or released one by one before."""

    __slots__ = ("consumer", "dropped", "expired", "number")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        consumer: str,
        number: i64,
        dropped: bool = False,
        expired: bool = False,
    ) -> None:
        super().__init__(time, origin)
        self.consumer = consumer
        self.number = number
        self.dropped = dropped  # the consumer itself is gone too
        self.expired = expired  # it was out for too long

    def kind(self) -> i64:
        return BATCH_DONE

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.consumer)
        put_i64(out, self.number)
        put_u8(out, (1 if self.dropped else 0) | (2 if self.expired else 0))


@mypyc_attr(acyclic=True)
class ForgetUids(Record):
    """The uids of jobs that were gone before a time are forgotten."""

    __slots__ = ("before",)

    def __init__(self, time: i64, origin: Origin, before: i64) -> None:
        super().__init__(time, origin)
        self.before = before

    def kind(self) -> i64:
        return FORGET

    def encode(self, out: BytesWriter) -> None:
        put_i64(out, self.before)


@mypyc_attr(acyclic=True)
class ReaderSet(Record):
    """A reader of the journal has all before `next_seq`; what follows is kept for it for a while.

    It has everything about the reader.
    """

    __slots__ = ("lease_until", "name", "next_seq")

    def __init__(
        self, time: i64, origin: Origin, name: str, next_seq: i64, lease_until: i64
    ) -> None:
        super().__init__(time, origin)
        self.name = name
        self.next_seq = next_seq
        self.lease_until = lease_until

    def kind(self) -> i64:
        return READER

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_i64(out, self.next_seq)
        put_i64(out, self.lease_until)


@mypyc_attr(acyclic=True)
class ReaderGone(Record):
    """A reader of the journal was removed: nothing need be kept for it."""

    __slots__ = ("name",)

    def __init__(self, time: i64, origin: Origin, name: str) -> None:
        super().__init__(time, origin)
        self.name = name

    def kind(self) -> i64:
        return READER_GONE

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)


# Records of schedules

# Which optional fields the job of a schedule has, and a setting that takes one bit.
HAS_KEY: Final = 1
IS_PAUSED: Final = 2
HAS_LIMIT_KEY: Final = 4


def _put_schedule(out: BytesWriter, schedule: Schedule) -> None:
    job = schedule.job
    key = job.key
    limit_key = job.limit_key
    put_short_bytes(out, encode_policy(job.policy))
    put_text(out, schedule.name)
    put_u8(out, _flags(schedule))
    put_text(out, schedule.cron)
    put_i64(out, schedule.every)
    put_text(out, schedule.zone)
    put_u8(out, schedule.missed_rule)
    put_u8(out, schedule.overlap)
    put_text(out, schedule.user)
    put_i64(out, schedule.since)
    put_i64(out, schedule.next_at)
    put_i64(out, schedule.last_at)
    put_i64(out, schedule.last_job)
    put_i64(out, schedule.runs)
    put_i64(out, schedule.skipped)
    put_i64(out, schedule.missed)
    put_text(out, job.queue)
    put_text(out, job.name)
    put_u8(out, job.content)
    put_i64(out, job.priority)
    put_u64(out, job.ttl_ms)
    if key is not None:
        put_short_bytes(out, key)
    if limit_key is not None:
        put_short_bytes(out, limit_key)
    put_u32(out, len(job.payload))
    out.write(job.payload)


def _flags(schedule: Schedule) -> i64:
    flags: i64 = IS_PAUSED if schedule.paused else 0
    if schedule.job.key is not None:
        flags |= HAS_KEY
    if schedule.job.limit_key is not None:
        flags |= HAS_LIMIT_KEY
    return flags


class ScheduleSet(Record):
    """A schedule was created or changed. It has everything about it."""

    __slots__ = ("queue", "schedule")

    def __init__(self, time: i64, origin: Origin, schedule: Schedule) -> None:
        super().__init__(time, origin)
        self.schedule = schedule
        self.queue = schedule.job.queue.encode()

    def kind(self) -> i64:
        return SCHEDULE

    def encode(self, out: BytesWriter) -> None:
        _put_schedule(out, self.schedule)


@mypyc_attr(acyclic=True)
class ScheduleGone(Record):
    """A schedule was deleted."""

    __slots__ = ("name", "queue")

    def __init__(self, time: i64, origin: Origin, name: str, queue: bytes) -> None:
        super().__init__(time, origin)
        self.name = name
        self.queue = queue

    def kind(self) -> i64:
        return SCHEDULE_GONE

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_short_bytes(out, self.queue)


@mypyc_attr(acyclic=True)
class ScheduleTick(Record):
    """A tick was due, and its result. If it ran, the push of its job is in the same frame."""

    __slots__ = ("due", "job", "missed", "name", "next_at", "outcome", "queue")

    def __init__(
        self,
        time: i64,
        origin: Origin,
        name: str,
        queue: bytes,
        due: i64,
        outcome: i64,
        job: i64,
        missed: i64,
        next_at: i64,
    ) -> None:
        super().__init__(time, origin)
        self.name = name
        self.queue = queue
        self.due = due  # the tick that it is about
        self.outcome = outcome
        self.job = job  # the one that was pushed; 0: none was
        self.missed = missed  # ticks up to this one that no run was for
        self.next_at = next_at

    def kind(self) -> i64:
        return SCHEDULE_TICK

    def encode(self, out: BytesWriter) -> None:
        put_text(out, self.name)
        put_short_bytes(out, self.queue)
        put_i64(out, self.due)
        put_u8(out, self.outcome)
        put_i64(out, self.job)
        put_i64(out, self.missed)
        put_i64(out, self.next_at)


class ScheduleSnapshot(Record):
    """A schedule as it is now."""

    __slots__ = ("schedule",)

    def __init__(self, time: i64, origin: Origin, schedule: Schedule) -> None:
        super().__init__(time, origin)
        self.schedule = schedule

    def kind(self) -> i64:
        return SNAPSHOT_SCHEDULE

    def encode(self, out: BytesWriter) -> None:
        _put_schedule(out, self.schedule)


# Records of schedules back from bytes; the counterpart of each one's `encode`


def read_schedule(fields: FieldReader, policy: Policy) -> Schedule:
    """The fields of a schedule after the policy of its job."""
    name = fields.text()
    flags = fields.u8()
    cron = fields.text()
    every = fields.s64()
    zone = fields.text()
    missed_rule = fields.u8()
    overlap = fields.u8()
    user = fields.text()
    times = [fields.s64() for _ in range(4)]
    counts = [fields.s64() for _ in range(3)]
    schedule = Schedule(
        name,
        _job(fields, policy, flags),
        cron,
        every,
        zone,
        missed_rule,
        overlap,
        flags & IS_PAUSED != 0,
    )
    schedule.user = user
    schedule.since = times[0]
    schedule.next_at = times[1]
    schedule.last_at = times[2]
    schedule.last_job = times[3]
    schedule.runs = counts[0]
    schedule.skipped = counts[1]
    schedule.missed = counts[2]
    return schedule


def _job(fields: FieldReader, policy: Policy, flags: i64) -> NewJob:
    queue = fields.text()
    name = fields.text()
    content = fields.u8()
    priority = fields.s64()
    ttl_ms = fields.u64()
    key = fields.short_bytes() if flags & HAS_KEY else None
    limit_key = fields.short_bytes() if flags & HAS_LIMIT_KEY else None
    payload = fields.raw_bytes(fields.u32())
    job = NewJob(queue, name, payload, policy, priority, 0, content, False, ttl_ms, None, key)
    job.limit_key = limit_key
    return job


def read_schedule_event(kind: i64, fields: FieldReader, time: i64, origin: Origin) -> Record:
    """A tick, or the end of a schedule."""
    name = fields.text()
    queue = fields.short_bytes()
    if kind == SCHEDULE_GONE:
        return ScheduleGone(time, origin, name, queue)
    due = fields.s64()
    outcome = fields.u8()
    job = fields.s64()
    missed = fields.s64()
    return ScheduleTick(time, origin, name, queue, due, outcome, job, missed, fields.s64())


# The apply half for what the engine keeps beside jobs: queues, values, sessions and the like


def apply_boot(state: State, record: r.BootRecord) -> None:
    state.time = record.time
    state.epoch = record.epoch
    state.next_id = max(state.next_id, record.next_id)
    state.evicted = 0
    forget_changed_rates(state, record.time)
    for session in state.sessions.values():
        if session.attached:
            session.attached = False
            session.since = record.time
            state.timers.set(session.timer, record.time + state.settings.outbox_age)


def apply_queue(state: State, record: QueueSet) -> None:
    state.time = record.time
    queue = state.get_or_create_queue(record.queue, record.seq, record.blob_at)
    set_queue_settings(state, queue, record.settings)
    if queue.dead.size:  # their retention may be another one now
        state.timers.set(queue.dead_timer, dead_letter_expiry(state, queue, queue.dead.first()))


def set_queue_settings(state: State, queue: Queue, settings: QueueSettings) -> None:
    queue.settings = settings
    change_effective_settings(state, queue, state.effective_settings_of(queue.name, settings))
    state.arm_idle_timer(queue)
    if settings.has_bounds():
        state.any_queue_bounded = True


def apply_queue_gone(state: State, record: QueueGone) -> None:
    state.time = record.time
    queue = state.queues.pop(record.queue)
    state.last_queue = None
    state.queues_version += 1
    state.live_bytes.subtract(queue.record_at, queue_record_bytes(queue))
    state.queues_to_serve.pop(record.queue, None)
    forget_key_limits(state, queue)
    for timer in (queue.wake_timer, queue.dead_timer, queue.idle_timer):
        if timer is not None:
            state.timers.cancel(timer)
            timer.target = None  # queue and timer point at each other


def apply_value(state: State, record: ValueSet) -> None:
    state.time = record.time
    value = state.values.get(record.key)
    if value is None:
        value = Value(record.key)
        state.values[record.key] = value
        value.value_at = record.blob_at
        state.live_bytes.add(value.value_at, value_record_bytes(value))
    if not record.keep:
        place_value(state, value, record.blob_at, record.blob_size)
    set_value_expiry_timer(state, value, record.expires_at)


def place_value(state: State, value: Value, at: i64, size: i64) -> None:
    """The value's bytes are in the journal there."""
    state.live_bytes.subtract(value.value_at, value_record_bytes(value))
    value.value_at = at
    value.size = size
    state.live_bytes.add(at, value_record_bytes(value))


def set_value_expiry_timer(state: State, value: Value, when: i64) -> None:
    value.expires_at = when
    if when and when != FOREVER:
        state.timers.set(value.timer, when)
    else:
        state.timers.cancel(value.timer)


def apply_value_gone(state: State, record: ValueGone) -> None:
    state.time = record.time
    value = state.values.pop(record.key)
    state.timers.cancel(value.timer)
    state.live_bytes.subtract(value.value_at, value_record_bytes(value))


def apply_session(state: State, record: SessionChange) -> None:
    state.time = record.time
    if record.event == r.OPENED:
        opened = DurableSession(record.id, record.time, record.seq)
        state.sessions[record.id] = opened
        state.live_bytes.unplaced += session_record_bytes(opened)
        return
    session = state.sessions[record.id]
    if record.event == r.DELIVERED:
        session.delivered = record.upto
        outbox = session.outbox
        while outbox and outbox[0].number <= record.upto:
            outbox.popleft()
            state.live_bytes.unplaced -= NOTICE_RECORD_BYTES
        return
    session.since = record.time
    if record.event == r.ATTACHED:
        session.attached = True
        state.timers.cancel(session.timer)
    elif record.event == r.DETACHED:
        session.attached = False
        state.timers.set(session.timer, record.time + state.settings.outbox_age)
    else:
        state.timers.cancel(session.timer)
        del state.sessions[record.id]
        state.live_bytes.unplaced -= session_record_bytes(session)


def apply_batch(state: State, record: BatchRecord) -> None:
    apply_batch_jobs(state, record, record.ids)


def apply_batch_jobs(state: State, record: BatchRecord, ids: list[int]) -> None:
    """A batch, as far as its jobs are known."""
    state.time = record.time
    consumer = state.consumers.get(record.consumer)
    if consumer is None:
        consumer = BatchConsumer(record.consumer, record.owner)
        state.consumers[record.consumer] = consumer
    else:
        state.live_bytes.unplaced -= consumer_record_bytes(consumer)
    if record.consumer_user:
        consumer.user = record.consumer_user
    if consumer.open and consumer.number == record.number:
        consumer.ids.extend(record.ids)
        consumer.attempts.extend(record.attempts)
    else:
        consumer.record_seq = record.seq
        consumer.number = record.number
        consumer.open = True
        consumer.ids = array("q", record.ids)
        consumer.attempts = array("I", record.attempts)
        consumer.queues = {}
        consumer.cleared_count = 0
        consumer.deadline = record.deadline
        if record.deadline:
            state.timers.set(consumer.timer, record.deadline)
    for queue in record.queues:
        consumer.queues[queue] = None
    state.live_bytes.unplaced += consumer_record_bytes(consumer)
    for id in ids:
        job = state.jobs.get(id)
        if job is None or job.state != READY:
            raise CorruptRecord(f"job {id} is not ready for a batch")
        job.queue.ready.remove(job)
        holder = record.origin.holder
        lease_to(state, job, consumer.owner, False, holder, record.epoch, record.time, 0)


def apply_batch_done(state: State, record: BatchDone) -> None:
    state.time = record.time
    consumer = state.consumers[record.consumer]
    consumer.open = False
    consumer.expired = record.expired
    state.live_bytes.unplaced -= consumer_record_bytes(consumer)
    consumer.ids = array("q")
    consumer.attempts = array("I")
    consumer.number = record.number
    consumer.deadline = 0
    state.timers.cancel(consumer.timer)
    if record.dropped:
        del state.consumers[record.consumer]
    else:
        state.live_bytes.unplaced += consumer_record_bytes(consumer)


def apply_forget_uids(state: State, record: ForgetUids) -> None:
    state.time = record.time
    state.tombstones.forget_before(record.before)
    arm_tombstone_timer(state)


def apply_reader(state: State, record: ReaderSet) -> None:
    state.time = record.time
    state.readers_changed_seq = record.seq
    set_reader(state, record.name, record.next_seq, record.lease_until, record.seq)


def set_reader(state: State, name: str, next_seq: i64, lease_until: i64, seq: i64) -> None:
    """Record `seq` says that the reader is there, and this of it."""
    reader = state.readers.get(name)
    if reader is None:
        reader = NamedReader(name)
        state.readers[name] = reader
        state.live_bytes.unplaced += reader_record_bytes(reader)
    reader.next_seq = next_seq
    reader.lease_until = lease_until
    reader.record_seq = seq


def apply_reader_gone(state: State, record: ReaderGone) -> None:
    state.time = record.time
    state.readers_changed_seq = record.seq
    reader = state.readers.pop(record.name)
    state.live_bytes.unplaced -= reader_record_bytes(reader)


# The apply half for schedules: as in apply.py, it does what the record says, no more


def apply_schedule(state: State, record: ScheduleSet) -> None:
    state.time = record.time
    old = state.schedules.get(record.schedule.name)
    if old is not None:
        _remove_schedule(state, old)
    place_schedule(state, record.schedule, record.seq)


def place_schedule(state: State, schedule: Schedule, seq: i64) -> None:
    """Record `seq` says all of this schedule, which is not there yet."""
    state.schedules[schedule.name] = schedule
    weight = schedule_record_bytes(schedule)
    state.live_bytes.unplaced += weight
    state.schedule_bytes += weight
    schedule.record_seq = seq
    if schedule.next_at:
        state.timers.set(schedule.timer, schedule.next_at)


def _remove_schedule(state: State, schedule: Schedule) -> None:
    state.timers.cancel(schedule.timer)
    weight = schedule_record_bytes(schedule)
    state.live_bytes.unplaced -= weight
    state.schedule_bytes -= weight
    del state.schedules[schedule.name]


def apply_schedule_gone(state: State, record: ScheduleGone) -> None:
    state.time = record.time
    _remove_schedule(state, state.schedules[record.name])


def apply_schedule_tick(state: State, record: ScheduleTick) -> None:
    state.time = record.time
    schedule = state.schedules[record.name]
    schedule.missed += record.missed
    if record.outcome == SKIPPED:
        schedule.skipped += 1
    elif record.outcome == RAN or record.outcome == BY_HAND:
        schedule.runs += 1
        schedule.last_at = record.time
        schedule.last_job = record.job
    schedule.next_at = record.next_at
    if record.next_at:
        state.timers.set(schedule.timer, record.next_at)
    else:
        state.timers.cancel(schedule.timer)
