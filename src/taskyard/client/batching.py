"""The commands for numbered batches: how they are spelled, and how their replies are read."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Final

from taskyard.client.commands import Call, raise_if_refused, read_job, unexpected_reply
from taskyard.client.errors import StaleBatch
from taskyard.client.pushing import Seconds, to_milliseconds
from taskyard.client.source import Job
from taskyard.client.wire import Command, Reply, Word

MAX_BATCH_JOBS: Final = 1_000_000
_MAX_READ_PLACES: Final = 10_000  # places that one command may request


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
