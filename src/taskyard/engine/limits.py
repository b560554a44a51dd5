"""How fast and how many at once: the rates of queues and keys, and what is out of each key.

A rate is kept as one number, the time at which all that was started would have been started if it
had come evenly (GCRA, a bucket of tokens without the bucket): `tat`, in nanoseconds. From rest,
`count` jobs may start at once, then one each `period / count`. It only depends on the times of
records, so that a replay comes to the same.

Part of the apply half, but for what `gates.py` asks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.structures.ready import Ready
from taskyard.engine.structures.timers import KEY, Timer
from taskyard.engine.structures.weights import KEY_WEIGHT

if TYPE_CHECKING:
    from taskyard.engine.model.job import Job
    from taskyard.engine.model.queue import Queue
    from taskyard.engine.model.settings import QueueSettings
    from taskyard.engine.model.state import State

_NANO: Final = 1000  # to a microsecond
ANY_NUMBER: Final = 1 << 40  # of starts that a limit allows which is none


@mypyc_attr(acyclic=True)
class KeyGate:
    """What the limits of one key of a queue go by; only there while it matters.

    It and its timer point at each other, so whoever drops it cuts that.
    """

    __slots__ = ("key", "line", "marked", "queue", "running", "tat", "timer")

    def __init__(self, key: bytes, queue: Queue) -> None:
        self.key = key
        self.queue = queue
        self.running: i64 = 0  # leases
        self.tat: i64 = 0  # 0: nothing to remember
        self.line: Ready | None = None  # jobs that are LIMITED
        self.marked = False  # in State.opened
        self.timer: Timer | None = None


def interval(count: i64, period: i64) -> i64:
    """Nanoseconds from one start to the next, rounded up: a rate is never exceeded."""
    return (period * _NANO + count - 1) // count


def opens_at(tat: i64, count: i64, period: i64) -> i64:
    """When the next job may be started, in microseconds; it may be in the past."""
    first = tat - (count - 1) * interval(count, period)
    return (first + _NANO - 1) // _NANO


def advance(tat: i64, count: i64, period: i64, time: i64) -> i64:
    """The same after a start.

    A replay may meet starts of a time when the configuration had another rate: however many they
    were, no more than a burst of them counts.
    """
    now = time * _NANO
    gap = interval(count, period)
    return min(max(now, tat), now + (count - 1) * gap) + gap


def is_foreign(tat: i64, count: i64, period: i64, time: i64) -> bool:
    """Whether no starts until this time come to that by this rate."""
    return count <= 0 or tat > time * _NANO + count * interval(count, period)


def starts_left(tat: i64, count: i64, period: i64, time: i64) -> i64:
    """How many may be started at this time."""
    now = time * _NANO
    gap = interval(count, period)
    ahead = tat - now if tat > now else i64(0)
    left = ((count - 1) * gap - ahead) // gap + 1
    return left if left > 0 else i64(0)


def over_at(tat: i64) -> i64:
    """From this time in microseconds on, it is as if nothing had been started."""
    return (tat + _NANO - 1) // _NANO


def count_start(state: State, job: Job, time: i64) -> None:
    """A job of a queue with limits was leased or popped."""
    queue = job.queue
    rules = queue.rules
    count_rate(queue, time)
    extra = job.extra
    if extra is None or extra.limit_key is None or rules.key_rate_count <= 0:
        return
    gate = gate_of(queue, extra.limit_key)
    tat = advance(gate.tat, rules.key_rate_count, rules.key_rate_period, time)
    remember(state, gate, tat)


def count_rate(queue: Queue, time: i64) -> None:
    """The same as far as the queue as a whole is concerned."""
    rules = queue.rules
    if rules.rate_count > 0:
        queue.tat = advance(queue.tat, rules.rate_count, rules.rate_period, time)


def remember(state: State, gate: KeyGate, tat: i64) -> None:
    if not gate.tat:
        state.weights.loose += gate_weight(gate)
    gate.tat = tat
    timer = gate.timer
    if timer is None:
        timer = Timer(KEY, gate)
        gate.timer = timer
    rules = gate.queue.rules
    when = over_at(tat)
    if gate.line is not None and rules.key_rate_count > 0:
        when = opens_at(tat, rules.key_rate_count, rules.key_rate_period)
    state.key_timers.set(timer, when)


def gate_weight(gate: KeyGate) -> i64:
    return KEY_WEIGHT + len(gate.key)


def gate_of(queue: Queue, key: bytes) -> KeyGate:
    gates = queue.gates
    if gates is None:
        gates = {}
        queue.gates = gates
    gate = gates.get(key)
    if gate is None:
        gate = KeyGate(key, queue)
        gates[key] = gate
    return gate


def slot_taken(queue: Queue, key: bytes) -> None:
    """A job of this key is leased; counted whether or not there is a limit, as one may come."""
    gate_of(queue, key).running += 1


def slot_freed(state: State, queue: Queue, key: bytes) -> None:
    gate = gate_of(queue, key)
    gate.running -= 1
    if gate.line is not None:
        mark(state, gate)
    else:
        drop_if_idle(state, gate)


def offer_gone(state: State, queue: Queue, key: bytes) -> None:
    """A ready job of this key has left without being started: another may have its turn."""
    gates = queue.gates
    gate = gates.get(key) if gates is not None else None
    if gate is not None and gate.line is not None:
        mark(state, gate)


def mark(state: State, gate: KeyGate) -> None:
    """Somebody in line may be let go: see gates.reopen."""
    if not gate.marked:
        gate.marked = True
        state.opened.append(gate)
        state.stirred = True


def leave_line(state: State, job: Job) -> None:
    """A limited job leaves for whatever reason."""
    queue = job.queue
    queue.limited.remove(job)
    key = job.more().limit_key
    assert key is not None
    gate = gate_of(queue, key)
    line = gate.line
    assert line is not None
    line.remove(job)
    if not line.size:
        gate.line = None
        drop_if_idle(state, gate)


def drop_if_idle(state: State, gate: KeyGate) -> None:
    """Forget a gate that says nothing any more; one that remembers a rate has a timer for that."""
    if gate.running or gate.line is not None:
        return
    if gate.tat:
        timer = gate.timer
        if timer is not None:
            state.key_timers.set(timer, over_at(gate.tat))
        return
    queue = gate.queue
    gates = queue.gates
    if gates is not None and gates.get(gate.key) is gate:
        del gates[gate.key]
        if not gates:
            queue.gates = None
    _cut(state, gate)


def forget_rate(state: State, gate: KeyGate) -> None:
    """Nothing that was started counts any more."""
    if gate.tat:
        gate.tat = 0
        state.weights.loose -= gate_weight(gate)
    timer = gate.timer
    if timer is not None:
        state.key_timers.cancel(timer)
    drop_if_idle(state, gate)


def forget_gates(state: State, queue: Queue) -> None:
    """The queue is deleted: it has no jobs, but may remember rates."""
    gates = queue.gates
    if gates is not None:
        for gate in gates.values():
            if gate.tat:
                state.weights.loose -= gate_weight(gate)
            _cut(state, gate)
        queue.gates = None
    timer = queue.rate_timer
    if timer is not None:
        state.timers.cancel(timer)
        timer.target = None


def _cut(state: State, gate: KeyGate) -> None:
    timer = gate.timer
    if timer is not None:
        state.key_timers.cancel(timer)
        timer.target = None
        gate.timer = None


def drop_foreign_rates(state: State, time: i64) -> None:
    """The server is started, perhaps with another configuration: what is remembered of rates that
    have changed meanwhile does not count."""
    for queue in state.queues.values():
        rules = queue.rules
        if queue.tat and is_foreign(queue.tat, rules.rate_count, rules.rate_period, time):
            queue.tat = 0
        gates = queue.gates
        if gates is None:
            continue
        count = rules.key_rate_count
        for gate in list(gates.values()):
            if gate.tat and is_foreign(gate.tat, count, rules.key_rate_period, time):
                forget_rate(state, gate)


def change_rules(state: State, queue: Queue, rules: QueueSettings) -> None:
    """Other settings are in effect. A rate that has changed begins anew."""
    old = queue.rules
    queue.rules = rules
    queue.set_gate()
    if not rules.same_rate(old):
        queue.tat = 0
    gates = queue.gates
    if gates is None:
        return
    anew = not rules.same_key_rate(old)
    if not anew and rules.key_concurrency == old.key_concurrency:
        return
    for gate in list(gates.values()):
        if anew:
            forget_rate(state, gate)
        if gate.line is not None:
            mark(state, gate)
