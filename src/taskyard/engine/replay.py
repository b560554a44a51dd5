"""Applying any record: queues, values, sessions, consumers, uids; and the way in for recovery."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine import records as r
from taskyard.engine import side_records as s
from taskyard.engine.apply import (
    apply_extend,
    apply_fail,
    apply_finish,
    apply_lease,
    apply_move,
    apply_push,
    apply_release,
    apply_remove,
    apply_replay,
    apply_rescore,
    apply_retry,
    apply_unblock,
    apply_wake,
)
from taskyard.engine.errors import CorruptRecord
from taskyard.engine.job import FOREVER, READY
from taskyard.engine.places import dead_until, lease_to
from taskyard.engine.state import Consumer, Session, State, Value


def apply_record(state: State, record: r.Record) -> None:
    """What recovery does with each record, in order."""
    try:
        _apply(state, record)
    except (KeyError, IndexError, AssertionError) as error:
        raise CorruptRecord(f"record {record.seq} does not fit what came before") from error


def _apply(state: State, record: r.Record) -> None:
    if isinstance(record, r.Push):
        apply_push(state, record)
    elif isinstance(record, r.Lease):
        apply_lease(state, record)
    elif isinstance(record, r.Finish):
        apply_finish(state, record)
    elif isinstance(record, r.Retry):
        apply_retry(state, record)
    elif isinstance(record, r.Release):
        apply_release(state, record)
    elif isinstance(record, r.Fail):
        apply_fail(state, record)
    elif isinstance(record, r.JobRecord):
        _apply_job(state, record)
    else:
        _apply_side(state, record)


def _apply_job(state: State, record: r.JobRecord) -> None:
    if isinstance(record, r.Wake):
        apply_wake(state, record)
    elif isinstance(record, r.Unblock):
        apply_unblock(state, record)
    elif isinstance(record, r.Remove):
        apply_remove(state, record)
    elif isinstance(record, r.Move):
        apply_move(state, record)
    elif isinstance(record, r.Rescore):
        apply_rescore(state, record)
    elif isinstance(record, r.Extend):
        apply_extend(state, record)
    elif isinstance(record, r.Replay):
        apply_replay(state, record)


def _apply_side(state: State, record: r.Record) -> None:
    if isinstance(record, r.Boot):
        apply_boot(state, record)
    elif isinstance(record, s.QueueSet):
        apply_queue(state, record)
    elif isinstance(record, s.QueueGone):
        apply_queue_gone(state, record)
    elif isinstance(record, s.ValueSet):
        apply_value(state, record)
    elif isinstance(record, s.ValueGone):
        apply_value_gone(state, record)
    elif isinstance(record, s.SessionSet):
        apply_session(state, record)
    elif isinstance(record, s.Batch):
        apply_batch(state, record)
    elif isinstance(record, s.BatchDone):
        apply_batch_done(state, record)
    elif isinstance(record, s.Forget):
        apply_forget(state, record)


def apply_boot(state: State, record: r.Boot) -> None:
    state.time = record.time
    state.epoch = record.epoch
    state.evicted = 0
    for session in state.sessions.values():
        if session.attached:
            session.attached = False
            session.since = record.time
            state.timers.set(session.timer, record.time + state.settings.outbox_age)


def apply_queue(state: State, record: s.QueueSet) -> None:
    state.time = record.time
    queue = state.queue(record.queue)
    queue.settings = record.settings
    if queue.dead.size:  # their retention may be another one now
        state.timers.set(queue.dead_timer, dead_until(state, queue, queue.dead.first()))


def apply_queue_gone(state: State, record: s.QueueGone) -> None:
    state.time = record.time
    queue = state.queues.pop(record.queue)
    for timer in (queue.wake_timer, queue.dead_timer):
        state.timers.cancel(timer)
        timer.target = None  # queue and timer point at each other


def apply_value(state: State, record: s.ValueSet) -> None:
    state.time = record.time
    value = state.values.get(record.key)
    if value is None:
        value = Value(record.key)
        state.values[record.key] = value
    if not record.keep:
        value.at = record.blob_at
        value.size = record.blob_size
    value.expires_at = record.expires_at
    if record.expires_at and record.expires_at != FOREVER:
        state.timers.set(value.timer, record.expires_at)
    else:
        state.timers.cancel(value.timer)


def apply_value_gone(state: State, record: s.ValueGone) -> None:
    state.time = record.time
    state.timers.cancel(state.values.pop(record.key).timer)


def apply_session(state: State, record: s.SessionSet) -> None:
    state.time = record.time
    if record.event == r.OPENED:
        state.sessions[record.id] = Session(record.id, record.time)
        return
    session = state.sessions[record.id]
    if record.event == r.DELIVERED:
        session.delivered = record.upto
        outbox = session.outbox
        while outbox and outbox[0].number <= record.upto:
            outbox.popleft()
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


def apply_batch(state: State, record: s.Batch) -> None:
    state.time = record.time
    consumer = state.consumers.get(record.consumer)
    if consumer is None:
        consumer = Consumer(record.consumer, record.owner)
        state.consumers[record.consumer] = consumer
    consumer.number = record.number
    consumer.open = True
    consumer.ids = record.ids
    consumer.deadline = record.deadline
    if record.deadline:
        state.timers.set(consumer.timer, record.deadline)
    for id in record.ids:
        job = state.jobs.get(id)
        if job is None or job.state != READY:
            raise CorruptRecord(f"job {id} is not ready for a batch")
        job.queue.ready.remove(job)
        lease_to(state, job, consumer.owner, False, record.origin.holder, record.time, 0)


def apply_batch_done(state: State, record: s.BatchDone) -> None:
    state.time = record.time
    consumer = state.consumers[record.consumer]
    consumer.open = False
    consumer.expired = record.expired
    consumer.ids = []
    consumer.number = record.number
    consumer.deadline = 0
    state.timers.cancel(consumer.timer)
    if record.dropped:
        del state.consumers[record.consumer]


def apply_forget(state: State, record: s.Forget) -> None:
    state.time = record.time
    left: i64 = record.count
    while left and state.buried:  # none, if uids are not remembered any more
        left -= 1
        # A uid is buried twice if it was pushed again in a run that remembered none.
        state.tombstones.pop(state.buried.popleft()[1], None)
    if state.buried:
        state.timers.set(state.tombstone_timer, state.buried[0][0] + state.settings.uid_window)
    else:
        state.timers.cancel(state.tombstone_timer)
