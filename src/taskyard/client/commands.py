"""Every command of a client: its words, how its reply is read, and whether it may be repeated.

Nothing here sends or waits: the clients in sync.py and aio.py differ only in how they do that.
"""

from __future__ import annotations

import base64
import math
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypedDict, TypeVar
from uuid import UUID

import hiredis
import msgspec

from taskyard.client.errors import (
    ClientError,
    Closed,
    Duplicate,
    Refused,
    StaleBatch,
    StaleLease,
    Unavailable,
    Untrusted,
    refusal_from_reply,
)
from taskyard.client.source import Job
from taskyard.client.url import Address, is_permanent_tls_error
from taskyard.client.views import Outcome, Pushed
from taskyard.shared.misspelt import check_names

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Word: TypeAlias = str | bytes | int
Command: TypeAlias = Sequence[Word]
Reply: TypeAlias = "int | bytes | list[Reply] | Refused | None"

ReplyReader: TypeAlias = Callable[[Reply, bool], T]

Seconds: TypeAlias = float | timedelta

INCOMPLETE: Final = object()
RECEIVE_BYTES: Final = 1 << 16

MAX_FETCH: Final = 1000
MAX_PUSH_ALL: Final = 1000
UNKNOWN: Final = "unknown"
_CUT_SHORT_S: Final = 0.05  # seconds: a wait that ends so much before its time was cut short

# Seconds. A wait for a job can be long, and the machine of the server can go without a word.
_KEEPALIVE_IDLE_S: Final = 15
_KEEPALIVE_INTERVAL_S: Final = 5
_KEEPALIVE_PROBES: Final = 3

_UID_DIGITS: Final = 32

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

MAX_BATCH_JOBS: Final = 1_000_000
_MAX_READ_PLACES: Final = 10_000  # places that one command may request

_API_NAMES = {"job_name": "name", "attempts": "max_attempts", "unique": "key"}
_DURATIONS = ("every", "ttr", "ttl")
_UNLIMITED_FAILS = 2**32 - 1  # the most that the API knows


# Calls and their replies


class UnexpectedReply(ClientError):
    """The server's answer is none that this client knows."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One command."""

    words: Command
    read_reply: ReplyReader[T_co]
    """The reply, and whether the command was sent before: to what the caller gets, or an error."""
    repeatable: bool = False
    """Whether it may be sent again when its reply was lost."""
    repeat_after_timeout: bool = True
    """Also when it is only late: the first one may still be carried out."""
    wait: float = 0.0
    """For how many seconds the server may hold back the reply; it stands among the words."""
    wait_at: int = 0
    own_connection: bool = False
    """It may take its time, and must not hold up others on its connection."""
    leases_jobs: bool = False
    """Its reply has jobs, which are to be given back if nobody wants them any more."""

    def with_remaining_wait(self, seconds: float) -> Call[T_co]:
        """The same when so much of the time to wait has passed."""
        if not self.wait:
            return self
        left = max(self.wait - seconds, 0.0)
        words = list(self.words)
        words[self.wait_at] = to_milliseconds(left)
        return replace(self, words=words, wait=left)

    def was_cut_short(self, reply: Reply, seconds: float) -> bool:
        """Whether the server, since it stops, has answered before the time to wait was over."""
        return not reply and self.wait - seconds > _CUT_SHORT_S


def read_or_error(call: Call[T], reply: Reply, again: bool) -> T | Refused:
    """Return an error instead of raising it, so that the replies behind it can be read."""
    try:
        return call.read_reply(reply, again)
    except Refused as error:
        return error


def mark_lost_jobs(jobs: Sequence[Job], outcomes: Sequence[object]) -> list[Job]:
    """Return those whose lease was over when they were ended; raise the first error of another
    kind.
    """
    lost = [
        job for job, outcome in zip(jobs, outcomes, strict=True) if isinstance(outcome, StaleLease)
    ]
    for job in lost:
        job.lose()
    for outcome in outcomes:
        if isinstance(outcome, Refused) and not isinstance(outcome, StaleLease):
            raise outcome
    return lost


def raise_if_refused(reply: Reply) -> Reply:
    if isinstance(reply, Refused):
        raise reply
    return reply


def unexpected_reply(reply: Reply) -> UnexpectedReply:
    return UnexpectedReply(f"the server answered in an unknown form: {reply!r:.200}")


# Jobs to be pushed


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


def new_uid() -> str:
    """Return a uid for a job that is pushed, so that a push whose answer was lost can be repeated.

    It is a UUID of version 4 from the operating system's random numbers. So a client that sees the
    uids of some jobs cannot guess those of the next ones, and push them first.
    """
    return new_uids(1)[0]


def new_uids(count: int) -> list[str]:
    """Several at once, which takes a third of the time."""
    digits = os.urandom(_UID_DIGITS // 2 * count).hex()
    return [
        f"{digits[at : at + 8]}-{digits[at + 8 : at + 12]}-4{digits[at + 13 : at + 16]}-"
        f"a{digits[at + 17 : at + 20]}-{digits[at + 20 : at + _UID_DIGITS]}"
        for at in range(0, len(digits), _UID_DIGITS)
    ]


# Pushing


def push(new: NewJob) -> Call[Pushed]:
    own = new.uid is None
    uid = new_uid() if new.uid is None else normalize_uid(new.uid)
    words: list[Word] = ["JOB.PUSH", new.queue, encode(new.payload), "UID", uid]
    words += push_words(new)

    def read(reply: Reply, again: bool) -> Pushed:
        return read_pushed(reply, uid, own, again)

    return Call(words, read, repeatable=True)


def read_pushed(reply: Reply, uid: str, is_own_uid: bool, was_sent_before: bool) -> Pushed:
    """`own`: the client has made the uid, so that the server can only know it from an earlier try
    of the same push; if there was none (`again`), that it knows it is an error.
    """
    if isinstance(reply, int):
        return Pushed(reply, uid)
    if isinstance(reply, Duplicate) and reply.job_id:
        if is_key_duplicate(reply):
            return Pushed(reply.job_id, "", False)
        if was_sent_before or not is_own_uid:
            return Pushed(reply.job_id, uid, is_own_uid)
    raise unexpected_reply(raise_if_refused(reply))


def is_key_duplicate(error: Duplicate) -> bool:
    return "with this key" in str(error)


def push_all(jobs: Sequence[NewJob]) -> Call[list[Pushed]]:
    """All of them or none."""
    if len(jobs) > MAX_PUSH_ALL:
        raise ValueError(f"push_all takes at most {MAX_PUSH_ALL} jobs, and push_many any number")
    made = new_uids(sum(new.uid is None for new in jobs))
    names = [made.pop() if new.uid is None else normalize_uid(new.uid) for new in jobs]
    words: list[Word] = ["JOB.PUSHALL", len(jobs)]
    for new, uid in zip(jobs, names, strict=True):
        group = [new.queue, encode(new.payload), "UID", uid, *push_words(new)]
        words += (len(group), *group)

    def read(reply: Reply, again: bool) -> list[Pushed]:
        found = raise_if_refused(reply)
        if not isinstance(found, list) or len(found) != len(names):
            raise unexpected_reply(found)
        return [Pushed(_expect_number(id), uid) for id, uid in zip(found, names, strict=True)]

    return Call(words, read, repeatable=True)


# Taking


def fetch(
    queues: Sequence[str], count: int, wait: Seconds, ttr: Seconds | None, random: bool
) -> Call[list[Job]]:
    """The leases of a reply that was lost end by their time, whether the request is repeated or
    not.
    """
    if not queues:
        raise ValueError("fetch needs the name of a queue")
    if not 1 <= count <= MAX_FETCH:
        raise ValueError(f"count must be between 1 and {MAX_FETCH}")
    waited = to_milliseconds(wait)
    words: list[Word] = ["JOB.TAKE", len(queues), *queues, "COUNT", count]
    if ttr is not None:
        words += ("TTR", to_milliseconds(ttr, 1))
    if random:
        words.append("RANDOM")
    at = 0
    if waited:
        words += ("WAIT", waited)
        at = len(words) - 1
    return Call(
        words,
        _read_jobs,
        repeatable=True,
        repeat_after_timeout=False,
        wait=waited / 1000,
        wait_at=at,
        leases_jobs=True,
    )


def _read_jobs(reply: Reply, again: bool) -> list[Job]:
    found = raise_if_refused(reply)
    if not isinstance(found, list):
        raise unexpected_reply(found)
    now = time.time()
    return [read_job(one, now) for one in found]


def read_job(reply: Reply, now: float) -> Job:
    match reply:
        case [
            bytes(ref),
            int(id),
            bytes(uid),
            bytes(queue),
            bytes(name),
            int(attempt),
            int(fails),
            int(deadline),
            bytes(payload),
            *_,
        ]:
            return Job(
                ref=_decode_text(ref),
                queue=_decode_text(queue),
                payload=payload,
                name=_decode_text(name),
                uid=_decode_text(uid),
                attempt=attempt,
                fails=fails,
                # Reckoned with our clock, which need not be the server's.
                lease=max(deadline / 1000 - now, 0.001) if deadline else 0.0,
                id=id,
                deadline=deadline / 1000,
            )
    raise unexpected_reply(reply)


# Ending a lease


def ack(job: Job, result: object, until: float) -> Call[None]:
    words: list[Word] = ["JOB.DONE", job.ref]
    if result is not None:
        words.append(encode(result))
    return Call(words, _end_reader(until, _read_nothing), repeatable=True)


def nack(job: Job, error: object, delay: Seconds | None, until: float) -> Call[str]:
    words: list[Word] = ["JOB.FAIL", job.ref, encode_text(error)]
    if delay is not None:
        words += ("IN", to_milliseconds(delay))
    return Call(words, _end_reader(until, _read_state), repeatable=True)


def fail(job: Job, error: object, until: float) -> Call[None]:
    words: list[Word] = ["JOB.FAIL", job.ref, encode_text(error), "FINAL"]
    return Call(words, _end_reader(until, _read_nothing), repeatable=True)


def give_back(job: Job, until: float) -> Call[None]:
    return Call(["JOB.RETURN", job.ref], _end_reader(until, _read_nothing), repeatable=True)


def _end_reader(until: float, read: Callable[[Reply], T]) -> ReplyReader[T]:
    """If a lease is over that, by the clock, cannot be (`until` is monotonic time), the command
    whose reply was lost has ended it.
    """

    def reading(reply: Reply, again: bool) -> T:
        if again and isinstance(reply, StaleLease) and time.monotonic() < until:
            return read(None)
        return read(raise_if_refused(reply))

    return reading


def _read_nothing(reply: Reply) -> None:
    return None


def _read_state(reply: Reply) -> str:
    return _decode_text(reply) if isinstance(reply, bytes) else UNKNOWN


def extend(ref: str, seconds: Seconds) -> Call[float]:
    """The server's time at the end of the lease, in seconds since 1970."""

    def read(reply: Reply, again: bool) -> float:
        return _expect_number(raise_if_refused(reply)) / 1000

    return Call(["JOB.EXTEND", ref, to_milliseconds(seconds, 1)], read, repeatable=True)


def progress(job: Job, fraction: float, message: str) -> Call[None]:
    if not 0 <= fraction <= 1:
        raise ValueError("the fraction that is done must be between 0 and 1")
    words: list[Word] = ["JOB.PROGRESS", job.ref, round(fraction * 1000), message]

    def read(reply: Reply, again: bool) -> None:
        raise_if_refused(reply)

    return Call(words, read, repeatable=True)


# Results


def result(job: JobRef, wait: Seconds) -> Call[Outcome | None]:
    words: list[Word] = ["JOB.RESULT", job_ref_text(job)]
    waited = to_milliseconds(wait)
    if waited:
        words += ("WAIT", waited)
    return Call(words, _read_outcome, repeatable=True, wait=waited / 1000, wait_at=len(words) - 1)


def _read_outcome(reply: Reply, again: bool) -> Outcome | None:
    match raise_if_refused(reply):
        case None:
            return None
        case [int(id), bytes(state), int(success), (bytes() | None) as found, error, *_] if (
            error is None or isinstance(error, bytes)
        ):
            return Outcome(id, _decode_text(state), bool(success), found, error)
        case other:
            raise unexpected_reply(other)


def ping() -> Call[None]:
    def read(reply: Reply, again: bool) -> None:
        raise_if_refused(reply)

    return Call(["PING"], read, repeatable=True)


def _decode_text(reply: bytes) -> str:
    try:
        return reply.decode()
    except UnicodeDecodeError:
        raise unexpected_reply(reply) from None


def _expect_number(reply: Reply) -> int:
    if not isinstance(reply, int):
        raise unexpected_reply(reply)
    return reply


# Numbered batches


def new_holder() -> str:
    """A name for a client that claims consumers: where it runs, and what no other one has."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(8).hex()}"


def claim(consumer: str, holder: str) -> Command:
    return ("BATCH.CLAIM", consumer, holder)


def lease(
    consumer: str, number: int, limit: int, queues: Sequence[str], ttr: Seconds | None
) -> Call[tuple[int, int]]:
    """A repeated request gets the same batch, so it may be sent again."""
    if isinstance(queues, str) or not queues:
        raise ValueError("lease_batch needs a list with the names of queues")
    if not 1 <= limit <= MAX_BATCH_JOBS:
        raise ValueError(f"limit must be between 1 and {MAX_BATCH_JOBS}")
    words: list[Word] = ["BATCH.LEASE", consumer, number, limit]
    if ttr is not None:
        words += ("TTR", to_milliseconds(ttr, 1))
    return Call(
        [*words, "QUEUES", *queues], _read_lease_reply, repeatable=True, own_connection=True
    )


def _read_lease_reply(reply: Reply, again: bool) -> tuple[int, int]:
    match raise_if_refused(reply):
        case [int(number), int(count), *_]:
            return number, count
        case other:
            raise unexpected_reply(other)


class BatchReader:
    """The jobs at places of a batch, by as many commands as it takes."""

    def __init__(self, consumer: str, number: int, start: int, count: int) -> None:
        if start < 0 or count < 0:
            raise ValueError("start and count must not be negative")
        self._consumer = consumer
        self._number = number
        self._position = start
        self._end = start + count
        self.jobs: list[Job] = []

    def next_call(self) -> Call[int] | None:
        """The next command; None when all is there."""
        if self._position >= self._end:
            return None
        count = min(self._end - self._position, _MAX_READ_PLACES)
        words: list[Word] = ["BATCH.READ", self._consumer, self._number, self._position, count]
        return Call(words, self._read_reply, repeatable=True, own_connection=True)

    def _read_reply(self, reply: Reply, again: bool) -> int:
        """A reply has an entry for each place, and fewer of them if it would be too large."""
        found = raise_if_refused(reply)
        if not isinstance(found, list):
            raise unexpected_reply(found)
        now = time.time()
        self.jobs += [read_job(one, now) for one in found if one is not None]
        self._position = self._position + len(found) if found else self._end
        return len(found)


def ack_batch(consumer: str, upto: int, holder: str | None = None) -> Call[None]:
    def read(reply: Reply, again: bool) -> None:
        raise_if_refused(reply)

    words: list[Word] = ["BATCH.ACK", consumer, upto]
    if holder is not None:
        words.append(holder)
    return Call(words, read, repeatable=True, own_connection=True)


def drop(consumer: str) -> Call[None]:
    def read(reply: Reply, again: bool) -> None:
        if not (again and isinstance(reply, StaleBatch)):  # else the first one has done it
            raise_if_refused(reply)

    return Call(["BATCH.DROP", consumer], read, repeatable=True, own_connection=True)


# Schedules


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


# The connection


def create_reader() -> hiredis.Reader:
    return hiredis.Reader(replyError=refusal_from_reply, notEnoughData=INCOMPLETE)


def encode_commands(commands: Sequence[Command]) -> bytes:
    return b"".join([hiredis.pack_command(tuple(words)) for words in commands])  # type: ignore[arg-type]


def login_commands(address: Address) -> list[Command]:
    """What a connection begins with."""
    commands: list[Command] = []
    if address.user:
        commands.append(("AUTH", address.user, address.password))
    elif address.password:
        commands.append(("AUTH", address.password))
    if address.database:
        commands.append(("SELECT", address.database))
    return commands


def unavailable_error(
    address: Address, error: Exception, *, sent: bool, closed: bool = False
) -> Unavailable:
    """Return what a caller gets for an error of the network. `closed`: this side has closed it."""
    reason = "the connection was closed" if closed else str(error)
    lost = "went away before it answered" if sent else "cannot be reached"
    kind = Closed if closed else Untrusted if is_permanent_tls_error(error) else Unavailable
    found = kind(f"{address} {lost}: {reason or type(error).__name__}")
    found.sent = sent
    found.timed_out = isinstance(error, TimeoutError)
    found.__cause__ = error
    return found


def enable_keepalive(connected: _Socket) -> None:
    """Have the system find out when the other machine is no longer there."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):  # not on every system
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Socket(Protocol):
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
