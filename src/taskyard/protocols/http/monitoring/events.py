"""GET /api/v1/events: what happens, as server-sent events that a client can resume.

A client is given durable records only, in order, each with the id `timeline:seq`. It is sent no
more than it reads: what it has not read yet stays in the journal, from where old records come in
chunks, one client at a time. User documentation: docs/events.md.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from taskyard.access.principal import INSPECT, Allow, Principal, check_rules
from taskyard.broker.commit import Broker
from taskyard.broker.feed import FeedEvent
from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.engine.model.job import FOREVER
from taskyard.engine.records.describe import describe_masked
from taskyard.engine.records.entities import BatchRecord
from taskyard.engine.records.job_changes import FailRecord, MoveRecord
from taskyard.engine.records.job_lifecycle import EVENT_NAMES, FIRST_SNAPSHOT, Record
from taskyard.journal.reader import ChunkPosition, JournalChunk
from taskyard.protocols.http.auth import permission_refusal
from taskyard.protocols.http.wire import Exchange, Request, Response, Route, Stream
from taskyard.shared.misspelt import suggestion

PARAMETERS: Final = ("after", "event", "queue", "until")
_MOST_DIGITS: Final = 20  # of a number of an event
_NOW: Final = "now"
KINDS: Final = {name: kind for kind, name in EVENT_NAMES.items() if kind < FIRST_SNAPSHOT}

# What an event leaves out for clients that may not inspect the queue in which it happened.
PERSONAL_FIELDS: Final = (
    "user",
    "holder",
    "owner",
    "consumer",
    "error",
    "error_line",
    "error_size",
    "message",
)

CONTENT_TYPE: Final = "text/event-stream"
PROBLEM: Final = "application/problem+json"
KEEP_ALIVE: Final = 15_000_000  # microseconds between signs of life
MAX_LISTENERS: Final = 100
RETRY: Final = b"retry: 1000\n\n"  # milliseconds that a client waits before it connects again

_EVENTS_PER_TURN: Final = 64  # events for one client before others have their turn
_CHUNK_RECORDS: Final = 500  # old events in one go

_encode: Final = msgspec.json.Encoder().encode


class Events:
    """What all listeners share."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        max_listeners: int = MAX_LISTENERS,
        allow: Allow = check_rules,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.timeline = broker.journal.timeline.hex()
        self.salt = broker.engine.salt
        self._max_listeners = max_listeners
        self._allow = allow
        self._listeners: dict[int, EventListener] = {}
        self._is_reading = False  # a chunk is being read
        self._waiting_for_chunk: deque[EventListener] = deque()  # those that need one
        self._keep_alive_timer: Cancellable | None = None

    def routes(self) -> list[Route]:
        return [Route("GET", "/api/v1/events", self.open)]

    def open(self, exchange: Exchange) -> None:
        request = exchange.request
        refused = permission_refusal(
            self._allow, request.principal, INSPECT, requested_queues(request)
        )
        if refused is not None:
            exchange.reply(refused)
            return
        try:
            query = parse_event_query(request, self.timeline, self.broker.journal.durable_seq)
        except InvalidEventQuery as error:
            exchange.reply(titled_problem(400, "The events cannot be given.", str(error)))
            return
        if len(self._listeners) >= self._max_listeners:
            detail = f"{self._max_listeners} clients listen already; come back later"
            exchange.reply(titled_problem(503, "Too many listeners.", detail))
            return
        EventListener(self, query, request.principal, requested_queues(request)).start(exchange)

    def rules_changed(self) -> None:
        """Close the streams of clients that may no longer see what they listen to."""
        for listener in list(self._listeners.values()):
            refused = permission_refusal(self._allow, listener.principal, INSPECT, listener.queues)
            if refused is not None:
                listener.close()

    def close(self) -> None:
        """The server stops: all clients may connect to its successor."""
        for listener in list(self._listeners.values()):
            listener.close()

    # For the listeners

    def add(self, listener: EventListener) -> int:
        number = self.broker.feed.subscribe(listener.send_events)
        self._listeners[number] = listener
        if self._keep_alive_timer is None:
            self._schedule_keep_alive()
        return number

    def remove(self, number: int) -> None:
        self.broker.feed.unsubscribe(number)
        self._listeners.pop(number, None)
        if not self._listeners and self._keep_alive_timer is not None:
            self._keep_alive_timer.cancel()
            self._keep_alive_timer = None

    def text_of(self, event: FeedEvent, principal: Principal) -> bytes:
        """How this client sees it; most see the same, which is made once."""
        record = event.record
        if not principal.is_superuser and is_hidden(principal.may, record):
            return encode_event(self.timeline, self.salt, record, hidden=True)
        if not event.rendered:
            event.rendered = encode_event(self.timeline, self.salt, record)
        return event.rendered

    def read_chunk(self, listener: EventListener) -> None:
        """Queue a read of old records for this listener."""
        self._waiting_for_chunk.append(listener)
        self._read_next()

    def _read_next(self) -> None:
        while self._waiting_for_chunk and not self._is_reading:
            work = self._waiting_for_chunk.popleft().next_chunk()
            if work is not None:
                self._is_reading = True
                self.scheduler.run_blocking(work.run, work.done)

    def on_read_done(self) -> None:
        self._is_reading = False
        self._read_next()

    # Keeping alive

    def _schedule_keep_alive(self) -> None:
        when = self.broker.clock.now() + KEEP_ALIVE
        self._keep_alive_timer = self.scheduler.call_at(when, self._send_keep_alives)

    def _send_keep_alives(self) -> None:
        for listener in list(self._listeners.values()):
            listener.send_keep_alive()
        self._schedule_keep_alive()


class EventListener:
    """One client, and how far it is."""

    def __init__(
        self, events: Events, query: EventQuery, principal: Principal, queues: list[str]
    ) -> None:
        self.principal = principal
        self.queues = queues  # [""]: all
        self.next_seq = query.next_seq
        self.filter = query.filter
        self._events = events
        self._other_timeline = query.other_timeline
        self._last_seq = query.last_seq
        self._stream: Stream | None = None
        self._number = 0
        self._awaits_chunk = False  # for a chunk
        self._position: ChunkPosition | None = None  # where the last one has ended

    def start(self, exchange: Exchange) -> None:
        self._stream = exchange.stream(
            CONTENT_TYPE, on_writable=self.send_events, on_close=self.on_close
        )
        self._number = self._events.add(self)
        self._stream.send(RETRY)
        journal = self._events.broker.journal
        first = journal.first_seq_of(journal.first_base)
        if self._other_timeline:
            self.next_seq = first
            self._send_timeline_change()
        elif not self.next_seq:
            self.next_seq = first
        self.send_events()

    def on_close(self) -> None:
        if self._stream is not None:
            self._stream = None
            self._events.remove(self._number)

    def close(self) -> None:
        stream = self._stream
        if stream is not None:
            self.on_close()
            stream.close()

    def send_keep_alive(self) -> None:
        """Say how far it is, also if nothing of that was for this client."""
        stream = self._stream
        if stream is not None and stream.accepts_more():
            stream.send(f":\nid: {self._events.timeline}:{self.next_seq - 1}\n\n".encode())

    def send_events(self) -> None:
        """Send the events there are, as far as the client reads them."""
        stream = self._stream
        if stream is None or self._awaits_chunk or not stream.accepts_more():
            return
        if self._is_over():
            self._send_end()
            return
        feed = self._events.broker.feed
        if self.next_seq > self._events.broker.journal.durable_seq:
            return
        if not feed.covers(self.next_seq):
            self._awaits_chunk = True
            self._events.read_chunk(self)
            return
        if self.next_seq >= feed.end_seq:
            return  # not decoded yet
        found = feed.events_from(self.next_seq, _EVENTS_PER_TURN)
        end = found[-1].seq + 1 if len(found) == _EVENTS_PER_TURN else feed.end_seq
        if end > self._last_seq:
            end = self._last_seq + 1
            found = [event for event in found if event.seq < end]
        self.next_seq = end
        wanted = self.filter
        text_of, principal = self._events.text_of, self.principal
        texts = [text_of(event, principal) for event in found if wanted.matches(event.record)]
        if texts:
            stream.send(b"".join(texts))
        if self.next_seq < feed.end_seq or self._is_over():
            self._events.scheduler.call_soon(self.send_events)

    def _is_over(self) -> bool:
        """Whether everything was sent that it has requested."""
        return self.next_seq > self._last_seq

    # Old records

    def next_chunk(self) -> _EventChunk | None:
        """Return what to read now; None if nothing is needed any more."""
        if self._stream is None:
            self._awaits_chunk = False
            return None
        journal = self._events.broker.journal
        missed = journal.missed_records(self.next_seq)
        if missed:
            self._send_loss(self.next_seq + missed)
        upto = min(journal.durable_seq, self._last_seq)
        work = JournalChunk(journal.directory, self.next_seq, upto, _CHUNK_RECORDS, self._position)
        return _EventChunk(self._events, self, work)

    def on_chunk_read(self, work: JournalChunk, text: bytes, error: BaseException | None) -> None:
        self._awaits_chunk = False
        stream = self._stream
        if stream is None:
            return
        if work.damage or error is not None:
            detail = work.damage or f"the journal cannot be read: {error}"
            stream.send(self._encode("error", {"detail": detail}, self.next_seq - 1))
            self.close()
            return
        self.next_seq = work.next_seq
        self._position = work.position
        if text:
            stream.send(text)
        self.send_events()

    # What is no record

    def _send_loss(self, first: int) -> None:
        """Report that records which it requested were removed."""
        lost: dict[str, object] = {
            "wanted": self.next_seq,
            "first": first,
            "missed": first - self.next_seq,
        }
        self.next_seq = first
        self._position = None
        if self._stream is not None:
            self._stream.send(self._encode("left_behind", lost, first - 1))

    def _send_timeline_change(self) -> None:
        """Its last event is of a journal that was repaired or restored since."""
        change: dict[str, object] = {"was": self._other_timeline, "first": self.next_seq}
        if self._stream is not None:
            self._stream.send(self._encode("timeline", change, self.next_seq - 1))

    def _send_end(self) -> None:
        """Send the end; without it, a stream that was cut off would look the same."""
        seq = self.next_seq - 1
        if self._stream is not None:
            self._stream.send(self._encode("end", {"seq": seq}, seq))
        self.close()

    def _encode(self, kind: str, data: dict[str, object], seq: int) -> bytes:
        return _encode_block(self._events.timeline, seq, kind, json.dumps(data).encode())


class _EventChunk:
    """A chunk of records for a listener: read, and encoded, off the loop."""

    def __init__(self, events: Events, listener: EventListener, work: JournalChunk) -> None:
        self._events = events
        self._listener = listener
        self._principal = listener.principal
        self._wanted: EventFilter = listener.filter
        self._work = work
        self._text = b""

    def run(self) -> None:
        self._work.run()
        timeline, salt = self._events.timeline, self._events.salt
        records = [record for record in self._work.records if self._wanted.matches(record)]
        who = self._principal
        self._text = b"".join(
            [
                encode_event(timeline, salt, record, is_hidden(who.grants_uncached, record))
                for record in records
            ]
        )

    def done(self, error: BaseException | None) -> None:
        self._listener.on_chunk_read(self._work, self._text, error)
        self._events.on_read_done()


def is_hidden(may: Callable[[str, str], bool], record: Record) -> bool:
    """Whether it happened in a queue that the client may not inspect.

    It is shown all the same if the job came from there to a queue that the client may.
    """
    queues = origin_queues(record)
    return bool(queues) and not any(
        may(INSPECT, queue.decode(errors="replace")) for queue in queues
    )


def encode_event(timeline: str, salt: bytes, record: Record, hidden: bool = False) -> bytes:
    """A record as an event, in the words of `taskyard journal dump`, without its payload."""
    found = describe_masked(salt, record)
    if hidden:
        remove_personal_fields(found)
    return _encode_block(timeline, record.seq, str(found["event"]), _encode(found))


def _encode_block(timeline: str, seq: int, kind: str, data: bytes) -> bytes:
    return b"id: %b:%d\nevent: %b\ndata: %b\n\n" % (timeline.encode(), seq, kind.encode(), data)


def titled_problem(status: int, title: str, detail: str) -> Response:
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return Response(status, json.dumps(problem).encode(), PROBLEM)


# Which events a client requests: from where on, until where, of which queues, of which kinds


class InvalidEventQuery(Exception):
    """The request cannot be understood; the text says why."""


class EventFilter:
    """None: all of them."""

    def __init__(self, queues: frozenset[bytes] | None, kinds: frozenset[int] | None) -> None:
        self._queues = queues
        self._kinds = kinds

    def matches(self, record: Record) -> bool:
        if self._kinds is not None and record.kind() not in self._kinds:
            return False
        return self._queues is None or not self._queues.isdisjoint(_concerned_queues(record))


@dataclass(frozen=True, slots=True)
class EventQuery:
    next_seq: int  # 0: from the first record that is there
    filter: EventFilter
    other_timeline: str = ""  # the one that the client was on, if it is not this one
    last_seq: int = FOREVER


def parse_event_query(request: Request, timeline: str, durable_seq: int) -> EventQuery:
    query = request.query
    for name in query:
        if name not in PARAMETERS:
            there_are = ", ".join(PARAMETERS)
            question = suggestion(name, PARAMETERS)
            raise InvalidEventQuery(
                f"there is no parameter {name} here{question} There are {there_are}"
            )
    wanted = EventFilter(
        _parse_queues(query.get("queue", "")), _parse_kinds(query.get("event", ""))
    )
    last = _parse_until(query.get("until", ""), durable_seq)
    # The header is of a client that connects again, to the address that it had before.
    place = request.headers.get("last-event-id", "") or query.get("after", "")
    if not place:
        return EventQuery(durable_seq + 1, wanted, last_seq=last)
    named, colon, number = place.rpartition(":")
    if not _is_number(number):
        raise InvalidEventQuery(
            f"{place!r} is no id of an event: it would be timeline:seq, or a number"
        )
    if colon and named != timeline:
        return EventQuery(0, wanted, named, last)
    seq = int(number)
    if seq > durable_seq:
        raise InvalidEventQuery(f"there is no event {seq} yet: the last one is {durable_seq}")
    return EventQuery(seq + 1 if seq else 0, wanted, last_seq=last)


def _parse_until(text: str, durable_seq: int) -> int:
    if not text:
        return FOREVER
    if text == _NOW:
        return durable_seq
    if not _is_number(text):
        raise InvalidEventQuery(f"until is {text!r}: it would be the number of an event, or {_NOW}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def requested_queues(request: Request) -> list[str]:
    """The queues whose events a client asks for; [""]: all."""
    return [name for name in request.query.get("queue", "").split(",") if name] or [""]


def _parse_queues(text: str) -> frozenset[bytes] | None:
    names = [name.encode() for name in text.split(",") if name]
    return frozenset(names) if names else None


def _parse_kinds(text: str) -> frozenset[int] | None:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in KINDS:
            raise InvalidEventQuery(f"there is no event {name!r}; there are {', '.join(KINDS)}")
    return frozenset(KINDS[name] for name in names) if names else None


# Which queues an event is about, and what it leaves out


def origin_queues(record: Record) -> list[bytes]:
    """The queues in which the jobs of a record were when it happened; []: it is of none."""
    if isinstance(record, BatchRecord):
        return record.queues
    name = getattr(record, "queue", None)
    return [name] if isinstance(name, bytes) else []


def remove_personal_fields(found: dict[str, Any]) -> None:
    """Remove its error from an event, and the names of users and holders."""
    for name in PERSONAL_FIELDS:
        found.pop(name, None)


def _concerned_queues(record: Record) -> list[bytes]:
    """Those that a record concerns."""
    if isinstance(record, BatchRecord):
        return record.queues
    name = getattr(record, "queue", None)
    if not isinstance(name, bytes):
        return []
    if isinstance(record, MoveRecord):
        return [name, record.to]
    if isinstance(record, FailRecord) and record.dead_queue:
        return [name, record.dead_queue.encode()]
    return [name]
