"""The apply half: what each job record does to the state. It chooses nothing.

The same functions run when a record is emitted and when it is read back from the journal, so that
recovery cannot come to another state than the one that was there.
"""

from __future__ import annotations

from mypy_extensions import i32, i64

from taskyard.engine.limits import count_start, leave_line, offer_gone
from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import (
    BLOCKED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    READY,
    SUCCEEDED,
    Job,
    Policy,
    Progress,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.stages import (
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_READY,
    STAGE_RETRY,
    STAGE_SYNC,
    STAGE_WRITE,
)
from taskyard.engine.model.state import State
from taskyard.engine.records.job_changes import (
    Extend,
    Fail,
    Move,
    Release,
    Remove,
    Replay,
    Rescore,
    Retry,
    Unblock,
    Wake,
)
from taskyard.engine.records.job_changes import Progress as ProgressRecord
from taskyard.engine.records.job_lifecycle import (
    EXPIRED,
    LOST,
    POPPED,
    RETENTION_OVER,
    TTL_OVER,
    Finish,
    Push,
)
from taskyard.engine.records.job_lifecycle import (
    Lease as LeaseRecord,
)
from taskyard.engine.transitions import (
    bury,
    claim_key,
    delay,
    end_in_time,
    end_some_time,
    expire_at,
    follow_up,
    is_called,
    lease_to,
    leave_lane,
    note,
    ready_at_back,
    ready_at_front,
    ready_in_place,
    retire,
    set_error,
    set_result,
    to_dead_letters,
)


def apply_push(state: State, record: Push) -> Job:
    new = record.job
    queue = state.queue(record.queue, record.seq, record.blob_at)
    time = record.time
    job = Job(
        record.id,
        queue,
        queue.share_name(new.name),
        queue.share_policy(new.policy),
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
    job.weight = i32(record.size)
    state.weights.add(record.blob_at, record.size)
    queue.pushed += 1
    queue.waiting_bytes += record.blob_size
    if (
        new.uid is not None
        or new.key is not None
        or new.ttl_ms
        or new.notify is not None
        or record.blockers
        or new.limit_key is not None
    ):
        _push_extra(state, job, record)
    if record.blockers:
        job.state = BLOCKED
        job.position = job.id
        claim_key(job)
        queue.blocked.insert(job)
    elif new.run_at > time:
        delay(state, job, new.run_at)
    elif new.front:
        ready_at_front(job, record.seq, record.time)
    else:
        ready_at_back(job, record.seq, record.time)
    if new.notify is not None:
        note(state, job, STAGE_READY, time)
        note(state, job, STAGE_WRITE, time)
        note(state, job, STAGE_SYNC, time)
    return job


def _push_extra(state: State, job: Job, record: Push) -> None:
    new = record.job
    extra = job.more()
    uid = new.uid
    if uid is not None:
        extra.uid = uid
        extra.producer = state.producers.of(record.queue, record.origin.user)
        state.uids[uid] = job
    extra.key = new.key
    extra.limit_key = new.limit_key
    extra.notify = new.notify
    if is_called(extra):
        state.called.add(job.id)
    if new.ttl_ms:
        extra.ttl_ms = new.ttl_ms
        since: int = new.run_at or record.time  # int: the sum may be beyond 64 bits
        expire_at(state, job, extra, min(since + new.ttl_ms * 1000, FOREVER))
    blockers = record.blockers
    if blockers:
        extra.blockers = set(blockers)
        for blocker in blockers:
            state.dependents.setdefault(blocker, {})[job.id] = None


def apply_lease(state: State, record: LeaseRecord) -> Job:
    job = _job(state, record.id)
    lease_job(state, job, record)
    return job


def lease_job(state: State, job: Job, record: LeaseRecord) -> None:
    """The same for who has the job at hand: it is not looked for again."""
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


def apply_finish(state: State, record: Finish) -> Job:
    job = _job(state, record.id)
    finish_job(state, job, record)
    return job


def finish_job(state: State, job: Job, record: Finish) -> None:
    queue = job.queue
    leave_lane(state, job)
    time = record.time
    state.time = time
    job.finished_at = time
    queue.finished += 1
    queue.waiting_bytes -= job.payload_size
    if queue.gate and record.way == POPPED:
        count_start(state, job, time)
    follow_up(state, job.id, True)
    kept_until = record.kept_until
    extra = job.extra
    if extra is None and not kept_until and not record.blob_size:
        retire(state, job, True)
        return
    extra = job.more()
    note(state, job, STAGE_FINISH, time)
    extra.has_result = True
    set_result(state, extra, record.blob_at, record.blob_size)
    if kept_until:
        if not extra.expires_at:
            expire_at(state, job, extra, kept_until)
        job.state = SUCCEEDED
        job.position = time
        queue.done.insert(job)
    else:
        retire(state, job, True)
        uid = record.uid
        if uid is not None:
            bury(state, uid, job.id, extra.producer, time, record.seq)


def apply_retry(state: State, record: Retry) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    job.fails += 1
    job.queue.retried += 1
    if record.blob_size:
        set_error(state, job.more(), record.blob_at, record.blob_size)
    if record.keyless:
        job.more().key = None
    if job.state != BLOCKED:  # such a one goes on waiting
        kept_place = job.state == LEASED or job.state == READY or job.state == LIMITED
        leave_lane(state, job)
        if record.run_at > record.time:
            delay(state, job, record.run_at)
        elif kept_place:
            ready_in_place(job, record.time)
        else:
            ready_at_back(job, record.seq, record.time)
    note(state, job, STAGE_RETRY, record.time)
    return job


def apply_release(state: State, record: Release) -> Job:
    job = _job(state, record.id)
    leave_lane(state, job)
    state.time = record.time
    if record.reason == EXPIRED or record.reason == LOST:
        job.losses += 1
    job.queue.released += 1
    if record.keyless:
        job.more().key = None
    ready_in_place(job, record.time)
    note(state, job, STAGE_RETRY, record.time)
    return job


def apply_fail(state: State, record: Fail) -> Job:
    job = _job(state, record.id)
    queue = job.queue
    leave_lane(state, job)
    time = record.time
    state.time = time
    queue.failed += 1
    queue.waiting_bytes -= job.payload_size
    if record.explicit:
        job.fails += 1
    follow_up(state, job.id, False)
    extra = job.more()
    extra.reason = record.reason
    if record.blob_size:
        set_error(state, extra, record.blob_at, record.blob_size)
    note(state, job, STAGE_DROP, time)
    if record.dead_queue:
        _to_dead_queue(state, job, record)
    else:
        job.finished_at = time
        if record.explicit:
            extra.has_result = True
            set_result(state, extra, record.blob_at, record.blob_size)
        job.position = record.seq
        to_dead_letters(state, job)
    return job


def _to_dead_queue(state: State, job: Job, record: Fail) -> None:
    job.queue = state.queue(record.dead_queue.encode(), record.seq, record.blob_at)
    job.queue.waiting_bytes += job.payload_size
    job.attempts = 0
    job.fails = 0
    job.losses = 0
    old = job.policy
    job.policy = job.queue.share_policy(
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
    extra = job.extra
    if extra is not None:
        extra.key = None
    ready_at_back(job, record.seq, record.time)


def apply_wake(state: State, record: Wake) -> Job:
    job = _job(state, record.id)
    leave_lane(state, job)
    state.time = record.time
    ready_at_back(job, record.seq, record.time)
    return job


def apply_unblock(state: State, record: Unblock) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    followup = state.followups.get(record.blocker)
    if followup is not None:
        ids = followup.succeeded
        while ids and ids.pop() != job.id:
            pass  # jobs in between were removed while they waited
        if not ids and not followup.failed:
            del state.followups[record.blocker]
    extra = job.more()
    blockers = extra.blockers
    if blockers is None:
        raise CorruptRecord(f"job {job.id} waits for no other")
    blockers.discard(record.blocker)
    if blockers:
        return job
    leave_lane(state, job)
    if job.run_at > record.time:
        delay(state, job, job.run_at)
    else:
        ready_at_back(job, record.seq, record.time)
    return job


def apply_remove(state: State, record: Remove) -> Job:
    job = _job(state, record.id)
    leave_lane(state, job)
    state.time = record.time
    if not record.ended:
        job.finished_at = record.time
        job.queue.waiting_bytes -= job.payload_size
    retire(state, job, False)
    extra = job.extra
    after_remove(state, record, job.queue, extra.producer if extra is not None else b"")
    return job


def after_remove(state: State, record: Remove, queue: Queue, producer: bytes) -> None:
    """What a removal means beyond the job itself, which was that producer's."""
    if not record.ended:
        if record.cause == TTL_OVER:
            queue.expired += 1
            state.evicted += 1
        else:
            queue.removed += 1
        follow_up(state, record.id, False)
    uid = record.uid
    if uid is not None and record.cause == RETENTION_OVER:
        bury(state, uid, record.id, producer, record.time, record.seq)


def apply_move(state: State, record: Move) -> Job:
    job = _job(state, record.id)
    leave_lane(state, job)
    state.time = record.time
    if job.state == FAILED:
        _revive(state, job)
    else:
        job.queue.waiting_bytes -= job.payload_size
    extra = job.extra
    if extra is not None:
        extra.key = None
    job.queue = state.queue(record.to, record.seq, record.blob_at)
    job.queue.waiting_bytes += job.payload_size
    if record.front:
        ready_at_front(job, record.seq, record.time)
    else:
        ready_at_back(job, record.seq, record.time)
    return job


def apply_rescore(state: State, record: Rescore) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    if job.state == READY or job.state == LIMITED:
        queue = job.queue
        if job.state == READY:
            queue.ready.remove(job)
            extra = job.extra
            if extra is not None and extra.limit_key is not None:
                offer_gone(state, queue, extra.limit_key)  # one in line may be before it now
        else:  # it has another place in line now, so whoever asks next has to look at it again
            leave_line(state, job)
            job.state = READY
        job.priority = record.priority
        job.position = record.seq
        queue.ready.add(job)
    else:
        job.priority = record.priority
    return job


def apply_extend(state: State, record: Extend) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    end_some_time(state, lease)
    lease.deadline = record.deadline
    end_in_time(state, job, lease)
    return job


def apply_progress(state: State, record: ProgressRecord) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    lease.progress = Progress(record.permille, record.message, record.time)
    return job


def apply_replay(state: State, record: Replay) -> Job:
    job = _job(state, record.id)
    leave_lane(state, job)
    state.time = record.time
    _revive(state, job)
    job.queue.waiting_bytes += job.payload_size
    if record.keyless:
        job.more().key = None
    ready_at_back(job, record.seq, record.time)
    return job


def _revive(state: State, job: Job) -> None:
    """A dead letter gets another life: with its counts at zero, and as if it had not ended."""
    job.attempts = 0
    job.fails = 0
    job.losses = 0
    job.finished_at = 0
    extra = job.more()
    extra.reason = ""
    extra.has_result = False
    set_result(state, extra, 0, 0)


def _job(state: State, id: i64) -> Job:
    job = state.jobs.get(id)
    if job is None or job.state == GONE:
        raise CorruptRecord(f"there is no job {id} at this point")
    return job
