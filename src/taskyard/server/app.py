"""The server: from settings to listeners that accept, and back to a clean end.

Server is the order in which everything starts and stops; HttpApplication has everything that speaks
HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from taskyard import __version__
from taskyard.access.authenticator import Authenticator, OpenAuthenticator, may_connect
from taskyard.access.gatekeeper import UserAuthenticator
from taskyard.access.principal import INSPECT, Allow, Principal, check_rules
from taskyard.access.sessions import KEY_FILE, BrowserSessions, SessionKey
from taskyard.access.users import Users, UsersError, is_accessible_to_others, load_users
from taskyard.broker import metrics as build
from taskyard.broker.commit import SYNC, Broker
from taskyard.broker.interfaces import AnchoredClock, Scheduler
from taskyard.broker.metrics import EventLoopLagProbe
from taskyard.broker.turns import ClientConnection
from taskyard.engine.model.events import TaskyardError
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import JournalError
from taskyard.journal.flush import choose_sync_mode
from taskyard.journal.identity import DirectoryLock, JournalSettings
from taskyard.journal.opening import open_journal
from taskyard.journal.recovery import GarbageCollectionPaused
from taskyard.journal.retention import RetentionLimits
from taskyard.journal.writer import Journal
from taskyard.protocols.glovebox.connection import Glovebox, random_session_id
from taskyard.protocols.glovebox.messages import parse_connect_headers, queue_status
from taskyard.protocols.http.api.server import LakeBackend, LakeStatus, Listeners, no_lake_status
from taskyard.protocols.http.auth import (
    RequestIdentifier,
    cross_site_refusal,
    deny_without_permissions,
    require_permission,
    unauthenticated,
    unknown_host_refusal,
)
from taskyard.protocols.http.connection import Http, UpgradableTransport
from taskyard.protocols.http.dashboard import DashboardPage, LakeReportPage
from taskyard.protocols.http.monitoring.events import Events
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.monitoring.live import LiveStream, SummarySources, disk_space_of
from taskyard.protocols.http.monitoring.metrics import Health, MetricsPage
from taskyard.protocols.http.monitoring.watch import StatsSampler
from taskyard.protocols.http.routing import ApiRoutes, Router
from taskyard.protocols.http.websocket import WebSocket, refuse_upgrade
from taskyard.protocols.http.wire import (
    Exchange,
    Identify,
    ParsedRequest,
    Request,
    Response,
    Route,
    anonymous,
    problem,
)
from taskyard.protocols.masenko.connection import Masenko
from taskyard.protocols.resp.protocol import make_resp
from taskyard.protocols.workq.connection import Workq
from taskyard.server import runtime
from taskyard.server.logs import SlowCommandReporter, fields, log
from taskyard.server.net.connection import (
    Connection,
    ConnectionRegistry,
    ProtocolFactory,
    StallDetector,
)
from taskyard.server.net.listener import (
    ConnectionLimits,
    Listener,
    collect_passed_sockets,
    max_open_connections,
    raise_file_limit,
)
from taskyard.server.net.memory_limit import MemoryLimiter
from taskyard.server.net.sending import (
    MAX_INLINE_REPLIES,
    MAX_INLINE_REPLIES_WITH_SYNC,
    make_reply_sender,
)
from taskyard.server.runtime import AsyncioScheduler, GcTuner, tune_malloc
from taskyard.server.settings.queue_tables import make_queue_rules
from taskyard.server.settings.schema import ConfigError, Settings, is_local, load_queues
from taskyard.server.strangers import LoginTimeouts
from taskyard.server.tls import Tls, TlsTransport
from taskyard.shared.api_types import LakeView, ListenerView
from taskyard.shared.process import Usage, process_usage
from taskyard.shared.text import format_duration

if TYPE_CHECKING:
    from taskyard.server.lake_supervisor import LakeRequests, LakeSupervisor


_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # for those that stand for all
CLIENT_CLOSE_SECONDS: Final = 5.0  # seconds that clients have at a stop to read their last replies

FRAME_OVERHEAD_BYTES = 65_536  # what a message may be longer than the largest payload, as JSON text
# characters of one byte: as an escape, or in an array with a space behind each comma
JSON_CHARS_PER_BYTE = 6


# The server


def serve(settings: Settings) -> int:
    """Run until a signal says stop; gives the exit code."""
    raise_file_limit()
    try:
        return uvloop.run(_run_server(settings))
    except (JournalError, OSError) as error:
        log.error("cannot start: %s", error)
        return 1
    except ConfigError as error:
        log.error("cannot start: %s", error)
        return 2


async def _run_server(settings: Settings) -> int:
    server = Server(settings)
    try:
        await server.start()
        await server.wait_until_stopped()
    finally:
        await server.stop()
    return 1 if server.failed else 0


class Server:
    """Call start, wait_until_stopped and stop, in this order, once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop_requested = asyncio.Event()
        self._passed_sockets = collect_passed_sockets(settings, os.environ)
        self._listeners: dict[str, Listener] = {}
        self._connections = ConnectionRegistry()
        self._directory_lock: DirectoryLock | None = None
        self._journal: Journal | None = None
        self._broker: Broker | None = None
        self._scheduler: AsyncioScheduler | None = None
        self._gc_tuner: GcTuner | None = None
        self._http: HttpApplication | None = None
        self._users = _load_users(settings.users) if settings.users is not None else None
        self._authenticator: Authenticator = OpenAuthenticator()
        self._tls = Tls(settings) if settings.tls_certificate is not None else None
        self._reload_callbacks: list[Callable[[], None]] = []  # what SIGHUP reads again
        if self._tls is not None:
            self._reload_callbacks.append(self._tls.reload)
        if settings.config is not None:
            self._reload_callbacks.append(partial(self._reload_queue_settings, settings.config))
        self._lake_supervisor: LakeSupervisor | None = None
        self._lake_requests: LakeRequests | None = None
        if settings.lake is not None:
            _check_lake()
        self._connection_limits: ConnectionLimits | None = None
        self._memory_limiter: MemoryLimiter | None = None
        self._stall_detector: StallDetector | None = None
        self._login_timeouts: LoginTimeouts | None = None
        self._slow_reporter: SlowCommandReporter | None = None
        self._ports_written = False
        self._ready = False
        self.failed = False

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        runtime.install_crash_handler(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_requested.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload_files)
        self._recover_journal(loop)
        self._create_authenticator()
        self._set_limits()
        self._start_reply_sender(loop)
        if self._settings.lake is not None:
            self._lake_requests = _make_lake_requests(
                self._settings.lake, self._settings.data, loop
            )
        for name, port, dialect in self._protocols():
            if port is not None:
                await self._listen(loop, name, port, dialect)
        if self._settings.ports_file is not None:
            _write_ports(self._settings.ports_file, self._addresses())
            self._ports_written = True
        self._log_ready()
        if self._settings.lake is not None:
            self._start_lake(loop)

    def _log_ready(self) -> None:
        self._ready = True
        if why := build.not_compiled_reason():
            log.warning("running as plain Python, which is several times slower: %s", why)
        more = {"dashboard": url} if (url := self._dashboard_url()) else {}
        log.info("ready", extra=fields(version=__version__, form=build.form(), **more))

    def _dashboard_url(self) -> str:
        """The dashboard's URL for a browser on this machine; empty if HTTP is off."""
        address = self._listener_views().get("http")
        if address is None:
            return ""
        host = _LOOPBACK_OF.get(address.host, address.host)
        scheme = "https" if address.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{address.port}/"

    async def wait_until_stopped(self) -> None:
        await self._stop_requested.wait()

    def _reload_files(self) -> None:
        for reload in self._reload_callbacks:
            reload()

    async def stop(self) -> None:
        """Stop accepting, answer what has arrived, and leave everything on disk."""
        if self._settings.ports_file is not None and self._ports_written:
            self._settings.ports_file.unlink(missing_ok=True)
        self._stop_accepting()
        if self._lake_requests is not None:
            self._lake_requests.stop()
        broker = self._broker
        if broker is not None:
            for receiver in broker.connections():
                receiver.shut_down()
            broker.flush_journal()
            lake_ends = (
                self._lake_supervisor.stop()
                if self._lake_supervisor is not None
                else asyncio.sleep(0)
            )
            await asyncio.gather(
                self._connections.wait_until_closed(CLIENT_CLOSE_SECONDS), lake_ends
            )
            broker.flush_journal()  # what the lake has read meanwhile
        if self._slow_reporter is not None:
            self._slow_reporter.stop()
        if self._connections.reply_sender is not None:
            self._connections.reply_sender.close(asyncio.get_running_loop())
            self._connections.reply_sender = None
        if self._scheduler is not None:
            self._scheduler.close()
        if self._journal is not None and (broker is None or not broker.failure):
            self._close_journal(self._journal)
        if self._gc_tuner is not None:
            self._gc_tuner.stop()
        if self._directory_lock is not None:
            self._directory_lock.release()
        if self._ready:
            log.info("stopped")

    def _start_lake(self, loop: asyncio.AbstractEventLoop) -> None:
        from taskyard.server import lake_supervisor  # what a server without one does not need

        assert self._broker is not None
        assert self._scheduler is not None
        post, command = (
            loop.call_soon_threadsafe,
            lake_supervisor.lake_process_command(self._settings),
        )
        self._lake_supervisor = lake_supervisor.LakeSupervisor(
            self._broker, self._scheduler, post, command
        )
        self._lake_supervisor.start()

    def _lake_view(self) -> LakeView | None:
        if self._lake_supervisor is None or self._lake_requests is None:
            return None
        return self._lake_requests.add_report_status(self._lake_supervisor.view())

    def _set_limits(self) -> None:
        settings = self._settings
        broker, scheduler = self._broker, self._scheduler
        assert broker is not None
        assert scheduler is not None
        total = max_open_connections(settings.max_connections)
        per_address = settings.max_connections_per_address
        self._connection_limits = ConnectionLimits(
            total,
            max(1, total // 2) if per_address is None else per_address,
            broker.metrics.limit_counters,
            exempts_local=per_address is None,
        )
        self._start_login_timeouts()
        if settings.slow_command is not None:
            self._slow_reporter = SlowCommandReporter(broker.clock, scheduler)
            broker.slow_commands.threshold_us = settings.slow_command
            broker.slow_commands.on_slow(self._slow_reporter.report)
        broker.rate_limiter.commands_per_second = settings.max_commands_per_second or 0
        self._memory_limiter = MemoryLimiter(
            self._connections, broker, scheduler, settings.memory_limit
        )
        self._stall_detector = StallDetector(
            self._connections, broker, scheduler, settings.stall_timeout
        )
        self._stall_detector.start()

    def _start_login_timeouts(self) -> None:
        """Limit the time for a login, and let new logins replace the oldest when the server is
        full.
        """
        gate, broker, scheduler = self._authenticator, self._broker, self._scheduler
        if not gate.has_users:
            return
        assert broker is not None
        assert scheduler is not None
        assert self._connection_limits is not None
        self._login_timeouts = LoginTimeouts(
            broker, scheduler, self._settings.login_timeout, gate.anonymous.needs_login
        )
        self._connections.login_tracker = self._login_timeouts
        self._connection_limits.evict_oldest = self._login_timeouts.evict_oldest

    def _stop_accepting(self) -> None:
        if self._http is not None:
            self._http.stop()
        for listener in self._listeners.values():
            listener.close()
        self._connections.shutting_down = True
        if self._stall_detector is not None:
            self._stall_detector.stop()
        if self._login_timeouts is not None:
            self._login_timeouts.stop()
        if self._memory_limiter is not None:
            self._memory_limiter.stop()

    def _close_journal(self, journal: Journal) -> None:
        try:
            journal.close()
        except OSError as error:
            self.failed = True
            log.error("journal not closed: %s", error)

    def _recover_journal(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self._settings
        data = settings.data
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory_lock = DirectoryLock(str(data))
        if settings.ports_file is not None:
            settings.ports_file.unlink(missing_ok=True)  # of a server that was killed
        began = time.perf_counter()
        state = State(engine_settings(settings))
        disk = RealDisk(str(data))
        with GarbageCollectionPaused():
            journal, report = open_journal(
                disk, journal_settings(settings), state, time.time_ns() // 1000
            )
        self._gc_tuner = GcTuner(lambda: state.jobs.size)
        self._gc_tuner.start()
        tune_malloc()
        self._journal = journal
        seconds = time.perf_counter() - began
        log.info(
            "journal recovered",
            extra=fields(
                records=report.records,
                jobs=state.jobs.size - len(state.finished_ring),
                segments=report.segments,
                seconds=round(seconds, 3),
            ),
        )
        if report.torn_bytes:
            log.warning(
                "torn tail cut off: it had not reached the disk when the server ended",
                extra=fields(bytes=report.torn_bytes, where=report.torn_at),
            )
        clock = AnchoredClock(not_before=state.time)
        scheduler = AsyncioScheduler(loop, clock)
        self._scheduler = scheduler
        engine = Engine(state, journal.records, journal.salt, random.Random())
        engine.boot(__version__, clock.now())
        broker = Broker(
            engine,
            journal,
            clock,
            scheduler,
            settings.durability,
            self._choose_sync_mode(data) == "inline",
            settings.compaction or 0,
            RetentionLimits(settings.retain_bytes, settings.retain_age),
            scheduler.has_flusher and settings.sync_mode == "auto",
        )
        broker.flush_journal()
        if broker.failure:
            raise OSError(broker.failure)
        broker.on_failure(self._on_journal_failure)
        broker.compaction_scheduler.on_damage(self._on_compaction_stopped)
        broker.disk_space.on_refusal_change(_log_push_refusal)
        broker.on_growth(self._gc_tuner.on_growth)
        broker.retention.on_reader_lost_records(_log_lost_records)
        broker.begin_turn()
        broker.end_turn()
        self._broker = broker

    def _start_reply_sender(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._broker is not None
        few = (
            MAX_INLINE_REPLIES_WITH_SYNC
            if self._settings.durability == SYNC
            else MAX_INLINE_REPLIES
        )
        postman = make_reply_sender(self._connections, loop, few)
        self._connections.reply_sender = postman
        self._broker.turn_queue.reply_sender = postman

    def _create_authenticator(self) -> None:
        if self._users is None:
            return
        assert self._broker is not None
        assert self._scheduler is not None
        most = self._settings.max_connections_per_user or 0
        keeper = UserAuthenticator(self._users, self._broker.clock, self._scheduler, most)
        self._authenticator = keeper
        self._reload_callbacks.append(partial(self._reload_users, keeper))
        log.info("users loaded", extra=fields(users=keeper.user_count))

    def _reload_users(self, authenticator: UserAuthenticator) -> None:
        assert self._settings.users is not None
        assert self._broker is not None
        try:
            users = _load_users(self._settings.users)
        except ConfigError as error:
            log.error("users not reloaded: %s", error)
            return
        authenticator.replace_users(users)
        if self._http is not None:
            self._http.on_permissions_changed()
        for receiver in self._broker.connections():
            receiver.on_permissions_changed()
        log.info("users reloaded", extra=fields(users=authenticator.user_count))

    def _reload_queue_settings(self, path: Path) -> None:
        broker = self._broker
        assert broker is not None
        try:
            tables = load_queues(path)
        except ConfigError as error:
            log.error("queue settings not reloaded: %s", error)
            return
        now = broker.begin_turn()
        broker.engine.set_queue_rules(make_queue_rules(tables), now)
        broker.end_turn()
        log.info("queue settings reloaded", extra=fields(tables=len(tables)))

    def _choose_sync_mode(self, data: Path) -> str:
        mode: str = self._settings.sync_mode
        if self._settings.durability != "sync":
            return "thread"
        if mode != "auto":
            log.info("disk sync mode as configured", extra=fields(mode=mode))
            return mode
        try:
            choice = choose_sync_mode(data)
        except OSError as error:  # a full disk is no reason not to finish
            log.warning("disk flush not measured: %s", error)
            return "thread"
        log.info(
            "disk flush measured",
            extra=fields(
                mode=choice.mode,
                flush=format_duration(choice.flush_us),
                thread_switch=format_duration(choice.thread_switch_us),
            ),
        )
        return choice.mode

    def _on_journal_failure(self, reason: str) -> None:
        self.failed = True
        log.error("read only until restarted: %s", reason)

    def _on_compaction_stopped(self, reason: str) -> None:
        log.error("compaction stopped; the journal will grow: %s", reason)

    def _protocols(self) -> list[tuple[str, int | None, ProtocolFactory]]:
        settings = self._settings
        broker, scheduler = self._broker, self._scheduler
        assert broker is not None
        assert scheduler is not None
        masenko = Masenko(
            broker,
            scheduler,
            settings.heartbeat,
            settings.payload_limit,
            settings.output_limit,
            settings.max_losses,
            self._authenticator,
        )
        self._http = HttpApplication(
            settings,
            broker,
            scheduler,
            authenticator=self._authenticator,
            listeners=self._listener_views,
            lake=self._lake_view,
            lake_requests=self._lake_requests,
        )
        workq = Workq(
            broker,
            settings.output_limit,
            settings.workq_lease_ttr,
            settings.workq_max_losses,
            self._authenticator,
        )
        resp = make_resp(
            broker,
            settings.resp_queue,
            settings.payload_limit,
            settings.output_limit,
            settings.max_losses,
            self._authenticator,
            settings.resp_transaction_limit,
            self._http.api,
            settings.http_body_limit,
        )
        return [
            ("masenko", settings.masenko_port, masenko),
            ("workq", settings.workq_port, workq),
            ("resp", settings.resp_port, resp),
            ("http", settings.http_port, self._http.http),
        ]

    async def _listen(
        self, loop: asyncio.AbstractEventLoop, name: str, port: int, protocol: ProtocolFactory
    ) -> None:
        broker, admission = self._broker, self._connection_limits
        assert broker is not None
        assert admission is not None
        make = partial(Connection, protocol, self._settings.output_limit, self._connections)
        secure = None if self._tls is None else partial(self._make_tls_transport, self._tls)
        strain, keep_alive = broker.metrics.limit_counters, self._settings.keep_alive
        listener = Listener(loop, name, make, admission, strain, secure, keep_alive)
        self._listeners[name] = listener
        more = {"tls": "on"} if self._tls else {}
        passed = self._passed_sockets.pop(name, None)
        if passed is None:
            await listener.open(self._settings.bind, port)
        else:
            listener.adopt_sockets(passed)
            more["socket"] = "passed"
        host, bound = listener.sockets[0].getsockname()[:2]
        log.info("listening", extra=fields(dialect=name, host=host, port=bound, **more))

    def _make_tls_transport(self, tls: Tls, connection: Connection) -> TlsTransport:
        return TlsTransport(tls.context, connection, self._settings.tls_handshake / 1_000_000)

    def _addresses(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for name, listener in self._listeners.items():
            host, port = listener.sockets[0].getsockname()[:2]
            found[name] = {"host": host, "port": port}
        return found

    def _listener_views(self) -> dict[str, ListenerView]:
        """The same for clients, which find the other listeners through the one they know."""
        secure = self._tls is not None
        return {
            name: ListenerView(host=str(told["host"]), port=int(str(told["port"])), tls=secure)
            for name, told in self._addresses().items()
        }


def _load_users(path: Path) -> Users:
    try:
        users = load_users(path)
        if is_accessible_to_others(path):
            log.warning("every user of this machine can read or change %s: chmod 600 it", path)
    except UsersError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from error
    return users


def _check_lake() -> None:
    from taskyard.spark import PipelineMissing, check_installed

    try:
        check_installed()
    except PipelineMissing as error:
        raise ConfigError(str(error)) from None


def _make_lake_requests(lake: str, data: Path, loop: asyncio.AbstractEventLoop) -> LakeRequests:
    from taskyard.server.lake_supervisor import REPORT_FILE, LakeRequests

    # The report is a file of this machine, also that of a lake in an object store.
    report = data / f"lake-{REPORT_FILE}" if "://" in lake else Path(lake) / REPORT_FILE
    return LakeRequests(lake, report, loop.call_soon_threadsafe)


def _log_lost_records(name: str, missed: int) -> None:
    log.warning(
        "journal reader lost records: they were removed before it read them",
        extra=fields(reader=name, missed=missed),
    )


def _log_push_refusal(reason: str) -> None:
    if reason:
        log.error("refusing pushes: %s", reason)
    else:
        log.info("accepting pushes again: disk space available")


def _write_ports(path: Path, addresses: dict[str, dict[str, object]]) -> None:
    """Write by rename, so that a reader of the file sees all of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(addresses) + "\n", encoding="utf-8")
    draft.replace(path)


# Settings of the engine and the journal


def engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        payload_limit=settings.payload_limit,
        finished_bytes=settings.finished_memory,
        uid_window=settings.uid_window,
        dead_retention=settings.dead_retention,
        dead_bytes=settings.dead_bytes,
        default_ttr=settings.default_ttr,
        max_jobs=-1 if settings.queue_max_jobs is None else settings.queue_max_jobs,
        max_bytes=-1 if settings.queue_max_bytes is None else settings.queue_max_bytes,
        max_schedules=settings.max_schedules,
        schedule_bytes=settings.schedule_bytes,
        idle_expiry=settings.queue_idle_expiry or 0,
        queue_rules=make_queue_rules(settings.queues),
    )


def journal_settings(settings: Settings) -> JournalSettings:
    return JournalSettings(
        segment_size=settings.segment_size,
        payload_memory=settings.payload_memory,
        durability=settings.durability,
        prepare_ahead=True,
        preallocate=settings.preallocate,
    )


# HTTP


class HttpApplication:
    """Everything that speaks HTTP, on one listener."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        scheduler: Scheduler,
        *,
        allow: Allow = check_rules,
        authenticator: Authenticator | None = None,
        identify: Identify = anonymous,
        listeners: Listeners = dict,
        lake: LakeStatus = no_lake_status,
        lake_requests: LakeBackend | None = None,
        draw_session_id: Callable[[], int] = random_session_id,
        process_usage: Callable[[], Usage] = process_usage,
    ) -> None:
        """With an authenticator, that identifies clients; `draw_session_id` gives the ids of
        Glovebox sessions, and `process_usage` the metrics of this process.
        """
        self._authenticator: Authenticator = authenticator or OpenAuthenticator()
        sessions = _browser_sessions(settings, broker, self._authenticator)
        if authenticator is not None:
            identify = RequestIdentifier(authenticator, unauthenticated, sessions).identify
        self._broker = broker
        self._settings = settings
        self._origins = frozenset(settings.http_origins)
        self._identify = identify
        self._is_local_only = not self._authenticator.has_users and is_local(settings.bind)
        self.health = Health(broker)
        self.glovebox = Glovebox(
            broker,
            scheduler,
            settings.output_limit,
            settings.glovebox_creation,
            draw_session_id,
            allow,
        )
        self.events = Events(broker, scheduler, allow=allow)
        self._lag_probe = EventLoopLagProbe(broker.metrics, broker.clock, scheduler)
        self.stats_sampler = StatsSampler(broker, scheduler, lambda: {"http": self.http.requests})
        self.live_stream = LiveStream(
            broker, scheduler, self.stats_sampler, self._server_info(lake), allow=allow
        )
        api = ApiRoutes(
            broker,
            scheduler,
            durability=settings.durability,
            max_losses=settings.max_losses,
            connections=self._open_connections,
            listeners=listeners,
            users=int if authenticator is None else lambda: authenticator.user_count,
            lake_status=lake,
            backend=lake_requests,
            sessions=sessions,
            secure=settings.tls_certificate is not None,
            history=History(self.stats_sampler, scheduler),
            allow=allow,
        )
        self.api = Router(api.routes_without_cookies())  # by itself, for use without HTTP
        metrics = MetricsPage(
            broker,
            scheduler,
            settings.metrics_queues,
            process=process_usage,
            authenticator=authenticator,
            lake_status=lake,
        )
        report = LakeReportPage(
            scheduler, None if lake_requests is None else lake_requests.report_path
        )
        inspected = [
            *metrics.routes(),
            *report.routes(),
            Route("GET", "/status/{queue}", self._send_queue_status),
        ]
        routes = [
            *api.routes(),
            *self.health.routes(),
            *self.events.routes(),
            *self.live_stream.routes(),
            *[require_permission(allow, INSPECT, route) for route in inspected],
            Route("GET", "/connect", _send_upgrade_required),
            *DashboardPage().routes(),
        ]
        self.http = Http(
            broker,
            scheduler,
            Router(routes),
            output_limit=settings.output_limit,
            body_limit=settings.http_body_limit,
            identify=self._identify_request,
            refuse=unauthenticated,
            secure=settings.tls_certificate is not None,
        )
        self._lag_probe.start()
        self.stats_sampler.start()
        self.http.upgrades["/connect"] = self._connect_glovebox

    def on_permissions_changed(self) -> None:
        """The users were reloaded; connections are notified on their own."""
        self.events.rules_changed()
        self.live_stream.rules_changed()

    def stop(self) -> None:
        """The server is about to end."""
        self.health.stopping = True
        self.events.close()
        self.live_stream.close()
        self.stats_sampler.stop()
        self._lag_probe.stop()

    def _identify_request(
        self, request: Request, later: Callable[[Principal | Response], None]
    ) -> Principal | Response | None:
        refusal = cross_site_refusal(request, self._origins)
        if refusal is None and self._is_local_only:
            refusal = unknown_host_refusal(request, self._origins)
        return refusal or self._identify(request, later)

    def _open_connections(self) -> dict[str, int]:
        """Return how many are open now, by protocol."""
        return {
            **{
                traffic.protocol_name: int(traffic.open_connections)
                for traffic in self._broker.metrics.protocols
            },
            "http": self.http.clients,
        }

    def _server_info(self, lake: LakeStatus) -> SummarySources:
        settings = self._settings
        return SummarySources(
            durability=settings.durability,
            connections=self._open_connections,
            lake=lake,
            space=partial(disk_space_of, str(settings.data)),
        )

    def _send_queue_status(self, exchange: Exchange) -> None:
        exchange.reply(queue_status(self._broker.engine, exchange.request.params["queue"]))

    def _connect_glovebox(
        self, socket: UpgradableTransport, incoming: ParsedRequest, extra_input: bytes
    ) -> ClientConnection | Response:
        """Continue as a Glovebox client."""
        request = incoming.request
        refusal = refuse_upgrade(incoming, self._origins)
        refusal = refusal or deny_without_permissions(request.principal)
        if refusal is None and not may_connect(self._authenticator, request.principal):
            refusal = problem(503, "This user has too many connections: close one, or try later.")
        if refusal is not None:
            return refusal
        asked = parse_connect_headers(request.headers)
        reader = WebSocket(
            socket.detach_transport(),
            self._settings.payload_limit * JSON_CHARS_PER_BYTE + FRAME_OVERHEAD_BYTES,
        )
        try:
            connection = self.glovebox.connect(
                socket,
                request.peer,
                asked.binary,
                asked.durable,
                asked.reconnect_as,
                request.principal,
                partial(reader.complete_handshake, incoming),
            )
        except TaskyardError as error:  # before hands were shaken
            reader.on_disconnect()
            return problem(503, f"The session cannot be kept: {error}.")
        connection.websocket = reader
        reader.attach_handler(connection, extra_input)
        return connection


def _browser_sessions(
    settings: Settings, broker: Broker, authenticator: Authenticator
) -> BrowserSessions | None:
    """Make the sessions of browsers, where there are users that can log in."""
    if not authenticator.has_users:
        return None
    key = SessionKey(settings.data / KEY_FILE)
    return BrowserSessions(authenticator, key, broker.clock, settings.session_length)


def _send_upgrade_required(exchange: Exchange) -> None:
    exchange.reply(problem(426, "This address is for WebSockets: ask for an upgrade to one."))
