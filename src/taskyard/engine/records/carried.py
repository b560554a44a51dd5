"""Applies snapshot records: a known thing gets its new position, an unknown one is created.

Known things are exactly as the snapshot says already, except in what a partial replay could not
know of queues, sessions and the like; those are set to what it says.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from taskyard.engine.limits import ensure_key_limit, forget_rate, remember_arrival
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
    consumer_record_bytes,
    queue_record_bytes,
    session_record_bytes,
    value_record_bytes,
)
from taskyard.engine.records import carry_records as c
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.schedule_apply import place_schedule
from taskyard.engine.records.schedule_records import ScheduleSnapshot
from taskyard.engine.records.side_apply import (
    place_value,
    set_queue_settings,
    set_reader,
    set_value_expiry_timer,
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


def apply_snapshot(state: State, record: r.Record) -> None:
    state.time = record.time
    if isinstance(record, c.JobSnapshot):
        apply_job_snapshot(state, record)
    elif isinstance(record, c.ValueSnapshot):
        apply_value_snapshot(state, record)
    elif isinstance(record, c.QueueSnapshot):
        apply_queue_snapshot(state, record)
    elif isinstance(record, c.SessionSnapshot):
        apply_session_snapshot(state, record)
    elif isinstance(record, c.ConsumerSnapshot):
        apply_consumer_snapshot(state, record)
    elif isinstance(record, c.ReaderSnapshot):
        apply_reader_snapshot(state, record)
    elif isinstance(record, ScheduleSnapshot):
        apply_schedule_snapshot(state, record)
    elif isinstance(record, c.KeyLimitsSnapshot):
        apply_key_limits_snapshot(state, record)
    elif isinstance(record, c.TombstonesSnapshot):
        apply_tombstones_snapshot(state, record)
    elif isinstance(record, c.Checkpoint):
        apply_checkpoint(state, record)


def _require_partial_replay(state: State, record: r.Record) -> None:
    """Only a replay that began behind the thing's own records may find it in a snapshot first."""
    if not state.is_partial_replay:
        raise CorruptRecord(f"record {record.seq} carries what there is not at this point")


def apply_job_snapshot(state: State, record: c.JobSnapshot) -> None:
    job = state.jobs.get(record.id)
    if job is None:
        job = _create_job(state, record)
    elif job.state == GONE:
        raise CorruptRecord(f"job {job.id} is gone")
    moves = record.moves
    at = record.blob_at
    if moves & c.MOVES_PAYLOAD:
        state.live_bytes.subtract(job.payload_at, i64(job.record_bytes))
        job.record_bytes = i32(record.size - record.blob_size + job.payload_size)
        state.live_bytes.add(at, i64(job.record_bytes))
        job.payload_at = at
        at += job.payload_size
    extra = job.extras
    if extra is None:
        return
    if moves & c.MOVES_RESULT:
        set_result(state, extra, at, extra.result_size)
        at += extra.result_size
    if moves & c.ERROR_IS_RESULT:
        set_error(state, extra, extra.result_at, extra.error_size)
    elif moves & c.MOVES_ERROR:
        set_error(state, extra, at, extra.error_size)


def _create_job(state: State, record: c.JobSnapshot) -> Job:
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


def _enter_state(state: State, job: Job, record: c.JobSnapshot) -> None:
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


def apply_queue_snapshot(state: State, record: c.QueueSnapshot) -> None:
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


def apply_key_limits_snapshot(state: State, record: c.KeyLimitsSnapshot) -> None:
    """The queue's own snapshot is before it, perhaps before the point where this replay began."""
    if record.queue not in state.queues:
        _require_partial_replay(state, record)
    queue = state.get_or_create_queue(record.queue, record.seq, record.blob_at)
    for index, key in enumerate(record.keys):
        remember_arrival(state, ensure_key_limit(queue, key), record.tats[index])


def apply_value_snapshot(state: State, record: c.ValueSnapshot) -> None:
    value = state.values.get(record.key)
    if value is None:
        _require_partial_replay(state, record)
        value = Value(record.key)
        value.value_at = record.blob_at
        state.values[record.key] = value
        state.live_bytes.add(value.value_at, value_record_bytes(value))
    place_value(state, value, record.blob_at, record.blob_size)
    set_value_expiry_timer(state, value, record.expires_at)


def apply_session_snapshot(state: State, record: c.SessionSnapshot) -> None:
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


def apply_consumer_snapshot(state: State, record: c.ConsumerSnapshot) -> None:
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


def apply_reader_snapshot(state: State, record: c.ReaderSnapshot) -> None:
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


def apply_tombstones_snapshot(state: State, record: c.TombstonesSnapshot) -> None:
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


def apply_checkpoint(state: State, record: c.Checkpoint) -> None:
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
