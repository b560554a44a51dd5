"""What happens by itself when its time comes."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.gates import open_due, reopen
from taskyard.engine.model.effects import WATCH_TIMEOUT, GaveUp, Waiter, Watched, Watcher
from taskyard.engine.model.job import SYSTEM_ORIGIN, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import look_every
from taskyard.engine.operations.admin import forget_queue
from taskyard.engine.operations.batches import expire_batch
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.finish import end_leases, lose, remove, settle
from taskyard.engine.operations.keeping import detach_session
from taskyard.engine.operations.lease import serve, stop_waiting
from taskyard.engine.operations.room import fits_due, is_short
from taskyard.engine.records.apply import apply_wake
from taskyard.engine.records.job_changes import Wake
from taskyard.engine.records.job_lifecycle import CLOSED, EXPIRED, RETENTION_OVER, TTL_OVER
from taskyard.engine.records.side_apply import apply_forget, apply_session, apply_value_gone
from taskyard.engine.records.side_records import Forget, SessionSet, ValueGone
from taskyard.engine.schedules.registry import fire_schedule
from taskyard.engine.structures.timers import (
    CONSUMER,
    DEAD,
    IDLE,
    LEASE,
    RATE,
    SCHEDULE,
    SESSION,
    TOMBSTONE,
    TTL,
    VALUE,
    WAITER,
    WAKE,
    WATCHER,
    LeaseTimer,
    Timer,
)
from taskyard.engine.transitions import dead_until, wait_for_graves

_AT_ONCE: Final = 1000  # steps of what is due, when there is room again


def tick(core: Core, now: i64, budget: i64) -> bool:
    """Do what is due, at most about `budget` steps of it; True if more is due already."""
    timers = core.state.timers
    if core.read_only or is_short(core):
        return _tick_volatile(core, now)
    budget = open_due(core, now, budget)
    if budget <= 0:
        return True  # whoever is served before all gates are open may be the wrong one
    if core.departures:
        budget = _end_leases(core, now, budget)
    budget = settle(core, now, budget)
    if core.state.stirred or core.unseen:
        budget = serve_stirred(core, now, budget)
    while budget > 0:
        timer = timers.first()
        if timer is None or timer.deadline > now:
            return is_pending(core) or _keys_due(core, now)
        if is_short(core) or not fits_due(core):
            break
        budget -= _fire(core, timer, now, budget)
        if core.state.followups:
            budget = settle(core, now, budget)
        if core.state.stirred:  # whoever asks in this turn must see who may go
            budget = serve_stirred(core, now, budget)
    return _tick_volatile(core, now) if is_short(core) else True


def _keys_due(core: Core, now: i64) -> bool:
    timer = core.state.key_timers.first()
    return timer is not None and timer.deadline <= now


def is_pending(core: Core) -> bool:
    """Whether something that has begun is to go on as soon as possible."""
    state = core.state
    return bool(state.followups or core.departures or state.stirred or core.unseen)


def serve_stirred(core: Core, now: i64, budget: i64) -> i64:
    """Hand out what the limits allow by now, with about `budget` steps; gives what is left."""
    queues, budget = reopen(core, now, budget)
    if core.unseen:
        queues.extend(core.unseen.values())
        core.unseen.clear()
    if core.waiting:
        for queue in queues:
            budget -= 1
            serve(core, queue, now)
    return budget


def _end_leases(core: Core, now: i64, budget: i64) -> i64:
    departures = core.departures
    core.departures = []
    for departure in departures:
        budget = end_leases(core, departure, now, budget)
    return budget


def resume(core: Core, now: i64) -> None:
    """Do what there was no room for; whoever is in line may have been passed over."""
    core.room.short = False
    open_due(core, now, _AT_ONCE)
    _end_leases(core, now, _AT_ONCE)
    detached = core.detached
    core.detached = []
    for id, origin in detached:
        detach_session(core, id, origin, now)
    serve_stirred(core, now, _AT_ONCE)
    for name in list(core.waiting):
        queue = core.state.queues.get(name)
        if queue is not None:
            serve(core, queue, now)
    tick(core, now, _AT_ONCE)


def _tick_volatile(core: Core, now: i64) -> bool:
    """Without room in the journal only what needs no record can happen: waits end."""
    for line in list(core.waiting.values()):
        for waiter in list(line.values()):
            if waiter.timer.deadline <= now:
                _give_up(core, waiter)
    for watchers in list(core.watchers.values()):
        for watcher in list(watchers.values()):
            if watcher.timer.slot >= 0 and watcher.timer.deadline <= now:
                stop_watching(core, watcher)
                job = core.state.live(watcher.job_id)
                queue = job.queue if job is not None else None
                core.effects.append(Watched(watcher, WATCH_TIMEOUT, None, queue))
    return False


def next_deadline(core: Core, now: i64) -> i64:
    """When tick is to be called next; 0: nothing is planned."""
    if core.read_only or is_short(core):
        return _next_volatile(core)
    if is_pending(core):
        return now
    timer = core.state.first_timer()
    return timer.deadline if timer is not None else 0


def _next_volatile(core: Core) -> i64:
    """The first wait that ends; what needs a record would be due for ever."""
    timers = [waiter.timer for line in core.waiting.values() for waiter in line.values()]
    for watchers in core.watchers.values():
        timers.extend([watcher.timer for watcher in watchers.values() if watcher.timer.slot >= 0])
    first: i64 = 0
    for timer in timers:
        if not first or timer.deadline < first:
            first = timer.deadline
    return first


def stop_watching(core: Core, watcher: Watcher) -> None:
    core.state.timers.cancel(watcher.timer)
    watchers = core.watchers.get(watcher.job_id)
    if watchers is not None:
        watchers.pop(watcher.number, None)
        if not watchers:
            del core.watchers[watcher.job_id]


def _fire(core: Core, timer: Timer, now: i64, budget: i64) -> i64:
    """Carry out one timer; gives the number of steps that took."""
    kind = timer.kind
    target = timer.target
    if kind == LEASE:
        assert isinstance(timer, LeaseTimer)
        lose(core, timer.first(), EXPIRED, SYSTEM_ORIGIN, now)
    elif kind == WAKE:
        assert isinstance(target, Queue)
        return _wake(core, target, now, budget)
    elif kind == TTL:
        assert isinstance(target, Job)
        remove(core, target, TTL_OVER if target.more().ttl_ms else RETENTION_OVER, now)
    elif kind == WAITER:
        assert isinstance(target, Waiter)
        _give_up(core, target)
    elif kind == WATCHER:
        assert isinstance(target, Watcher)
        stop_watching(core, target)
        job = core.state.live(target.job_id)
        queue = job.queue if job is not None else None
        core.effects.append(Watched(target, WATCH_TIMEOUT, job, queue))
    elif kind == DEAD:
        assert isinstance(target, Queue)
        return _forget_dead(core, target, now, budget)
    elif kind == VALUE:
        assert isinstance(target, bytes)
        _forget_value(core, target, now)
    elif kind == SESSION:
        assert isinstance(target, int)
        closed = SessionSet(now, SYSTEM_ORIGIN, target, CLOSED)
        core.log.append(closed)
        apply_session(core.state, closed)
    elif kind == TOMBSTONE:
        _forget_uids(core, now)
    elif kind == CONSUMER:
        assert isinstance(target, str)
        return expire_batch(core, target, now, budget)
    elif kind == SCHEDULE:
        assert isinstance(target, str)
        return fire_schedule(core, target, now)
    else:
        return _fire_limit(core, timer, now)
    return 1


def _forget_value(core: Core, key: bytes, now: i64) -> None:
    if not fits_due(core, len(key)):
        return
    gone = ValueGone(now, SYSTEM_ORIGIN, key)
    core.log.append(gone)
    apply_value_gone(core.state, gone)


def _fire_limit(core: Core, timer: Timer, now: i64) -> i64:
    kind = timer.kind
    target = timer.target
    if kind == RATE:
        assert isinstance(target, Queue)
        core.state.timers.cancel(timer)
        serve(core, target, now)
    elif kind == IDLE:
        assert isinstance(target, Queue)
        _look_whether_idle(core, target, now)
    return 1


def _look_whether_idle(core: Core, queue: Queue, now: i64) -> None:
    """A queue without jobs and without anybody in line, to which nothing has happened for long
    enough, is deleted. That it is looked at now and then costs those nothing who use it."""
    expiry = queue.rules.idle_expiry
    used = queue.used()
    if used != queue.idle_use or not queue.is_empty() or queue.utf8 in core.waiting:
        queue.idle_use = used
        queue.idle_since = now
    elif now - queue.idle_since >= expiry:
        forget_queue(core, queue, SYSTEM_ORIGIN, now)
        return
    timer = queue.idle_timer
    assert timer is not None
    core.state.timers.set(timer, now + look_every(expiry))


def _give_up(core: Core, waiter: Waiter) -> None:
    stop_waiting(core, waiter)
    core.effects.append(GaveUp(waiter))


def _wake(core: Core, queue: Queue, now: i64, budget: i64) -> i64:
    """Delayed jobs whose time has come join the back of their queue, earliest first."""
    state = core.state
    delayed = queue.delayed
    woken: i64 = 0
    while delayed.size and woken < budget:
        job = delayed.first()
        if job.position > now or not fits_due(core):
            break
        record = Wake(now, SYSTEM_ORIGIN, job.id, queue.utf8)
        core.log.append(record)
        apply_wake(state, record)
        woken += 1
    if delayed.size:
        state.timers.set(queue.wake_timer, delayed.first().position)
    else:
        state.timers.cancel(queue.wake_timer)
    if woken:
        serve(core, queue, now)
    return woken + 1


def _forget_dead(core: Core, queue: Queue, now: i64, budget: i64) -> i64:
    """Dead letters that were kept long enough are removed, oldest first."""
    state = core.state
    dead = queue.dead
    forgotten: i64 = 0
    while dead.size and forgotten < budget:
        job = dead.first()
        if dead_until(state, queue, job) > now or not fits_due(core):
            break
        remove(core, job, RETENTION_OVER, now)
        forgotten += 1
    if dead.size:
        state.timers.set(queue.dead_timer, dead_until(state, queue, dead.first()))
    else:
        state.timers.cancel(queue.dead_timer)
    return forgotten + 1


def _forget_uids(core: Core, now: i64) -> None:
    state = core.state
    tombstones = state.tombstones
    if tombstones.first_end() > now:
        wait_for_graves(state)
        return
    # One grave at a time: no long pause.
    before = tombstones.first_end() - tombstones.window
    record = Forget(now, SYSTEM_ORIGIN, before)
    core.log.append(record)
    apply_forget(state, record)
