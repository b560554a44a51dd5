"""A replay that does not begin at the beginning.

Compaction drops the oldest segments, so the first records that are left speak of things whose own
records are gone: each of them either ended since, or is carried further on. Until the Base record
that says so, what is known is exact, and what is unknown is left out. Of records about unknown
jobs, only what they mean for known things is applied: the queue's counters, jobs that wait for
them, and uids.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.limits import count_rate
from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import State
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records import side_records as s
from taskyard.engine.records.apply import after_remove
from taskyard.engine.records.schedule_records import ScheduleGone, ScheduleTick
from taskyard.engine.records.side_apply import apply_batch_jobs
from taskyard.engine.transitions import bury, follow_up


def begin_partial(state: State, position: i64) -> None:
    """The records to come begin at this position, not at the start."""
    state.partial = True
    state.partial_from = position


def is_known(state: State, record: r.Record) -> bool:
    """Whether the record is about things that this replay has seen, so that it can be applied."""
    if isinstance(record, r.Push):
        if not state.first_pushed:
            state.first_pushed = record.id
        return True
    id = _job_of(record)
    if id:
        return _knows_job(state, id)
    if isinstance(record, s.ValueSet):
        return not record.keep or record.key in state.values
    if isinstance(record, s.ValueGone):
        return record.key in state.values
    if isinstance(record, s.QueueGone):
        return record.queue in state.queues
    if isinstance(record, s.SessionSet):
        return record.event == r.OPENED or record.id in state.sessions
    if isinstance(record, s.BatchDone):
        return record.consumer in state.consumers
    if isinstance(record, s.ReaderGone):
        return record.name in state.readers
    if isinstance(record, (ScheduleTick, ScheduleGone)):
        return record.name in state.schedules
    return not isinstance(record, s.Batch)


def _job_of(record: r.Record) -> i64:
    if isinstance(record, r.Lease):
        return record.id
    if isinstance(record, r.Finish):
        return record.id
    if isinstance(record, j.JobRecord):
        return record.id
    return 0


def _knows_job(state: State, id: i64) -> bool:
    if state.jobs.get(id) is not None:
        return True
    # Ids are given in order, so one from here on was pushed before our eyes.
    if state.first_pushed and id >= state.first_pushed:
        raise CorruptRecord(f"there is no job {id} at this point")
    return False


def apply_unknown(state: State, record: r.Record) -> None:
    """What a record about something unknown means for what is known."""
    state.time = record.time
    if isinstance(record, r.Lease):
        queue = _queue(state, record, record.queue)
        queue.leases += 1
        count_rate(queue, record.time)
    elif isinstance(record, r.Finish):
        queue = _queue(state, record, record.queue)
        queue.finished += 1
        if record.way == r.POPPED:
            count_rate(queue, record.time)
        follow_up(state, record.id, True)
        uid = record.uid
        if uid is not None and not record.kept_until:
            producer = _producer(state, record.producer, record.queue)
            bury(state, uid, record.id, producer, record.time, record.seq)
    elif isinstance(record, j.Retry):
        _queue(state, record, record.queue).retried += 1
    elif isinstance(record, j.Release):
        _queue(state, record, record.queue).released += 1
    elif isinstance(record, j.Fail):
        _queue(state, record, record.queue).failed += 1
        follow_up(state, record.id, False)
        if record.dead_queue:
            _queue(state, record, record.dead_queue.encode())
    elif isinstance(record, j.Remove):
        producer = _producer(state, record.producer, record.queue)
        after_remove(state, record, _queue(state, record, record.queue), producer)
    elif isinstance(record, j.Move):
        _queue(state, record, record.to)
    elif isinstance(record, s.Batch):
        _apply_batch(state, record)


def _apply_batch(state: State, record: s.Batch) -> None:
    """A batch of which some jobs may be unknown."""
    known: list[int] = []
    index: i64 = 0
    for number, count in enumerate(record.counts):
        queue = _queue(state, record, record.queues[number])
        for id in record.ids[index : index + count]:
            if _knows_job(state, id):
                known.append(id)
            else:
                queue.leases += 1
                count_rate(queue, record.time)
        index += count
    apply_batch_jobs(state, record, known)


def _queue(state: State, record: r.Record, name: bytes) -> Queue:
    return state.queue(name, record.seq, record.blob_at)


def _producer(state: State, producer: bytes, queue: bytes) -> bytes:
    """That of the record; an old one only tells the queue where the job was in the end."""
    return state.producers.share(producer) if producer else state.producers.of_queue(queue)
