"""Events as they become durable: each new record is decoded once, for all listeners.

Without listeners nothing is kept or decoded. Listeners are called when there is more, and read from
a window of the last events at their own pace; one that is further behind reads the journal (see
journal/reader.py). Snapshot records are no events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.interfaces import Scheduler
from taskyard.engine.records.decode import Decoder, kind_at, record_size_at
from taskyard.engine.records.job_lifecycle import FIRST_SNAPSHOT, Record
from taskyard.engine.records.log import RecordBuffer
from taskyard.journal.writer import Journal

_RECORDS_PER_STEP: Final = 64  # records decoded in one go
_MAX_UNDECODED_BYTES: Final = 8 * 1_048_576  # bytes of records that were not decoded yet
_MAX_EVENTS: Final = 2048  # in the window
_MAX_EVENT_BYTES: Final = 1_048_576  # of their records in the journal, without their blobs


class FeedEvent:
    """A durable record; `rendered` is what a listener has made of it, to be made once."""

    __slots__ = ("record", "rendered", "seq")

    def __init__(self, seq: i64, record: Record) -> None:
        self.seq = seq
        self.record = record
        self.rendered = b""


class _UndecodedFrame:
    """Records that were written together, and how far they are decoded."""

    __slots__ = ("body", "last_seq", "next_seq", "offset")

    def __init__(self, body: bytes, first_seq: i64, last_seq: i64) -> None:
        self.body = body
        self.offset: i64 = 0
        self.next_seq = first_seq  # of the record at `at`
        self.last_seq = last_seq


class EventFeed:
    def __init__(self, journal: Journal, scheduler: Scheduler) -> None:
        self.first_seq: i64 = 0  # the window has all events from this record on
        self.end_seq: i64 = 0  # up to this one
        self._journal = journal
        self._scheduler = scheduler
        self._decoder = Decoder(False)
        self._listeners: dict[int, Callable[[], None]] = {}
        self._last_listener: i64 = 0
        self._frames: deque[_UndecodedFrame] = deque()
        self._undecoded_bytes: i64 = 0  # bytes of them
        self._events: list[FeedEvent] = []
        self._event_bytes: i64 = 0
        self._decode_scheduled = False
        self._announced_seq: i64 = -1  # up to which record listeners were called

    # For listeners

    def subscribe(self, call: Callable[[], None]) -> int:
        """Call back when there are more events; return the number for `unsubscribe`."""
        if not self._listeners:
            self._restart_at(self._journal.written_seq + 1)
        self._last_listener += 1
        self._listeners[self._last_listener] = call
        return self._last_listener

    def unsubscribe(self, number: int) -> None:
        self._listeners.pop(number, None)
        if not self._listeners:
            self._restart_at(0)

    def listener_count(self) -> int:
        return len(self._listeners)

    def covers(self, seq: i64) -> bool:
        """Whether all events from this record on are here, or still to come."""
        return seq >= self.first_seq

    def events_from(self, from_seq: i64, limit: i64) -> list[FeedEvent]:
        """The next so many events of the window."""
        start: i64 = bisect_left(self._events, from_seq, key=_seq_of)
        return self._events[start : start + limit]

    # For the broker

    def capture(self) -> None:
        """Keep the records that are about to be written."""
        if self._listeners:
            self._capture_log(self._journal.records)

    def on_durable(self) -> None:
        """Decode events up to the journal's durable record."""
        if self._listeners and self._journal.durable_seq != self._announced_seq:
            self._announced_seq = self._journal.durable_seq
            self._schedule_decode()

    def _capture_log(self, log: RecordBuffer) -> None:
        if not log.count:
            return
        size = log.size()
        if self._undecoded_bytes + size > _MAX_UNDECODED_BYTES:
            self._restart_at(log.next_seq)  # too much to keep: listeners read it from disk
            return
        self._frames.append(
            _UndecodedFrame(log.out.getvalue(), log.next_seq - log.count, log.next_seq - 1)
        )
        self._undecoded_bytes += size

    def _restart_at(self, seq: i64) -> None:
        self.first_seq = seq
        self.end_seq = seq
        self._frames.clear()
        self._undecoded_bytes = 0
        self._events = []
        self._event_bytes = 0

    def _schedule_decode(self) -> None:
        if not self._decode_scheduled:
            self._decode_scheduled = True
            self._scheduler.call_soon(self._decode_some)

    def _decode_some(self) -> None:
        """Decode some records, call the listeners, and leave the remainder for the next round of
        the loop.
        """
        self._decode_scheduled = False
        left: i64 = _RECORDS_PER_STEP
        while left > 0 and self._is_next_frame_durable():
            left = self._decode_frame(self._frames[0], left)
        self._trim_window()
        if self._is_next_frame_durable():
            self._schedule_decode()
        for call in list(self._listeners.values()):
            call()

    def _is_next_frame_durable(self) -> bool:
        return bool(self._frames) and self._frames[0].last_seq <= self._journal.durable_seq

    def _decode_frame(self, frame: _UndecodedFrame, budget: i64) -> i64:
        body = frame.body
        while budget > 0 and frame.next_seq <= frame.last_seq:
            at = frame.offset
            if kind_at(body, at) < FIRST_SNAPSHOT:
                record = self._decoder.read(body, at, 0)
                record.seq = frame.next_seq
                self._events.append(FeedEvent(frame.next_seq, record))
                self._event_bytes += _record_bytes(record)
            frame.offset = at + record_size_at(body, at)
            frame.next_seq += 1
            budget -= 1
        self.end_seq = frame.next_seq
        if frame.next_seq > frame.last_seq:
            self._frames.popleft()
            self._undecoded_bytes -= len(body)
        return budget

    def _trim_window(self) -> None:
        """Drop the oldest events, so that the window stays within its bounds."""
        events = self._events
        gone: i64 = 0
        while len(events) - gone > _MAX_EVENTS or self._event_bytes > _MAX_EVENT_BYTES:
            self._event_bytes -= _record_bytes(events[gone].record)
            gone += 1
        if gone:
            self.first_seq = events[gone - 1].seq + 1
            del events[:gone]


def _record_bytes(record: Record) -> i64:
    return record.size - record.blob_size


def _seq_of(event: FeedEvent) -> int:
    return event.seq
