"""What happens when its time has come, without a request."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.gates import open_due_keys, reopen_keys
from taskyard.engine.model.events import WATCH_TIMEOUT, JobEvent, JobWatcher, Waiter, WaitTimedOut
from taskyard.engine.model.job import SYSTEM_ORIGIN, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import idle_check_interval
from taskyard.engine.operations.batches import expire_batch
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.finish import (
    end_lost_lease,
    release_leases,
    remove_job,
    resolve_dependents,
)
from taskyard.engine.operations.lease import serve_queue, stop_waiting
from taskyard.engine.operations.manage import detach_session, emit_queue_removal
from taskyard.engine.operations.room import ensure_space_or_postpone, has_postponed_work
from taskyard.engine.records.apply import apply_wake
from taskyard.engine.records.entities import (
    ForgetUids,
    SessionChange,
    ValueGone,
    apply_forget_uids,
    apply_session,
    apply_value_gone,
)
from taskyard.engine.records.job_changes import WakeRecord
from taskyard.engine.records.job_lifecycle import CLOSED, EXPIRED, RETENTION_OVER, TTL_OVER
from taskyard.engine.schedules.registry import fire_schedule
from taskyard.engine.structures.timers import (
    CONSUMER_TIMER,
    DEAD_LETTER_TIMER,
    IDLE_QUEUE_TIMER,
    LEASE_TIMER,
    RATE_TIMER,
    SCHEDULE_TIMER,
    SESSION_TIMER,
    TOMBSTONE_TIMER,
    TTL_TIMER,
    VALUE_TIMER,
    WAITER_TIMER,
    WAKE_TIMER,
    WATCHER_TIMER,
    LeaseTimer,
    Timer,
)
from taskyard.engine.transitions import arm_tombstone_timer, dead_letter_expiry

_RESUME_BUDGET: Final = 1000  # steps of what is due, when there is space again


def tick(core: Core, now: i64, budget: i64) -> bool:
    """Do what is due, at most about `budget` steps of it; True if more is due already."""
    timers = core.state.timers
    if core.read_only_reason or has_postponed_work(core):
        return _end_due_waits(core, now)
    budget = open_due_keys(core, now, budget)
    if budget <= 0:
        return True  # a waiter that is served before all keys are open may be the wrong one
    if core.pending_disconnects:
        budget = _release_disconnected(core, now, budget)
    budget = resolve_dependents(core, now, budget)
    if core.state.limits_changed or core.queues_to_rescan:
        budget = serve_after_limit_change(core, now, budget)
    while budget > 0:
        timer = timers.first()
        if timer is None or timer.deadline > now:
            return has_pending_work(core) or _is_key_due(core, now)
        if has_postponed_work(core) or not ensure_space_or_postpone(core):
            break
        budget -= _fire(core, timer, now, budget)
        if core.state.pending_dependents:
            budget = resolve_dependents(core, now, budget)
        if core.state.limits_changed:  # a fetch in this turn must see the jobs that may start
            budget = serve_after_limit_change(core, now, budget)
    return _end_due_waits(core, now) if has_postponed_work(core) else True


def _is_key_due(core: Core, now: i64) -> bool:
    timer = core.state.key_timers.first()
    return timer is not None and timer.deadline <= now


def has_pending_work(core: Core) -> bool:
    """Whether something that has begun is to continue as soon as possible."""
    state = core.state
    return bool(
        state.pending_dependents
        or core.pending_disconnects
        or state.limits_changed
        or core.queues_to_rescan
    )


def serve_after_limit_change(core: Core, now: i64, budget: i64) -> i64:
    """Deliver what the limits allow by now, with about `budget` steps; returns what is left."""
    queues, budget = reopen_keys(core, now, budget)
    if core.queues_to_rescan:
        queues.extend(core.queues_to_rescan.values())
        core.queues_to_rescan.clear()
    if core.waiters:
        for queue in queues:
            budget -= 1
            serve_queue(core, queue, now)
    return budget


def _release_disconnected(core: Core, now: i64, budget: i64) -> i64:
    departures = core.pending_disconnects
    core.pending_disconnects = []
    for departure in departures:
        budget = release_leases(core, departure, now, budget)
    return budget


def resume_postponed(core: Core, now: i64) -> None:
    """Run what was postponed for lack of space; waiters may have been passed over."""
    core.journal_space.postponed_work = False
    open_due_keys(core, now, _RESUME_BUDGET)
    _release_disconnected(core, now, _RESUME_BUDGET)
    detached = core.pending_detaches
    core.pending_detaches = []
    for id, origin in detached:
        detach_session(core, id, origin, now)
    serve_after_limit_change(core, now, _RESUME_BUDGET)
    for name in list(core.waiters):
        queue = core.state.queues.get(name)
        if queue is not None:
            serve_queue(core, queue, now)
    tick(core, now, _RESUME_BUDGET)


def _end_due_waits(core: Core, now: i64) -> bool:
    """End waits that are over; without space in the journal, only those that need no record."""
    for line in list(core.waiters.values()):
        for waiter in list(line.values()):
            if waiter.timer.deadline <= now:
                _time_out_wait(core, waiter)
    for watchers in list(core.watchers.values()):
        for watcher in list(watchers.values()):
            if watcher.timer.slot >= 0 and watcher.timer.deadline <= now:
                stop_watching(core, watcher)
                job = core.state.live_job(watcher.job_id)
                queue = job.queue if job is not None else None
                core.effects.append(JobEvent(watcher, WATCH_TIMEOUT, None, queue))
    return False


def next_deadline(core: Core, now: i64) -> i64:
    """When tick is to be called next; 0: nothing is planned."""
    if core.read_only_reason or has_postponed_work(core):
        return _next_wait_deadline(core)
    if has_pending_work(core):
        return now
    timer = core.state.first_timer()
    return timer.deadline if timer is not None else 0


def _next_wait_deadline(core: Core) -> i64:
    """The first wait that ends; what needs a record would be due for ever."""
    timers = [waiter.timer for line in core.waiters.values() for waiter in line.values()]
    for watchers in core.watchers.values():
        timers.extend([watcher.timer for watcher in watchers.values() if watcher.timer.slot >= 0])
    first: i64 = 0
    for timer in timers:
        if not first or timer.deadline < first:
            first = timer.deadline
    return first


def stop_watching(core: Core, watcher: JobWatcher) -> None:
    core.state.timers.cancel(watcher.timer)
    watchers = core.watchers.get(watcher.job_id)
    if watchers is not None:
        watchers.pop(watcher.number, None)
        if not watchers:
            del core.watchers[watcher.job_id]


def _fire(core: Core, timer: Timer, now: i64, budget: i64) -> i64:
    """Run one timer; returns the number of steps that took."""
    kind = timer.kind
    target = timer.target
    if kind == LEASE_TIMER:
        assert isinstance(timer, LeaseTimer)
        end_lost_lease(core, timer.first_active_job(), EXPIRED, SYSTEM_ORIGIN, now)
    elif kind == WAKE_TIMER:
        assert isinstance(target, Queue)
        return _wake_delayed(core, target, now, budget)
    elif kind == TTL_TIMER:
        assert isinstance(target, Job)
        remove_job(core, target, TTL_OVER if target.ensure_extras().ttl_ms else RETENTION_OVER, now)
    elif kind == WAITER_TIMER:
        assert isinstance(target, Waiter)
        _time_out_wait(core, target)
    elif kind == WATCHER_TIMER:
        assert isinstance(target, JobWatcher)
        stop_watching(core, target)
        job = core.state.live_job(target.job_id)
        queue = job.queue if job is not None else None
        core.effects.append(JobEvent(target, WATCH_TIMEOUT, job, queue))
    elif kind == DEAD_LETTER_TIMER:
        assert isinstance(target, Queue)
        return _expire_dead_letters(core, target, now, budget)
    elif kind == VALUE_TIMER:
        assert isinstance(target, bytes)
        _expire_value(core, target, now)
    elif kind == SESSION_TIMER:
        assert isinstance(target, int)
        closed = SessionChange(now, SYSTEM_ORIGIN, target, CLOSED)
        core.records.append(closed)
        apply_session(core.state, closed)
    elif kind == TOMBSTONE_TIMER:
        _expire_tombstones(core, now)
    elif kind == CONSUMER_TIMER:
        assert isinstance(target, str)
        return expire_batch(core, target, now, budget)
    elif kind == SCHEDULE_TIMER:
        assert isinstance(target, str)
        return fire_schedule(core, target, now)
    else:
        return _fire_limit(core, timer, now)
    return 1


def _expire_value(core: Core, key: bytes, now: i64) -> None:
    if not ensure_space_or_postpone(core, len(key)):
        return
    gone = ValueGone(now, SYSTEM_ORIGIN, key)
    core.records.append(gone)
    apply_value_gone(core.state, gone)


def _fire_limit(core: Core, timer: Timer, now: i64) -> i64:
    kind = timer.kind
    target = timer.target
    if kind == RATE_TIMER:
        assert isinstance(target, Queue)
        core.state.timers.cancel(timer)
        serve_queue(core, target, now)
    elif kind == IDLE_QUEUE_TIMER:
        assert isinstance(target, Queue)
        _check_idle_queue(core, target, now)
    return 1


def _check_idle_queue(core: Core, queue: Queue, now: i64) -> None:
    """Delete a queue without jobs and waiters to which nothing has happened for long enough.

    The check by a timer costs nothing when the queue is used.
    """
    expiry = queue.effective_settings.idle_expiry
    used = queue.activity_count()
    if used != queue.idle_activity_count or not queue.is_empty() or queue.utf8 in core.waiters:
        queue.idle_activity_count = used
        queue.idle_since = now
    elif now - queue.idle_since >= expiry:
        emit_queue_removal(core, queue, SYSTEM_ORIGIN, now)
        return
    timer = queue.idle_timer
    assert timer is not None
    core.state.timers.set(timer, now + idle_check_interval(expiry))


def _time_out_wait(core: Core, waiter: Waiter) -> None:
    stop_waiting(core, waiter)
    core.effects.append(WaitTimedOut(waiter))


def _wake_delayed(core: Core, queue: Queue, now: i64, budget: i64) -> i64:
    """Make delayed jobs ready whose time has come, at the back of their queue, earliest first."""
    state = core.state
    delayed = queue.delayed
    woken: i64 = 0
    while delayed.size and woken < budget:
        job = delayed.first()
        if job.order_key > now or not ensure_space_or_postpone(core):
            break
        record = WakeRecord(now, SYSTEM_ORIGIN, job.id, queue.utf8)
        core.records.append(record)
        apply_wake(state, record)
        woken += 1
    if delayed.size:
        state.timers.set(queue.wake_timer, delayed.first().order_key)
    else:
        state.timers.cancel(queue.wake_timer)
    if woken:
        serve_queue(core, queue, now)
    return woken + 1


def _expire_dead_letters(core: Core, queue: Queue, now: i64, budget: i64) -> i64:
    """Remove dead letters that were kept long enough, oldest first."""
    state = core.state
    dead = queue.dead
    forgotten: i64 = 0
    while dead.size and forgotten < budget:
        job = dead.first()
        if dead_letter_expiry(state, queue, job) > now or not ensure_space_or_postpone(core):
            break
        remove_job(core, job, RETENTION_OVER, now)
        forgotten += 1
    if dead.size:
        state.timers.set(queue.dead_timer, dead_letter_expiry(state, queue, dead.first()))
    else:
        state.timers.cancel(queue.dead_timer)
    return forgotten + 1


def _expire_tombstones(core: Core, now: i64) -> None:
    state = core.state
    tombstones = state.tombstones
    if tombstones.first_expiry() > now:
        arm_tombstone_timer(state)
        return
    # One bucket at a time: no long pause.
    before = tombstones.first_expiry() - tombstones.window
    record = ForgetUids(now, SYSTEM_ORIGIN, before)
    core.records.append(record)
    apply_forget_uids(state, record)
