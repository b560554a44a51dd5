"""GET /api/v1/events: what happens, as server-sent events that a client can resume.

A client is given durable records only, in order, each with the id `timeline:seq`. It is sent no
more than it reads: what it has not read yet stays in the journal, from where old records come in
portions, one client at a time. User documentation: docs/events.md.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from taskyard.access.principal import INSPECT, Allow, Principal, by_its_rules
from taskyard.broker.broker import Broker
from taskyard.broker.feed import Event
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.engine.records.describe import told
from taskyard.engine.records.job_lifecycle import Record
from taskyard.journal.portion import Place, Portion
from taskyard.protocols.http.guard import refusal
from taskyard.protocols.http.messages import Exchange, Response, Route, Stream
from taskyard.protocols.http.monitoring.event_filter import (
    Asked,
    BadRequest,
    Filter,
    asked_for,
    happened_in,
    leave_out_personal,
    queues_of,
)

CONTENT_TYPE: Final = "text/event-stream"
PROBLEM: Final = "application/problem+json"
KEEP_ALIVE: Final = 15_000_000  # microseconds between signs of life
MOST_LISTENERS: Final = 100
RETRY: Final = b"retry: 1000\n\n"  # milliseconds that a client waits before it connects again

_AT_ONCE: Final = 64  # events for one client before others have their turn
_PORTION: Final = 500  # old events in one go

_encode: Final = msgspec.json.Encoder().encode


class Events:
    """What all listeners share."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        most_listeners: int = MOST_LISTENERS,
        allow: Allow = by_its_rules,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.timeline = broker.journal.timeline.hex()
        self.salt = broker.engine.salt
        self._most = most_listeners
        self._allow = allow
        self._listeners: dict[int, Listener] = {}
        self._reading = False  # a portion is being read
        self._line: deque[Listener] = deque()  # those who want one
        self._alarm: Cancellable | None = None

    def routes(self) -> list[Route]:
        return [Route("GET", "/api/v1/events", self.open)]

    def open(self, exchange: Exchange) -> None:
        request = exchange.request
        refused = refusal(self._allow, request.principal, INSPECT, queues_of(request))
        if refused is not None:
            exchange.reply(refused)
            return
        try:
            asked = asked_for(request, self.timeline, self.broker.journal.durable_seq)
        except BadRequest as error:
            exchange.reply(problem(400, "The events cannot be given.", str(error)))
            return
        if len(self._listeners) >= self._most:
            detail = f"{self._most} clients listen already; come back later"
            exchange.reply(problem(503, "Too many listeners.", detail))
            return
        Listener(self, asked, request.principal, queues_of(request)).start(exchange)

    def rules_changed(self) -> None:
        """Who may no longer hear of what they listen to hears nothing more."""
        for listener in list(self._listeners.values()):
            refused = refusal(self._allow, listener.principal, INSPECT, listener.queues)
            if refused is not None:
                listener.end()

    def close(self) -> None:
        """The server stops: all clients may connect to its successor."""
        for listener in list(self._listeners.values()):
            listener.end()

    # For the listeners

    def add(self, listener: Listener) -> int:
        number = self.broker.feed.listen(listener.go_on)
        self._listeners[number] = listener
        if self._alarm is None:
            self._set_alarm()
        return number

    def remove(self, number: int) -> None:
        self.broker.feed.stop(number)
        self._listeners.pop(number, None)
        if not self._listeners and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def text_of(self, event: Event, principal: Principal) -> bytes:
        """How this client sees it; most see the same, which is made once."""
        record = event.record
        if not principal.free and is_foreign(principal.may, record):
            return show(self.timeline, self.salt, record, foreign=True)
        if not event.text:
            event.text = show(self.timeline, self.salt, record)
        return event.text

    def read(self, listener: Listener) -> None:
        """Have old records read for this one, when it is its turn."""
        self._line.append(listener)
        self._read_next()

    def _read_next(self) -> None:
        while self._line and not self._reading:
            work = self._line.popleft().portion()
            if work is not None:
                self._reading = True
                self.scheduler.run_blocking(work.run, work.done)

    def has_read(self) -> None:
        self._reading = False
        self._read_next()

    # Keeping alive

    def _set_alarm(self) -> None:
        when = self.broker.clock.now() + KEEP_ALIVE
        self._alarm = self.scheduler.call_at(when, self._ring)

    def _ring(self) -> None:
        for listener in list(self._listeners.values()):
            listener.keep_alive()
        self._set_alarm()


class Listener:
    """One client, and how far it is."""

    def __init__(
        self, events: Events, asked: Asked, principal: Principal, queues: list[str]
    ) -> None:
        self.principal = principal
        self.queues = queues  # [""]: all
        self.next_seq = asked.next_seq
        self.wanted = asked.filter
        self._events = events
        self._stranger = asked.other_timeline
        self._last_seq = asked.last_seq
        self._stream: Stream | None = None
        self._number = 0
        self._waits = False  # for a portion
        self._place: Place | None = None  # where the last one has ended

    def start(self, exchange: Exchange) -> None:
        self._stream = exchange.stream(CONTENT_TYPE, on_room=self.go_on, on_close=self.gone)
        self._number = self._events.add(self)
        self._stream.send(RETRY)
        journal = self._events.broker.journal
        first = journal.first_seq_of(journal.first)
        if self._stranger:
            self.next_seq = first
            self._tell_of_other_timeline()
        elif not self.next_seq:
            self.next_seq = first
        self.go_on()

    def gone(self) -> None:
        if self._stream is not None:
            self._stream = None
            self._events.remove(self._number)

    def end(self) -> None:
        stream = self._stream
        if stream is not None:
            self.gone()
            stream.close()

    def keep_alive(self) -> None:
        """Say how far it is, also if nothing of that was for this client."""
        stream = self._stream
        if stream is not None and stream.has_room():
            stream.send(f":\nid: {self._events.timeline}:{self.next_seq - 1}\n\n".encode())

    def go_on(self) -> None:
        """Send what there is, as far as the client reads it."""
        stream = self._stream
        if stream is None or self._waits or not stream.has_room():
            return
        if self._is_over():
            self._tell_of_end()
            return
        feed = self._events.broker.feed
        if self.next_seq > self._events.broker.journal.durable_seq:
            return
        if not feed.has(self.next_seq):
            self._waits = True
            self._events.read(self)
            return
        if self.next_seq >= feed.next:
            return  # not decoded yet
        found = feed.events(self.next_seq, _AT_ONCE)
        end = found[-1].seq + 1 if len(found) == _AT_ONCE else feed.next
        if end > self._last_seq:
            end = self._last_seq + 1
            found = [event for event in found if event.seq < end]
        self.next_seq = end
        wanted = self.wanted
        text_of, principal = self._events.text_of, self.principal
        texts = [text_of(event, principal) for event in found if wanted.takes(event.record)]
        if texts:
            stream.send(b"".join(texts))
        if self.next_seq < feed.next or self._is_over():
            self._events.scheduler.call_soon(self.go_on)

    def _is_over(self) -> bool:
        """Whether all was sent that it has asked for."""
        return self.next_seq > self._last_seq

    # Old records

    def portion(self) -> _Reading | None:
        """What to read now; None if nothing is wanted any more."""
        if self._stream is None:
            self._waits = False
            return None
        journal = self._events.broker.journal
        missed = journal.missed(self.next_seq)
        if missed:
            self._tell_of_loss(self.next_seq + missed)
        upto = min(journal.durable_seq, self._last_seq)
        work = Portion(journal.directory, self.next_seq, upto, _PORTION, self._place)
        return _Reading(self._events, self, work)

    def has_read(self, work: Portion, text: bytes, error: BaseException | None) -> None:
        self._waits = False
        stream = self._stream
        if stream is None:
            return
        if work.damage or error is not None:
            detail = work.damage or f"the journal cannot be read: {error}"
            stream.send(self._show("error", {"detail": detail}, self.next_seq - 1))
            self.end()
            return
        self.next_seq = work.next_seq
        self._place = work.place
        if text:
            stream.send(text)
        self.go_on()

    # What is no record

    def _tell_of_loss(self, first: int) -> None:
        """Records that it wants are not there any more."""
        lost: dict[str, object] = {
            "wanted": self.next_seq,
            "first": first,
            "missed": first - self.next_seq,
        }
        self.next_seq = first
        self._place = None
        if self._stream is not None:
            self._stream.send(self._show("left_behind", lost, first - 1))

    def _tell_of_other_timeline(self) -> None:
        """Its last event is of a journal that was repaired or restored since."""
        change: dict[str, object] = {"was": self._stranger, "first": self.next_seq}
        if self._stream is not None:
            self._stream.send(self._show("timeline", change, self.next_seq - 1))

    def _tell_of_end(self) -> None:
        """Without it, a stream that was cut off would look the same."""
        seq = self.next_seq - 1
        if self._stream is not None:
            self._stream.send(self._show("end", {"seq": seq}, seq))
        self.end()

    def _show(self, kind: str, data: dict[str, object], seq: int) -> bytes:
        return _block(self._events.timeline, seq, kind, json.dumps(data).encode())


class _Reading:
    """A portion for a listener: read, and made into text, off the loop."""

    def __init__(self, events: Events, listener: Listener, work: Portion) -> None:
        self._events = events
        self._listener = listener
        self._principal = listener.principal
        self._wanted: Filter = listener.wanted
        self._work = work
        self._text = b""

    def run(self) -> None:
        self._work.run()
        timeline, salt = self._events.timeline, self._events.salt
        records = [record for record in self._work.records if self._wanted.takes(record)]
        who = self._principal
        self._text = b"".join(
            [show(timeline, salt, record, is_foreign(who.grants, record)) for record in records]
        )

    def done(self, error: BaseException | None) -> None:
        self._listener.has_read(self._work, self._text, error)
        self._events.has_read()


def is_foreign(may: Callable[[str, str], bool], record: Record) -> bool:
    """Whether it happened in a queue that the client may not inspect. It is shown all the same if
    the job came from there to one that the client may."""
    queues = happened_in(record)
    return bool(queues) and not any(
        may(INSPECT, queue.decode(errors="replace")) for queue in queues
    )


def show(timeline: str, salt: bytes, record: Record, foreign: bool = False) -> bytes:
    """A record as an event, in the words of `taskyard journal dump`, without its payload."""
    found = told(salt, record)
    if foreign:
        leave_out_personal(found)
    return _block(timeline, record.seq, str(found["event"]), _encode(found))


def _block(timeline: str, seq: int, kind: str, data: bytes) -> bytes:
    return b"id: %b:%d\nevent: %b\ndata: %b\n\n" % (timeline.encode(), seq, kind.encode(), data)


def problem(status: int, title: str, detail: str) -> Response:
    problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return Response(status, json.dumps(problem).encode(), PROBLEM)
