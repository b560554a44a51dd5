"""One queue: its jobs by state, its settings and its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    LEASED,
    LIMITED,
    READY,
    SUCCEEDED,
    Job,
    Policy,
)
from taskyard.engine.model.settings import OVERFLOW_DEAD, OVERFLOW_REFUSE, PLAIN, QueueSettings
from taskyard.engine.structures.lane import Lane
from taskyard.engine.structures.measures import QueueTimes
from taskyard.engine.structures.ready import Ready
from taskyard.engine.structures.timers import DEAD, WAKE, Timer

if TYPE_CHECKING:
    from taskyard.engine.limits import KeyGate

__all__ = [
    "HAS_LIMITS",
    "OVERFLOW_DEAD",
    "OVERFLOW_REFUSE",
    "PAUSED",
    "Queue",
    "QueueSettings",
]

_NAMES_KEPT: Final = 256  # task names of a queue that are stored once

# Why jobs may not be handed out just like that: bits of Queue.gate.
PAUSED: Final = 1
HAS_LIMITS: Final = 2  # of rate or number, of all or of each key: see gates.py


@mypyc_attr(acyclic=True)
class Queue:
    __slots__ = (
        "at",
        "blocked",
        "dead",
        "dead_bytes",
        "dead_timer",
        "delayed",
        "done",
        "expired",
        "failed",
        "finished",
        "gate",
        "gates",
        "idle_since",
        "idle_timer",
        "idle_use",
        "keys",
        "last_name",
        "leased",
        "leases",
        "limited",
        "name",
        "names",
        "number",
        "policy",
        "pushed",
        "rate_timer",
        "ready",
        "released",
        "removed",
        "retried",
        "rules",
        "settings",
        "started",
        "tat",
        "times",
        "utf8",
        "waiting_bytes",
        "wake_timer",
    )

    def __init__(self, number: i64, name: str, utf8: bytes, policy: Policy) -> None:
        self.number = number  # of the record that made it: they are in order of creation
        self.at: i64 = 0  # where the record stands that says all of it: that one, or a carry
        self.name = name
        self.utf8 = utf8
        self.settings = PLAIN  # its own
        self.rules = PLAIN  # those in effect: its own and, where it has none, the server's
        self.gate: i64 = 0  # 0: whoever asks gets the next job
        self.ready = Ready()
        self.limited = Ready()  # ready, but the limits of their keys let nobody have them now
        self.delayed = Lane()
        self.blocked = Lane()
        self.leased = Lane()
        self.done = Lane()
        self.dead = Lane()
        self.keys: dict[bytes, Job] | None = None  # queued keyed jobs
        self.dead_bytes: i64 = 0
        self.waiting_bytes: i64 = 0  # of the payloads of jobs that have not ended
        self.policy = policy  # the last one seen: shared with the next job that has the same
        self.names: dict[str, str] = {}
        self.last_name = ""  # of these, the one that was asked for last
        self.wake_timer = Timer(WAKE, self)
        self.dead_timer = Timer(DEAD, self)
        # See limits.py.
        self.tat: i64 = 0  # of its rate
        self.gates: dict[bytes, KeyGate] | None = None
        self.rate_timer: Timer | None = None
        # See ticking.py; none of it is persistent.
        self.idle_timer: Timer | None = None
        self.idle_since: i64 = 0
        self.idle_use: i64 = -1  # how much it had been used by then
        # Counters since the queue exists.
        self.pushed: i64 = 0
        self.leases: i64 = 0
        self.finished: i64 = 0
        self.failed: i64 = 0
        self.retried: i64 = 0
        self.released: i64 = 0
        self.expired: i64 = 0
        self.removed: i64 = 0
        self.started: list[int] | None = None  # what they were when the server was started
        self.times: QueueTimes | None = None  # see Measures

    def set_gate(self) -> None:
        """Its settings have changed."""
        self.gate = (PAUSED if self.settings.paused else 0) | (
            HAS_LIMITS if self.rules.has_limits() else 0
        )

    def used(self) -> i64:
        """A number that grows with all that happens to it."""
        return self.pushed + self.leases + self.finished + self.failed + self.removed + self.expired

    def share_policy(self, policy: Policy) -> Policy:
        if policy.same(self.policy):
            return self.policy
        self.policy = policy
        return policy

    def knows_name(self, name: str) -> bool:
        """Whether a job had this name before."""
        return (name == self.last_name and name != "") or name in self.names

    def share_name(self, name: str) -> str:
        """One string for all jobs of the same name, as long as there are not too many names."""
        if name == self.last_name:
            return self.last_name
        names = self.names
        known = names.get(name)
        if known is not None:
            self.last_name = known
            return known
        if len(names) < _NAMES_KEPT:
            names[name] = name
        return name

    def counters(self) -> list[int]:
        return [
            self.pushed,
            self.leases,
            self.finished,
            self.failed,
            self.retried,
            self.released,
            self.expired,
            self.removed,
        ]

    def counts(self) -> list[int]:
        """The counters since the server was started.

        After a crash the counters may be less than somebody has seen: who watches how they grow
        would take that for a great leap.
        """
        started = self.started
        counters = self.counters()
        if started is None:
            return counters
        return [counters[at] - started[at] for at in range(len(counters))]

    def set_counters(self, counters: list[int]) -> None:
        self.pushed = counters[0]
        self.leases = counters[1]
        self.finished = counters[2]
        self.failed = counters[3]
        self.retried = counters[4]
        self.released = counters[5]
        self.expired = counters[6]
        self.removed = counters[7]

    def lane(self, state: i64) -> Lane:
        """The lane of a state other than READY and LIMITED."""
        if state == LEASED:
            return self.leased
        if state == DELAYED:
            return self.delayed
        if state == BLOCKED:
            return self.blocked
        if state == SUCCEEDED:
            return self.done
        if state == FAILED:
            return self.dead
        raise ValueError(state)

    def order(self, state: i64) -> Ready | None:
        """Where the jobs of a state are if they are in delivery order; None: in a lane."""
        if state == READY:
            return self.ready
        return self.limited if state == LIMITED else None

    def count(self, state: i64) -> int:
        order = self.order(state)
        return order.size if order is not None else self.lane(state).size

    def waiting(self) -> i64:
        """Jobs that have not ended: what the bound of a queue counts."""
        waiting = self.ready.size + self.limited.size
        return waiting + self.delayed.size + self.blocked.size + self.leased.size

    def is_empty(self) -> bool:
        """No job in any state."""
        return not (
            self.ready.size
            or self.limited.size
            or self.delayed.size
            or self.blocked.size
            or self.leased.size
            or self.done.size
            or self.dead.size
        )
