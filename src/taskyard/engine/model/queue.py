"""One queue: its jobs by state, its settings and its counters.

A queue has settings of its own, and those that the server's configuration has for it;
merge_settings gives what is in effect of both.
"""

from __future__ import annotations

import re
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
from taskyard.engine.structures.ordered import OrderedJobs, PriorityQueue
from taskyard.engine.structures.statistics import QueueTimes
from taskyard.engine.structures.timers import DEAD_LETTER_TIMER, WAKE_TIMER, Timer

if TYPE_CHECKING:
    from taskyard.engine.limits import KeyLimit


_MAX_INTERNED_NAMES: Final = 256  # task names of a queue that are stored once

# Why a fetch may not just take the first job: bits of Queue.restrictions.
PAUSED: Final = 1
HAS_LIMITS: Final = 2  # of rate or number, of all or of each key: see limits.py

# What becomes of a push that a full queue has no place for.
OVERFLOW_REFUSE: Final = 0
OVERFLOW_DEAD: Final = 1  # accept it, and put it among the dead letters


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
        # See operations/timers.py; none of it is persistent.
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


# Settings


@mypyc_attr(acyclic=True)
class QueueSettings:
    """What an operator or a `create` has set for a queue.

    -1 means "as the server does". Of limits, 0 means that there is none.
    """

    __slots__ = (
        "backoff",
        "backoff_base",
        "backoff_cap",
        "concurrency",
        "created",
        "dead_retention",
        "draining",
        "idle_expiry",
        "key_concurrency",
        "key_rate_count",
        "key_rate_period",
        "max_bytes",
        "max_jobs",
        "overflow",
        "paused",
        "rate_count",
        "rate_period",
        "result_retention",
        "retries",
        "ttr",
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
        draining: bool = False,  # refuses pushes, delivers what it has
        ttr: i64 = -1,  # of jobs that bring none
        concurrency: i64 = -1,  # leases at once
        rate_count: i64 = -1,  # jobs that may be started
        rate_period: i64 = 0,  # in so long
        key_concurrency: i64 = -1,  # the same for the jobs of each limit key
        key_rate_count: i64 = -1,
        key_rate_period: i64 = 0,
        idle_expiry: i64 = -1,  # after so long without a job it is deleted; 0: never
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
        self.draining = draining
        self.ttr = ttr
        self.concurrency = concurrency
        self.rate_count = rate_count
        self.rate_period = rate_period
        self.key_concurrency = key_concurrency
        self.key_rate_count = key_rate_count
        self.key_rate_period = key_rate_period
        self.idle_expiry = idle_expiry

    def has_bounds(self) -> bool:
        """Whether a push has to check them."""
        return self.max_jobs >= 0 or self.max_bytes >= 0 or self.draining

    def has_limits(self) -> bool:
        return self.concurrency > 0 or self.rate_count > 0 or self.has_key_limits()

    def has_key_limits(self) -> bool:
        return self.key_concurrency > 0 or self.key_rate_count > 0

    def is_default(self) -> bool:
        """Whether nothing of it would be missed if it were forgotten."""
        return not self.created and _has_same_values(self, DEFAULT_QUEUE_SETTINGS)

    def same_rate(self, other: QueueSettings) -> bool:
        return self.rate_count == other.rate_count and self.rate_period == other.rate_period

    def same_key_rate(self, other: QueueSettings) -> bool:
        return (
            self.key_rate_count == other.key_rate_count
            and self.key_rate_period == other.key_rate_period
        )


def copy_settings(old: QueueSettings) -> QueueSettings:
    return QueueSettings(
        old.created,
        old.paused,
        old.retries,
        old.result_retention,
        old.dead_retention,
        old.backoff,
        old.backoff_base,
        old.backoff_cap,
        old.max_jobs,
        old.max_bytes,
        old.overflow,
        old.draining,
        old.ttr,
        old.concurrency,
        old.rate_count,
        old.rate_period,
        old.key_concurrency,
        old.key_rate_count,
        old.key_rate_period,
        old.idle_expiry,
    )


def _has_same_values(one: QueueSettings, other: QueueSettings) -> bool:
    return (
        one.paused == other.paused
        and one.retries == other.retries
        and one.result_retention == other.result_retention
        and one.dead_retention == other.dead_retention
        and one.backoff == other.backoff
        and one.max_jobs == other.max_jobs
        and one.max_bytes == other.max_bytes
        and one.overflow == other.overflow
        and one.draining == other.draining
        and one.ttr == other.ttr
        and one.concurrency == other.concurrency
        and one.rate_count == other.rate_count
        and one.key_concurrency == other.key_concurrency
        and one.key_rate_count == other.key_rate_count
        and one.idle_expiry == other.idle_expiry
    )


DEFAULT_QUEUE_SETTINGS: Final = QueueSettings()


class QueueRule:
    """Settings for the queues whose names fit a pattern, in which * stands for any characters."""

    __slots__ = ("_expression", "pattern", "settings")

    def __init__(self, pattern: str, settings: QueueSettings) -> None:
        self.pattern = pattern
        self.settings = settings
        parts = [re.escape(part) for part in pattern.split("*")]
        expression = parts[0]
        if len(parts) > 1:
            # The first place that a part fits is as good as any other: none is tried again, since
            # clients choose names, and some would take for ever.
            expression += "".join([f"(?>.*?{part})" for part in parts[1:-1]]) + ".*" + parts[-1]
        self._expression = re.compile(expression, re.DOTALL)

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None


def find_rule(rules: list[QueueRule], name: str) -> QueueRule | None:
    """The first one that fits."""
    for rule in rules:
        if rule.matches(name):
            return rule
    return None


def merge_settings(own: QueueSettings, rule: QueueRule | None, idle_expiry: i64) -> QueueSettings:
    """Return the effective settings of a queue: each of its own settings, else that of its rule.

    A queue that a client has given settings, or a name before it had jobs, is not deleted unless
    that is set for itself: nothing would set them again.
    """
    found = copy_settings(own)
    if rule is not None:
        _fill_unset(found, rule.settings)
    if own.idle_expiry < 0:
        if own.created or not own.is_default():
            found.idle_expiry = 0
        elif found.idle_expiry < 0:
            found.idle_expiry = idle_expiry
    return found


def _fill_unset(found: QueueSettings, base: QueueSettings) -> None:
    if found.retries < 0:
        found.retries = base.retries
    if not found.result_retention:
        found.result_retention = base.result_retention
    if found.dead_retention < 0:
        found.dead_retention = base.dead_retention
    if found.backoff < 0:
        found.backoff = base.backoff
        found.backoff_base = base.backoff_base
        found.backoff_cap = base.backoff_cap
    if found.ttr < 0:
        found.ttr = base.ttr
    if found.concurrency < 0:
        found.concurrency = base.concurrency
    if found.rate_count < 0:
        found.rate_count = base.rate_count
        found.rate_period = base.rate_period
    if found.key_concurrency < 0:
        found.key_concurrency = base.key_concurrency
    if found.key_rate_count < 0:
        found.key_rate_count = base.key_rate_count
        found.key_rate_period = base.key_rate_period
    if found.idle_expiry < 0:
        found.idle_expiry = base.idle_expiry
