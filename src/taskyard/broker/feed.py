"""What happens, as it becomes durable: each new record decoded once, for all who listen.

While nobody listens nothing is kept and nothing decoded. Who listens is called when there is more,
and takes it out of the window of the last events at its own pace; who is further behind than that
has to read the journal (see journal/portion.py). Carries are no events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.seams import Scheduler
from taskyard.engine.records.decode import Decoder, kind_at, size_at
from taskyard.engine.records.job_lifecycle import FIRST_CARRY, Record
from taskyard.engine.records.log import Log
from taskyard.journal.journal import Journal

_AT_ONCE: Final = 64  # records decoded in one go
_MOST_WAITING: Final = 8 * 1_048_576  # bytes of records that were not decoded yet
_MOST_EVENTS: Final = 2048  # in the window
_MOST_BYTES: Final = 1_048_576  # of their records in the journal, without their blobs


class Event:
    """A durable record; `text` is whatever a listener makes of it, to be made once."""

    __slots__ = ("record", "seq", "text")

    def __init__(self, seq: i64, record: Record) -> None:
        self.seq = seq
        self.record = record
        self.text = b""


class _Frame:
    """Records that were written together, and how far they are decoded."""

    __slots__ = ("at", "body", "last_seq", "seq")

    def __init__(self, body: bytes, first_seq: i64, last_seq: i64) -> None:
        self.body = body
        self.at: i64 = 0
        self.seq = first_seq  # of the record at `at`
        self.last_seq = last_seq


class Feed:
    def __init__(self, journal: Journal, scheduler: Scheduler) -> None:
        self.first: i64 = 0  # the window has all events from this record on
        self.next: i64 = 0  # up to this one
        self._journal = journal
        self._scheduler = scheduler
        self._decoder = Decoder(False)
        self._listeners: dict[int, Callable[[], None]] = {}
        self._numbered: i64 = 0
        self._frames: deque[_Frame] = deque()
        self._waiting: i64 = 0  # bytes of them
        self._events: list[Event] = []
        self._bytes: i64 = 0
        self._planned = False
        self._told: i64 = -1  # up to which record it was told that they are durable

    # For those who listen

    def listen(self, call: Callable[[], None]) -> int:
        """Be called when there is more; gives the number to stop with."""
        if not self._listeners:
            self._begin_at(self._journal.written_seq + 1)
        self._numbered += 1
        self._listeners[self._numbered] = call
        return self._numbered

    def stop(self, number: int) -> None:
        self._listeners.pop(number, None)
        if not self._listeners:
            self._begin_at(0)

    def count(self) -> int:
        return len(self._listeners)

    def has(self, seq: i64) -> bool:
        """Whether all events from this record on are here, or still to come."""
        return seq >= self.first

    def events(self, from_seq: i64, limit: i64) -> list[Event]:
        """The next so many events of the window."""
        start: i64 = bisect_left(self._events, from_seq, key=_seq)
        return self._events[start : start + limit]

    # For the broker

    def take(self) -> None:
        """The records of the log are about to be written."""
        if self._listeners:
            self._take(self._journal.log)

    def durable(self) -> None:
        """More may be durable than before."""
        if self._listeners and self._journal.durable_seq != self._told:
            self._told = self._journal.durable_seq
            self._plan()

    def _take(self, log: Log) -> None:
        if not log.count:
            return
        size = log.size()
        if self._waiting + size > _MOST_WAITING:
            self._begin_at(log.next_seq)  # too much to hold: who wants it reads it from disk
            return
        self._frames.append(_Frame(log.out.getvalue(), log.next_seq - log.count, log.next_seq - 1))
        self._waiting += size

    def _begin_at(self, seq: i64) -> None:
        self.first = seq
        self.next = seq
        self._frames.clear()
        self._waiting = 0
        self._events = []
        self._bytes = 0

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._scheduler.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Decode a few, tell of them, and leave the rest for the next round of the loop."""
        self._planned = False
        left: i64 = _AT_ONCE
        while left > 0 and self._is_durable():
            left = self._decode(self._frames[0], left)
        self._trim()
        if self._is_durable():
            self._plan()
        for call in list(self._listeners.values()):
            call()

    def _is_durable(self) -> bool:
        return bool(self._frames) and self._frames[0].last_seq <= self._journal.durable_seq

    def _decode(self, frame: _Frame, left: i64) -> i64:
        body = frame.body
        while left > 0 and frame.seq <= frame.last_seq:
            at = frame.at
            if kind_at(body, at) < FIRST_CARRY:
                record = self._decoder.read(body, at, 0)
                record.seq = frame.seq
                self._events.append(Event(frame.seq, record))
                self._bytes += _weight(record)
            frame.at = at + size_at(body, at)
            frame.seq += 1
            left -= 1
        self.next = frame.seq
        if frame.seq > frame.last_seq:
            self._frames.popleft()
            self._waiting -= len(body)
        return left

    def _trim(self) -> None:
        """Let the oldest go, so that the window stays within its bounds."""
        events = self._events
        gone: i64 = 0
        while len(events) - gone > _MOST_EVENTS or self._bytes > _MOST_BYTES:
            self._bytes -= _weight(events[gone].record)
            gone += 1
        if gone:
            self.first = events[gone - 1].seq + 1
            del events[:gone]


def _weight(record: Record) -> i64:
    return record.size - record.blob_size


def _seq(event: Event) -> int:
    return event.seq
