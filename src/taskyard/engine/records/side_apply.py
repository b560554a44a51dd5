"""The apply half for what the engine keeps beside jobs: queues, values, sessions and the like.

As in apply.py: it does what the record says and chooses nothing.
"""

from __future__ import annotations

from array import array

from mypy_extensions import i64

from taskyard.engine.limits import change_rules, drop_foreign_rates, forget_gates
from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import FOREVER, READY
from taskyard.engine.model.queue import Queue, QueueSettings
from taskyard.engine.model.state import (
    Consumer,
    NamedReader,
    Session,
    State,
    Value,
    consumer_weight,
    queue_weight,
    reader_weight,
    session_weight,
    value_weight,
)
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records import side_records as s
from taskyard.engine.structures.weights import LETTER_WEIGHT
from taskyard.engine.transitions import dead_until, lease_to, wait_for_graves


def apply_boot(state: State, record: r.Boot) -> None:
    state.time = record.time
    state.epoch = record.epoch
    state.next_id = max(state.next_id, record.next_id)
    state.evicted = 0
    drop_foreign_rates(state, record.time)
    for session in state.sessions.values():
        if session.attached:
            session.attached = False
            session.since = record.time
            state.timers.set(session.timer, record.time + state.settings.outbox_age)


def apply_queue(state: State, record: s.QueueSet) -> None:
    state.time = record.time
    queue = state.queue(record.queue, record.seq, record.blob_at)
    set_settings(state, queue, record.settings)
    if queue.dead.size:  # their retention may be another one now
        state.timers.set(queue.dead_timer, dead_until(state, queue, queue.dead.first()))


def set_settings(state: State, queue: Queue, settings: QueueSettings) -> None:
    queue.settings = settings
    change_rules(state, queue, state.rules_of(queue.name, settings))
    state.watch_idleness(queue)
    if settings.has_bounds():
        state.bounded = True


def apply_queue_gone(state: State, record: s.QueueGone) -> None:
    state.time = record.time
    queue = state.queues.pop(record.queue)
    state.last_queue = None
    state.queues_changed += 1
    state.weights.sub(queue.at, queue_weight(queue))
    state.freed.pop(record.queue, None)
    forget_gates(state, queue)
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
        value.at = record.blob_at
        state.weights.add(value.at, value_weight(value))
    if not record.keep:
        place_value(state, value, record.blob_at, record.blob_size)
    expire_value_at(state, value, record.expires_at)


def place_value(state: State, value: Value, at: i64, size: i64) -> None:
    """The value's bytes are in the journal there."""
    state.weights.sub(value.at, value_weight(value))
    value.at = at
    value.size = size
    state.weights.add(at, value_weight(value))


def expire_value_at(state: State, value: Value, when: i64) -> None:
    value.expires_at = when
    if when and when != FOREVER:
        state.timers.set(value.timer, when)
    else:
        state.timers.cancel(value.timer)


def apply_value_gone(state: State, record: s.ValueGone) -> None:
    state.time = record.time
    value = state.values.pop(record.key)
    state.timers.cancel(value.timer)
    state.weights.sub(value.at, value_weight(value))


def apply_session(state: State, record: s.SessionSet) -> None:
    state.time = record.time
    if record.event == r.OPENED:
        opened = Session(record.id, record.time, record.seq)
        state.sessions[record.id] = opened
        state.weights.loose += session_weight(opened)
        return
    session = state.sessions[record.id]
    if record.event == r.DELIVERED:
        session.delivered = record.upto
        outbox = session.outbox
        while outbox and outbox[0].number <= record.upto:
            outbox.popleft()
            state.weights.loose -= LETTER_WEIGHT
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
        state.weights.loose -= session_weight(session)


def apply_batch(state: State, record: s.Batch) -> None:
    apply_batch_jobs(state, record, record.ids)


def apply_batch_jobs(state: State, record: s.Batch, ids: list[int]) -> None:
    """A batch, as far as its jobs are known."""
    state.time = record.time
    consumer = state.consumers.get(record.consumer)
    if consumer is None:
        consumer = Consumer(record.consumer, record.owner)
        state.consumers[record.consumer] = consumer
    else:
        state.weights.loose -= consumer_weight(consumer)
    if record.consumer_user:
        consumer.user = record.consumer_user
    if consumer.open and consumer.number == record.number:
        consumer.ids.extend(record.ids)
        consumer.attempts.extend(record.attempts)
    else:
        consumer.anchor = record.seq
        consumer.number = record.number
        consumer.open = True
        consumer.ids = array("q", record.ids)
        consumer.attempts = array("I", record.attempts)
        consumer.queues = {}
        consumer.cleared = 0
        consumer.deadline = record.deadline
        if record.deadline:
            state.timers.set(consumer.timer, record.deadline)
    for queue in record.queues:
        consumer.queues[queue] = None
    state.weights.loose += consumer_weight(consumer)
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
    state.weights.loose -= consumer_weight(consumer)
    consumer.ids = array("q")
    consumer.attempts = array("I")
    consumer.number = record.number
    consumer.deadline = 0
    state.timers.cancel(consumer.timer)
    if record.dropped:
        del state.consumers[record.consumer]
    else:
        state.weights.loose += consumer_weight(consumer)


def apply_forget(state: State, record: s.Forget) -> None:
    state.time = record.time
    state.tombstones.forget(record.before)
    wait_for_graves(state)


def apply_reader(state: State, record: s.ReaderSet) -> None:
    state.time = record.time
    state.readers_changed = record.seq
    set_reader(state, record.name, record.next_seq, record.lease_until, record.seq)


def set_reader(state: State, name: str, next_seq: i64, lease_until: i64, seq: i64) -> None:
    """Record `seq` says that the reader is there, and this of it."""
    reader = state.readers.get(name)
    if reader is None:
        reader = NamedReader(name)
        state.readers[name] = reader
        state.weights.loose += reader_weight(reader)
    reader.next_seq = next_seq
    reader.lease_until = lease_until
    reader.anchor = seq


def apply_reader_gone(state: State, record: s.ReaderGone) -> None:
    state.time = record.time
    state.readers_changed = record.seq
    reader = state.readers.pop(record.name)
    state.weights.loose -= reader_weight(reader)
