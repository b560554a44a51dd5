"""The rates of queues and keys, and the running jobs of each key.

A rate is kept as one number, the theoretical arrival time of GCRA in nanoseconds: when all starts
so far would have happened if they had come evenly. After a pause `count` jobs may start at once,
then one each `period / count`. It depends only on the times of records, so that a replay gives the
same.

Part of the apply half, but for what `gates.py` asks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.structures.index import KEY_LIMIT_RECORD_BYTES
from taskyard.engine.structures.ordered import PriorityQueue
from taskyard.engine.structures.timers import KEY_LIMIT_TIMER, Timer

if TYPE_CHECKING:
    from taskyard.engine.model.job import Job
    from taskyard.engine.model.queue import Queue, QueueSettings
    from taskyard.engine.model.state import State

_NS_PER_US: Final = 1000  # to a microsecond
UNLIMITED_STARTS: Final = 1 << 40  # of starts that a limit allows which is none


@mypyc_attr(acyclic=True)
class KeyLimit:
    """The state of the limits of one key of a queue; it exists only while it matters.

    It and its timer refer to each other, so the code that drops it has to cut that.
    """

    __slots__ = (
        "key",
        "leased_count",
        "open_scheduled",
        "queue",
        "theoretical_arrival_ns",
        "timer",
        "waiting",
    )

    def __init__(self, key: bytes, queue: Queue) -> None:
        self.key = key
        self.queue = queue
        self.leased_count: i64 = 0  # leases
        self.theoretical_arrival_ns: i64 = 0  # 0: nothing to remember
        self.waiting: PriorityQueue | None = None  # jobs that are LIMITED
        self.open_scheduled = False  # in State.opened
        self.timer: Timer | None = None


def start_interval_ns(count: i64, period: i64) -> i64:
    """Nanoseconds from one start to the next, rounded up: a rate is never exceeded."""
    return (period * _NS_PER_US + count - 1) // count


def next_start_us(arrival_ns: i64, count: i64, period: i64) -> i64:
    """When the next job may be started, in microseconds; it may be in the past."""
    first = arrival_ns - (count - 1) * start_interval_ns(count, period)
    return (first + _NS_PER_US - 1) // _NS_PER_US


def advance_arrival(arrival_ns: i64, count: i64, period: i64, time: i64) -> i64:
    """The same after a start.

    A replay may meet starts of a time when the configuration had another rate: however many they
    were, no more than a burst of them counts.
    """
    now = time * _NS_PER_US
    gap = start_interval_ns(count, period)
    return min(max(now, arrival_ns), now + (count - 1) * gap) + gap


def is_of_other_rate(arrival_ns: i64, count: i64, period: i64, time: i64) -> bool:
    """Whether no number of starts until this time gives that by this rate."""
    return count <= 0 or arrival_ns > time * _NS_PER_US + count * start_interval_ns(count, period)


def remaining_starts(arrival_ns: i64, count: i64, period: i64, time: i64) -> i64:
    """How many may be started at this time."""
    now = time * _NS_PER_US
    gap = start_interval_ns(count, period)
    ahead = arrival_ns - now if arrival_ns > now else i64(0)
    left = ((count - 1) * gap - ahead) // gap + 1
    return left if left > 0 else i64(0)


def rate_expires_at_us(arrival_ns: i64) -> i64:
    """From this time in microseconds on, it is as if nothing had been started."""
    return (arrival_ns + _NS_PER_US - 1) // _NS_PER_US


def count_start(state: State, job: Job, time: i64) -> None:
    """A job of a queue with limits was leased or popped."""
    queue = job.queue
    rules = queue.effective_settings
    count_queue_start(queue, time)
    extra = job.extras
    if extra is None or extra.limit_key is None or rules.key_rate_count <= 0:
        return
    gate = ensure_key_limit(queue, extra.limit_key)
    tat = advance_arrival(
        gate.theoretical_arrival_ns, rules.key_rate_count, rules.key_rate_period, time
    )
    remember_arrival(state, gate, tat)


def count_queue_start(queue: Queue, time: i64) -> None:
    """The same as far as the queue as a whole is concerned."""
    rules = queue.effective_settings
    if rules.rate_count > 0:
        queue.theoretical_arrival_ns = advance_arrival(
            queue.theoretical_arrival_ns, rules.rate_count, rules.rate_period, time
        )


def remember_arrival(state: State, gate: KeyLimit, arrival_ns: i64) -> None:
    if not gate.theoretical_arrival_ns:
        state.live_bytes.unplaced += key_limit_record_bytes(gate)
    gate.theoretical_arrival_ns = arrival_ns
    timer = gate.timer
    if timer is None:
        timer = Timer(KEY_LIMIT_TIMER, gate)
        gate.timer = timer
    rules = gate.queue.effective_settings
    when = rate_expires_at_us(arrival_ns)
    if gate.waiting is not None and rules.key_rate_count > 0:
        when = next_start_us(arrival_ns, rules.key_rate_count, rules.key_rate_period)
    state.key_timers.set(timer, when)


def key_limit_record_bytes(gate: KeyLimit) -> i64:
    return KEY_LIMIT_RECORD_BYTES + len(gate.key)


def ensure_key_limit(queue: Queue, key: bytes) -> KeyLimit:
    gates = queue.key_limits
    if gates is None:
        gates = {}
        queue.key_limits = gates
    gate = gates.get(key)
    if gate is None:
        gate = KeyLimit(key, queue)
        gates[key] = gate
    return gate


def acquire_slot(queue: Queue, key: bytes) -> None:
    """Count a lease of this key, whether or not there is a limit, as one may be set later."""
    ensure_key_limit(queue, key).leased_count += 1


def release_slot(state: State, queue: Queue, key: bytes) -> None:
    gate = ensure_key_limit(queue, key)
    gate.leased_count -= 1
    if gate.waiting is not None:
        schedule_open(state, gate)
    else:
        drop_if_idle(state, gate)


def on_ready_job_removed(state: State, queue: Queue, key: bytes) -> None:
    """A ready job of this key has left without being started: another may have its turn."""
    gates = queue.key_limits
    gate = gates.get(key) if gates is not None else None
    if gate is not None and gate.waiting is not None:
        schedule_open(state, gate)


def schedule_open(state: State, gate: KeyLimit) -> None:
    """Note that waiting jobs of this key may be released: see gates.reopen_keys."""
    if not gate.open_scheduled:
        gate.open_scheduled = True
        state.keys_to_open.append(gate)
        state.limits_changed = True


def remove_waiting_job(state: State, job: Job) -> None:
    """A limited job leaves for whatever reason."""
    queue = job.queue
    queue.limited.remove(job)
    key = job.ensure_extras().limit_key
    assert key is not None
    gate = ensure_key_limit(queue, key)
    line = gate.waiting
    assert line is not None
    line.remove(job)
    if not line.size:
        gate.waiting = None
        drop_if_idle(state, gate)


def drop_if_idle(state: State, gate: KeyLimit) -> None:
    """Drop a key limit that has no effect; one that remembers a rate has a timer for that."""
    if gate.leased_count or gate.waiting is not None:
        return
    if gate.theoretical_arrival_ns:
        timer = gate.timer
        if timer is not None:
            state.key_timers.set(timer, rate_expires_at_us(gate.theoretical_arrival_ns))
        return
    queue = gate.queue
    gates = queue.key_limits
    if gates is not None and gates.get(gate.key) is gate:
        del gates[gate.key]
        if not gates:
            queue.key_limits = None
    _unlink_timer(state, gate)


def forget_rate(state: State, gate: KeyLimit) -> None:
    """Nothing that was started counts any more."""
    if gate.theoretical_arrival_ns:
        gate.theoretical_arrival_ns = 0
        state.live_bytes.unplaced -= key_limit_record_bytes(gate)
    timer = gate.timer
    if timer is not None:
        state.key_timers.cancel(timer)
    drop_if_idle(state, gate)


def forget_key_limits(state: State, queue: Queue) -> None:
    """The queue is deleted: it has no jobs, but may remember rates."""
    gates = queue.key_limits
    if gates is not None:
        for gate in gates.values():
            if gate.theoretical_arrival_ns:
                state.live_bytes.unplaced -= key_limit_record_bytes(gate)
            _unlink_timer(state, gate)
        queue.key_limits = None
    timer = queue.rate_timer
    if timer is not None:
        state.timers.cancel(timer)
        timer.target = None


def _unlink_timer(state: State, gate: KeyLimit) -> None:
    timer = gate.timer
    if timer is not None:
        state.key_timers.cancel(timer)
        timer.target = None
        gate.timer = None


def forget_changed_rates(state: State, time: i64) -> None:
    """The server is started, perhaps with another configuration: what is remembered of rates that
    have changed meanwhile does not count."""
    for queue in state.queues.values():
        rules = queue.effective_settings
        if queue.theoretical_arrival_ns and is_of_other_rate(
            queue.theoretical_arrival_ns, rules.rate_count, rules.rate_period, time
        ):
            queue.theoretical_arrival_ns = 0
        gates = queue.key_limits
        if gates is None:
            continue
        count = rules.key_rate_count
        for gate in list(gates.values()):
            if gate.theoretical_arrival_ns and is_of_other_rate(
                gate.theoretical_arrival_ns, count, rules.key_rate_period, time
            ):
                forget_rate(state, gate)


def change_effective_settings(state: State, queue: Queue, rules: QueueSettings) -> None:
    """Other settings are in effect. A rate that has changed begins anew."""
    old = queue.effective_settings
    queue.effective_settings = rules
    queue.update_restrictions()
    if not rules.same_rate(old):
        queue.theoretical_arrival_ns = 0
    gates = queue.key_limits
    if gates is None:
        return
    anew = not rules.same_key_rate(old)
    if not anew and rules.key_concurrency == old.key_concurrency:
        return
    for gate in list(gates.values()):
        if anew:
            forget_rate(state, gate)
        if gate.waiting is not None:
            schedule_open(state, gate)
