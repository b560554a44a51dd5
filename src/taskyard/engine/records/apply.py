"""Applies each job record to the state. Never decides anything.

The same functions run when a record is emitted and when it is read back from the journal, so that
recovery cannot come to another state than the one that was there.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from taskyard.engine.limits import count_start, on_ready_job_removed, remove_waiting_job
from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import (
    BLOCKED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    READY,
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_READY,
    STAGE_RETRY,
    STAGE_SYNC,
    STAGE_WRITE,
    SUCCEEDED,
    Job,
    JobProgress,
    Policy,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import State
from taskyard.engine.records.job_changes import (
    ExtendRecord,
    FailRecord,
    MoveRecord,
    ProgressRecord,
    ReleaseRecord,
    RemoveRecord,
    ReplayRecord,
    RescoreRecord,
    RetryRecord,
    UnblockRecord,
    WakeRecord,
)
from taskyard.engine.records.job_lifecycle import (
    EXPIRED,
    LOST,
    POPPED,
    RETENTION_OVER,
    TTL_OVER,
    FinishRecord,
    LeaseRecord,
    PushRecord,
)
from taskyard.engine.transitions import (
    add_tombstone,
    append_notice,
    arm_lease_timer,
    claim_key,
    delay_job,
    disarm_lease_timer,
    is_synchronous_call,
    lease_to,
    leave_current_state,
    make_ready_at_back,
    make_ready_at_front,
    make_ready_in_place,
    move_to_dead_letters,
    move_to_finished_ring,
    queue_dependents,
    set_error,
    set_job_expiry,
    set_result,
)


def apply_push(state: State, record: PushRecord) -> Job:
    new = record.job
    queue = state.get_or_create_queue(record.queue, record.seq, record.blob_at)
    time = record.time
    job = Job(
        record.id,
        queue,
        queue.intern_name(new.name),
        queue.intern_policy(new.policy),
        new.priority,
        record.origin.dialect,
        new.content,
        record.blob_at,
        record.blob_size,
        time,
        new.run_at,
    )
    state.time = time
    state.next_id = record.id + 1
    state.jobs.add(job)
    job.record_bytes = i32(record.size)
    state.live_bytes.add(record.blob_at, record.size)
    queue.pushed += 1
    queue.unfinished_bytes += record.blob_size
    if (
        new.uid is not None
        or new.key is not None
        or new.ttl_ms
        or new.notify is not None
        or record.blockers
        or new.limit_key is not None
    ):
        _set_push_extras(state, job, record)
    if record.blockers:
        job.state = BLOCKED
        job.order_key = job.id
        claim_key(job)
        queue.blocked.insert(job)
    elif new.run_at > time:
        delay_job(state, job, new.run_at)
    elif new.front:
        make_ready_at_front(job, record.seq, record.time)
    else:
        make_ready_at_back(job, record.seq, record.time)
    if new.notify is not None:
        append_notice(state, job, STAGE_READY, time)
        append_notice(state, job, STAGE_WRITE, time)
        append_notice(state, job, STAGE_SYNC, time)
    return job


def _set_push_extras(state: State, job: Job, record: PushRecord) -> None:
    new = record.job
    extra = job.ensure_extras()
    uid = new.uid
    if uid is not None:
        extra.uid = uid
        extra.producer = state.producer_hashes.hash_of(record.queue, record.origin.user)
        state.uids[uid] = job
    extra.key = new.key
    extra.limit_key = new.limit_key
    extra.notify = new.notify
    if is_synchronous_call(extra):
        state.synchronous_jobs.add(job.id)
    if new.ttl_ms:
        extra.ttl_ms = new.ttl_ms
        since: int = new.run_at or record.time  # int: the sum may be beyond 64 bits
        set_job_expiry(state, job, extra, min(since + new.ttl_ms * 1000, FOREVER))
    blockers = record.blockers
    if blockers:
        extra.blockers = set(blockers)
        for blocker in blockers:
            state.dependents.setdefault(blocker, {})[job.id] = None


def apply_lease(state: State, record: LeaseRecord) -> Job:
    job = _live_job(state, record.id)
    lease_job(state, job, record)
    return job


def lease_job(state: State, job: Job, record: LeaseRecord) -> None:
    """The same for a caller that has the job at hand: it is not searched again."""
    job.queue.ready.remove(job)
    lease_to(
        state,
        job,
        record.owner,
        record.bound,
        record.origin.holder,
        record.epoch,
        record.time,
        record.deadline,
    )
    state.time = record.time


def apply_finish(state: State, record: FinishRecord) -> Job:
    job = _live_job(state, record.id)
    finish_job(state, job, record)
    return job


def finish_job(state: State, job: Job, record: FinishRecord) -> None:
    queue = job.queue
    leave_current_state(state, job)
    time = record.time
    state.time = time
    job.finished_at = time
    queue.finished += 1
    queue.unfinished_bytes -= job.payload_size
    if queue.restrictions and record.way == POPPED:
        count_start(state, job, time)
    queue_dependents(state, job.id, True)
    kept_until = record.kept_until
    extra = job.extras
    if extra is None and not kept_until and not record.blob_size:
        move_to_finished_ring(state, job, True)
        return
    extra = job.ensure_extras()
    append_notice(state, job, STAGE_FINISH, time)
    extra.has_result = True
    set_result(state, extra, record.blob_at, record.blob_size)
    if kept_until:
        if not extra.expires_at:
            set_job_expiry(state, job, extra, kept_until)
        job.state = SUCCEEDED
        job.order_key = time
        queue.done.insert(job)
    else:
        move_to_finished_ring(state, job, True)
        uid = record.uid
        if uid is not None:
            add_tombstone(state, uid, job.id, extra.producer, time, record.seq)


def apply_retry(state: State, record: RetryRecord) -> Job:
    job = _live_job(state, record.id)
    state.time = record.time
    job.fails += 1
    job.queue.retried += 1
    if record.blob_size:
        set_error(state, job.ensure_extras(), record.blob_at, record.blob_size)
    if record.keyless:
        job.ensure_extras().key = None
    if job.state != BLOCKED:  # such a job continues to wait
        kept_place = job.state == LEASED or job.state == READY or job.state == LIMITED
        leave_current_state(state, job)
        if record.run_at > record.time:
            delay_job(state, job, record.run_at)
        elif kept_place:
            make_ready_in_place(job, record.time)
        else:
            make_ready_at_back(job, record.seq, record.time)
    append_notice(state, job, STAGE_RETRY, record.time)
    return job


def apply_release(state: State, record: ReleaseRecord) -> Job:
    job = _live_job(state, record.id)
    leave_current_state(state, job)
    state.time = record.time
    if record.reason == EXPIRED or record.reason == LOST:
        job.losses += 1
    job.queue.released += 1
    if record.keyless:
        job.ensure_extras().key = None
    make_ready_in_place(job, record.time)
    append_notice(state, job, STAGE_RETRY, record.time)
    return job


def apply_fail(state: State, record: FailRecord) -> Job:
    job = _live_job(state, record.id)
    queue = job.queue
    leave_current_state(state, job)
    time = record.time
    state.time = time
    queue.failed += 1
    queue.unfinished_bytes -= job.payload_size
    if record.explicit:
        job.fails += 1
    queue_dependents(state, job.id, False)
    extra = job.ensure_extras()
    extra.reason = record.reason
    if record.blob_size:
        set_error(state, extra, record.blob_at, record.blob_size)
    append_notice(state, job, STAGE_DROP, time)
    if record.dead_queue:
        _to_dead_queue(state, job, record)
    else:
        job.finished_at = time
        if record.explicit:
            extra.has_result = True
            set_result(state, extra, record.blob_at, record.blob_size)
        job.order_key = record.seq
        move_to_dead_letters(state, job)
    return job


def _to_dead_queue(state: State, job: Job, record: FailRecord) -> None:
    job.queue = state.get_or_create_queue(record.dead_queue.encode(), record.seq, record.blob_at)
    job.queue.unfinished_bytes += job.payload_size
    job.attempts = 0
    job.fails = 0
    job.losses = 0
    old = job.policy
    job.policy = job.queue.intern_policy(
        Policy(
            old.ttr,
            old.max_attempts,
            old.max_fails,
            old.max_losses,
            old.backoff,
            old.backoff_base,
            old.backoff_cap,
            lost_is_failed=old.lost_is_failed,
        )
    )
    extra = job.extras
    if extra is not None:
        extra.key = None
    make_ready_at_back(job, record.seq, record.time)


def apply_wake(state: State, record: WakeRecord) -> Job:
    job = _live_job(state, record.id)
    leave_current_state(state, job)
    state.time = record.time
    make_ready_at_back(job, record.seq, record.time)
    return job


def apply_unblock(state: State, record: UnblockRecord) -> Job:
    job = _live_job(state, record.id)
    state.time = record.time
    followup = state.pending_dependents.get(record.blocker)
    if followup is not None:
        ids = followup.succeeded
        while ids and ids.pop() != job.id:
            pass  # jobs in between were removed while they waited
        if not ids and not followup.failed:
            del state.pending_dependents[record.blocker]
    extra = job.ensure_extras()
    blockers = extra.blockers
    if blockers is None:
        raise CorruptRecord(f"job {job.id} waits for no other")
    blockers.discard(record.blocker)
    if blockers:
        return job
    leave_current_state(state, job)
    if job.run_at > record.time:
        delay_job(state, job, job.run_at)
    else:
        make_ready_at_back(job, record.seq, record.time)
    return job


def apply_remove(state: State, record: RemoveRecord) -> Job:
    job = _live_job(state, record.id)
    leave_current_state(state, job)
    state.time = record.time
    if not record.ended:
        job.finished_at = record.time
        job.queue.unfinished_bytes -= job.payload_size
    move_to_finished_ring(state, job, False)
    extra = job.extras
    apply_removal_effects(state, record, job.queue, extra.producer if extra is not None else b"")
    return job


def apply_removal_effects(
    state: State, record: RemoveRecord, queue: Queue, producer: bytes
) -> None:
    """What a removal means beyond the job itself, which was that producer's."""
    if not record.ended:
        if record.cause == TTL_OVER:
            queue.expired += 1
            state.evicted += 1
        else:
            queue.removed += 1
        queue_dependents(state, record.id, False)
    uid = record.uid
    if uid is not None and record.cause == RETENTION_OVER:
        add_tombstone(state, uid, record.id, producer, record.time, record.seq)


def apply_move(state: State, record: MoveRecord) -> Job:
    job = _live_job(state, record.id)
    leave_current_state(state, job)
    state.time = record.time
    if job.state == FAILED:
        _reset_dead_letter(state, job)
    else:
        job.queue.unfinished_bytes -= job.payload_size
    extra = job.extras
    if extra is not None:
        extra.key = None
    job.queue = state.get_or_create_queue(record.to, record.seq, record.blob_at)
    job.queue.unfinished_bytes += job.payload_size
    if record.front:
        make_ready_at_front(job, record.seq, record.time)
    else:
        make_ready_at_back(job, record.seq, record.time)
    return job


def apply_rescore(state: State, record: RescoreRecord) -> Job:
    job = _live_job(state, record.id)
    state.time = record.time
    if job.state == READY or job.state == LIMITED:
        queue = job.queue
        if job.state == READY:
            queue.ready.remove(job)
            extra = job.extras
            if extra is not None and extra.limit_key is not None:
                on_ready_job_removed(
                    state, queue, extra.limit_key
                )  # a parked job may be before it now
        else:  # it has another place now, so the next fetch has to check it again
            remove_waiting_job(state, job)
            job.state = READY
        job.priority = record.priority
        job.order_key = record.seq
        queue.ready.add(job)
    else:
        job.priority = record.priority
    return job


def apply_extend(state: State, record: ExtendRecord) -> Job:
    job = _live_job(state, record.id)
    state.time = record.time
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    disarm_lease_timer(state, lease)
    lease.deadline = record.deadline
    arm_lease_timer(state, job, lease)
    return job


def apply_progress(state: State, record: ProgressRecord) -> Job:
    job = _live_job(state, record.id)
    state.time = record.time
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    lease.progress = JobProgress(record.permille, record.message, record.time)
    return job


def apply_replay(state: State, record: ReplayRecord) -> Job:
    job = _live_job(state, record.id)
    leave_current_state(state, job)
    state.time = record.time
    _reset_dead_letter(state, job)
    job.queue.unfinished_bytes += job.payload_size
    if record.keyless:
        job.ensure_extras().key = None
    make_ready_at_back(job, record.seq, record.time)
    return job


def _reset_dead_letter(state: State, job: Job) -> None:
    """Replay a dead letter: with its counts at zero, and as if it had not ended."""
    job.attempts = 0
    job.fails = 0
    job.losses = 0
    job.finished_at = 0
    extra = job.ensure_extras()
    extra.reason = ""
    extra.has_result = False
    set_result(state, extra, 0, 0)


def _live_job(state: State, id: i64) -> Job:
    job = state.jobs.get(id)
    if job is None or job.state == GONE:
        raise CorruptRecord(f"there is no job {id} at this point")
    return job
