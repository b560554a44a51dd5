"""A schedule to be set, in Python and in the JSON of the API."""

from __future__ import annotations

import base64
from typing import Any, Literal, TypedDict

from taskyard.client.pushing import Seconds, to_seconds
from taskyard.shared.misspelt import check_names


class ScheduleOptions(TypedDict, total=False):
    """When to push, which is `cron` or `every`, and what, which is as in a push."""

    cron: str
    """Minute, hour, day of month, month and day of week; or @daily and the like."""
    every: Seconds
    timezone: str
    """By which `cron` goes, such as Europe/Berlin; else UTC."""
    missed: Literal["once", "skip", "all"]
    """What becomes of ticks while the server was down."""
    overlap: Literal["allow", "skip"]
    """Whether a tick pushes while the last job has not ended."""
    paused: bool
    payload: Any
    job_name: str
    priority: int
    ttr: Seconds
    ttl: Seconds
    retries: int
    backoff: Seconds | tuple[Seconds, Seconds]
    """How long a job waits after its first failure, which doubles with each one; and the most."""
    attempts: int
    dead_queue: str
    unique: str
    """A key: no tick pushes while a job that has it waits."""
    limit_key: str
    """What the limits of the queue for each key go by."""


_API_NAMES = {"job_name": "name", "attempts": "max_attempts", "unique": "key"}
_DURATIONS = ("every", "ttr", "ttl")
_UNLIMITED_FAILS = 2**32 - 1  # the most that the API knows


def schedule_body(prefix: str, queue: str, options: ScheduleOptions) -> dict[str, Any]:
    """`prefix`: what the names of queues begin with."""
    check_names("schedule option", options, ScheduleOptions.__annotations__)
    body: dict[str, Any] = {"queue": prefix + queue}
    for name, value in options.items():
        if name in _DURATIONS:
            body[name] = to_seconds(value)  # type: ignore[arg-type]
        elif name == "retries":
            retries = options["retries"]
            body["max_fails"] = retries + 1 if retries >= 0 else _UNLIMITED_FAILS
        elif name == "backoff":
            backoff = options["backoff"]
            base, cap = backoff if isinstance(backoff, tuple) else (backoff, 0)
            body["backoff"] = "exponential"
            body["backoff_base"] = to_seconds(base)
            body["backoff_cap"] = to_seconds(cap)
        elif name == "dead_queue":
            body[name] = prefix + options["dead_queue"]
        elif name == "payload" and isinstance(value, bytes | bytearray | memoryview):
            body["base64"] = base64.b64encode(value).decode()
        else:
            body[_API_NAMES.get(name, name)] = value
    return body
