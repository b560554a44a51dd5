"""What a request may contain: names, ranges, limits. Anything else is refused, never clamped."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import InvalidOption, NoSpace, ReadOnly
from taskyard.engine.model.job import (
    ALL_STAGES,
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    FAILS_DEFAULT,
    FOREVER,
    JSON,
    MAX_BLOCKERS,
    MAX_LIMIT_KEY_BYTES,
    MAX_PRIORITY,
    MAX_TRIES,
    MAX_TTL_MS,
    MAX_TTR,
    MIN_PRIORITY,
    OPAQUE,
    SECOND,
    SYNCHRONOUS_CALL,
    NewJob,
    Policy,
)
from taskyard.engine.model.queue import OVERFLOW_DEAD, OVERFLOW_REFUSE, QueueSettings
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.room import MAX_STEP_BYTES, ensure_space
from taskyard.shared.text import NAME_RULE, valid_name

MAX_CONCURRENCY: Final = 1_000_000_000
MAX_RATE_COUNT: Final = 1_000_000_000
MIN_RATE_PERIOD: Final = SECOND // 1000
MAX_RATE_PERIOD: Final = 366 * 86_400 * SECOND
MAX_DURATION: Final = 1 << 62  # microseconds; added to any time of a clock it still fits 64 bits


def check_not_read_only(core: Core) -> None:
    """Whether anything can be promised at all."""
    if core.read_only_reason:
        raise ReadOnly(core.read_only_reason)


def check_writable(core: Core, size: i64 = 0) -> None:
    """Whether the records of one step can be taken, with `size` bytes beside its names."""
    check_not_read_only(core)
    if (
        core.records.size() + size + MAX_STEP_BYTES > core.journal_space.free_bytes
        and not ensure_space(core, size)
    ):
        raise NoSpace(core.journal_space.extend_failure)


def check_adding(core: Core, size: i64) -> None:
    """The same for operations that add something: they must not use the space that is reserved for
    finishing.
    """
    check_not_read_only(core)
    if core.journal_space.push_refusal:
        core.statistics.refused_without_space += 1
        raise NoSpace(core.journal_space.push_refusal)
    size += core.journal_space.reserved_bytes
    if (
        core.records.size() + size + MAX_STEP_BYTES > core.journal_space.free_bytes
        and not ensure_space(core, size)
    ):
        core.statistics.refused_without_space += 1
        raise NoSpace(core.journal_space.extend_failure)


def push_record_bytes(new: NewJob) -> i64:
    """What may be long in the record of a push."""
    size: i64 = len(new.payload)
    key = new.key
    if key is not None:
        size += len(key)
    blocked_by = new.blocked_by
    if blocked_by is not None:
        size += 8 * len(blocked_by)
    return size


def check_new_job(core: Core, new: NewJob) -> bytes:
    """Refuse what cannot be pushed; gives the queue's name in UTF-8."""
    queue = check_names(core, new)
    check_options(core, new)
    return queue


def check_options(core: Core, new: NewJob) -> None:
    """Refuse a job that cannot be pushed for another reason than its names."""
    if len(new.payload) > core.state.settings.payload_limit:
        raise InvalidOption("payload", "too large")
    if new.priority and not MIN_PRIORITY <= new.priority <= MAX_PRIORITY:
        raise InvalidOption("priority", "outside of 64 bits")
    if new.run_at and not 0 <= new.run_at < FOREVER:
        raise InvalidOption("run_at", "out of range")
    if not OPAQUE <= new.content <= JSON:
        raise InvalidOption("content", "unknown kind")
    if new.policy.encoded is None:  # one that was in a record before has been checked
        check_policy(new.policy)
    if new.ttl_ms and not 0 <= new.ttl_ms <= MAX_TTL_MS:
        raise InvalidOption("ttl", "out of range")
    if new.uid is not None and len(new.uid) != 16:
        raise InvalidOption("uid", "must be 16 bytes")
    if new.key is not None and not 0 < len(new.key) <= 0xFFFF:
        raise InvalidOption("key", "must be 1 to 65535 bytes")
    if new.limit_key is not None and not 0 < len(new.limit_key) <= MAX_LIMIT_KEY_BYTES:
        raise InvalidOption("limit_key", f"must be 1 to {MAX_LIMIT_KEY_BYTES} bytes")
    if new.blocked_by is not None and len(new.blocked_by) > MAX_BLOCKERS:
        raise InvalidOption("blocked_by", f"at most {MAX_BLOCKERS} jobs")
    notify = new.notify
    if notify is not None and not (
        0 <= notify.stages <= ALL_STAGES | SYNCHRONOUS_CALL and 0 <= notify.label <= MAX_TTL_MS
    ):
        raise InvalidOption("notify", "out of range")


def check_names(core: Core, new: NewJob) -> bytes:
    """Refuse invalid names; returns the queue's in UTF-8.

    Known names need no second check, and the very strings of the last push no check at all.
    """
    if new.queue is core.checked_queue and new.name is core.checked_name:
        return core.checked_utf8
    try:
        utf8 = new.queue.encode()
    except UnicodeEncodeError as error:  # a lone surrogate
        raise InvalidOption("queue", NAME_RULE) from error
    queue = core.state.queues.get(utf8)
    if queue is None and not valid_name(new.queue):
        raise InvalidOption("queue", NAME_RULE)
    if (queue is None or not queue.knows_name(new.name)) and not valid_name(new.name):
        raise InvalidOption("name", NAME_RULE)
    if queue is not None:
        utf8 = queue.utf8  # which knows its hash
    core.checked_queue = new.queue
    core.checked_name = new.name
    core.checked_utf8 = utf8
    return utf8


def check_policy(policy: Policy) -> None:
    if not 0 <= policy.ttr <= MAX_TTR:
        raise InvalidOption("ttr", "must be 0 to 24 hours")
    if not 0 <= policy.max_attempts <= MAX_TRIES:
        raise InvalidOption("max_attempts", "out of range")
    if not FAILS_DEFAULT <= policy.max_fails <= MAX_TRIES:
        raise InvalidOption("max_fails", "out of range")
    if not 0 <= policy.max_losses <= MAX_TRIES:
        raise InvalidOption("max_losses", "out of range")
    if not 0 <= policy.backoff <= BACKOFF_DEFAULT:
        raise InvalidOption("backoff", "unknown kind")
    if policy.backoff_base < 0 or policy.backoff_cap < 0:
        raise InvalidOption("backoff", "must not be negative")
    if policy.dead_queue and not valid_name(policy.dead_queue):
        raise InvalidOption("dead_queue", NAME_RULE)


def check_settings(settings: QueueSettings) -> None:
    if not -1 <= settings.retries <= MAX_TRIES:
        raise InvalidOption("retries", "out of range")
    if not 0 <= settings.result_retention <= MAX_DURATION:
        raise InvalidOption("result_retention", "out of range")
    if not -1 <= settings.dead_retention <= MAX_DURATION:
        raise InvalidOption("dead_retention", "out of range")
    if not -1 <= settings.backoff <= BACKOFF_EXPONENTIAL:
        raise InvalidOption("backoff", "unknown kind")
    if settings.backoff_base < 0 or settings.backoff_cap < 0:
        raise InvalidOption("backoff", "must not be negative")
    if settings.max_jobs < -1 or settings.max_bytes < -1:
        raise InvalidOption("max_jobs", "must not be negative")
    if not OVERFLOW_REFUSE <= settings.overflow <= OVERFLOW_DEAD:
        raise InvalidOption("overflow", "unknown kind")
    if not -1 <= settings.ttr <= MAX_TTR:
        raise InvalidOption("ttr", "must be 0 to 24 hours")
    if not -1 <= settings.concurrency <= MAX_CONCURRENCY:
        raise InvalidOption("concurrency", "out of range")
    if not -1 <= settings.key_concurrency <= MAX_CONCURRENCY:
        raise InvalidOption("key_concurrency", "out of range")
    _check_rate("rate", settings.rate_count, settings.rate_period)
    _check_rate("key_rate", settings.key_rate_count, settings.key_rate_period)
    _check_idle_expiry(settings.idle_expiry)


def _check_idle_expiry(expiry: i64) -> None:
    if not -1 <= expiry <= MAX_DURATION:
        raise InvalidOption("idle_expiry", "out of range")
    if 0 < expiry < SECOND:  # the queue would be checked all the time
        raise InvalidOption("idle_expiry", "must be 0, for never, or at least 1 second")


def _check_rate(option: str, count: i64, period: i64) -> None:
    if not -1 <= count <= MAX_RATE_COUNT:
        raise InvalidOption(option, f"count must be at most {MAX_RATE_COUNT}")
    if count > 0 and not MIN_RATE_PERIOD <= period <= MAX_RATE_PERIOD:
        raise InvalidOption(option, "the period must be 1 ms to 366 days")


def check_size(core: Core, option: str, data: bytes) -> None:
    if len(data) > core.state.settings.payload_limit:
        raise InvalidOption(option, "too large")
