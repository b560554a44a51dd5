"""The commands for numbered batches: how they are spelled, and how their replies are read."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Final

from taskyard.client.commands import Call, checked, read_job, unexpected
from taskyard.client.errors import StaleBatch
from taskyard.client.pushing import Seconds, milliseconds
from taskyard.client.source import Job
from taskyard.client.wire import Command, Reply, Word

MOST_LEASED: Final = 1_000_000
_MOST_READ: Final = 10_000  # places that one command may ask for


def new_holder() -> str:
    """A name for a client that claims consumers: where it runs, and what no other one has."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(8).hex()}"


def claim(consumer: str, holder: str) -> Command:
    return ("BATCH.CLAIM", consumer, holder)


def lease(
    consumer: str, number: int, limit: int, queues: Sequence[str], ttr: Seconds | None
) -> Call[tuple[int, int]]:
    """The same batch however often it is asked for, so it may be."""
    if isinstance(queues, str) or not queues:
        raise ValueError("lease_batch needs a list with the names of queues")
    if not 1 <= limit <= MOST_LEASED:
        raise ValueError(f"limit must be between 1 and {MOST_LEASED}")
    words: list[Word] = ["BATCH.LEASE", consumer, number, limit]
    if ttr is not None:
        words += ("TTR", milliseconds(ttr, 1))
    return Call([*words, "QUEUES", *queues], _leased, repeat=True, alone=True)


def _leased(reply: Reply, again: bool) -> tuple[int, int]:
    match checked(reply):
        case [int(number), int(count), *_]:
            return number, count
        case other:
            raise unexpected(other)


class Reading:
    """The jobs at places of a batch, by as many commands as it takes."""

    def __init__(self, consumer: str, number: int, start: int, count: int) -> None:
        if start < 0 or count < 0:
            raise ValueError("start and count must not be negative")
        self._consumer = consumer
        self._number = number
        self._at = start
        self._end = start + count
        self.jobs: list[Job] = []

    def next(self) -> Call[int] | None:
        """The next command; None when all is there."""
        if self._at >= self._end:
            return None
        count = min(self._end - self._at, _MOST_READ)
        words: list[Word] = ["BATCH.READ", self._consumer, self._number, self._at, count]
        return Call(words, self._read, repeat=True, alone=True)

    def _read(self, reply: Reply, again: bool) -> int:
        """A reply has an entry for each place, and fewer of them if it would be too large."""
        found = checked(reply)
        if not isinstance(found, list):
            raise unexpected(found)
        now = time.time()
        self.jobs += [read_job(one, now) for one in found if one is not None]
        self._at = self._at + len(found) if found else self._end
        return len(found)


def ack(consumer: str, upto: int, holder: str | None = None) -> Call[None]:
    def read(reply: Reply, again: bool) -> None:
        checked(reply)

    words: list[Word] = ["BATCH.ACK", consumer, upto]
    if holder is not None:
        words.append(holder)
    return Call(words, read, repeat=True, alone=True)


def drop(consumer: str) -> Call[None]:
    def read(reply: Reply, again: bool) -> None:
        if not (again and isinstance(reply, StaleBatch)):  # else the first one has done it
            checked(reply)

    return Call(["BATCH.DROP", consumer], read, repeat=True, alone=True)
