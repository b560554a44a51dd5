"""GET /api/v1/live: figures of the server and its queues once a second, as server-sent events.

Only the newest sample counts: a client that reads too slowly gets fewer of them. Nothing is kept
for a client but its query. Like /metrics it does not wait for the disk: it promises nothing, and is
needed most when the disk hangs. User documentation: docs/events.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import msgspec

from taskyard.access.principal import ANONYMOUS, INSPECT, Allow, Denied, Principal, check_rules
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.queue import Queue
from taskyard.protocols.http.api.problems import ApiProblem, unknown_parameter
from taskyard.protocols.http.call import QueryParameter
from taskyard.protocols.http.guard import problem_of_denial
from taskyard.protocols.http.messages import Exchange, Request, Route, Stream
from taskyard.protocols.http.monitoring.events import CONTENT_TYPE, RETRY, titled_problem
from taskyard.protocols.http.monitoring.live_head import ServerSummary, SummarySources
from taskyard.protocols.http.monitoring.live_rows import ORDERS, QueueRow, Ranking, queue_row_view
from taskyard.protocols.http.monitoring.watch import StatsSample, StatsSampler

PATH: Final = "/api/v1/live"
MAX_LISTENERS: Final = 100
_RANKINGS_PER_CHUNK: Final = 4  # that many of them cost about as much as the sample itself

PARAMETERS: Final = (
    QueryParameter(
        name="sort", doc="which queues come first", values=tuple(ORDERS), default="ready"
    ),
    QueryParameter(name="limit", doc="how many queues at most", least=1, most=200, default=50),
    QueryParameter(
        name="offset", doc="how many to leave out first", least=0, most=1_000_000, default=0
    ),
    QueryParameter(name="match", doc="only queues with this text in their names"),
    QueryParameter(name="queue", doc="a queue to tell more of", of_queue=True),
)

_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class LiveQuery:
    """Clients with the same query share the work."""

    sort: str
    offset: int
    limit: int
    match: str
    principal: Principal | None  # None: a client that may see everything


class LiveStream:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        sampler: StatsSampler,
        sources: SummarySources,
        *,
        max_listeners: int = MAX_LISTENERS,
        allow: Allow = check_rules,
    ) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._scheduler = scheduler
        self._sampler = sampler
        self._summary = ServerSummary(broker, scheduler, sources)
        self._max_listeners = max_listeners
        self._allow = allow
        self._listeners: list[LiveListener] = []
        self._rankings: dict[LiveQuery, Ranking] = {}
        self._rows: dict[Queue, QueueRow] = {}
        self._next_rows: dict[Queue, QueueRow] = {}  # of the sample that is being taken
        self._sampled_at = 0  # when the last one ended
        self._sample: StatsSample | None = None  # of the sample that is being sent
        self._encoded_heads: tuple[bytes, bytes] = (b"", b"")  # its head: whole, and hidden
        self._unsent_queries: deque[LiveQuery] = deque()  # that still have to get the sample

    def routes(self) -> list[Route]:
        return [Route("GET", PATH, self.open)]

    def count(self) -> int:
        return len(self._listeners)

    def open(self, exchange: Exchange) -> None:
        principal = exchange.request.principal
        try:
            query, queue = self._parse_query(exchange.request)
        except ApiProblem as refused:
            exchange.reply(refused.response(0))
            return
        except Denied as denied:
            exchange.reply(problem_of_denial(denied, principal).response(0))
            return
        if len(self._listeners) >= self._max_listeners:
            detail = f"{self._max_listeners} clients listen already; come back later"
            exchange.reply(titled_problem(503, "Too many listeners.", detail))
            return
        self._add(LiveListener(self, query, principal, queue), exchange)

    def _parse_query(self, request: Request) -> tuple[LiveQuery, str]:
        principal = request.principal
        principal.check_permission_on_any_queue(INSPECT)
        known = {parameter.name: parameter for parameter in PARAMETERS}
        for name in request.query:
            if name not in known:
                raise unknown_parameter(name, known)
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
        return LiveQuery(sort, offset, limit, match, None if sees_all else principal), queue

    # Listeners

    def _add(self, listener: LiveListener, exchange: Exchange) -> None:
        listener.start(exchange)
        first = not self._listeners
        self._listeners.append(listener)
        self._update_rankings()
        if first:
            self._sampler.set_observer(self)
        else:
            self._sampler.sample_soon()

    def remove(self, listener: LiveListener) -> None:
        self._listeners.remove(listener)
        self._update_rankings()
        if not self._listeners:
            self._sampler.set_observer(None)
            self._summary.clear_lags()
            self._rows = {}
            self._next_rows = {}
            self._sampled_at = 0
            self._unsent_queries.clear()

    def _update_rankings(self) -> None:
        wanted = {listener.query for listener in self._listeners}
        self._rankings = {
            query: self._rankings.get(query)
            or Ranking(query.sort, query.offset, query.limit, query.match, query.principal)
            for query in wanted
        }
        self._sampler.set_chunk_divisor(1 + len(wanted) // _RANKINGS_PER_CHUNK)

    def rules_changed(self) -> None:
        """Close the streams of clients that may see more or less now; they connect again."""
        for listener in list(self._listeners):
            if listener.principal is not ANONYMOUS:
                listener.close()

    def close(self) -> None:
        """The server stops: all clients may connect to its successor."""
        for listener in list(self._listeners):
            listener.close()

    # As the watcher

    def on_sample_start(self) -> None:
        self._next_rows = {}
        for ranking in self._rankings.values():
            ranking.start()

    def on_queues(self, queues: list[Queue], now: int) -> None:
        known, seen, rest = self._rows, self._next_rows, self._engine.statistics.shared_times
        rows: list[QueueRow] = []
        for queue in queues:
            row = known.get(queue)
            if row is None:
                row = QueueRow(queue, self._sampled_at)
            row.update(now, rest)
            seen[queue] = row
            rows.append(row)
        for ranking in self._rankings.values():
            ranking.add_rows(rows)

    def on_sample_end(self, sample: StatsSample) -> None:
        self._rows = self._next_rows
        self._sampled_at = sample.at
        self._sample = sample
        whole = self._summary.view(sample, self._sampler.before)
        self._encoded_heads = (_encode(whole), _encode(self._summary.hidden_view(sample)))
        idle = not self._unsent_queries
        self._unsent_queries = deque(self._rankings)
        if idle:
            self._send_next()

    def _send_next(self) -> None:
        """Send to the clients of one query; others have their turn later."""
        if not self._unsent_queries or self._sample is None:
            return
        query = self._unsent_queries.popleft()
        ranking = self._rankings.get(query)
        if ranking is not None and ranking.is_complete:
            now = self._sample.at
            head = self._encoded_heads[0 if query.principal is None else 1]
            body = b'%b,"queues":%b' % (head[:-1], _encode(ranking.view(self._engine, now)))
            for listener in [each for each in self._listeners if each.query == query]:
                one = self._encode_queue(listener.queue, now)
                listener.send(b'%b,"queue":%b}' % (body, one), self._engine.state.epoch)
        if self._unsent_queries:
            self._scheduler.call_soon(self._send_next)

    def _encode_queue(self, name: str, now: int) -> bytes:
        queue = self._engine.queue(name.encode()) if name else None
        row = self._rows.get(queue) if queue is not None else None
        return b"null" if row is None else _encode(queue_row_view(self._engine, row, now))


class LiveListener:
    def __init__(
        self, live: LiveStream, query: LiveQuery, principal: Principal, queue: str
    ) -> None:
        self.query = query
        self.principal = principal
        self.queue = queue
        self._live = live
        self._stream: Stream | None = None

    def start(self, exchange: Exchange) -> None:
        self._stream = exchange.stream(
            CONTENT_TYPE, on_writable=self._on_writable, on_close=self._on_close
        )
        self._stream.send(RETRY)

    def send(self, data: bytes, epoch: int) -> None:
        stream = self._stream
        if stream is not None and stream.accepts_more():
            stream.send(b"id: %d\nevent: look\ndata: %b\n\n" % (epoch, data))

    def close(self) -> None:
        stream = self._stream
        if stream is not None:
            self._on_close()
            stream.close()

    def _on_close(self) -> None:
        if self._stream is not None:
            self._stream = None
            self._live.remove(self)

    def _on_writable(self) -> None:
        """It gets the next sample, and none that it has missed."""
