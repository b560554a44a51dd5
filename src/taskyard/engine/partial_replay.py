"""A replay that does not begin at the beginning.

Compaction removes the oldest segments, so the first records that are left refer to things whose own
records are gone: each of them either ended since, or has a snapshot further on. Until the
Checkpoint that says so, what is known is exact, and what is unknown is left out. Of records about
unknown jobs, only what they mean for known things is applied: the queue's counters, jobs that wait
for them, and uids.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.limits import count_queue_start
from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import State
from taskyard.engine.records import entities as s
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.apply import apply_removal_effects
from taskyard.engine.records.entities import ScheduleGone, ScheduleTick, apply_batch_jobs
from taskyard.engine.transitions import add_tombstone, queue_dependents


def begin_partial_replay(state: State, position: i64) -> None:
    """The next records begin at this position, not at the start."""
    state.is_partial_replay = True
    state.partial_start = position


def is_known(state: State, record: r.Record) -> bool:
    """Whether the record is about things that this replay has seen, so that it can be applied."""
    if isinstance(record, r.PushRecord):
        if not state.first_pushed_id:
            state.first_pushed_id = record.id
        return True
    id = _job_id_of(record)
    if id:
        return _knows_job(state, id)
    if isinstance(record, s.ValueSet):
        return not record.keep or record.key in state.values
    if isinstance(record, s.ValueGone):
        return record.key in state.values
    if isinstance(record, s.QueueGone):
        return record.queue in state.queues
    if isinstance(record, s.SessionChange):
        return record.event == r.OPENED or record.id in state.sessions
    if isinstance(record, s.BatchDone):
        return record.consumer in state.consumers
    if isinstance(record, s.ReaderGone):
        return record.name in state.readers
    if isinstance(record, (ScheduleTick, ScheduleGone)):
        return record.name in state.schedules
    return not isinstance(record, s.BatchRecord)


def _job_id_of(record: r.Record) -> i64:
    if isinstance(record, r.LeaseRecord):
        return record.id
    if isinstance(record, r.FinishRecord):
        return record.id
    if isinstance(record, j.JobRecord):
        return record.id
    return 0


def _knows_job(state: State, id: i64) -> bool:
    if state.jobs.get(id) is not None:
        return True
    # Ids are given in order, so one from here on was pushed before our eyes.
    if state.first_pushed_id and id >= state.first_pushed_id:
        raise CorruptRecord(f"there is no job {id} at this point")
    return False


def apply_unknown(state: State, record: r.Record) -> None:
    """What a record about something unknown means for what is known."""
    state.time = record.time
    if isinstance(record, r.LeaseRecord):
        queue = _ensure_queue(state, record, record.queue)
        queue.leases += 1
        count_queue_start(queue, record.time)
    elif isinstance(record, r.FinishRecord):
        queue = _ensure_queue(state, record, record.queue)
        queue.finished += 1
        if record.way == r.POPPED:
            count_queue_start(queue, record.time)
        queue_dependents(state, record.id, True)
        uid = record.uid
        if uid is not None and not record.kept_until:
            producer = _producer_hash(state, record.producer, record.queue)
            add_tombstone(state, uid, record.id, producer, record.time, record.seq)
    elif isinstance(record, j.RetryRecord):
        _ensure_queue(state, record, record.queue).retried += 1
    elif isinstance(record, j.ReleaseRecord):
        _ensure_queue(state, record, record.queue).released += 1
    elif isinstance(record, j.FailRecord):
        _ensure_queue(state, record, record.queue).failed += 1
        queue_dependents(state, record.id, False)
        if record.dead_queue:
            _ensure_queue(state, record, record.dead_queue.encode())
    elif isinstance(record, j.RemoveRecord):
        producer = _producer_hash(state, record.producer, record.queue)
        apply_removal_effects(state, record, _ensure_queue(state, record, record.queue), producer)
    elif isinstance(record, j.MoveRecord):
        _ensure_queue(state, record, record.to)
    elif isinstance(record, s.BatchRecord):
        _apply_batch(state, record)


def _apply_batch(state: State, record: s.BatchRecord) -> None:
    """A batch of which some jobs may be unknown."""
    known: list[int] = []
    index: i64 = 0
    for number, count in enumerate(record.counts):
        queue = _ensure_queue(state, record, record.queues[number])
        for id in record.ids[index : index + count]:
            if _knows_job(state, id):
                known.append(id)
            else:
                queue.leases += 1
                count_queue_start(queue, record.time)
        index += count
    apply_batch_jobs(state, record, known)


def _ensure_queue(state: State, record: r.Record, name: bytes) -> Queue:
    return state.get_or_create_queue(name, record.seq, record.blob_at)


def _producer_hash(state: State, producer: bytes, queue: bytes) -> bytes:
    """Return the producer of the record; an old one has only the queue where the job was in the
    end.
    """
    return (
        state.producer_hashes.intern(producer)
        if producer
        else state.producer_hashes.hash_of_queue(queue)
    )
