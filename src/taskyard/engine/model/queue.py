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
from taskyard.engine.model.settings import (
    DEFAULT_QUEUE_SETTINGS,
    OVERFLOW_DEAD,
    OVERFLOW_REFUSE,
    QueueSettings,
)
from taskyard.engine.structures.lane import OrderedJobs
from taskyard.engine.structures.measures import QueueTimes
from taskyard.engine.structures.ready import PriorityQueue
from taskyard.engine.structures.timers import DEAD_LETTER_TIMER, WAKE_TIMER, Timer

if TYPE_CHECKING:
    from taskyard.engine.limits import KeyLimit

__all__ = [
    "HAS_LIMITS",
    "OVERFLOW_DEAD",
    "OVERFLOW_REFUSE",
    "PAUSED",
    "Queue",
    "QueueSettings",
]

_MAX_INTERNED_NAMES: Final = 256  # task names of a queue that are stored once

# Why a fetch may not just take the first job: bits of Queue.restrictions.
PAUSED: Final = 1
HAS_LIMITS: Final = 2  # of rate or number, of all or of each key: see gates.py


@mypyc_attr(acyclic=True)
class Queue:
    __slots__ = (
        "blocked",
        "counters_at_start",
        "created_seq",
        "dead",
        "dead_bytes",
        "dead_timer",
        "delayed",
        "done",
        "effective_settings",
        "expired",
        "failed",
        "finished",
        "idle_activity_count",
        "idle_since",
        "idle_timer",
        "interned_names",
        "key_limits",
        "keys",
        "last_name",
        "leased",
        "leases",
        "limited",
        "name",
        "policy",
        "pushed",
        "rate_timer",
        "ready",
        "record_at",
        "released",
        "removed",
        "restrictions",
        "retried",
        "settings",
        "theoretical_arrival_ns",
        "times",
        "unfinished_bytes",
        "utf8",
        "wake_timer",
    )

    def __init__(self, created_seq: i64, name: str, utf8: bytes, policy: Policy) -> None:
        self.created_seq = created_seq  # of the record that made it: they are in order of creation
        self.record_at: i64 = 0  # position of the record with all of it: the first, or a snapshot
        self.name = name
        self.utf8 = utf8
        self.settings = DEFAULT_QUEUE_SETTINGS  # its own
        # those in effect: its own and, where it has none, the server's
        self.effective_settings = DEFAULT_QUEUE_SETTINGS
        self.restrictions: i64 = 0  # 0: a fetch gets the next job
        self.ready = PriorityQueue()
        # parked: ready, but the limits of their keys let no client have them now
        self.limited = PriorityQueue()
        self.delayed = OrderedJobs()
        self.blocked = OrderedJobs()
        self.leased = OrderedJobs()
        self.done = OrderedJobs()
        self.dead = OrderedJobs()
        self.keys: dict[bytes, Job] | None = None  # queued keyed jobs
        self.dead_bytes: i64 = 0
        self.unfinished_bytes: i64 = 0  # of the payloads of jobs that have not ended
        self.policy = policy  # the last one seen: shared with the next job that has the same
        self.interned_names: dict[str, str] = {}
        self.last_name = ""  # of these, the one that was used last
        self.wake_timer = Timer(WAKE_TIMER, self)
        self.dead_timer = Timer(DEAD_LETTER_TIMER, self)
        # See limits.py.
        self.theoretical_arrival_ns: i64 = 0  # of its rate
        self.key_limits: dict[bytes, KeyLimit] | None = None
        self.rate_timer: Timer | None = None
        # See ticking.py; none of it is persistent.
        self.idle_timer: Timer | None = None
        self.idle_since: i64 = 0
        self.idle_activity_count: i64 = -1  # how much it had been used by then
        # Counters since the queue exists.
        self.pushed: i64 = 0
        self.leases: i64 = 0
        self.finished: i64 = 0
        self.failed: i64 = 0
        self.retried: i64 = 0
        self.released: i64 = 0
        self.expired: i64 = 0
        self.removed: i64 = 0
        # what they were when the server was started
        self.counters_at_start: list[int] | None = None
        self.times: QueueTimes | None = None  # see EngineStatistics

    def update_restrictions(self) -> None:
        """Its settings have changed."""
        self.restrictions = (PAUSED if self.settings.paused else 0) | (
            HAS_LIMITS if self.effective_settings.has_limits() else 0
        )

    def activity_count(self) -> i64:
        """A number that grows with all that happens to it."""
        return self.pushed + self.leases + self.finished + self.failed + self.removed + self.expired

    def intern_policy(self, policy: Policy) -> Policy:
        if policy.same(self.policy):
            return self.policy
        self.policy = policy
        return policy

    def knows_name(self, name: str) -> bool:
        """Whether a job had this name before."""
        return (name == self.last_name and name != "") or name in self.interned_names

    def intern_name(self, name: str) -> str:
        """Return one string for all jobs of the same name, unless there are too many names."""
        if name == self.last_name:
            return self.last_name
        names = self.interned_names
        known = names.get(name)
        if known is not None:
            self.last_name = known
            return known
        if len(names) < _MAX_INTERNED_NAMES:
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

    def counts_since_start(self) -> list[int]:
        """Return the counters since the server was started.

        After a crash the counters may be lower than a client has seen; a client that computes their
        growth would take that for a great leap.
        """
        started = self.counters_at_start
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

    def ordered_jobs(self, state: i64) -> OrderedJobs:
        """Return the jobs of a state other than READY and LIMITED."""
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

    def priority_queue(self, state: i64) -> PriorityQueue | None:
        """Return the jobs of a state in delivery order; None: that state has an OrderedJobs."""
        if state == READY:
            return self.ready
        return self.limited if state == LIMITED else None

    def job_count(self, state: i64) -> int:
        order = self.priority_queue(state)
        return order.size if order is not None else self.ordered_jobs(state).size

    def unfinished_count(self) -> i64:
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
