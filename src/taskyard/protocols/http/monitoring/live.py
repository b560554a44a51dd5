"""GET /api/v1/live: figures of the server and its queues once a second, as server-sent events.

A look is a snapshot, and only the newest counts: who reads too slowly is sent fewer of them.
Nothing is kept for a client but what it has asked for. Like /metrics it does not wait for the
disk: it promises nothing, and is wanted most when the disk hangs. User documentation: docs/live.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from taskyard.access.principal import ANONYMOUS, INSPECT, Allow, Denied, Principal, by_its_rules
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.problems import Problem, no_parameter
from taskyard.protocols.http.call import Parameter
from taskyard.protocols.http.guard import problem_of_denial
from taskyard.protocols.http.messages import Exchange, Request, Route, Stream
from taskyard.protocols.http.monitoring.events import CONTENT_TYPE, RETRY, problem
from taskyard.protocols.http.monitoring.live_head import About, Head
from taskyard.protocols.http.monitoring.live_rows import ORDERS, Ranking, Row, queue_of
from taskyard.protocols.http.monitoring.watch import Sample, Watch

PATH: Final = "/api/v1/live"
MOST_LISTENERS: Final = 100
_RANKINGS: Final = 4  # so many of them cost about as much as the look itself

PARAMETERS: Final = (
    Parameter(name="sort", doc="which queues come first", values=tuple(ORDERS), default="ready"),
    Parameter(name="limit", doc="how many queues at most", least=1, most=200, default=50),
    Parameter(name="offset", doc="how many to leave out first", least=0, most=1_000_000, default=0),
    Parameter(name="match", doc="only queues with this text in their names"),
    Parameter(name="queue", doc="a queue to tell more of", of_queue=True),
)

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Asked:
    """Clients that ask for the same share the work."""

    sort: str
    offset: int
    limit: int
    match: str
    principal: Principal | None  # None: one who may see everything


class Live:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        watch: Watch,
        about: About,
        *,
        most_listeners: int = MOST_LISTENERS,
        allow: Allow = by_its_rules,
    ) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._scheduler = scheduler
        self._watch = watch
        self._head = Head(broker, scheduler, about)
        self._most = most_listeners
        self._allow = allow
        self._listeners: list[Listener] = []
        self._rankings: dict[Asked, Ranking] = {}
        self._rows: dict[Queue, Row] = {}
        self._seen: dict[Queue, Row] = {}  # of the look that is under way
        self._looked_at = 0  # when the last one ended
        self._sample: Sample | None = None  # of the look that is being sent
        self._parts: tuple[bytes, bytes] = (b"", b"")  # its head: whole, and hidden
        self._due: deque[Asked] = deque()  # whose part of it is still to be sent

    def routes(self) -> list[Route]:
        return [Route("GET", PATH, self.open)]

    def count(self) -> int:
        return len(self._listeners)

    def open(self, exchange: Exchange) -> None:
        principal = exchange.request.principal
        try:
            asked, queue = self._read(exchange.request)
        except Problem as refused:
            exchange.reply(refused.response(0))
            return
        except Denied as denied:
            exchange.reply(problem_of_denial(denied, principal).response(0))
            return
        if len(self._listeners) >= self._most:
            detail = f"{self._most} clients listen already; come back later"
            exchange.reply(problem(503, "Too many listeners.", detail))
            return
        self._add(Listener(self, asked, principal, queue), exchange)

    def _read(self, request: Request) -> tuple[Asked, str]:
        principal = request.principal
        principal.check_somewhere(INSPECT)
        known = {parameter.name: parameter for parameter in PARAMETERS}
        for name in request.query:
            if name not in known:
                raise no_parameter(name, known)
        found = {name: known[name].read(request.query.get(name)) for name in known}
        queue = str(found["queue"] or "")
        if queue:
            self._allow(principal, INSPECT, queue)
        sort, offset, limit = found["sort"], found["offset"], found["limit"]
        assert isinstance(sort, str)
        assert isinstance(offset, int)
        assert isinstance(limit, int)
        sees_all = principal.may(INSPECT, "")
        match = str(found["match"] or "")
        return Asked(sort, offset, limit, match, None if sees_all else principal), queue

    # Who listens

    def _add(self, listener: Listener, exchange: Exchange) -> None:
        listener.start(exchange)
        first = not self._listeners
        self._listeners.append(listener)
        self._share_work()
        if first:
            self._watch.attend(self)
        else:
            self._watch.hurry()

    def remove(self, listener: Listener) -> None:
        self._listeners.remove(listener)
        self._share_work()
        if not self._listeners:
            self._watch.attend(None)
            self._head.forget()
            self._rows = {}
            self._seen = {}
            self._looked_at = 0
            self._due.clear()

    def _share_work(self) -> None:
        wanted = {listener.asked for listener in self._listeners}
        self._rankings = {
            asked: self._rankings.get(asked)
            or Ranking(asked.sort, asked.offset, asked.limit, asked.match, asked.principal)
            for asked in wanted
        }
        self._watch.divide(1 + len(wanted) // _RANKINGS)

    def rules_changed(self) -> None:
        """Who may see more or less now connects again, and is shown that."""
        for listener in list(self._listeners):
            if listener.principal is not ANONYMOUS:
                listener.end()

    def close(self) -> None:
        """The server stops: all clients may connect to its successor."""
        for listener in list(self._listeners):
            listener.end()

    # As the watcher

    def begin(self) -> None:
        self._seen = {}
        for ranking in self._rankings.values():
            ranking.begin()

    def portion(self, queues: list[Queue], now: int) -> None:
        known, seen, rest = self._rows, self._seen, self._engine.measures.rest
        rows: list[Row] = []
        for queue in queues:
            row = known.get(queue)
            if row is None:
                row = Row(queue, self._looked_at)
            row.update(now, rest)
            seen[queue] = row
            rows.append(row)
        for ranking in self._rankings.values():
            ranking.take(rows)

    def end(self, sample: Sample) -> None:
        self._rows = self._seen
        self._looked_at = sample.at
        self._sample = sample
        whole = self._head.show(sample, self._watch.before)
        self._parts = (_encode(whole), _encode(self._head.hidden(sample)))
        idle = not self._due
        self._due = deque(self._rankings)
        if idle:
            self._send_next()

    def _send_next(self) -> None:
        """To those who asked for the same; others have their turn later."""
        if not self._due or self._sample is None:
            return
        asked = self._due.popleft()
        ranking = self._rankings.get(asked)
        if ranking is not None and ranking.is_whole:
            now = self._sample.at
            head = self._parts[0 if asked.principal is None else 1]
            body = b'%b,"queues":%b' % (head[:-1], _encode(ranking.show(self._engine, now)))
            for listener in [each for each in self._listeners if each.asked == asked]:
                one = self._one(listener.queue, now)
                listener.send(b'%b,"queue":%b}' % (body, one), self._engine.state.epoch)
        if self._due:
            self._scheduler.call_soon(self._send_next)

    def _one(self, name: str, now: int) -> bytes:
        queue = self._engine.queue(name.encode()) if name else None
        row = self._rows.get(queue) if queue is not None else None
        return b"null" if row is None else _encode(queue_of(self._engine, row, now))


class Listener:
    def __init__(self, live: Live, asked: Asked, principal: Principal, queue: str) -> None:
        self.asked = asked
        self.principal = principal
        self.queue = queue
        self._live = live
        self._stream: Stream | None = None

    def start(self, exchange: Exchange) -> None:
        self._stream = exchange.stream(CONTENT_TYPE, on_room=self._has_room, on_close=self._gone)
        self._stream.send(RETRY)

    def send(self, look: bytes, epoch: int) -> None:
        stream = self._stream
        if stream is not None and stream.has_room():
            stream.send(b"id: %d\nevent: look\ndata: %b\n\n" % (epoch, look))

    def end(self) -> None:
        stream = self._stream
        if stream is not None:
            self._gone()
            stream.close()

    def _gone(self) -> None:
        if self._stream is not None:
            self._stream = None
            self._live.remove(self)

    def _has_room(self) -> None:
        """It gets the next look, and none that it has missed."""
