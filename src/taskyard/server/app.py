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
from taskyard.access.gate import Gate, OpenGate
from taskyard.access.gatekeeper import Gatekeeper
from taskyard.access.users import Users, UsersError, is_open_to_others, load_users
from taskyard.broker import build
from taskyard.broker.broker import SYNC, Broker
from taskyard.broker.clock import AnchoredClock
from taskyard.engine.model.state import State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.collector import CollectorPaused
from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import JournalError
from taskyard.journal.flush import choose_sync_mode
from taskyard.journal.identity import DirectoryLock
from taskyard.journal.journal import Journal
from taskyard.journal.opening import open_journal
from taskyard.journal.retention import Limits
from taskyard.protocols.masenko.connection import Masenko
from taskyard.protocols.resp.resp import make_resp
from taskyard.protocols.workq.connection import Workq
from taskyard.server import last_resort
from taskyard.server.collector import Collector
from taskyard.server.heap import keep_heap
from taskyard.server.logs import fields, log
from taskyard.server.loop import LoopScheduler
from taskyard.server.net.activation import take_sockets
from taskyard.server.net.connection import Connection, Dialect, OpenConnections
from taskyard.server.net.descriptors import most_connections, raise_file_limit
from taskyard.server.net.flow import Flow
from taskyard.server.net.listening import Admission, Listener
from taskyard.server.net.postman import FEW, FEW_BESIDE_FLUSHES, make_postman
from taskyard.server.net.stalls import Stalls
from taskyard.server.parts import engine_settings, journal_settings
from taskyard.server.settings.config import ConfigError, Settings, load_queues
from taskyard.server.settings.queue_tables import rules_of
from taskyard.server.slow_log import SlowLog
from taskyard.server.strangers import Strangers
from taskyard.server.tls import Tls
from taskyard.server.tls_transport import TlsTransport
from taskyard.server.web import Web
from taskyard.shared.api_messages import LakeView, ListenerView
from taskyard.shared.duration import format_duration

if TYPE_CHECKING:
    from taskyard.server.lake import Lake
    from taskyard.server.lake_errands import LakeErrands

_THIS_MACHINE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # for those that stand for all
GOODBYE: Final = 5.0  # seconds that clients have at a stop to read their last replies


def serve(settings: Settings) -> int:
    """Run until a signal says stop; gives the exit code."""
    raise_file_limit()
    try:
        return uvloop.run(_serve(settings))
    except (JournalError, OSError) as error:
        log.error("cannot start: %s", error)
        return 1
    except ConfigError as error:
        log.error("cannot start: %s", error)
        return 2


async def _serve(settings: Settings) -> int:
    server = Server(settings)
    try:
        await server.start()
        await server.until_stopped()
    finally:
        await server.stop()
    return 1 if server.failed else 0


class Server:
    """Start, until_stopped, stop: in this order, once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = asyncio.Event()
        self._passed = take_sockets(settings, os.environ)
        self._listeners: dict[str, Listener] = {}
        self._connections = OpenConnections()
        self._lock: DirectoryLock | None = None
        self._journal: Journal | None = None
        self._broker: Broker | None = None
        self._scheduler: LoopScheduler | None = None
        self._collector: Collector | None = None
        self._web: Web | None = None
        self._users = _load_users(settings.users) if settings.users is not None else None
        self._gate: Gate = OpenGate()
        self._tls = Tls(settings) if settings.tls_certificate is not None else None
        self._reloads: list[Callable[[], None]] = []  # what SIGHUP reads again
        if self._tls is not None:
            self._reloads.append(self._tls.reload)
        if settings.config is not None:
            self._reloads.append(partial(self._reload_queues, settings.config))
        self._lake: Lake | None = None
        self._errands: LakeErrands | None = None
        if settings.lake is not None:
            _check_lake()
        self._admission: Admission | None = None
        self._flow: Flow | None = None
        self._stalls: Stalls | None = None
        self._strangers: Strangers | None = None
        self._slow: SlowLog | None = None
        self._ports_told = False
        self._ready = False
        self.failed = False

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        last_resort.install(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._recover(loop)
        self._open_gate()
        self._set_limits()
        self._hire_postman(loop)
        if self._settings.lake is not None:
            self._errands = _lake_errands(self._settings.lake, self._settings.data, loop)
        for name, port, dialect in self._dialects():
            if port is not None:
                await self._listen(loop, name, port, dialect)
        if self._settings.ports_file is not None:
            _write_ports(self._settings.ports_file, self._addresses())
            self._ports_told = True
        self._tell_ready()
        if self._settings.lake is not None:
            self._start_lake(loop)

    def _tell_ready(self) -> None:
        self._ready = True
        if why := build.why_not_compiled():
            log.warning("running as plain Python, which is several times slower: %s", why)
        more = {"dashboard": url} if (url := self._dashboard()) else {}
        log.info("ready", extra=fields(version=__version__, form=build.form(), **more))

    def _dashboard(self) -> str:
        """Where a browser on this machine finds it; empty if HTTP is switched off."""
        address = self._listening().get("http")
        if address is None:
            return ""
        host = _THIS_MACHINE.get(address.host, address.host)
        scheme = "https" if address.tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{address.port}/"

    async def until_stopped(self) -> None:
        await self._stop.wait()

    def _reload(self) -> None:
        for reload in self._reloads:
            reload()

    async def stop(self) -> None:
        """Take nothing new, answer what has arrived, leave everything on disk."""
        if self._settings.ports_file is not None and self._ports_told:
            self._settings.ports_file.unlink(missing_ok=True)
        self._take_nothing_new()
        if self._errands is not None:
            self._errands.stop()
        broker = self._broker
        if broker is not None:
            for receiver in broker.receivers():
                receiver.shut_down()
            broker.flush()
            lake_ends = self._lake.stop() if self._lake is not None else asyncio.sleep(0)
            await asyncio.gather(self._connections.all_closed(GOODBYE), lake_ends)
            broker.flush()  # what the lake has read meanwhile
        if self._slow is not None:
            self._slow.stop()
        if self._connections.postman is not None:
            self._connections.postman.close(asyncio.get_running_loop())
            self._connections.postman = None
        if self._scheduler is not None:
            self._scheduler.close()
        if self._journal is not None and (broker is None or not broker.failure):
            self._close_journal(self._journal)
        if self._collector is not None:
            self._collector.stop()
        if self._lock is not None:
            self._lock.release()
        if self._ready:
            log.info("stopped")

    def _start_lake(self, loop: asyncio.AbstractEventLoop) -> None:
        from taskyard.server import lake  # what a server without one does not need

        assert self._broker is not None
        assert self._scheduler is not None
        post, command = loop.call_soon_threadsafe, lake.command(self._settings)
        self._lake = lake.Lake(self._broker, self._scheduler, post, command)
        self._lake.start()

    def _lake_view(self) -> LakeView | None:
        if self._lake is None or self._errands is None:
            return None
        return self._errands.complete(self._lake.view())

    def _set_limits(self) -> None:
        settings = self._settings
        broker, scheduler = self._broker, self._scheduler
        assert broker is not None
        assert scheduler is not None
        total = most_connections(settings.max_connections)
        per_address = settings.max_connections_per_address
        self._admission = Admission(
            total,
            max(1, total // 2) if per_address is None else per_address,
            broker.metrics.strain,
            spares_local=per_address is None,
        )
        self._watch_logins()
        if settings.slow_command is not None:
            self._slow = SlowLog(broker.clock, scheduler)
            broker.slow.limit = settings.slow_command
            broker.slow.on_slow(self._slow.tell)
        broker.pacer.rate = settings.max_commands_per_second or 0
        self._flow = Flow(self._connections, broker, scheduler, settings.memory_limit)
        self._stalls = Stalls(self._connections, broker, scheduler, settings.stall_timeout)
        self._stalls.start()

    def _watch_logins(self) -> None:
        """Whoever has to log in has a time for that, and makes room for others."""
        gate, broker, scheduler = self._gate, self._broker, self._scheduler
        if not gate.has_users:
            return
        assert broker is not None
        assert scheduler is not None
        assert self._admission is not None
        self._strangers = Strangers(
            broker, scheduler, self._settings.login_timeout, gate.stranger.is_unknown
        )
        self._connections.strangers = self._strangers
        self._admission.make_room = self._strangers.make_room

    def _take_nothing_new(self) -> None:
        if self._web is not None:
            self._web.stop()
        for listener in self._listeners.values():
            listener.close()
        self._connections.closing = True
        if self._stalls is not None:
            self._stalls.stop()
        if self._strangers is not None:
            self._strangers.stop()
        if self._flow is not None:
            self._flow.stop()

    def _close_journal(self, journal: Journal) -> None:
        try:
            journal.close()
        except OSError as error:
            self.failed = True
            log.error("the journal could not be closed: %s", error)

    def _recover(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self._settings
        data = settings.data
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = DirectoryLock(str(data))
        if settings.ports_file is not None:
            settings.ports_file.unlink(missing_ok=True)  # of a server that was killed
        began = time.perf_counter()
        state = State(engine_settings(settings))
        disk = RealDisk(str(data))
        with CollectorPaused():
            journal, report = open_journal(
                disk, journal_settings(settings), state, time.time_ns() // 1000
            )
        self._collector = Collector(lambda: state.jobs.size)
        self._collector.start()
        keep_heap()
        self._journal = journal
        seconds = time.perf_counter() - began
        log.info(
            "journal recovered",
            extra=fields(
                records=report.records,
                jobs=state.jobs.size - len(state.finished),
                segments=report.segments,
                seconds=round(seconds, 3),
            ),
        )
        if report.torn_bytes:
            log.warning(
                "a torn tail was cut off: it had not reached the disk when the server ended",
                extra=fields(bytes=report.torn_bytes, where=report.torn_at),
            )
        clock = AnchoredClock(not_before=state.time)
        scheduler = LoopScheduler(loop, clock)
        self._scheduler = scheduler
        engine = Engine(state, journal.log, journal.salt, random.Random())
        engine.boot(__version__, clock.now())
        broker = Broker(
            engine,
            journal,
            clock,
            scheduler,
            settings.durability,
            self._choose_sync_mode(data) == "inline",
            settings.compaction or 0,
            Limits(settings.retain_bytes, settings.retain_age),
            scheduler.has_flusher and settings.sync_mode == "auto",
        )
        broker.flush()
        if broker.failure:
            raise OSError(broker.failure)
        broker.on_failure(self._journal_failed)
        broker.upkeep.on_damage(self._compaction_stopped)
        broker.room.on_change(_room_changed)
        broker.on_growth(self._collector.tend)
        broker.retention.on_left_behind(_left_behind)
        broker.begin()
        broker.end()
        self._broker = broker

    def _hire_postman(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._broker is not None
        few = FEW_BESIDE_FLUSHES if self._settings.durability == SYNC else FEW
        postman = make_postman(self._connections, loop, few)
        self._connections.postman = postman
        self._broker.line.post = postman

    def _open_gate(self) -> None:
        if self._users is None:
            return
        assert self._broker is not None
        assert self._scheduler is not None
        most = self._settings.max_connections_per_user or 0
        keeper = Gatekeeper(self._users, self._broker.clock, self._scheduler, most)
        self._gate = keeper
        self._reloads.append(partial(self._reload_users, keeper))
        log.info("users are known", extra=fields(users=keeper.count))

    def _reload_users(self, keeper: Gatekeeper) -> None:
        assert self._settings.users is not None
        assert self._broker is not None
        try:
            users = _load_users(self._settings.users)
        except ConfigError as error:
            log.error("the users stay as they were: %s", error)
            return
        keeper.change(users)
        if self._web is not None:
            self._web.rules_changed()
        for receiver in self._broker.receivers():
            receiver.rules_changed()
        log.info("the users were read again", extra=fields(users=keeper.count))

    def _reload_queues(self, path: Path) -> None:
        broker = self._broker
        assert broker is not None
        try:
            tables = load_queues(path)
        except ConfigError as error:
            log.error("the settings of queues stay as they were: %s", error)
            return
        now = broker.begin()
        broker.engine.set_queue_rules(rules_of(tables), now)
        broker.end()
        log.info("the settings of queues were read again", extra=fields(tables=len(tables)))

    def _choose_sync_mode(self, data: Path) -> str:
        mode: str = self._settings.sync_mode
        if self._settings.durability != "sync":
            return "thread"
        if mode != "auto":
            log.info("the disk is flushed as configured", extra=fields(mode=mode))
            return mode
        try:
            choice = choose_sync_mode(data)
        except OSError as error:  # a full disk is no reason not to finish what there is
            log.warning("the disk's flush could not be measured: %s", error)
            return "thread"
        log.info(
            "the disk's flush was measured",
            extra=fields(
                mode=choice.mode,
                flush=format_duration(choice.flush),
                thread_switch=format_duration(choice.hand_over),
            ),
        )
        return choice.mode

    def _journal_failed(self, reason: str) -> None:
        self.failed = True
        log.error("read only until restarted: %s", reason)

    def _compaction_stopped(self, reason: str) -> None:
        log.error("the journal is not compacted any more, and will grow: %s", reason)

    def _dialects(self) -> list[tuple[str, int | None, Dialect]]:
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
            self._gate,
        )
        self._web = Web(
            settings,
            broker,
            scheduler,
            gate=self._gate,
            listeners=self._listening,
            lake=self._lake_view,
            errands=self._errands,
        )
        workq = Workq(
            broker,
            settings.output_limit,
            settings.workq_lease_ttr,
            settings.workq_max_losses,
            self._gate,
        )
        resp = make_resp(
            broker,
            settings.resp_queue,
            settings.payload_limit,
            settings.output_limit,
            settings.max_losses,
            self._gate,
            settings.resp_transaction_limit,
            self._web.api,
            settings.http_body_limit,
        )
        return [
            ("masenko", settings.masenko_port, masenko),
            ("workq", settings.workq_port, workq),
            ("resp", settings.resp_port, resp),
            ("http", settings.http_port, self._web.http),
        ]

    async def _listen(
        self, loop: asyncio.AbstractEventLoop, name: str, port: int, dialect: Dialect
    ) -> None:
        broker, admission = self._broker, self._admission
        assert broker is not None
        assert admission is not None
        make = partial(Connection, dialect, self._settings.output_limit, self._connections)
        secure = None if self._tls is None else partial(self._secure, self._tls)
        strain, keep_alive = broker.metrics.strain, self._settings.keep_alive
        listener = Listener(loop, name, make, admission, strain, secure, keep_alive)
        self._listeners[name] = listener
        more = {"tls": "on"} if self._tls else {}
        passed = self._passed.pop(name, None)
        if passed is None:
            await listener.open(self._settings.bind, port)
        else:
            listener.take_over(passed)
            more["socket"] = "passed"
        host, bound = listener.sockets[0].getsockname()[:2]
        log.info("listening", extra=fields(dialect=name, host=host, port=bound, **more))

    def _secure(self, tls: Tls, connection: Connection) -> TlsTransport:
        return TlsTransport(tls.context, connection, self._settings.tls_handshake / 1_000_000)

    def _addresses(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for name, listener in self._listeners.items():
            host, port = listener.sockets[0].getsockname()[:2]
            found[name] = {"host": host, "port": port}
        return found

    def _listening(self) -> dict[str, ListenerView]:
        """The same for clients, who find the other listeners by the one they know."""
        secure = self._tls is not None
        return {
            name: ListenerView(host=str(told["host"]), port=int(str(told["port"])), tls=secure)
            for name, told in self._addresses().items()
        }


def _load_users(path: Path) -> Users:
    try:
        users = load_users(path)
        if is_open_to_others(path):
            log.warning("everybody on this machine can read or change %s: chmod 600 it", path)
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


def _lake_errands(lake: str, data: Path, loop: asyncio.AbstractEventLoop) -> LakeErrands:
    from taskyard.server.lake_errands import REPORT, LakeErrands

    # The report is a file of this machine, also that of a lake in an object store.
    report = data / f"lake-{REPORT}" if "://" in lake else Path(lake) / REPORT
    return LakeErrands(lake, report, loop.call_soon_threadsafe)


def _left_behind(name: str, missed: int) -> None:
    log.warning(
        "a reader of the journal was left behind: what it wants next was not kept",
        extra=fields(reader=name, missed=missed),
    )


def _room_changed(reason: str) -> None:
    if reason:
        log.error("pushes are refused: %s", reason)
    else:
        log.info("pushes go on: there is room again")


def _write_ports(path: Path, addresses: dict[str, dict[str, object]]) -> None:
    """By rename, so that whoever sees the file sees all of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(addresses) + "\n", encoding="utf-8")
    draft.replace(path)
