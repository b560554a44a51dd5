"""The settings of a queue: its own, those that the server's configuration has for it, and what is
in effect of both."""

from __future__ import annotations

import re
from typing import Final

from mypy_extensions import i64, mypyc_attr

# What becomes of a push that a full queue has no place for.
OVERFLOW_REFUSE: Final = 0
OVERFLOW_DEAD: Final = 1  # accept it, and put it among the dead letters


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
