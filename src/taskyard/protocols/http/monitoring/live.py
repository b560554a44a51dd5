"""GET /api/v1/live: figures of the server and its queues once a second, as server-sent events.

Only the newest sample counts: a client that reads too slowly gets fewer of them. Nothing is kept
for a client but its query. Like /metrics it does not wait for the disk: it promises nothing, and is
needed most when the disk hangs. User documentation: docs/events.md.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from taskyard import __version__
from taskyard.access.principal import ANONYMOUS, INSPECT, Allow, Denied, Principal, check_rules
from taskyard.broker import metrics as build
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.facade import Engine
from taskyard.engine.structures.statistics import Histogram, QueueTimes
from taskyard.protocols.http.api.problems import ApiProblem, unknown_parameter
from taskyard.protocols.http.api.queues import counters_of, counts_of, rate_opens_at
from taskyard.protocols.http.api.server import (
    Connections,
    Durability,
    LakeStatus,
    no_lake_status,
    resident_bytes,
)
from taskyard.protocols.http.api.views import moment, seconds
from taskyard.protocols.http.auth import problem_of_denial
from taskyard.protocols.http.call import QueryParameter
from taskyard.protocols.http.monitoring import live_messages as messages
from taskyard.protocols.http.monitoring.events import CONTENT_TYPE, RETRY, titled_problem
from taskyard.protocols.http.monitoring.quantiles import quantiles
from taskyard.protocols.http.monitoring.watch import SECOND, StatsSample, StatsSampler
from taskyard.protocols.http.wire import Exchange, Request, Route, Stream

# The summary of the server in a live sample: made once for all listeners

DiskSpace = Callable[[], tuple[int, int]]  # bytes of the disk that are free, and all of them

_DISK_SPACE_INTERVAL_US: Final = 10 * SECOND
_LAG_SAMPLES: Final = 60  # samples


def unknown_disk_space() -> tuple[int, int]:
    return (0, 0)


def disk_space_of(path: str) -> tuple[int, int]:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySources:
    """Where the summary gets what other parts of the server know."""

    durability: Durability = "sync"
    connections: Connections = dict
    lake: LakeStatus = no_lake_status
    space: DiskSpace = unknown_disk_space


class ServerSummary:
    def __init__(self, broker: Broker, scheduler: Scheduler, sources: SummarySources) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._sources = sources
        self._started = broker.clock.now()
        self._space: tuple[int, int] | None = None
        self._space_read_at = 0  # for it
        self._reading_space = False
        self._lags: deque[list[int]] = deque(maxlen=_LAG_SAMPLES)

    def clear_lags(self) -> None:
        """There was no listener for a while."""
        self._lags.clear()

    def hidden_view(self, sample: StatsSample) -> messages.LiveHead:
        """The summary for clients that may see some queues only."""
        return messages.LiveHead(
            at=moment(sample.at),
            server=None,
            totals=None,
            rates=None,
            wait=None,
            run=None,
            dialects=None,
            journal=None,
            disk=None,
            loop_lag_p99=None,
            memory=None,
            lake=None,
        )

    def view(self, sample: StatsSample, before: StatsSample | None) -> messages.LiveHead:
        self._refresh_space(sample.at)
        lag = self._lag(sample)
        waits: messages.Spread | None = None
        runs: messages.Spread | None = None
        if before is not None:
            times, then = sample.tally.times, before.tally.times
            waits = spread(times.waits, then.waits.buckets)
            runs = spread(times.runs, then.runs.buckets)
        return messages.LiveHead(
            at=moment(sample.at),
            server=self._server(sample.at),
            totals=self._totals(sample),
            rates=rates_of(sample, before) if before is not None else None,
            wait=waits,
            run=runs,
            dialects=self._protocols(sample, before),
            journal=self._journal(sample, before),
            disk=self._disk(),
            loop_lag_p99=lag,
            memory=resident_bytes(),
            lake=self._sources.lake(),
        )

    def _server(self, now: int) -> messages.LiveServer:
        engine = self._broker.engine
        refusing = engine.read_only_reason or engine.journal_space.push_refusal
        if engine.draining and not refusing:
            refusing = "the server is being drained"
        return messages.LiveServer(
            version=__version__,
            form=build.form(),
            started_at=moment(self._started),
            uptime=seconds(now - self._started),
            durability=self._sources.durability,
            accepting=not refusing,
            refusing=refusing or None,
            draining=engine.draining,
            epoch=engine.state.epoch,
            timeline=self._broker.journal.timeline.hex(),
        )

    def _totals(self, sample: StatsSample) -> messages.LiveTotals:
        tally = sample.tally
        return messages.LiveTotals(
            ready=tally.ready,
            delayed=tally.delayed,
            leased=tally.leased,
            blocked=tally.blocked,
            succeeded=tally.done,
            dead=tally.dead,
            limited=tally.limited,
            jobs=self._broker.engine.state.entity_counts()[0],
            queues=tally.queues,
            pushed=tally.pushed,
            leased_total=tally.leases,
            finished=tally.finished,
            failed=tally.failed,
            retried=tally.retried,
            released=tally.released,
            expired=tally.expired,
            removed=tally.removed,
        )

    def _protocols(
        self, sample: StatsSample, before: StatsSample | None
    ) -> list[messages.LiveProtocol]:
        rates = request_rates(sample, before) if before is not None else {}
        return [
            messages.LiveProtocol(
                dialect=protocol, clients=clients, requests_rate=rates.get(protocol)
            )
            for protocol, clients in self._sources.connections().items()
        ]

    def _journal(self, sample: StatsSample, before: StatsSample | None) -> messages.LiveJournal:
        broker = self._broker
        journal = broker.journal
        commits: float | None = None
        written: float | None = None
        flushes: messages.Spread | None = None
        if before is not None:
            elapsed = seconds(sample.at - before.at)
            commits = rate(sample.commits, before.commits, elapsed)
            written = rate(sample.written, before.written, elapsed)
            flushes = spread(broker.metrics.flush_durations, before.flushes, sample.flushes)
        return messages.LiveJournal(
            bytes=journal.end - journal.first_base,
            live_bytes=broker.engine.state.compacted_size(),
            used_bytes=journal.end - journal.replay_start,
            segments=journal.segments,
            durable_seq=journal.durable_seq,
            commits_rate=commits,
            bytes_rate=written,
            flush=flushes,
            readers=len(broker.engine.state.readers),
        )

    def _lag(self, sample: StatsSample) -> float | None:
        """Over the last samples, since the loop's lag is measured once a second."""
        first = self._lags[0] if self._lags else None
        self._lags.append(sample.lag)
        if first is None:
            return None
        found = quantiles(self._broker.metrics.loop_lag, first, sample.lag, (0.99,))
        return found[0] if found else None

    def _disk(self) -> messages.LiveDisk | None:
        if not self._space or not self._space[1]:
            return None
        return messages.LiveDisk(free=self._space[0], total=self._space[1])

    def _refresh_space(self, now: int) -> None:
        """Beside the loop: a disk that hangs does not answer this either."""
        if not self._reading_space and (
            not self._space_read_at or now - self._space_read_at >= _DISK_SPACE_INTERVAL_US
        ):
            self._reading_space = True
            self._space_read_at = now
            self._scheduler.run_blocking(self._read_space, self._on_space_read)

    def _read_space(self) -> None:
        try:
            self._space = self._sources.space()
        except OSError:
            self._space = None

    def _on_space_read(self, error: BaseException | None) -> None:
        self._reading_space = False


def rate(now: int, before: int, elapsed: float) -> float:
    return round(max(0, now - before) / elapsed, 3) if elapsed > 0 else 0.0


def rates_of(sample: StatsSample, before: StatsSample) -> messages.LiveRates:
    now, then = sample.tally, before.tally
    elapsed = seconds(sample.at - before.at)
    return messages.LiveRates(
        pushed=rate(now.pushed, then.pushed, elapsed),
        started=rate(now.leases, then.leases, elapsed),
        finished=rate(now.finished, then.finished, elapsed),
        failed=rate(now.failed + now.retried, then.failed + then.retried, elapsed),
    )


def request_rates(sample: StatsSample, before: StatsSample) -> dict[str, float]:
    elapsed = seconds(sample.at - before.at)
    return {
        protocol: rate(count, before.requests.get(protocol, 0), elapsed)
        for protocol, count in sample.requests.items()
    }


def spread(
    shape: Histogram, before: Sequence[int] | None, now: Sequence[int] | None = None
) -> messages.Spread | None:
    found = quantiles(shape, before, shape.buckets if now is None else now)
    if found is None:
        return None
    return messages.Spread(p50=found[0], p95=found[1], p99=found[2])


# Queues in a live sample: how each has changed since the one before, and which of them to show

# microseconds; samples that are closer than this make no rates
_MIN_RATE_INTERVAL_US: Final = 500_000


class QueueRow:
    """One queue, while there are listeners."""

    __slots__ = (
        "at",
        "dead",
        "done",
        "done_rate",
        "failed",
        "failed_rate",
        "leased",
        "name",
        "pushed",
        "pushed_rate",
        "queue",
        "ready",
        "runs",
        "runs_before",
        "waits",
        "waits_before",
    )

    def __init__(self, queue: Queue, at: int) -> None:
        """`at`: time of the last sample without this queue; 0: not known."""
        self.queue = queue
        self.name = queue.name
        self.at = at
        self.ready = self.leased = self.dead = 0
        self.pushed = self.done = self.failed = 0
        self.pushed_rate = self.done_rate = self.failed_rate = -1.0  # not known yet
        self.waits: list[int] | None = None  # buckets, of a queue that has its own
        self.waits_before: list[int] | None = None
        self.runs: list[int] | None = None
        self.runs_before: list[int] | None = None

    def update(self, now: int, rest: QueueTimes) -> None:
        queue = self.queue
        self.ready = queue.ready.size
        self.leased = queue.leased.size
        self.dead = queue.dead.size
        if now - self.at < _MIN_RATE_INTERVAL_US:
            return
        pushed: int = queue.pushed
        done: int = queue.finished
        failed: int = queue.failed + queue.retried
        if self.at:
            elapsed = (now - self.at) / 1_000_000
            self.pushed_rate = (pushed - self.pushed) / elapsed
            self.done_rate = (done - self.done) / elapsed
            self.failed_rate = (failed - self.failed) / elapsed
        self.pushed, self.done, self.failed = pushed, done, failed
        self.at = now
        times = queue.times
        if times is not None and times is not rest:
            self.waits_before, self.waits = self.waits, _copy(times.waits, self.waits)
            self.runs_before, self.runs = self.runs, _copy(times.runs, self.runs)


def _copy(times: Histogram, last: list[int] | None) -> list[int]:
    """Its buckets now; the last copy if that is the same, as it is for most queues."""
    buckets = times.buckets
    return last if last is not None and last == buckets else list(buckets)


Order = Callable[[QueueRow], tuple[float, str]]

# Most first; queues that have the same are in order of their names.
ORDERS: Final[dict[str, Order]] = {
    "ready": lambda row: (-row.ready, row.name),
    "leased": lambda row: (-row.leased, row.name),
    "done_rate": lambda row: (-row.done_rate, row.name),
    "pushed_rate": lambda row: (-row.pushed_rate, row.name),
    "failed_rate": lambda row: (-row.failed_rate, row.name),
    "dead": lambda row: (-row.dead, row.name),
    "name": lambda row: (0, row.name),
}


class Ranking:
    """The page of queues in one order, collected while all queues go by."""

    def __init__(
        self, sort: str, offset: int, limit: int, match: str, principal: Principal | None
    ) -> None:
        """`principal`: None if it may see all of them."""
        self._order = ORDERS[sort]
        self._offset = offset
        self._limit = limit
        self._match = match.casefold()
        self._principal = principal
        self._best: list[QueueRow] = []
        self._total = 0
        self._previous: list[QueueRow] = []  # those of the sample before
        self.is_complete = False  # False for a ranking that was added in the middle of a sample

    def start(self) -> None:
        self.is_complete = True
        self._best = []
        self._total = 0

    def add_rows(self, rows: list[QueueRow]) -> None:
        if not self.is_complete:
            return
        principal = self._principal
        if self._match:
            rows = [row for row in rows if self._match in row.name.casefold()]
        if principal is not None:
            rows = [row for row in rows if principal.may(INSPECT, row.name)]
        self._total += len(rows)
        best = self._best + rows
        best.sort(key=self._order)
        del best[self._offset + self._limit :]
        self._best = best

    def view(self, engine: Engine, now: int) -> messages.LiveQueues:
        queues = engine.state.queues
        best = self._best[self._offset :]
        last, self._previous = self._previous, best
        return messages.LiveQueues(
            total=self._total,
            shown=[row_view(engine, row, now) for row in best],
            gone=[row.name for row in last if row.queue.utf8 not in queues],
        )


def row_view(engine: Engine, row: QueueRow, now: int) -> messages.LiveRow:
    queue = row.queue
    waiters = engine.waiters.get(queue.utf8)
    return messages.LiveRow(
        name=row.name,
        paused=queue.settings.paused,
        draining=queue.settings.draining,
        ready=queue.ready.size,
        delayed=queue.delayed.size,
        leased=queue.leased.size,
        blocked=queue.blocked.size,
        dead=queue.dead.size,
        limited=queue.limited.size,
        waiting=len(waiters) if waiters is not None else 0,
        pushed_rate=_round_rate(row.pushed_rate),
        done_rate=_round_rate(row.done_rate),
        failed_rate=_round_rate(row.failed_rate),
        wait_p95=_p95(engine, row.waits_before, row.waits),
        run_p95=_p95(engine, row.runs_before, row.runs),
        oldest_age=_oldest_age(queue, now),
    )


def queue_row_view(engine: Engine, row: QueueRow, now: int) -> messages.LiveQueue:
    """The same with more to it."""
    queue = row.queue
    shape = engine.statistics.shared_times
    shown = row_view(engine, row, now)
    return messages.LiveQueue(
        **{name: getattr(shown, name) for name in shown.__struct_fields__},
        counts=counts_of(queue),
        counters=counters_of(queue),
        waiting_bytes=queue.unfinished_bytes,
        dead_bytes=queue.dead_bytes,
        opens_at=rate_opens_at(queue, now),
        wait=_spread(shape.waits, row.waits_before, row.waits),
        run=_spread(shape.runs, row.runs_before, row.runs),
    )


def _spread(
    shape: Histogram, before: list[int] | None, now: list[int] | None
) -> messages.Spread | None:
    return None if before is None or now is None else spread(shape, before, now)


def _p95(engine: Engine, before: list[int] | None, now: list[int] | None) -> float | None:
    if before is None or now is None or before is now:
        return None
    found = quantiles(
        engine.statistics.shared_times.waits, before, now, (0.95,)
    )  # all have the same shape
    return found[0] if found else None


def _round_rate(rate: float) -> float | None:
    return None if rate < 0 else round(rate, 3)


def _oldest_age(queue: Queue, now: int) -> float | None:
    job = queue.ready.first()
    if job is None:
        return None
    return max(0, now - (job.ready_at or job.pushed_at)) / 1_000_000


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
