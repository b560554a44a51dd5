"""Applying carries: a thing that is known moves to its new place, an unknown one comes to be.

Known things are exactly as the carry says already, except in what a partial replay could not know
of queues, sessions and the like; those are set to what it says.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from taskyard.engine.limits import forget_rate, gate_of, remember
from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    GONE,
    LEASED,
    READY,
    SUCCEEDED,
    Job,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import (
    State,
    Value,
    consumer_weight,
    queue_weight,
    session_weight,
    value_weight,
)
from taskyard.engine.records import carry_records as c
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.schedule_apply import place_schedule
from taskyard.engine.records.schedule_records import CarrySchedule
from taskyard.engine.records.side_apply import (
    expire_value_at,
    place_value,
    set_reader,
    set_settings,
)
from taskyard.engine.transitions import (
    claim_key,
    dead_until,
    expire_at,
    hold,
    is_called,
    set_error,
    set_result,
    to_dead_letters,
    wait_for_graves,
)


def apply_carry(state: State, record: r.Record) -> None:
    state.time = record.time
    if isinstance(record, c.CarryJob):
        apply_carry_job(state, record)
    elif isinstance(record, c.CarryValue):
        apply_carry_value(state, record)
    elif isinstance(record, c.CarryQueue):
        apply_carry_queue(state, record)
    elif isinstance(record, c.CarrySession):
        apply_carry_session(state, record)
    elif isinstance(record, c.CarryConsumer):
        apply_carry_consumer(state, record)
    elif isinstance(record, c.CarryReader):
        apply_carry_reader(state, record)
    elif isinstance(record, CarrySchedule):
        apply_carry_schedule(state, record)
    elif isinstance(record, c.CarryKeys):
        apply_carry_keys(state, record)
    elif isinstance(record, c.CarryGrave):
        apply_carry_grave(state, record)
    elif isinstance(record, c.Base):
        apply_base(state, record)


def _check_partial(state: State, record: r.Record) -> None:
    """Only a replay that began further on than the thing itself may hear of it in a carry."""
    if not state.partial:
        raise CorruptRecord(f"record {record.seq} carries what there is not at this point")


def apply_carry_job(state: State, record: c.CarryJob) -> None:
    job = state.jobs.get(record.id)
    if job is None:
        job = _make(state, record)
    elif job.state == GONE:
        raise CorruptRecord(f"job {job.id} is gone")
    moves = record.moves
    at = record.blob_at
    if moves & c.MOVES_PAYLOAD:
        state.weights.sub(job.payload_at, i64(job.weight))
        job.weight = i32(record.size - record.blob_size + job.payload_size)
        state.weights.add(at, i64(job.weight))
        job.payload_at = at
        at += job.payload_size
    extra = job.extra
    if extra is None:
        return
    if moves & c.MOVES_RESULT:
        set_result(state, extra, at, extra.result_size)
        at += extra.result_size
    if moves & c.ERROR_IS_RESULT:
        set_error(state, extra, extra.result_at, extra.error_size)
    elif moves & c.MOVES_ERROR:
        set_error(state, extra, at, extra.error_size)


def _make(state: State, record: c.CarryJob) -> Job:
    """A job that was pushed before the point where this replay began."""
    _check_partial(state, record)
    queue = state.queue(record.queue, record.seq, record.blob_at)
    job = Job(
        record.id,
        queue,
        queue.share_name(record.name),
        queue.share_policy(record.policy),
        record.priority,
        record.dialect,
        record.content,
        record.payload_at,
        record.payload_size,
        record.pushed_at,
        record.run_at,
    )
    job.position = record.position
    job.attempts = i32(record.attempts)
    job.fails = i32(record.fails)
    job.losses = i32(record.losses)
    job.leases = i32(record.leases)
    job.finished_at = record.finished_at
    job.extra = record.extra
    state.jobs.add(job)
    job.weight = i32(record.weight)
    state.weights.add(job.payload_at, record.weight)
    extra = job.extra
    if extra is not None:
        _adopt_extra(state, job)
    _place(state, job, record)
    return job


def _adopt_extra(state: State, job: Job) -> None:
    extra = job.more()
    if extra.result_size:
        state.weights.add(extra.result_at, extra.result_size)
    if extra.error_size:
        state.weights.add(extra.error_at, extra.error_size)
    uid = extra.uid
    if uid is not None:
        state.uids[uid] = job
        producers = state.producers
        producer = extra.producer  # an old record only tells the queue where the job is by now
        extra.producer = (
            producers.share(producer) if producer else producers.of_queue(job.queue.utf8)
        )
    if is_called(extra):
        state.called.add(job.id)
    if extra.expires_at:
        expire_at(state, job, extra, extra.expires_at)
    blockers = extra.blockers
    if blockers is not None:
        for blocker in blockers:
            state.dependents.setdefault(blocker, {})[job.id] = None


def _place(state: State, job: Job, record: c.CarryJob) -> None:
    queue = job.queue
    which = record.state
    if which != SUCCEEDED and which != FAILED:
        queue.waiting_bytes += job.payload_size
    if which == READY:
        job.state = READY
        if not job.attempts:  # else only the records before this one know when it came back
            job.ready_at = max(job.pushed_at, job.run_at)
        claim_key(job)
        queue.ready.add(job)
    elif which == LEASED:
        lease = record.lease
        if lease is None:
            raise CorruptRecord(f"job {job.id} is leased to nobody")
        hold(state, job, lease)
    elif which == DELAYED:
        job.state = DELAYED
        claim_key(job)
        queue.delayed.insert(job)
        state.timers.set(queue.wake_timer, queue.delayed.first().position)
    elif which == BLOCKED:
        job.state = BLOCKED
        claim_key(job)
        queue.blocked.insert(job)
    elif which == SUCCEEDED:
        job.state = SUCCEEDED
        queue.done.insert(job)
    elif which == FAILED:
        to_dead_letters(state, job)
    else:
        raise CorruptRecord(f"job {job.id} is in no state that is carried")


def apply_carry_queue(state: State, record: c.CarryQueue) -> None:
    if record.queue not in state.queues:
        _check_partial(state, record)
    queue = state.queue(record.queue, record.number, record.blob_at)
    state.weights.sub(queue.at, queue_weight(queue))
    state.weights.add(record.blob_at, queue_weight(queue))
    queue.at = record.blob_at
    if queue.number != record.number:
        # Until now this replay did not know its settings: what it took for the rates of its keys
        # may be wrong, and those that are right are carried next.
        for gate in list(queue.gates.values()) if queue.gates is not None else []:
            forget_rate(state, gate)
    queue.number = record.number
    if queue.settings is not record.settings:
        set_settings(state, queue, record.settings)
    queue.tat = record.tat
    queue.set_counters(record.counters)
    if queue.dead.size:
        state.timers.set(queue.dead_timer, dead_until(state, queue, queue.dead.first()))


def apply_carry_keys(state: State, record: c.CarryKeys) -> None:
    """The queue's own carry stands before it, perhaps before the point where this replay began."""
    if record.queue not in state.queues:
        _check_partial(state, record)
    queue = state.queue(record.queue, record.seq, record.blob_at)
    for index, key in enumerate(record.keys):
        remember(state, gate_of(queue, key), record.tats[index])


def apply_carry_value(state: State, record: c.CarryValue) -> None:
    value = state.values.get(record.key)
    if value is None:
        _check_partial(state, record)
        value = Value(record.key)
        value.at = record.blob_at
        state.values[record.key] = value
        state.weights.add(value.at, value_weight(value))
    place_value(state, value, record.blob_at, record.blob_size)
    expire_value_at(state, value, record.expires_at)


def apply_carry_session(state: State, record: c.CarrySession) -> None:
    session = record.session
    known = state.sessions.get(session.id)
    if known is None:
        _check_partial(state, record)
        known = session
        state.sessions[session.id] = session
        state.weights.loose += session_weight(session)
        if not session.attached:
            state.timers.set(session.timer, session.since + state.settings.outbox_age)
    elif known is not session:
        state.weights.loose -= session_weight(known)
        known.outbox = session.outbox
        state.weights.loose += session_weight(known)
        known.numbered = session.numbered
        known.delivered = session.delivered
    known.anchor = record.seq
    known.noted = False


def apply_carry_consumer(state: State, record: c.CarryConsumer) -> None:
    consumer = record.consumer
    known = state.consumers.get(consumer.name)
    if known is None:
        _check_partial(state, record)
        known = consumer
        state.consumers[consumer.name] = consumer
        state.weights.loose += consumer_weight(consumer)
        if consumer.deadline:
            state.timers.set(consumer.timer, consumer.deadline)
    elif known is not consumer:
        # Of a batch that was leased in several records, the first may be before the beginning.
        state.weights.loose -= consumer_weight(known)
        known.ids = consumer.ids
        known.attempts = consumer.attempts
        known.queues = consumer.queues
        known.user = consumer.user
        state.weights.loose += consumer_weight(known)
    known.anchor = record.seq


def apply_carry_reader(state: State, record: c.CarryReader) -> None:
    if record.name not in state.readers:
        _check_partial(state, record)
    set_reader(state, record.name, record.next_seq, record.lease_until, record.seq)


def apply_carry_schedule(state: State, record: CarrySchedule) -> None:
    known = state.schedules.get(record.schedule.name)
    if known is None:
        _check_partial(state, record)
        place_schedule(state, record.schedule, record.seq)
    else:
        known.anchor = record.seq


def apply_carry_grave(state: State, record: c.CarryGrave) -> None:
    tombstones = state.tombstones
    since = record.since
    seq = record.seq
    for index, uid in enumerate(record.uids):
        producer = state.producers.share(record.producers[index])
        tombstones.bury(uid, record.ids[index], producer, since, seq)
    if record.first:
        grave = tombstones.graves.get(since - since % tombstones.width)
        if grave is not None:  # none, if uids are not remembered any more
            grave.anchor = seq
    wait_for_graves(state)


def apply_base(state: State, record: c.Base) -> None:
    """From here on all is known to a replay that began at this base, or before it."""
    if state.partial:
        if record.base < state.partial_from:
            return  # of an earlier compaction: others were made after it
        state.partial = False
        queues = sorted(state.queues.values(), key=_number)  # they came in another order
        state.queues = {queue.utf8: queue for queue in queues}
        state.epoch = record.epoch
        state.next_id = max(state.next_id, record.next_id)
    elif record.epoch != state.epoch or record.next_id != state.next_id:
        raise CorruptRecord("the next id or the epoch is not what compaction has seen")
    counts = state.counts()[: len(record.counts)]  # an older server knows of fewer kinds
    if counts != record.counts:
        raise CorruptRecord(
            "compaction has seen other numbers of jobs, queues, values, sessions, consumers, "
            f"readers and schedules: {record.counts} instead of {counts}"
        )
    state.base = max(state.base, record.base)


def _number(queue: Queue) -> int:
    return queue.number
