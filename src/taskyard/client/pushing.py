"""A job to be pushed, in Python and in the words of JOB.PUSH."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias, TypedDict
from uuid import UUID

import msgspec

from taskyard.client.wire import Word
from taskyard.shared.misspelt import check_names

Seconds: TypeAlias = float | timedelta
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


# What other libraries call them.
_FOREIGN_OPTION_NAMES: Final = {
    "countdown": "it is delay here",
    "eta": "it is run_at here",
    "expires": "it is ttl here",
    "max_retries": "it is retries here",
    "retry": "it is retries here",
    "job_id": "it is uid here, a UUID",
    "task_id": "it is uid here, a UUID",
    "depends_on": "it is blocked_by here",
    "rate": "it is a setting of the queue: client.configure(queue, rate=...)",
}


class HasId(Protocol):
    """A job that was pushed, fetched, or read."""

    @property
    def id(self) -> int: ...


JobRef: TypeAlias = int | str | UUID | HasId
"""How a job is named: by its id, by its uid, or by something that has the id."""


class PushOptions(TypedDict, total=False):
    """What may be said about a job that is pushed; see NewJob for what each means."""

    name: str | None
    priority: int
    run_at: datetime | float | None
    delay: Seconds | None
    ttr: Seconds | None
    ttl: Seconds | None
    retries: int | None
    backoff: Seconds | tuple[Seconds, Seconds] | None
    attempts: int | None
    dead_queue: str | None
    unique: str | bytes | None
    limit_key: str | None
    blocked_by: Sequence[JobRef]


class OnePushOptions(PushOptions, total=False):
    """What may be said about a single job."""

    uid: str | UUID | None


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be pushed. Durations are in seconds, or timedeltas."""

    queue: str
    payload: Any = b""
    """Bytes are sent as they are, everything else as JSON."""
    name: str | None = None
    """What to run; else the queue's name."""
    priority: int = 0
    """Higher ones come first."""
    run_at: datetime | float | None = None
    """Not before this time: with a zone, or seconds since 1970."""
    delay: Seconds | None = None
    """Not before so long from now."""
    ttr: Seconds | None = None
    """How long one lease lasts."""
    ttl: Seconds | None = None
    """When the job and its result are forgotten."""
    retries: int | None = None
    """How often it is tried again after a failure; -1: without end. Else as its queue says; the
    server's default is 3."""
    backoff: Seconds | tuple[Seconds, Seconds] | None = None
    """How long it waits after its first failure, which doubles with each one; and the most. Else as
    its queue says; the server's default is 1 second, and at most 5 minutes."""
    attempts: int | None = None
    """How often it may be taken at all."""
    dead_queue: str | None = None
    """Where it goes when it has failed for good; else to the dead letters of its queue."""
    uid: str | UUID | None = None
    """A UUID of your own; else one is made. It names the job, and is never pushed twice."""
    unique: str | bytes | None = None
    """A key: if another job of the queue that waits has it, this one is not pushed."""
    limit_key: str | None = None
    """For which of the keys that share the queue's limits it counts."""
    blocked_by: Sequence[JobRef] = field(default=())
    """Jobs that must succeed first. In push_all, -1 is the job before, -2 the one before that."""


def new_job(queue: str, payload: Any = b"", **options: Any) -> NewJob:
    """TypeError for an unknown option, with the one that may be meant."""
    try:
        return NewJob(queue, payload, **options)
    except TypeError:
        check_names("push option", options, OnePushOptions.__annotations__, _FOREIGN_OPTION_NAMES)
        raise


def encode(value: object) -> bytes:
    """Bytes as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return msgspec.json.encode(value)


def encode_text(value: object) -> bytes:
    """The same, but text is sent as it is."""
    return value.encode() if isinstance(value, str) else encode(value)


def to_seconds(span: Seconds) -> float:
    if isinstance(span, timedelta):
        return span.total_seconds()
    if not isinstance(span, int | float):
        raise TypeError(f"{span!r} is no duration: a number of seconds or a timedelta is wanted")
    return span


def to_milliseconds(span: Seconds, least: int = 0) -> int:
    """Rounded, but what is not nothing does not become so."""
    seconds = to_seconds(span)
    if seconds < 0:
        raise ValueError(f"{span} is less than nothing: a duration is wanted")
    if not seconds < math.inf:
        raise ValueError(f"{span} is no duration: a number of seconds is wanted")
    found = round(seconds * 1000)
    return max(found, 1) if seconds > 0 else max(found, least)


def job_ref_text(job: JobRef) -> str:
    """Return an id or uid in the server's form."""
    if isinstance(job, bool):
        raise TypeError("a job is named by its id or uid")
    if isinstance(job, int):
        return str(job)
    if isinstance(job, UUID):
        return str(job)
    if isinstance(job, str):
        if not job.isdecimal() and _UUID.fullmatch(job) is None:
            raise ValueError(f"{job!r} is neither an id nor a uid of a job")
        return job
    return str(job.id)


def normalize_uid(uid: str | UUID) -> str:
    text = str(uid)
    if _UUID.fullmatch(text) is None:
        raise ValueError(f"uid {text!r} is not a UUID")
    return text.lower()


def push_words(new: NewJob) -> list[Word]:
    """The words behind queue and payload, without the uid."""
    words: list[Word] = []
    if new.name is not None:
        words += ("NAME", new.name)
    if new.priority:
        words += ("PRIORITY", new.priority)
    if new.run_at is not None:
        words += ("AT", _to_unix_ms(new.run_at))
    if new.delay is not None:
        words += ("IN", to_milliseconds(new.delay))
    if new.ttr is not None:
        words += ("TTR", to_milliseconds(new.ttr))
    if new.ttl is not None:
        words += ("TTL", to_milliseconds(new.ttl))
    return words + _policy_words(new)


def _policy_words(new: NewJob) -> list[Word]:
    words: list[Word] = []
    if new.retries is not None:
        if not isinstance(new.retries, int):
            raise TypeError(f"retries must be a whole number, not {new.retries!r}")
        if new.retries < -1:
            raise ValueError("retries must be -1 (without end), 0 or more")
        words += ("FAILS", new.retries + 1)
    if new.backoff is not None:
        base, cap = new.backoff if isinstance(new.backoff, tuple) else (new.backoff, 0)
        words += ("BACKOFF", to_milliseconds(base), to_milliseconds(cap))
    if new.attempts is not None:
        words += ("ATTEMPTS", new.attempts)
    if new.dead_queue is not None:
        words += ("DEAD", new.dead_queue)
    if new.unique is not None:
        words += ("KEY", new.unique)
    if new.limit_key is not None:
        words += ("LIMIT", new.limit_key)
    if new.blocked_by:
        words += ("AFTER", len(new.blocked_by), *(job_ref_text(job) for job in new.blocked_by))
    return words


def _to_unix_ms(time: datetime | float) -> int:
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError("run_at needs a time zone: datetime.now(timezone.utc), for instance")
        time = time.timestamp()
    if not isinstance(time, int | float):
        raise TypeError(f"run_at cannot be {time!r}: a datetime or seconds since 1970 are wanted")
    if not math.isfinite(time):
        raise ValueError(f"run_at cannot be {time}: seconds since 1970 are wanted")
    return max(round(time * 1000), 0)
