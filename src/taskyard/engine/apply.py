"""The apply half: what each job record does to the state. It chooses nothing.

The same functions run when a record is emitted and when it is read back from the journal, so that
recovery cannot come to another state than the one that was there.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.errors import CorruptRecord
from taskyard.engine.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    READY,
    SUCCEEDED,
    Extra,
    Job,
    Lease,
    Policy,
)
from taskyard.engine.queue import Queue
from taskyard.engine.records import (
    EXPIRED,
    LOST,
    RETENTION_OVER,
    TTL_OVER,
    Extend,
    Fail,
    Finish,
    Move,
    Push,
    Release,
    Remove,
    Replay,
    Rescore,
    Retry,
    Unblock,
    Wake,
)
from taskyard.engine.records import (
    Lease as LeaseRecord,
)
from taskyard.engine.stages import (
    STAGE_ASSIGN,
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_READY,
    STAGE_RETRY,
    STAGE_SYNC,
    STAGE_WRITE,
)
from taskyard.engine.state import LETTER_BYTES, Followup, Letter, State
from taskyard.engine.timers import LEASE, TTL, Timer

RING_ENTRY: Final = 512  # bytes that one finished job counts for in the ring


def apply_push(state: State, record: Push) -> Job:
    new = record.job
    queue = state.queue(record.queue)
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
    queue.pushed += 1
    if (
        new.uid is not None
        or new.key is not None
        or new.ttl_ms
        or new.notify is not None
        or record.blockers
    ):
        _push_extra(state, job, record)
    if record.blockers:
        job.state = BLOCKED
        job.position = job.id
        _claim_key(job)
        queue.blocked.insert(job)
    elif new.run_at > time:
        _delay(state, job, new.run_at)
    elif new.front:
        ready_at_front(job)
    else:
        ready_at_back(job)
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
        state.uids[uid] = job
    extra.key = new.key
    extra.notify = new.notify
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
    queue = job.queue
    queue.ready.remove(job)
    lease_to(
        state, job, record.owner, record.bound, record.origin.holder, record.time, record.deadline
    )
    state.time = record.time
    return job


def lease_to(
    state: State, job: Job, owner: i64, bound: bool, holder: str, since: i64, deadline: i64
) -> None:
    """A job that was taken out of the ready lane becomes leased."""
    queue = job.queue
    job.attempts += 1
    lease = Lease(owner, bound, holder, state.epoch, i64(job.attempts), since, deadline)
    job.lease = lease
    job.state = LEASED
    queue.leased.insert(job)
    queue.leases += 1
    if bound:
        held = state.held.get(owner)
        if held is None:
            state.held[owner] = {job.id: job}
        else:
            held[job.id] = job
    if deadline:
        timer = Timer(LEASE, job)
        lease.timer = timer
        state.timers.set(timer, deadline)
    extra = job.extra
    if extra is not None:
        if extra.key is not None:
            _drop_key(queue, extra.key, job)
        note(state, job, STAGE_ASSIGN, since)


def apply_finish(state: State, record: Finish) -> Job:
    job = _job(state, record.id)
    queue = job.queue
    _leave_lane(state, job)
    time = record.time
    state.time = time
    job.finished_at = time
    queue.finished += 1
    _follow_up(state, job, True)
    extra = job.extra
    retention = queue.settings.result_retention
    if extra is None and not retention and not record.blob_size:
        _retire(state, job, time, False)
        return job
    extra = job.more()
    note(state, job, STAGE_FINISH, time)
    extra.has_result = True
    extra.result_at = record.blob_at
    extra.result_size = record.blob_size
    if not extra.ttl_ms and retention:
        expire_at(state, job, extra, time + retention)
    if extra.expires_at:
        job.state = SUCCEEDED
        job.position = time
        queue.done.insert(job)
    else:
        _retire(state, job, time, True)
    return job


def apply_retry(state: State, record: Retry) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    job.fails += 1
    job.queue.retried += 1
    if record.blob_size:
        extra = job.more()
        extra.error_at = record.blob_at
        extra.error_size = record.blob_size
    if job.state != BLOCKED:  # such a one goes on waiting
        kept_place = job.state == LEASED or job.state == READY
        _leave_lane(state, job)
        if record.run_at > record.time:
            _delay(state, job, record.run_at)
        elif kept_place:
            ready_in_place(job)
        else:
            ready_at_back(job)
    note(state, job, STAGE_RETRY, record.time)
    return job


def apply_release(state: State, record: Release) -> Job:
    job = _job(state, record.id)
    _leave_lane(state, job)
    state.time = record.time
    if record.reason == EXPIRED or record.reason == LOST:
        job.losses += 1
    job.queue.released += 1
    ready_in_place(job)
    note(state, job, STAGE_RETRY, record.time)
    return job


def apply_fail(state: State, record: Fail) -> Job:
    job = _job(state, record.id)
    queue = job.queue
    _leave_lane(state, job)
    time = record.time
    state.time = time
    queue.failed += 1
    if record.explicit:
        job.fails += 1
    _follow_up(state, job, False)
    extra = job.more()
    extra.reason = record.reason
    if record.blob_size:
        extra.error_at = record.blob_at
        extra.error_size = record.blob_size
    note(state, job, STAGE_DROP, time)
    if record.dead_queue:
        _to_dead_queue(state, job, record.dead_queue)
    else:
        job.finished_at = time
        if record.explicit:
            extra.has_result = True
            extra.result_at = record.blob_at
            extra.result_size = record.blob_size
        _to_dead_letters(state, job, extra)
    return job


def _to_dead_queue(state: State, job: Job, name: str) -> None:
    job.queue = state.queue(name.encode())
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
    ready_at_back(job)


def _to_dead_letters(state: State, job: Job, extra: Extra) -> None:
    queue = job.queue
    job.state = FAILED
    job.position = queue.dead_count
    queue.dead_count += 1
    queue.dead.insert(job)
    queue.dead_bytes += dead_weight(job)
    timer = queue.dead_timer
    until = dead_until(state, queue, job)
    if timer.slot < 0 or until < timer.deadline:
        state.timers.set(timer, until)


def dead_weight(job: Job) -> i64:
    """What a dead letter counts for in the bound of its queue."""
    extra = job.extra
    return RING_ENTRY + job.payload_size + (extra.error_size if extra is not None else 0)


def dead_until(state: State, queue: Queue, job: Job) -> i64:
    kept = queue.settings.dead_retention
    return job.finished_at + (kept if kept >= 0 else state.settings.dead_retention)


def apply_wake(state: State, record: Wake) -> Job:
    job = _job(state, record.id)
    _leave_lane(state, job)
    state.time = record.time
    ready_at_back(job)
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
    _leave_lane(state, job)
    if job.run_at > record.time:
        _delay(state, job, job.run_at)
    else:
        ready_at_back(job)
    return job


def apply_remove(state: State, record: Remove) -> Job:
    job = _job(state, record.id)
    queue = job.queue
    ended = job.state == SUCCEEDED or job.state == FAILED
    _leave_lane(state, job)
    state.time = record.time
    if not ended:
        job.finished_at = record.time
        if record.cause == TTL_OVER:
            queue.expired += 1
            state.evicted += 1
        else:
            queue.removed += 1
        _follow_up(state, job, False)
    _retire(state, job, record.time, record.cause == RETENTION_OVER)
    return job


def apply_move(state: State, record: Move) -> Job:
    job = _job(state, record.id)
    _leave_lane(state, job)
    state.time = record.time
    if job.state == FAILED:
        _revive(job)
    extra = job.extra
    if extra is not None:
        extra.key = None
    job.queue = state.queue(record.to)
    if record.front:
        ready_at_front(job)
    else:
        ready_at_back(job)
    return job


def apply_rescore(state: State, record: Rescore) -> Job:
    job = _job(state, record.id)
    state.time = record.time
    if job.state == READY:
        queue = job.queue
        queue.ready.remove(job)
        job.priority = record.priority
        job.position = queue.back
        queue.back += 1
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
    lease.deadline = record.deadline
    timer = lease.timer
    if timer is None:
        timer = Timer(LEASE, job)
        lease.timer = timer
    state.timers.set(timer, record.deadline)
    return job


def apply_replay(state: State, record: Replay) -> Job:
    job = _job(state, record.id)
    _leave_lane(state, job)
    state.time = record.time
    _revive(job)
    ready_at_back(job)
    return job


def _revive(job: Job) -> None:
    """A dead letter gets another life: with its counts at zero, and as if it had not ended."""
    job.attempts = 0
    job.fails = 0
    job.losses = 0
    job.finished_at = 0
    extra = job.more()
    extra.reason = ""
    extra.has_result = False
    extra.result_at = 0
    extra.result_size = 0


def ready_at_back(job: Job) -> None:
    queue = job.queue
    job.position = queue.back
    queue.back += 1
    ready_in_place(job)


def ready_at_front(job: Job) -> None:
    queue = job.queue
    job.position = queue.front
    queue.front -= 1
    ready_in_place(job)


def ready_in_place(job: Job) -> None:
    job.state = READY
    _claim_key(job)
    job.queue.ready.add(job)


def _delay(state: State, job: Job, until: i64) -> None:
    queue = job.queue
    job.state = DELAYED
    job.position = until
    _claim_key(job)
    queue.delayed.insert(job)
    if queue.delayed.first() is job:
        state.timers.set(queue.wake_timer, until)


def expire_at(state: State, job: Job, extra: Extra, when: i64) -> None:
    extra.expires_at = when
    if when == FOREVER:
        return
    timer = extra.timer
    if timer is None:
        timer = Timer(TTL, job)
        extra.timer = timer
    state.timers.set(timer, when)


def _leave_lane(state: State, job: Job) -> None:
    """Take the job out of the lane of its state, and end its lease if it has one."""
    queue = job.queue
    extra = job.extra
    if extra is not None and extra.key is not None:
        _drop_key(queue, extra.key, job)
    if job.state == READY:
        queue.ready.remove(job)
    elif job.state == LEASED:
        queue.leased.remove(job)
        end_lease(state, job)
    elif job.state == FAILED:
        queue.dead.remove(job)
        queue.dead_bytes -= dead_weight(job)
    elif job.state == BLOCKED:
        queue.blocked.remove(job)
        _stop_waiting(state, job)
    elif job.state == GONE:
        raise CorruptRecord(f"job {job.id} is gone")
    else:
        queue.lane(i64(job.state)).remove(job)


def end_lease(state: State, job: Job) -> None:
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    timer = lease.timer
    if timer is not None:
        state.timers.cancel(timer)
    if lease.bound:
        held = state.held[lease.owner]
        del held[job.id]
        if not held:
            del state.held[lease.owner]
    job.lease = None


def _stop_waiting(state: State, job: Job) -> None:
    extra = job.more()
    blockers = extra.blockers
    if blockers:
        for blocker in blockers:
            waiting = state.dependents.get(blocker)
            if waiting is not None:
                waiting.pop(job.id, None)
                if not waiting:
                    del state.dependents[blocker]
    extra.blockers = None


def _follow_up(state: State, job: Job, succeeded: bool) -> None:
    waiting = state.dependents.pop(job.id, None)
    if not waiting:
        return
    followup = state.followups.get(job.id)
    if followup is None:
        followup = Followup()
        state.followups[job.id] = followup
    ids = list(waiting)
    ids.reverse()
    if succeeded:
        followup.succeeded = ids
    else:
        followup.failed = ids + followup.failed


def _retire(state: State, job: Job, time: i64, bury: bool) -> None:
    """The job is gone; the ring of recently finished jobs takes it for a while.

    Its uid is remembered if the job has run its course (a producer may still repeat its push),
    and free again if the job was deleted or its ttl is over.
    """
    job.state = GONE
    extra = job.extra
    if extra is not None:
        timer = extra.timer
        if timer is not None:
            state.timers.cancel(timer)
            extra.timer = None
        uid = extra.uid
        if uid is not None:
            del state.uids[uid]
            if bury:
                _bury(state, uid, job.id, time)
    limit = state.settings.finished_bytes
    state.finished.append(job)
    state.finished_bytes += RING_ENTRY
    while state.finished_bytes > limit:
        state.jobs.remove(state.finished.popleft().id)
        state.finished_bytes -= RING_ENTRY


def _bury(state: State, uid: bytes, id: i64, time: i64) -> None:
    window = state.settings.uid_window
    if not window:
        return
    state.tombstones[uid] = id
    state.buried.append((time, uid))
    if state.tombstone_timer.slot < 0:
        state.timers.set(state.tombstone_timer, time + window)


def note(state: State, job: Job, stage: i64, time: i64) -> None:
    """Put a notice into the outbox of the durable session that asked for it, if one did."""
    extra = job.extra
    if extra is None:
        return
    notify = extra.notify
    if notify is None or not notify.stages & stage:
        return
    session = state.sessions.get(notify.session)
    if session is None:
        return
    session.numbered += 1
    session.outbox.append(Letter(session.numbered, time, job.id, notify.label, stage))
    while len(session.outbox) * LETTER_BYTES > state.settings.outbox_bytes:
        session.outbox.popleft()


def _claim_key(job: Job) -> None:
    """A job joins the queued ones: its key is its own, unless another of them has it by now."""
    extra = job.extra
    if extra is None or extra.key is None:
        return
    queue = job.queue
    keys = queue.keys
    if keys is None:
        keys = {}
        queue.keys = keys
    if keys.setdefault(extra.key, job) is not job:
        extra.key = None


def _drop_key(queue: Queue, key: bytes, job: Job) -> None:
    keys = queue.keys
    if keys is not None and keys.get(key) is job:
        del keys[key]
        if not keys:
            queue.keys = None


def _job(state: State, id: i64) -> Job:
    job = state.jobs.get(id)
    if job is None or job.state == GONE:
        raise CorruptRecord(f"there is no job {id} at this point")
    return job
