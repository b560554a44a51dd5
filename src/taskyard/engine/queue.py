"""One queue: its jobs by state, its settings and its counters."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.job import BLOCKED, DELAYED, FAILED, LEASED, READY, SUCCEEDED, Job, Policy
from taskyard.engine.lane import Lane
from taskyard.engine.measures import QueueTimes
from taskyard.engine.ready import Ready
from taskyard.engine.timers import DEAD, WAKE, Timer

_NAMES_KEPT: Final = 256  # task names of a queue that are stored once

# What becomes of a push that a full queue has no place for.
OVERFLOW_REFUSE: Final = 0
OVERFLOW_DEAD: Final = 1  # it is taken, and put among the dead letters


@mypyc_attr(acyclic=True)
class QueueSettings:
    """What an operator or a `create` has set for a queue. -1 means "as the server does"."""

    __slots__ = (
        "backoff",
        "backoff_base",
        "backoff_cap",
        "created",
        "dead_retention",
        "max_bytes",
        "max_jobs",
        "overflow",
        "paused",
        "result_retention",
        "retries",
    )

    def __init__(
        self,
        created: bool = False,  # made by name, not by a first push
        paused: bool = False,
        retries: i64 = -1,
        result_retention: i64 = 0,  # how long results of jobs without ttl are kept
        dead_retention: i64 = -1,
        backoff: i64 = -1,
        backoff_base: i64 = 0,
        backoff_cap: i64 = 0,
        max_jobs: i64 = -1,  # that wait; 0: it takes no pushes at all
        max_bytes: i64 = -1,  # of their payloads
        overflow: i64 = OVERFLOW_REFUSE,
    ) -> None:
        self.created = created
        self.paused = paused
        self.retries = retries
        self.result_retention = result_retention
        self.dead_retention = dead_retention
        self.backoff = backoff
        self.backoff_base = backoff_base
        self.backoff_cap = backoff_cap
        self.max_jobs = max_jobs
        self.max_bytes = max_bytes
        self.overflow = overflow

    def has_bounds(self) -> bool:
        return self.max_jobs >= 0 or self.max_bytes >= 0


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
        "keys",
        "leased",
        "leases",
        "name",
        "names",
        "number",
        "policy",
        "pushed",
        "ready",
        "released",
        "removed",
        "retried",
        "settings",
        "started",
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
        self.settings = QueueSettings()
        self.ready = Ready()
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
        self.wake_timer = Timer(WAKE, self)
        self.dead_timer = Timer(DEAD, self)
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

    def share_policy(self, policy: Policy) -> Policy:
        if policy.same(self.policy):
            return self.policy
        self.policy = policy
        return policy

    def share_name(self, name: str) -> str:
        """One string for all jobs of the same name, as long as there are not too many names."""
        names = self.names
        known = names.get(name)
        if known is not None:
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
        """The lane of a state other than READY."""
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

    def count(self, state: i64) -> int:
        return self.ready.size if state == READY else self.lane(state).size

    def waiting(self) -> i64:
        """Jobs that have not ended: what the bound of a queue counts."""
        return self.ready.size + self.delayed.size + self.blocked.size + self.leased.size

    def is_empty(self) -> bool:
        """No job in any state."""
        return not (
            self.ready.size
            or self.delayed.size
            or self.blocked.size
            or self.leased.size
            or self.done.size
            or self.dead.size
        )
