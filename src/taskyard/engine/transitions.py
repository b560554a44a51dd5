"""Where a job stands: the lane of its state, and all that goes with entering and leaving it.

Part of the apply half: it does what it is told and chooses nothing.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.limits import count_start, leave_line, offer_gone, slot_freed, slot_taken
from taskyard.engine.model.errors import CorruptRecord
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    LEASED,
    LIMITED,
    READY,
    Extra,
    Job,
    Lease,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.stages import CALLED, STAGE_ASSIGN
from taskyard.engine.model.state import LETTER_BYTES, Followup, Letter, State
from taskyard.engine.structures.timers import TTL, LeaseTimer, Timer
from taskyard.engine.structures.weights import LETTER_WEIGHT

RING_ENTRY: Final = 512  # bytes that one finished job counts for in the ring


def ready_at_back(job: Job, seq: i64, time: i64) -> None:
    """Ready behind all others: records are numbered in order, so their numbers are positions."""
    job.position = seq
    ready_in_place(job, time)


def ready_at_front(job: Job, seq: i64, time: i64) -> None:
    job.position = -seq
    ready_in_place(job, time)


def ready_in_place(job: Job, time: i64) -> None:
    job.state = READY
    job.ready_at = time
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
    state: State,
    job: Job,
    owner: i64,
    bound: bool,
    holder: str,
    epoch: i64,
    since: i64,
    deadline: i64,
) -> None:
    """A job that was taken out of the ready lane becomes leased."""
    queue = job.queue
    job.attempts += 1
    job.leases += 1
    queue.leases += 1
    hold(state, job, Lease(owner, bound, holder, epoch, i64(job.attempts), since, deadline))
    if queue.gate:
        count_start(state, job, since)
    extra = job.extra
    if extra is not None:
        if extra.key is not None:
            _drop_key(queue, extra.key, job)
        note(state, job, STAGE_ASSIGN, since)


def hold(state: State, job: Job, lease: Lease) -> None:
    """The job is among the leased ones, with this lease."""
    job.lease = lease
    job.state = LEASED
    state.leased += 1
    job.queue.leased.insert(job)
    extra = job.extra
    if extra is not None and extra.limit_key is not None:
        slot_taken(job.queue, extra.limit_key)
    if lease.bound:
        held = state.held.get(lease.owner)
        if held is None:
            state.held[lease.owner] = job
        elif isinstance(held, Job):
            state.held[lease.owner] = {held.id: held, job.id: job}
        else:
            held[job.id] = job
    if lease.deadline:
        end_in_time(state, job, lease)


def end_in_time(state: State, job: Job, lease: Lease) -> None:
    """Let the lease end at its deadline: with those given just before, if theirs is the same."""
    timer = state.lease_timer
    if timer is None or timer.deadline != lease.deadline or timer.slot < 0 or timer.is_full():
        timer = LeaseTimer()
        state.lease_timer = timer
        state.timers.set(timer, lease.deadline)
    lease.timer = timer
    timer.add(job)


def end_some_time(state: State, lease: Lease) -> None:
    """Its deadline is none any more."""
    timer = lease.timer
    if timer is not None:
        lease.timer = None
        timer.remove()
        if not timer.left:
            state.timers.cancel(timer)


def end_lease(state: State, job: Job) -> None:
    lease = job.lease
    if lease is None:
        raise CorruptRecord(f"job {job.id} is not leased")
    end_some_time(state, lease)
    if lease.bound:
        held = state.held[lease.owner]
        if held is job:
            del state.held[lease.owner]
        elif isinstance(held, Job):
            raise CorruptRecord(f"job {job.id} is not held by its owner")
        else:
            del held[job.id]
            if not held:
                del state.held[lease.owner]
    job.lease = None
    state.leased -= 1


def held_by(state: State, owner: i64) -> list[Job]:
    """The jobs whose leases end with this owner's connection, in the order they were leased."""
    held = state.held.get(owner)
    if held is None:
        return []
    return [held] if isinstance(held, Job) else list(held.values())


def to_dead_letters(state: State, job: Job) -> None:
    queue = job.queue
    job.state = FAILED
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
    kept = queue.rules.dead_retention
    return job.finished_at + (kept if kept >= 0 else state.settings.dead_retention)


def leave_lane(state: State, job: Job) -> None:
    """Take the job out of the lane of its state, and end its lease if it has one."""
    queue = job.queue
    extra = job.extra
    if extra is not None and extra.key is not None:
        _drop_key(queue, extra.key, job)
    if job.state == READY:
        queue.ready.remove(job)
        if extra is not None and extra.limit_key is not None:
            offer_gone(state, queue, extra.limit_key)
    elif job.state == LEASED:
        queue.leased.remove(job)
        end_lease(state, job)
        if queue.gate:
            state.freed[queue.utf8] = queue
            state.stirred = True
        if extra is not None and extra.limit_key is not None:
            slot_freed(state, queue, extra.limit_key)
    elif job.state == FAILED:
        queue.dead.remove(job)
        queue.dead_bytes -= dead_weight(job)
    elif job.state == BLOCKED:
        queue.blocked.remove(job)
        _stop_waiting(state, job)
    elif job.state == LIMITED:
        leave_line(state, job)
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


def follow_up(state: State, id: i64, succeeded: bool) -> None:
    """The job of this id has ended, known here or not: those that wait for it must hear of it."""
    if not state.dependents:
        return
    waiting = state.dependents.pop(id, None)
    if not waiting:
        return
    followup = state.followups.get(id)
    if followup is None:
        followup = Followup()
        state.followups[id] = followup
    ids = sorted(waiting, reverse=True)  # in order of their pushes, next one last
    if succeeded:
        followup.succeeded = ids
    else:
        followup.failed = ids + followup.failed


def is_called(extra: Extra) -> bool:
    """Whether somebody waits for the job's end, or did before the server was started again."""
    notify = extra.notify
    return notify is not None and notify.stages & CALLED != 0


def retire(state: State, job: Job, succeeded: bool) -> None:
    """The job is gone; the ring of recently finished jobs takes it for a while."""
    job.state = GONE
    job.position = 1 if succeeded else 0
    state.weights.sub(job.payload_at, i64(job.weight))
    extra = job.extra
    if extra is not None:
        timer = extra.timer
        if timer is not None:
            state.timers.cancel(timer)
            extra.timer = None
        uid = extra.uid
        if uid is not None:
            del state.uids[uid]
        if is_called(extra):
            state.called.discard(job.id)
        if extra.result_size:
            state.weights.sub(extra.result_at, extra.result_size)
        if extra.error_size:
            state.weights.sub(extra.error_at, extra.error_size)
    limit = state.settings.finished_bytes
    state.finished.add(job)
    state.finished_bytes += RING_ENTRY
    while state.finished_bytes > limit:
        state.jobs.remove(state.finished.take().id)
        state.finished_bytes -= RING_ENTRY


def bury(state: State, uid: bytes, id: i64, producer: bytes, time: i64, seq: i64) -> None:
    """Remember the uid of a job that has run its course: a producer may still repeat its push.

    That of a job that was deleted, or whose ttl is over, is free again.
    """
    state.tombstones.bury(uid, id, producer, time, seq)
    if state.tombstone_timer.slot < 0:
        wait_for_graves(state)


def wait_for_graves(state: State) -> None:
    end = state.tombstones.first_end()
    if end:
        state.timers.set(state.tombstone_timer, end)
    else:
        state.timers.cancel(state.tombstone_timer)


def set_result(state: State, extra: Extra, at: i64, size: i64) -> None:
    if extra.result_size:
        state.weights.sub(extra.result_at, extra.result_size)
    extra.result_at = at
    extra.result_size = size
    if size:
        state.weights.add(at, size)


def set_error(state: State, extra: Extra, at: i64, size: i64) -> None:
    if extra.error_size:
        state.weights.sub(extra.error_at, extra.error_size)
    extra.error_at = at
    extra.error_size = size
    if size:
        state.weights.add(at, size)


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
    session.noted = True
    session.numbered += 1
    session.outbox.append(Letter(session.numbered, time, job.id, notify.label, stage))
    state.weights.loose += LETTER_WEIGHT
    while len(session.outbox) * LETTER_BYTES > state.settings.outbox_bytes:
        session.outbox.popleft()
        state.weights.loose -= LETTER_WEIGHT


def key_is_taken(job: Job) -> bool:
    """Whether another queued job has this one's key by now."""
    extra = job.extra
    keys = job.queue.keys
    if extra is None or extra.key is None or keys is None:
        return False
    return keys.get(extra.key, job) is not job


def claim_key(job: Job) -> None:
    """A job joins the queued ones, with its key: nobody else has it, or it has none any more."""
    extra = job.extra
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
