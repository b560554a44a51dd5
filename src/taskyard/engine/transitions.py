"""How a job enters and leaves each state, with all that depends on it.

Part of the apply half: it never decides anything.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.limits import (
    acquire_slot,
    count_start,
    on_ready_job_removed,
    release_slot,
    remove_waiting_job,
)
from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    READY,
    STAGE_ASSIGN,
    SYNCHRONOUS_CALL,
    Job,
    JobExtras,
    Lease,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import OUTBOX_NOTICE_BYTES, PendingDependents, SessionNotice, State
from taskyard.engine.structures.index import NOTICE_RECORD_BYTES
from taskyard.engine.structures.timers import TTL_TIMER, LeaseTimer, Timer

RING_ENTRY_BYTES: Final = 512  # bytes that one finished job counts for in the ring


def make_ready_at_back(job: Job, seq: i64, time: i64) -> None:
    """Ready behind all others: records are numbered in order, so their numbers are positions."""
    job.order_key = seq
    make_ready_in_place(job, time)


def make_ready_at_front(job: Job, seq: i64, time: i64) -> None:
    job.order_key = -seq
    make_ready_in_place(job, time)


def make_ready_in_place(job: Job, time: i64) -> None:
    job.state = READY
    job.ready_at = time
    claim_key(job)
    job.queue.ready.add(job)


def delay_job(state: State, job: Job, until: i64) -> None:
    queue = job.queue
    job.state = DELAYED
    job.order_key = until
    claim_key(job)
    queue.delayed.insert(job)
    if queue.delayed.first() is job:
        state.timers.set(queue.wake_timer, until)


def lease_to(
    state: State,
    job: Job,
    owner: i64,
    bound: bool,
    holder: str,
    epoch: i64,
    since: i64,
    deadline: i64,
) -> None:
    """Lease a job that was removed from the ready jobs."""
    queue = job.queue
    job.attempts += 1
    job.leases += 1
    queue.leases += 1
    set_lease(state, job, Lease(owner, bound, holder, epoch, i64(job.attempts), since, deadline))
    if queue.restrictions:
        count_start(state, job, since)
    extra = job.extras
    if extra is not None:
        if extra.key is not None:
            _drop_key(queue, extra.key, job)
        append_notice(state, job, STAGE_ASSIGN, since)


def set_lease(state: State, job: Job, lease: Lease) -> None:
    """The job is among the leased ones, with this lease."""
    job.lease = lease
    job.state = LEASED
    state.leased_count += 1
    job.queue.leased.insert(job)
    extra = job.extras
    if extra is not None and extra.limit_key is not None:
        acquire_slot(job.queue, extra.limit_key)
    if lease.bound:
        held = state.bound_jobs_by_owner.get(lease.owner)
        if held is None:
            state.bound_jobs_by_owner[lease.owner] = job
        elif isinstance(held, Job):
            state.bound_jobs_by_owner[lease.owner] = {held.id: held, job.id: job}
        else:
            held[job.id] = job
    if lease.deadline:
        arm_lease_timer(state, job, lease)


def arm_lease_timer(state: State, job: Job, lease: Lease) -> None:
    """Let the lease end at its deadline: with those given just before, if theirs is the same."""
    timer = state.lease_timer
    if timer is None or timer.deadline != lease.deadline or timer.slot < 0 or timer.is_full():
        timer = LeaseTimer()
        state.lease_timer = timer
        state.timers.set(timer, lease.deadline)
    lease.timer = timer
    timer.add(job)


def disarm_lease_timer(state: State, lease: Lease) -> None:
    """Its deadline is none any more."""
    timer = lease.timer
    if timer is not None:
        lease.timer = None
        timer.on_lease_ended()
        if not timer.active_count:
            state.timers.cancel(timer)


def end_lease(state: State, job: Job) -> None:
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    disarm_lease_timer(state, lease)
    if lease.bound:
        held = state.bound_jobs_by_owner[lease.owner]
        if held is job:
            del state.bound_jobs_by_owner[lease.owner]
        elif isinstance(held, Job):
            raise CorruptRecord(f"job {job.id} is not held by its owner")
        else:
            del held[job.id]
            if not held:
                del state.bound_jobs_by_owner[lease.owner]
    job.lease = None
    state.leased_count -= 1


def jobs_bound_to(state: State, owner: i64) -> list[Job]:
    """Return the jobs whose leases end with this owner's connection, in the order of the leases."""
    held = state.bound_jobs_by_owner.get(owner)
    if held is None:
        return []
    return [held] if isinstance(held, Job) else list(held.values())


def move_to_dead_letters(state: State, job: Job) -> None:
    queue = job.queue
    job.state = FAILED
    queue.dead.insert(job)
    queue.dead_bytes += dead_letter_bytes(job)
    timer = queue.dead_timer
    until = dead_letter_expiry(state, queue, job)
    if timer.slot < 0 or until < timer.deadline:
        state.timers.set(timer, until)


def dead_letter_bytes(job: Job) -> i64:
    """Return what a dead letter counts for in the bound of its queue."""
    extra = job.extras
    return RING_ENTRY_BYTES + job.payload_size + (extra.error_size if extra is not None else 0)


def dead_letter_expiry(state: State, queue: Queue, job: Job) -> i64:
    kept = queue.effective_settings.dead_retention
    return job.finished_at + (kept if kept >= 0 else state.settings.dead_retention)


def leave_current_state(state: State, job: Job) -> None:
    """Remove the job from the list of its state, and end its lease if it has one."""
    queue = job.queue
    extra = job.extras
    if extra is not None and extra.key is not None:
        _drop_key(queue, extra.key, job)
    if job.state == READY:
        queue.ready.remove(job)
        if extra is not None and extra.limit_key is not None:
            on_ready_job_removed(state, queue, extra.limit_key)
    elif job.state == LEASED:
        queue.leased.remove(job)
        end_lease(state, job)
        if queue.restrictions:
            state.queues_to_serve[queue.utf8] = queue
            state.limits_changed = True
        if extra is not None and extra.limit_key is not None:
            release_slot(state, queue, extra.limit_key)
    elif job.state == FAILED:
        queue.dead.remove(job)
        queue.dead_bytes -= dead_letter_bytes(job)
    elif job.state == BLOCKED:
        queue.blocked.remove(job)
        _forget_blockers(state, job)
    elif job.state == LIMITED:
        remove_waiting_job(state, job)
    elif job.state == GONE:
        raise CorruptRecord(f"job {job.id} is gone")
    else:
        queue.ordered_jobs(i64(job.state)).remove(job)


def _forget_blockers(state: State, job: Job) -> None:
    extra = job.ensure_extras()
    blockers = extra.blockers
    if blockers:
        for blocker in blockers:
            waiting = state.dependents.get(blocker)
            if waiting is not None:
                waiting.pop(job.id, None)
                if not waiting:
                    del state.dependents[blocker]
    extra.blockers = None


def set_job_expiry(state: State, job: Job, extra: JobExtras, when: i64) -> None:
    extra.expires_at = when
    if when == FOREVER:
        return
    timer = extra.timer
    if timer is None:
        timer = Timer(TTL_TIMER, job)
        extra.timer = timer
    state.timers.set(timer, when)


def queue_dependents(state: State, id: i64, succeeded: bool) -> None:
    """The job of this id has ended, known here or not: queue its dependents to be resolved."""
    if not state.dependents:
        return
    waiting = state.dependents.pop(id, None)
    if not waiting:
        return
    followup = state.pending_dependents.get(id)
    if followup is None:
        followup = PendingDependents()
        state.pending_dependents[id] = followup
    ids = sorted(waiting, reverse=True)  # in order of their pushes, next one last
    if succeeded:
        followup.succeeded = ids
    else:
        followup.failed = ids + followup.failed


def is_synchronous_call(extra: JobExtras) -> bool:
    """Whether a client waits for the job's end, or did before the server was restarted."""
    notify = extra.notify
    return notify is not None and notify.stages & SYNCHRONOUS_CALL != 0


def move_to_finished_ring(state: State, job: Job, succeeded: bool) -> None:
    """Keep a job that is gone in the ring of recently finished jobs for a while."""
    job.state = GONE
    job.order_key = 1 if succeeded else 0
    state.live_bytes.subtract(job.payload_at, i64(job.record_bytes))
    extra = job.extras
    if extra is not None:
        timer = extra.timer
        if timer is not None:
            state.timers.cancel(timer)
            extra.timer = None
        uid = extra.uid
        if uid is not None:
            del state.uids[uid]
        if is_synchronous_call(extra):
            state.synchronous_jobs.discard(job.id)
        if extra.result_size:
            state.live_bytes.subtract(extra.result_at, extra.result_size)
        if extra.error_size:
            state.live_bytes.subtract(extra.error_at, extra.error_size)
    limit = state.settings.finished_bytes
    state.finished_ring.add(job)
    state.finished_ring_bytes += RING_ENTRY_BYTES
    while state.finished_ring_bytes > limit:
        state.jobs.remove(state.finished_ring.pop_oldest().id)
        state.finished_ring_bytes -= RING_ENTRY_BYTES


def add_tombstone(state: State, uid: bytes, id: i64, producer: bytes, time: i64, seq: i64) -> None:
    """Remember the uid of a job that has run its course: a producer may still repeat its push.

    The uid of a job that was deleted, or whose ttl is over, is free again.
    """
    state.tombstones.add(uid, id, producer, time, seq)
    if state.tombstone_timer.slot < 0:
        arm_tombstone_timer(state)


def arm_tombstone_timer(state: State) -> None:
    end = state.tombstones.first_expiry()
    if end:
        state.timers.set(state.tombstone_timer, end)
    else:
        state.timers.cancel(state.tombstone_timer)


def set_result(state: State, extra: JobExtras, at: i64, size: i64) -> None:
    if extra.result_size:
        state.live_bytes.subtract(extra.result_at, extra.result_size)
    extra.result_at = at
    extra.result_size = size
    if size:
        state.live_bytes.add(at, size)


def set_error(state: State, extra: JobExtras, at: i64, size: i64) -> None:
    if extra.error_size:
        state.live_bytes.subtract(extra.error_at, extra.error_size)
    extra.error_at = at
    extra.error_size = size
    if size:
        state.live_bytes.add(at, size)


def append_notice(state: State, job: Job, stage: i64, time: i64) -> None:
    """Append a notice to the outbox of the durable session that asked for it, if one did."""
    extra = job.extras
    if extra is None:
        return
    notify = extra.notify
    if notify is None or not notify.stages & stage:
        return
    session = state.sessions.get(notify.session)
    if session is None:
        return
    session.changed_since_snapshot = True
    session.numbered += 1
    session.outbox.append(SessionNotice(session.numbered, time, job.id, notify.label, stage))
    state.live_bytes.unplaced += NOTICE_RECORD_BYTES
    while len(session.outbox) * OUTBOX_NOTICE_BYTES > state.settings.outbox_bytes:
        session.outbox.popleft()
        state.live_bytes.unplaced -= NOTICE_RECORD_BYTES


def is_key_taken(job: Job) -> bool:
    """Whether another queued job has this one's key by now."""
    extra = job.extras
    keys = job.queue.keys
    if extra is None or extra.key is None or keys is None:
        return False
    return keys.get(extra.key, job) is not job


def claim_key(job: Job) -> None:
    """Claim the job's key for it; without a key it has none, or another job has it."""
    extra = job.extras
    if extra is None or extra.key is None:
        return
    queue = job.queue
    keys = queue.keys
    if keys is None:
        keys = {}
        queue.keys = keys
    keys[extra.key] = job


def _drop_key(queue: Queue, key: bytes, job: Job) -> None:
    keys = queue.keys
    if keys is not None and keys.get(key) is job:
        del keys[key]
        if not keys:
            queue.keys = None
