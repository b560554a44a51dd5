"""The server: from settings to listeners that accept, and back to a clean end."""

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
from taskyard.access.gate import Authenticator, OpenAuthenticator
from taskyard.access.gatekeeper import UserAuthenticator
from taskyard.access.users import Users, UsersError, is_accessible_to_others, load_users
from taskyard.broker import build
from taskyard.broker.broker import SYNC, Broker
from taskyard.broker.clock import AnchoredClock
from taskyard.engine.model.state import State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.collector import GarbageCollectionPaused
from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import JournalError
from taskyard.journal.flush import choose_sync_mode
from taskyard.journal.identity import DirectoryLock
from taskyard.journal.journal import Journal
from taskyard.journal.opening import open_journal
from taskyard.journal.retention import RetentionLimits
from taskyard.protocols.masenko.connection import Masenko
from taskyard.protocols.resp.resp import make_resp
from taskyard.protocols.workq.connection import Workq
from taskyard.server import last_resort
from taskyard.server.collector import GcTuner
from taskyard.server.heap import tune_malloc
from taskyard.server.logs import fields, log
from taskyard.server.loop import AsyncioScheduler
from taskyard.server.net.activation import collect_passed_sockets
from taskyard.server.net.connection import Connection, ConnectionRegistry, ProtocolFactory
from taskyard.server.net.descriptors import max_open_connections, raise_file_limit
from taskyard.server.net.flow import MemoryLimiter
from taskyard.server.net.listening import ConnectionLimits, Listener
from taskyard.server.net.postman import (
    MAX_INLINE_REPLIES,
    MAX_INLINE_REPLIES_WITH_SYNC,
    make_reply_sender,
)
from taskyard.server.net.stalls import StallDetector
from taskyard.server.parts import engine_settings, journal_settings
from taskyard.server.settings.config import ConfigError, Settings, load_queues
from taskyard.server.settings.queue_tables import make_queue_rules
from taskyard.server.slow_log import SlowCommandReporter
from taskyard.server.strangers import LoginTimeouts
from taskyard.server.tls import Tls
from taskyard.server.tls_transport import TlsTransport
from taskyard.server.web import HttpApplication
from taskyard.shared.api_messages import LakeView, ListenerView
from taskyard.shared.duration import format_duration

if TYPE_CHECKING:
    from taskyard.server.lake import LakeSupervisor
    from taskyard.server.lake_errands import LakeRequests

_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # for those that stand for all
CLIENT_CLOSE_SECONDS: Final = 5.0  # seconds that clients have at a stop to read their last replies


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
        last_resort.install_crash_handler(loop)
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
        from taskyard.server import lake  # what a server without one does not need

        assert self._broker is not None
        assert self._scheduler is not None
        post, command = loop.call_soon_threadsafe, lake.lake_process_command(self._settings)
        self._lake_supervisor = lake.LakeSupervisor(self._broker, self._scheduler, post, command)
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
    from taskyard.server.lake_errands import REPORT_FILE, LakeRequests

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
