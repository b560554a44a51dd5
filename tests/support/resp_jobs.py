"""Taskyard's own words on the RESP listener, as tests say them."""

from typing import Any, NamedTuple

from support.replies_resp import Word, ask, command, read, refused
from support.wire import Peer

STALE = "STALE the lease is over, or the job is gone"
SYNTAX = "ERR syntax error"
PUSH_WORDS = (
    "NAME, UID, PRIORITY, AT, IN, TTR, TTL, ATTEMPTS, FAILS, BACKOFF, DEAD, KEY, AFTER, LIMIT"
)
NOT_AN_INTEGER = "ERR value is not an integer or out of range"


# What may be done with a ref, and what goes with it
ENDS: list[tuple[Word, ...]] = [
    ("JOB.DONE",),
    ("JOB.DONE", "result"),
    ("JOB.DONE", "result", "KEEP", 5),
    ("JOB.FAIL", "error"),
    ("JOB.FAIL", "error", "FINAL"),
    ("JOB.FAIL", "error", "IN", 5),
    ("JOB.EXTEND", 1000),
    ("JOB.RETURN",),
    ("JOB.PROGRESS", 500, "half"),
]


def unknown(command: str, word: str, known: str = PUSH_WORDS, meant: str = "") -> str:
    """How a word is refused that a command of ours does not have."""
    question = f": did you mean {meant}?" if meant else "."
    return f"ERR {command} has no word '{word}'{question} It has {known}"


def no_value(command: str, word: str) -> str:
    return f"ERR {word} of {command}: a value is missing"


class Taken(NamedTuple):
    """One job of a JOB.TAKE."""

    ref: bytes
    id: int
    uid: bytes
    queue: bytes
    name: bytes
    attempt: int
    fails: int
    deadline: int
    payload: bytes


def push(peer: Peer, queue: Word = "q", payload: Word = "body", *options: Word) -> int:
    reply = ask(peer, "JOB.PUSH", queue, payload, *options)
    assert isinstance(reply, int), reply
    return reply


def take_many(peer: Peer, *queues_and_options: Word, queues: int = 1) -> list[Taken]:
    return as_jobs(ask(peer, "JOB.TAKE", queues, *(queues_and_options or ("q",))))


def take(peer: Peer, *queues_and_options: Word, queues: int = 1) -> Taken:
    """The one job that must be there."""
    [job] = take_many(peer, *queues_and_options, queues=queues)
    return job


def wait_for(peer: Peer, queue: Word = "q", ms: int = 60_000, *options: Word) -> None:
    """Ask for a job that is still to come."""
    peer.send(command("JOB.TAKE", 1, queue, "WAIT", ms, *options))


def came(peer: Peer) -> Taken:
    [job] = as_jobs(read(peer))
    return job


def as_jobs(reply: Any) -> list[Taken]:
    assert isinstance(reply, list), reply
    assert all(len(job) == 9 for job in reply), reply
    return [Taken(*job) for job in reply]


def expect_stale(peer: Peer, ref: bytes) -> None:
    """Nothing can be done with this ref any more."""
    for verb, *rest in ENDS:
        assert refused(peer, verb, ref, *rest) == STALE, (verb, rest)
