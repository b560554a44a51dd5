"""What can be said about a task: with the decorator, or for one push."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

from taskyard.shared.misspelt import check_names
from taskyard.shared.retries import DEFAULT_BACKOFF_CAP_S, DEFAULT_BACKOFF_S, DEFAULT_RETRIES
from taskyard.tasks.foreign import OPTION_HINTS
from taskyard.worker.pools import NEVER, NO_TIME_LIMITS, TimeLimits

DEFAULT_RESULT_TTL_S: Final = 3600.0  # seconds that a result is kept unless something else is said
UNLIMITED: Final = -1

KeyOf: TypeAlias = Callable[..., str]  # from the arguments of the task


@dataclass(frozen=True, slots=True)
class Retry:
    """When a task that failed is tried again."""

    times: int = DEFAULT_RETRIES
    """How often; -1: without end."""
    backoff: tuple[float, float] = (float(DEFAULT_BACKOFF_S), float(DEFAULT_BACKOFF_CAP_S))
    """Seconds before the first retry, which double each time; and the most. A random part of up to
    a half is taken off."""
    on: tuple[type[BaseException], ...] = (Exception,)
    """Only after one of these."""
    never: tuple[type[BaseException], ...] = ()
    """But not after one of these."""

    def __post_init__(self) -> None:
        if self.times < UNLIMITED:
            raise ValueError("retry must be -1 (without end), 0 or more")
        first, most = self.backoff
        if first < 0 or most < 0:
            raise ValueError("backoff is two numbers of seconds, the first pause and the longest")

    def wants(self, error: BaseException) -> bool:
        return isinstance(error, self.on) and not isinstance(error, self.never)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All of a task's; times are in seconds."""

    queue: str
    retry: Retry | None = None
    """None: as the queue's settings say, and those of the server, which are a plain Retry."""
    ttr: float | None = None
    """How long a lease of its jobs lasts, if shorter than the worker's. It is extended while the
    task runs: this is how soon others notice that its worker is dead."""
    timeout: float | None = None
    """After so long its run is ended by force, and has failed."""
    soft_timeout: float | None = None
    """After so long SoftTimeLimit is raised in it."""
    priority: int = 0
    unique: bool | KeyOf = False
    """Whether it is pushed only if no job with the same arguments waits; or a function of the
    arguments that gives the key."""
    limit_key: str | KeyOf | None = None
    """For which of the keys that share the limits of the queue it counts."""
    ttl: float | None = None
    """A job that is older is forgotten, also if it was not run; and its result with it."""
    result: bool = True
    """Whether the result is kept."""
    result_ttl: float = DEFAULT_RESULT_TTL_S
    """For how long, from the end of the task."""
    dead_queue: str | None = None

    def __post_init__(self) -> None:
        for name in ("ttr", "timeout", "soft_timeout", "ttl", "result_ttl"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, int | float):
                raise TypeError(f"{name} must be a number of seconds, not {value!r}")
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
        if not self.queue:
            raise ValueError("queue must not be empty")

    @property
    def has_keys(self) -> bool:
        """Whether each job has something of its own beside its payload."""
        return bool(self.unique) or callable(self.limit_key)

    @property
    def limits(self) -> TimeLimits:
        if self.timeout is None and self.soft_timeout is None:
            return NO_TIME_LIMITS
        return TimeLimits(
            NEVER if self.soft_timeout is None else self.soft_timeout,
            NEVER if self.timeout is None else self.timeout,
        )

    def changed(self, changes: dict[str, Any]) -> Options:
        """Return them with these changes; TypeError for an unknown option."""
        return replace(self, **normalize_options(changes))


_NAMES: Final = (*(field.name for field in fields(Options)), "backoff")


def normalize_options(said: dict[str, Any]) -> dict[str, Any]:
    """`retry` may be a number, with `backoff` beside it."""
    check_names("task option", said, _NAMES, OPTION_HINTS)
    found = dict(said)
    backoff = found.pop("backoff", None)
    retry = found.get("retry")
    if isinstance(retry, int):
        retry = Retry(retry)
    elif retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"retry must be a number of tries or a taskyard.Retry, not {retry!r}")
    if backoff is not None:
        if retry is None:
            raise ValueError("backoff needs retry: how often the task is tried again")
        first, most = backoff if isinstance(backoff, tuple) else (backoff, 0.0)
        retry = replace(retry, backoff=(first, most))
    if retry is not None:
        found["retry"] = retry
    return found
