"""Where a job stands: the lane of its state, and all that goes with entering and leaving it.

Part of the apply half: it does what it is told and chooses nothing.
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
    Extra,
    Job,
    Lease,
)
from taskyard.engine.queue import Queue
from taskyard.engine.stages import STAGE_ASSIGN
from taskyard.engine.state import LETTER_BYTES, Followup, Letter, State
from taskyard.engine.timers import LEASE, TTL, Timer

RING_ENTRY: Final = 512  # bytes that one finished job counts for in the ring


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
    claim_key(job)
    job.queue.ready.add(job)


def delay(state: State, job: Job, until: i64) -> None:
    queue = job.queue
    job.state = DELAYED
    job.position = until
    claim_key(job)
    queue.delayed.insert(job)
    if queue.delayed.first() is job:
        state.timers.set(queue.wake_timer, until)


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


def to_dead_letters(state: State, job: Job, extra: Extra) -> None:
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


def leave_lane(state: State, job: Job) -> None:
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


def expire_at(state: State, job: Job, extra: Extra, when: i64) -> None:
    extra.expires_at = when
    if when == FOREVER:
        return
    timer = extra.timer
    if timer is None:
        timer = Timer(TTL, job)
        extra.timer = timer
    state.timers.set(timer, when)


def follow_up(state: State, job: Job, succeeded: bool) -> None:
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


def retire(state: State, job: Job, time: i64, bury: bool) -> None:
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


def claim_key(job: Job) -> None:
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
