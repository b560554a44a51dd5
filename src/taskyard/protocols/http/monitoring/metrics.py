"""GET /metrics: all counters, in the text format of Prometheus.

Nothing is computed before a request. It goes through queues a few at a time between the turns of
connections, so that a page about very many queues delays no client. The page does not wait for the
disk, as replies do: it promises nothing, and is needed most when the disk hangs.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from typing import Final

from taskyard import __version__
from taskyard.access.authenticator import Authenticator, OpenAuthenticator
from taskyard.broker import metrics as build
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Scheduler
from taskyard.broker.metrics import ProtocolStats
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.facade import Engine
from taskyard.engine.structures.statistics import NAMED_QUEUES, Histogram, QueueTimes
from taskyard.protocols.http.api.server import LakeStatus, no_lake_status
from taskyard.protocols.http.wire import Exchange, Response, Route
from taskyard.shared.process import Usage, process_usage

# The text format that Prometheus reads, version 0.0.4: families of samples

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def label(name: str, text: str) -> str:
    return f'{name}="{text.translate(_ESCAPES)}"'


class Family:
    """All samples of one name; they must stand together, in whatever order they are found."""

    __slots__ = ("_head", "_lines", "_name", "_sealed")

    def __init__(self, name: str, kind: str, doc: str) -> None:
        self._name = name
        self._head = f"# HELP {name} {doc}\n# TYPE {name} {kind}\n"
        self._lines: list[str] = []
        self._sealed: list[bytes] = []

    def add(self, number: int | float, labels: str = "") -> None:
        self._lines.append(f"{self._name}{{{labels}}} {number}\n" if labels else self._one(number))

    def _one(self, number: int | float) -> str:
        return f"{self._name} {number}\n"

    def add_histogram(self, found: Histogram, labels: str = "") -> None:
        name = self._name
        before = f"{name}_bucket{{{labels},le=" if labels else f"{name}_bucket{{le="
        after = f"{{{labels}}}" if labels else ""
        lines = self._lines
        count = 0
        buckets = found.buckets
        for at, bound in enumerate(_bounds(found)):
            count += buckets[at]
            lines.append(f"{before}{bound} {count}\n")
        count += buckets[-1]
        lines.append(f'{before}"+Inf"}} {count}\n')
        lines.append(f"{name}_sum{after} {found.total / 1_000_000}\n")
        lines.append(f"{name}_count{after} {count}\n")

    def seal(self) -> None:
        """Join the lines so far, so that less is left for the end."""
        if self._lines:
            self._sealed.append("".join(self._lines).encode())
            self._lines = []

    def parts(self) -> list[bytes]:
        """Return all of it; nothing if there are no samples."""
        self.seal()
        return [self._head.encode(), *self._sealed] if self._sealed else []


_known_bounds: dict[tuple[int, int, int], list[str]] = {}  # by what a histogram was made with


def _bounds(found: Histogram) -> list[str]:
    """Bounds in seconds, as in the line of a bucket."""
    shape = (found.first, found.step, len(found.buckets))
    texts = _known_bounds.get(shape)
    if texts is None:
        texts = [f'"{bound / 1_000_000}"}}' for bound in found.bounds()]
        _known_bounds[shape] = texts
    return texts


# The metrics of queues: so many have their own names, the others are summed under queue=""

STATES: Final = ("ready", "delayed", "leased", "blocked", "succeeded", "dead", "limited")
_STATE_LABELS: Final = tuple(f',state="{state}"' for state in STATES)

# In the order of Queue.counters.
_COUNTERS: Final = (
    ("pushed", "Jobs pushed."),
    ("leased", "Leases given."),
    ("finished", "Jobs that succeeded."),
    ("failed", "Jobs that failed for good."),
    ("retried", "Failed attempts that are tried again."),
    ("released", "Leases that ended without a verdict: expired, lost, returned."),
    ("expired", "Jobs that their ttl ended."),
    ("removed", "Jobs deleted, purged or withdrawn."),
)


class QueueFamilies:
    def __init__(self, engine: Engine) -> None:
        self._measures = engine.statistics
        self._jobs = Family("taskyard_queue_jobs", GAUGE, "Jobs in a queue, by state.")
        self._counters = [
            Family(f"taskyard_queue_{name}_total", COUNTER, f"{doc} Since the server was started.")
            for name, doc in _COUNTERS
        ]
        self._waits = Family(
            "taskyard_queue_wait_seconds", HISTOGRAM, "Time from ready to handed out."
        )
        self._runs = Family(
            "taskyard_queue_run_seconds", HISTOGRAM, "Time from leased to finished with success."
        )
        self._tasks = Family("masenko_tasks_total", GAUGE, "Tasks in a queue, by kind.")
        self._other_jobs = [0] * len(STATES)
        self._other_counts = [0] * len(_COUNTERS)
        self._other_queues = 0

    def add(self, queue: Queue) -> None:
        times = self._measures.times_of(queue)
        jobs = [
            queue.ready.size,
            queue.delayed.size,
            queue.leased.size,
            queue.blocked.size,
            queue.done.size,
            queue.dead.size,
            queue.limited.size,
        ]
        if times is self._measures.shared_times:
            self._other_queues += 1
            _add(self._other_jobs, jobs)
            _add(self._other_counts, queue.counts_since_start())
        else:
            self._show(label("queue", queue.name), jobs, queue.counts_since_start(), times)

    def seal(self) -> None:
        for family in self._all():
            family.seal()

    def families(self) -> list[Family]:
        measures = self._measures
        if measures.deleted_since_start:
            _add(self._other_counts, measures.deleted_since_start)
        if self._other_queues or measures.deleted_since_start:
            self._show('queue=""', self._other_jobs, self._other_counts, measures.shared_times)
        return self._all()

    def _all(self) -> list[Family]:
        return [self._jobs, *self._counters, self._waits, self._runs, self._tasks]

    def _show(self, named: str, jobs: list[int], counts: list[int], times: QueueTimes) -> None:
        for at, state in enumerate(_STATE_LABELS):
            self._jobs.add(jobs[at], named + state)
        for at, family in enumerate(self._counters):
            family.add(counts[at], named)
        if times.waits.count:
            self._waits.add_histogram(times.waits, named)
        if times.runs.count:
            self._runs.add_histogram(times.runs, named)
        ready, delayed, leased, blocked = jobs[:4]
        self._tasks.add(ready + jobs[-1], named + ',kind="ready"')
        self._tasks.add(delayed + blocked, named + ',kind="delayed"')
        self._tasks.add(leased, named + ',kind="toack"')


def _add(sums: list[int], more: list[int]) -> None:
    for at, number in enumerate(more):
        sums[at] += number


_QUEUES_PER_TURN: Final = 100  # queues, which takes about 3 ms if all of them have histograms
_MAX_READERS: Final = 100

ReadUsage = Callable[[], Usage]


class MetricsPage:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        queues: int = NAMED_QUEUES,
        process: ReadUsage = process_usage,
        authenticator: Authenticator | None = None,
        lake_status: LakeStatus = no_lake_status,
    ) -> None:
        """`queues`: how many have a name of their own in the page."""
        self._lake_status = lake_status
        self._authenticator: Authenticator = (
            OpenAuthenticator() if authenticator is None else authenticator
        )
        self._broker = broker
        self._scheduler = scheduler
        self._process = process
        self._started = broker.clock.now()
        self._first_seq = broker.journal.written_seq
        self._first_byte = broker.journal.end
        broker.engine.statistics.limit = queues

    def routes(self) -> list[Route]:
        return [Route("GET", "/metrics", self.serve)]

    def serve(self, exchange: Exchange) -> None:
        _PageRenderer(self, exchange, self._broker, self._scheduler).render_chunk()

    def body(self, queues: QueueFamilies) -> bytes:
        families = [
            *self._server(),
            *self._process_families(),
            *self._connection_families(),
            *self._logins(),
            *self._limits(),
            *self._journal(),
            *self._readers(),
            *self._lake_families(),
            *self._schedules(),
            *self._masenko(),
            *queues.families(),
        ]
        return b"".join([part for family in families for part in family.parts()])

    def _server(self) -> list[Family]:
        broker = self._broker
        state = broker.engine.state
        info = Family("taskyard_build_info", GAUGE, "What runs here.")
        version = label("version", __version__)
        info.add(1, f'{version},form="{build.form()}",python="{platform.python_version()}"')
        lag = Family("taskyard_loop_lag_seconds", HISTOGRAM, "How late the event loop is.")
        lag.add_histogram(broker.metrics.loop_lag)
        return [
            info,
            _gauge("taskyard_read_only", "1: nothing can be written.", int(bool(broker.failure))),
            _gauge(
                "taskyard_pushes_refused",
                "1: the disk has no room for more jobs.",
                int(bool(broker.journal.space.push_refusal)),
            ),
            _gauge(
                "taskyard_jobs", "Jobs in all queues.", state.jobs.size - len(state.finished_ring)
            ),
            _gauge("taskyard_queues", "Queues.", len(state.queues)),
            _gauge(
                "taskyard_event_listeners",
                "Listeners to live events.",
                broker.feed.listener_count(),
            ),
            lag,
        ]

    def _process_families(self) -> list[Family]:
        found = self._process()
        families = [
            _counter("process_cpu_seconds_total", "Time of the processor.", found.cpu_seconds),
            _gauge("process_start_time_seconds", "Since when it runs.", self._started / 1_000_000),
            _gauge("process_max_fds", "Files that it may have open.", found.max_files),
        ]
        if found.open_files is not None:
            families.append(_gauge("process_open_fds", "Open files.", found.open_files))
        if found.memory_bytes is not None:
            doc = "Memory in use."
            families.append(_gauge("process_resident_memory_bytes", doc, found.memory_bytes))
        if found.virtual_bytes is not None:
            doc = "Memory that was asked for."
            families.append(_gauge("process_virtual_memory_bytes", doc, found.virtual_bytes))
        return families

    def _connection_families(self) -> list[Family]:
        opened = Family("taskyard_connections_open", GAUGE, "Connections, by dialect.")
        total = Family("taskyard_connections_total", COUNTER, "Connections there were.")
        requests = Family("taskyard_requests_total", COUNTER, "Requests that were answered.")
        for traffic in self._broker.metrics.protocols:
            protocol = label("dialect", traffic.protocol_name)
            opened.add(traffic.open_connections, protocol)
            total.add(traffic.total_connections, protocol)
            for verb in traffic.commands:
                named = f"{protocol},{label('verb', verb.name)}"
                requests.add(verb.success_count(), named + ',outcome="ok"')
                requests.add(verb.no_result, named + ',outcome="empty"')
                requests.add(verb.errors, named + ',outcome="error"')
        return [opened, total, requests]

    def _logins(self) -> list[Family]:
        gate = self._authenticator
        return [
            _gauge("taskyard_users", "Users who can log in.", gate.user_count),
            _counter(
                "taskyard_logins_wrong_total",
                "Wrong names, passwords and tokens.",
                gate.failed_logins,
            ),
            _counter(
                "taskyard_logins_turned_away_total",
                "Passwords that were not looked at, since too many waited.",
                gate.overload_refusals,
            ),
        ]

    def _limits(self) -> list[Family]:
        broker = self._broker
        strain = broker.metrics.limit_counters
        measures = broker.engine.statistics
        refused = Family("taskyard_refused_connections_total", COUNTER, "Connections not let in.")
        refused.add(strain.refused_total, 'reason="total"')
        refused.add(strain.refused_address, 'reason="address"')
        slow = Family("taskyard_slow_commands_total", COUNTER, "Commands that took too long.")
        for protocol in [*[traffic.protocol_name for traffic in broker.metrics.protocols], "http"]:
            slow.add(
                broker.slow_commands.count_by_protocol.get(protocol, 0), label("dialect", protocol)
            )
        stalled = Family("taskyard_stalled_clients_total", COUNTER, "Clients that were let go.")
        stalled.add(strain.input_timeouts, 'reason="input"')
        stalled.add(strain.output_timeouts, 'reason="output"')
        stalled.add(strain.login_timeouts, 'reason="login"')
        stalled.add(strain.evicted_logins, 'reason="room"')
        pushes = Family("taskyard_refused_pushes_total", COUNTER, "Pushes that were refused.")
        pushes.add(measures.refused_pushes, 'reason="queue_full"')
        pushes.add(measures.refused_without_space, 'reason="no_space"')
        return [
            refused,
            _counter(
                "taskyard_failed_accepts_total",
                "Times that there was no descriptor for a connection.",
                strain.failed_accepts,
            ),
            slow,
            stalled,
            pushes,
            _counter(
                "taskyard_overflowed_pushes_total",
                "Pushes to full queues that became dead letters.",
                measures.overflowed_pushes,
            ),
            _counter(
                "taskyard_slowed_commands_total",
                "Times that a client had to wait for its rate of commands.",
                broker.rate_limiter.delay_count,
            ),
            _gauge(
                "taskyard_held_back_clients", "They wait for memory.", strain.paused_connections
            ),
            _gauge(
                "taskyard_in_flight_bytes",
                "Commands and replies in memory, as last measured.",
                strain.in_flight_bytes,
            ),
        ]

    def _journal(self) -> list[Family]:
        broker = self._broker
        journal = broker.journal
        now = broker.clock.now()
        flushes = Family(
            "taskyard_flush_seconds", HISTOGRAM, "A write to the journal and its sync."
        )
        flushes.add_histogram(broker.metrics.flush_durations)
        age = max(0, now - journal.retained_segments().created[-1]) / 1_000_000
        return [
            flushes,
            _counter("taskyard_commits_total", "Group commits.", broker.commits),
            _counter(
                "taskyard_journal_records_total",
                "Records written since the server was started.",
                journal.written_seq - self._first_seq,
            ),
            _counter(
                "taskyard_journal_written_bytes_total",
                "Bytes written since the server was started.",
                journal.end - self._first_byte,
            ),
            _gauge("taskyard_journal_durable_seq", "Last durable record.", journal.durable_seq),
            _gauge(
                "taskyard_journal_bytes", "Bytes of records kept.", journal.end - journal.first_base
            ),
            _gauge(
                "taskyard_journal_used_bytes",
                "Those of them that a start reads.",
                journal.end - journal.replay_start,
            ),
            _gauge(
                "taskyard_journal_live_bytes",
                "Those of them that are still of use.",
                broker.engine.state.compacted_size(),
            ),
            _gauge("taskyard_journal_segments", "Files of the journal.", journal.segments),
            _gauge("taskyard_journal_head_age_seconds", "Age of the first one in use.", age),
        ]

    def _readers(self) -> list[Family]:
        journal = self._broker.journal
        readers = list(self._broker.engine.state.readers.values())
        now = self._broker.clock.now()
        lag = Family("taskyard_reader_lag_records", GAUGE, "Durable records that it has not read.")
        missed = Family("taskyard_reader_missed_records", GAUGE, "Records it will never read.")
        lease = Family("taskyard_reader_lease_seconds", GAUGE, "How long records are kept for it.")
        for reader in readers[:_MAX_READERS]:
            named = label("reader", reader.name)
            lag.add(max(0, journal.durable_seq + 1 - reader.next_seq), named)
            missed.add(journal.missed_records(reader.next_seq), named)
            lease.add(max(0, reader.lease_until - now) / 1_000_000, named)
        count = _gauge("taskyard_readers", "Readers of the journal.", len(readers))
        return [count, lag, missed, lease]

    def _lake_families(self) -> list[Family]:
        lake = self._lake_status()
        if lake is None:
            return []
        return [
            _gauge("taskyard_lake_up", "1: the lake's process runs.", int(lake.running)),
            _gauge("taskyard_lake_lag_records", "Records it does not have yet.", lake.lag_records),
            _gauge("taskyard_lake_lag_seconds", "Age of the first of them.", lake.lag_seconds),
            _counter("taskyard_lake_restarts_total", "How often it had died.", lake.restarts),
        ]

    def _schedules(self) -> list[Family]:
        engine = self._broker.engine
        measures = engine.statistics.schedules
        ticks = Family("taskyard_schedule_ticks_total", COUNTER, "What came of ticks.")
        ticks.add(measures.runs, 'outcome="ran"')
        ticks.add(measures.skipped, 'outcome="skipped"')
        ticks.add(measures.missed, 'outcome="missed"')
        ticks.add(measures.refused, 'outcome="refused"')
        late = Family("taskyard_schedule_lateness_seconds", HISTOGRAM, "From tick to push.")
        late.add_histogram(measures.lateness)
        count = len(engine.state.schedules)
        return [_gauge("taskyard_schedules", "Schedules.", count), ticks, late]

    def _masenko(self) -> list[Family]:
        """The names that dashboards of Masenko know."""
        for traffic in self._broker.metrics.protocols:
            if traffic.protocol_name == "masenko":
                return _masenko_families(traffic)
        return []


def _masenko_families(stats: ProtocolStats) -> list[Family]:
    requests = Family("masenko_requests_total", COUNTER, "Requests, by verb.")
    responses = Family("masenko_responses_total", COUNTER, "Responses, by their verb.")
    counts = {"OK": 0, "PONG": 0, "EMPTY": 0, "ERR": 0}
    for verb in stats.commands:
        requests.add(verb.count, label("verb", verb.name))
        counts["PONG" if verb.name == "PING" else "OK"] += verb.success_count()
        counts["EMPTY"] += verb.no_result
        counts["ERR"] += verb.errors
    for name, count in counts.items():
        responses.add(count, label("verb", name))
    return [
        _gauge("masenko_clients_total", "Clients.", stats.open_connections),
        requests,
        responses,
    ]


class _PageRenderer:
    """One page that is being made."""

    def __init__(
        self, page: MetricsPage, exchange: Exchange, broker: Broker, scheduler: Scheduler
    ) -> None:
        self._page = page
        self._exchange = exchange
        self._scheduler = scheduler
        self._queues: list[Queue] = list(broker.engine.state.queues.values())
        self._at = 0
        self._families = QueueFamilies(broker.engine)

    def render_chunk(self) -> None:
        end = self._at + _QUEUES_PER_TURN
        for queue in self._queues[self._at : end]:
            self._families.add(queue)
        self._families.seal()
        self._at = end
        if end < len(self._queues):
            self._scheduler.call_soon(self.render_chunk)
            return
        self._exchange.reply(Response(200, self._page.body(self._families), CONTENT_TYPE))


def _gauge(name: str, doc: str, number: int | float) -> Family:
    family = Family(name, GAUGE, doc)
    family.add(number)
    return family


def _counter(name: str, doc: str, number: int | float) -> Family:
    family = Family(name, COUNTER, doc)
    family.add(number)
    return family


# GET /healthz: the process is up. GET /readyz: it takes writes, or why it does not

PROBLEM: Final = "application/problem+json"


class Health:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.stopping = False  # set as soon as the server begins to stop

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/healthz", self.show_health),
            Route("GET", "/readyz", self.show_readiness),
        ]

    def show_health(self, exchange: Exchange) -> None:
        exchange.reply(_ok("up"))

    def show_readiness(self, exchange: Exchange) -> None:
        exchange.reply(self.readiness())

    def readiness(self) -> Response:
        failure = self._broker.failure or self._broker.engine.read_only_reason
        refusing = self._broker.journal.space.push_refusal
        if self.stopping:
            return _not_ready("shutting-down", "The server is shutting down.", "it stops")
        if failure:
            return _not_ready("read-only", "Nothing can be written until a restart.", failure)
        if refusing:
            title = "Pushes are refused until there is room; jobs can be finished."
            return _not_ready("no-space", title, refusing)
        if self._broker.engine.draining:
            title = "Pushes are refused; jobs are handed out and can be finished."
            return _not_ready("draining", title, "the server is being drained")
        return _ok("ready")


def _ok(status: str) -> Response:
    return Response(200, json.dumps({"status": status}).encode())


def _not_ready(reason: str, title: str, detail: str) -> Response:
    problem = {
        "type": "about:blank",
        "title": title,
        "status": 503,
        "detail": detail,
        "reason": reason,
    }
    return Response(503, json.dumps(problem).encode(), PROBLEM)
