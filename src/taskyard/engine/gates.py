"""Which job of a queue with limits may start now, and which are released when a limit allows it.

Part of the decide half, and not persistent. When a fetch finds a job whose key has no start left,
it parks it: the job leaves the ready jobs for the waiting jobs of its key, so that no other fetch
has to step over it, and returns to its old place when its key has a start. A million jobs of one
key without a start are parked in chunks.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.limits import (
    UNLIMITED_STARTS,
    KeyLimit,
    forget_rate,
    next_start_us,
    rate_expires_at_us,
    remaining_starts,
    schedule_open,
)
from taskyard.engine.model.job import LIMITED, READY, Job
from taskyard.engine.model.queue import PAUSED, Queue, QueueSettings
from taskyard.engine.operations.core import Core
from taskyard.engine.structures.ordered import PriorityQueue
from taskyard.engine.structures.timers import RATE_TIMER, Timer

MAX_PARKED_AT_ONCE: Final = 1000


def next_allowed(core: Core, queue: Queue, last: bool, pop: bool, now: i64) -> Job | None:
    """Return the first or the last job that may start; None also if there are more to check.

    A pop makes no lease, so the number of leases does not matter to it.
    """
    if queue.restrictions & PAUSED or not queue.ready.size:
        return None
    rules = queue.effective_settings
    if not pop and 0 < rules.concurrency <= queue.leased.size:
        return None
    if wait_if_rate_limited(core, queue, now):
        return None
    if not rules.has_key_limits():
        return queue.ready.last() if last else queue.ready.first()
    _open_due_and_scheduled(core, now)
    return _next_with_open_key(core, queue, last, now)


def _open_due_and_scheduled(core: Core, now: i64) -> None:
    """Release jobs of keys that were freed, by the end of a lease or by the time, before the next
    job is chosen: none of them may be overtaken. A start may leave another that can be made at the
    same time.
    """
    if core.state.keys_to_open:
        _open_scheduled(core, now, MAX_PARKED_AT_ONCE)
    timer = core.state.key_timers.first()
    if timer is not None and timer.deadline <= now:
        open_due_keys(core, now, MAX_PARKED_AT_ONCE)


def wait_if_rate_limited(core: Core, queue: Queue, now: i64) -> bool:
    """Whether the rate of the queue allows no start now; its waiters are served when it does."""
    rules = queue.effective_settings
    if rules.rate_count <= 0:
        return False
    when = next_start_us(queue.theoretical_arrival_ns, rules.rate_count, rules.rate_period)
    if when <= now:
        return False
    timer = queue.rate_timer
    if timer is None:
        timer = Timer(RATE_TIMER, queue)
        queue.rate_timer = timer
    core.state.timers.set(timer, when)
    return True


def _next_with_open_key(core: Core, queue: Queue, last: bool, now: i64) -> Job | None:
    ready = queue.ready
    budget: i64 = MAX_PARKED_AT_ONCE
    while True:
        job = ready.last() if last else ready.first()
        if job is None:
            return None
        gate = key_limit_of(job)
        if gate is None or remaining_key_starts(gate, queue.effective_settings, now) > 0:
            return job
        if budget <= 0:
            core.queues_to_rescan[queue.utf8] = queue
            return None
        budget -= 1
        park_job(core, job, gate, now)


def key_limit_of(job: Job) -> KeyLimit | None:
    """That of the job's key; None: nothing of its key is out, or it has none."""
    extra = job.extras
    gates = job.queue.key_limits
    if extra is None or extra.limit_key is None or gates is None:
        return None
    return gates.get(extra.limit_key)


def remaining_key_starts(gate: KeyLimit, rules: QueueSettings, now: i64) -> i64:
    """How many jobs of the key may be started now."""
    left: i64 = UNLIMITED_STARTS
    if rules.key_concurrency > 0:
        left = rules.key_concurrency - gate.leased_count
    if rules.key_rate_count > 0 and left > 0:
        by_rate = remaining_starts(
            gate.theoretical_arrival_ns, rules.key_rate_count, rules.key_rate_period, now
        )
        if by_rate < left:
            left = by_rate
    return left


def remaining_queue_starts(queue: Queue, now: i64) -> i64:
    """How many jobs of the queue may be leased now, as far as keys do not matter."""
    if queue.restrictions & PAUSED:
        return 0
    rules = queue.effective_settings
    left: i64 = UNLIMITED_STARTS
    if rules.concurrency > 0:
        left = rules.concurrency - queue.leased.size
    if rules.rate_count > 0:
        by_rate = remaining_starts(
            queue.theoretical_arrival_ns, rules.rate_count, rules.rate_period, now
        )
        if by_rate < left:
            left = by_rate
    return left if left > 0 else i64(0)


def next_allowed_many(core: Core, queue: Queue, limit: i64, now: i64) -> list[Job]:
    """The next jobs of a queue that may be leased all together."""
    left = min(limit, remaining_queue_starts(queue, now))
    rules = queue.effective_settings
    if left <= 0 or not rules.has_key_limits():
        return queue.ready.slice(0, left)
    _open_due_and_scheduled(core, now)
    found: list[Job] = []
    closed: list[Job] = []
    starts: dict[bytes, int] = {}
    for job in queue.ready.slice(0, left + MAX_PARKED_AT_ONCE):
        if len(found) >= left:
            break
        extra = job.extras
        key = extra.limit_key if extra is not None else None
        if key is None:
            found.append(job)
            continue
        if key not in starts:
            starts[key] = _remaining_starts_of(queue, key, now)
        if starts[key] > 0:
            starts[key] -= 1
            found.append(job)
        else:
            closed.append(job)
    for job in closed:
        gate = key_limit_of(job)
        # A key that only this batch closes may have no KeyLimit yet: the job is left where it is.
        if gate is not None and remaining_key_starts(gate, rules, now) <= 0:
            park_job(core, job, gate, now)
    return found


def _remaining_starts_of(queue: Queue, key: bytes, now: i64) -> int:
    gates = queue.key_limits
    gate = gates.get(key) if gates is not None else None
    if gate is None:
        gate = KeyLimit(key, queue)
    return remaining_key_starts(gate, queue.effective_settings, now)


def park_job(core: Core, job: Job, gate: KeyLimit, now: i64) -> None:
    queue = job.queue
    queue.ready.remove(job)
    job.state = LIMITED
    queue.limited.add(job)
    line = gate.waiting
    if line is None:
        line = PriorityQueue()
        gate.waiting = line
        line.add(job)
        _arm_timer(core, gate, now)
    else:
        line.add(job)


def reopen_keys(core: Core, now: i64, budget: i64) -> tuple[list[Queue], i64]:
    """Return the queues that have to be served because leases have ended, or settings have changed.

    Gives what is left of the budget; `State.limits_changed` says whether that was all.
    """
    state = core.state
    budget = _open_scheduled(core, now, budget)
    queues = list(state.queues_to_serve.values())
    state.queues_to_serve.clear()
    state.limits_changed = bool(state.keys_to_open)
    return queues, budget


def _open_scheduled(core: Core, now: i64, budget: i64) -> i64:
    """Make jobs ready again that may start by now; their queues are still to be served."""
    state = core.state
    opened = state.keys_to_open
    while opened and budget > 0:
        gate = opened.pop()
        gate.open_scheduled = False
        budget -= 1 + release_jobs(core, gate, now, budget)
        state.queues_to_serve[gate.queue.utf8] = gate.queue
    return budget


def release_jobs(core: Core, gate: KeyLimit, now: i64, budget: i64) -> i64:
    """Put as many jobs back into their old places as may be started; gives their number."""
    line = gate.waiting
    if line is None:
        return 0
    queue = gate.queue
    free = remaining_key_starts(gate, queue.effective_settings, now)
    count: i64 = 0
    while count < free and line.size:
        if count >= budget:
            schedule_open(core.state, gate)
            break
        job = line.first()
        assert job is not None
        line.remove(job)
        queue.limited.remove(job)
        job.state = READY
        queue.ready.add(job)
        count += 1
    if not line.size:
        gate.waiting = None
        _expire_later(core, gate, now)
    else:
        _arm_timer(core, gate, now)
    return count


def open_due_keys(core: Core, now: i64, budget: i64) -> i64:
    """Open all keys whose time has come; returns what is left of the budget.

    No queue is served here, because the next key may release a job that is further in front.
    """
    timers = core.state.key_timers
    while budget > 0:
        timer = timers.first()
        if timer is None or timer.deadline > now:
            break
        gate = timer.target
        assert isinstance(gate, KeyLimit)
        budget -= 1
        if gate.waiting is None:
            _expire_later(core, gate, now)
            continue
        count = release_jobs(core, gate, now, MAX_PARKED_AT_ONCE)
        budget -= count
        if count:
            core.queues_to_rescan[gate.queue.utf8] = gate.queue
    return budget


def _expire_later(core: Core, gate: KeyLimit, now: i64) -> None:
    """No job waits: remember the starts until they no longer matter."""
    timer = gate.timer
    if rate_expires_at_us(gate.theoretical_arrival_ns) <= now:
        forget_rate(core.state, gate)
    elif timer is not None:
        core.state.key_timers.set(timer, rate_expires_at_us(gate.theoretical_arrival_ns))


def _arm_timer(core: Core, gate: KeyLimit, now: i64) -> None:
    """Set the timer to when waiting jobs may be released because of the time alone.

    If they may be already, ready jobs of the key have not been started yet: their start sets the
    timer again.
    """
    timer = gate.timer
    if timer is None:
        return
    rules = gate.queue.effective_settings
    when = (
        next_start_us(gate.theoretical_arrival_ns, rules.key_rate_count, rules.key_rate_period)
        if gate.theoretical_arrival_ns
        else now
    )
    if rules.key_rate_count > 0 and when > now:
        core.state.key_timers.set(timer, when)
    else:
        core.state.key_timers.cancel(timer)
