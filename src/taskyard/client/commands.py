"""Every command of a client: its words, how its reply is read, and whether it may be repeated.

Nothing here sends or waits: the clients differ only in how they do that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

from taskyard.client.errors import ClientError, Duplicate, Refused, StaleLease
from taskyard.client.pushing import (
    JobRef,
    NewJob,
    Seconds,
    encode,
    encode_text,
    job_ref_text,
    normalize_uid,
    push_words,
    to_milliseconds,
)
from taskyard.client.source import Job
from taskyard.client.uids import new_uid, new_uids
from taskyard.client.views import Outcome, Pushed
from taskyard.client.wire import Command, Reply, Word

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
ReplyReader: TypeAlias = Callable[[Reply, bool], T]

MAX_FETCH: Final = 1000
MAX_PUSH_ALL: Final = 1000
UNKNOWN: Final = "unknown"
_CUT_SHORT_S: Final = 0.05  # seconds: a wait that ends so much before its time was cut short


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
