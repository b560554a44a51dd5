"""The apply half for what the engine keeps beside jobs: queues, values, sessions and the like.

As in apply.py: it does what the record says and chooses nothing.
"""

from __future__ import annotations

from array import array

from mypy_extensions import i64

from taskyard.engine.limits import (
    change_effective_settings,
    forget_changed_rates,
    forget_key_limits,
)
from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import FOREVER, READY
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.model.state import (
    BatchConsumer,
    DurableSession,
    NamedReader,
    State,
    Value,
    consumer_record_bytes,
    queue_record_bytes,
    reader_record_bytes,
    session_record_bytes,
    value_record_bytes,
)
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records import side_records as s
from taskyard.engine.structures.weights import NOTICE_RECORD_BYTES
from taskyard.engine.transitions import arm_tombstone_timer, dead_letter_expiry, lease_to


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


def apply_queue(state: State, record: s.QueueSet) -> None:
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


def apply_queue_gone(state: State, record: s.QueueGone) -> None:
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


def apply_value(state: State, record: s.ValueSet) -> None:
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


def apply_value_gone(state: State, record: s.ValueGone) -> None:
    state.time = record.time
    value = state.values.pop(record.key)
    state.timers.cancel(value.timer)
    state.live_bytes.subtract(value.value_at, value_record_bytes(value))


def apply_session(state: State, record: s.SessionChange) -> None:
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


def apply_batch(state: State, record: s.BatchRecord) -> None:
    apply_batch_jobs(state, record, record.ids)


def apply_batch_jobs(state: State, record: s.BatchRecord, ids: list[int]) -> None:
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


def apply_batch_done(state: State, record: s.BatchDone) -> None:
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


def apply_forget_uids(state: State, record: s.ForgetUids) -> None:
    state.time = record.time
    state.tombstones.forget_before(record.before)
    arm_tombstone_timer(state)


def apply_reader(state: State, record: s.ReaderSet) -> None:
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


def apply_reader_gone(state: State, record: s.ReaderGone) -> None:
    state.time = record.time
    state.readers_changed_seq = record.seq
    reader = state.readers.pop(record.name)
    state.live_bytes.unplaced -= reader_record_bytes(reader)
