"""The server: from settings to listeners that accept, and back to a clean end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import time
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from taskyard import __version__, build
from taskyard.broker.broker import Broker
from taskyard.broker.clock import AnchoredClock
from taskyard.dialects.masenko import Masenko
from taskyard.dialects.workq import Workq
from taskyard.duration import format_duration
from taskyard.engine.engine import Engine
from taskyard.engine.state import EngineSettings, State
from taskyard.journal.collector import CollectorPaused
from taskyard.journal.disk import RealDisk
from taskyard.journal.errors import JournalError
from taskyard.journal.flush import choose_sync_mode
from taskyard.journal.identity import DirectoryLock
from taskyard.journal.journal import Journal, JournalSettings
from taskyard.journal.opening import open_journal
from taskyard.journal.retention import Limits
from taskyard.server.collector import Collector
from taskyard.server.config import Settings
from taskyard.server.connection import Connection, Dialect, OpenConnections
from taskyard.server.logs import fields, log
from taskyard.server.loop import LoopScheduler
from taskyard.server.web import Web

GOODBYE: Final = 5.0  # seconds that clients have at a stop to read their last replies


def serve(settings: Settings) -> int:
    """Run until a signal says stop; gives the exit code."""
    _raise_file_limit()
    try:
        return uvloop.run(_serve(settings))
    except (JournalError, OSError) as error:
        log.error("cannot start: %s", error)
        return 1


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
        self._listeners: dict[str, asyncio.Server] = {}
        self._connections = OpenConnections()
        self._lock: DirectoryLock | None = None
        self._journal: Journal | None = None
        self._broker: Broker | None = None
        self._scheduler: LoopScheduler | None = None
        self._collector: Collector | None = None
        self._web: Web | None = None
        self._ports_told = False
        self.failed = False

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._recover(loop)
        for name, port, dialect in self._dialects():
            if port is not None:
                await self._listen(loop, name, port, dialect)
        if self._settings.ports_file is not None:
            _write_ports(self._settings.ports_file, self._addresses())
            self._ports_told = True
        log.info("ready", extra=fields(version=__version__, form=build.form()))

    async def until_stopped(self) -> None:
        await self._stop.wait()

    async def stop(self) -> None:
        """Take nothing new, answer what has arrived, leave everything on disk."""
        if self._settings.ports_file is not None and self._ports_told:
            self._settings.ports_file.unlink(missing_ok=True)
        if self._web is not None:
            self._web.stop()
        for listener in self._listeners.values():
            listener.close()
        self._connections.closing = True
        broker = self._broker
        if broker is not None:
            for receiver in broker.receivers():
                receiver.shut_down()
            broker.flush()
            await self._connections.all_closed(GOODBYE)
        if self._scheduler is not None:
            self._scheduler.close()
        if self._journal is not None and (broker is None or not broker.failure):
            self._close_journal(self._journal)
        if self._collector is not None:
            self._collector.stop()
        if self._lock is not None:
            self._lock.release()
        if broker is not None:
            log.info("stopped")

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
        )
        broker.flush()
        if broker.failure:
            raise OSError(broker.failure)
        broker.on_failure(self._journal_failed)
        broker.upkeep.on_damage(self._compaction_stopped)
        broker.on_room(_room_changed)
        broker.retention.on_left_behind(_left_behind)
        broker.begin()
        broker.end()
        self._broker = broker

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
        )
        self._web = Web(settings, broker, scheduler)
        workq = Workq(
            broker, settings.output_limit, settings.workq_lease_ttr, settings.workq_max_losses
        )
        return [
            ("masenko", settings.masenko_port, masenko),
            ("workq", settings.workq_port, workq),
            ("http", settings.http_port, self._web.http),
        ]

    async def _listen(
        self, loop: asyncio.AbstractEventLoop, name: str, port: int, dialect: Dialect
    ) -> None:
        factory = partial(Connection, dialect, self._settings.output_limit, self._connections)
        listener = await loop.create_server(factory, self._settings.bind, port, backlog=1024)
        self._listeners[name] = listener
        host, bound = listener.sockets[0].getsockname()[:2]
        log.info("listening", extra=fields(dialect=name, host=host, port=bound))

    def _addresses(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for name, listener in self._listeners.items():
            host, port = listener.sockets[0].getsockname()[:2]
            found[name] = {"host": host, "port": port}
        return found


def _left_behind(name: str, missed: int) -> None:
    log.warning(
        "a reader of the journal was left behind: what it wants next was not kept",
        extra=fields(reader=name, missed=missed),
    )


def _raise_file_limit() -> None:
    """As many connections as the system allows; the usual soft limit is for other programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _room_changed(reason: str) -> None:
    if reason:
        log.error("pushes are refused: %s", reason)
    else:
        log.info("pushes go on: there is room again")


def engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        payload_limit=settings.payload_limit,
        finished_bytes=settings.finished_memory,
        uid_window=settings.uid_window,
        dead_retention=settings.dead_retention,
        dead_bytes=settings.dead_bytes,
        default_ttr=settings.default_ttr,
    )


def journal_settings(settings: Settings) -> JournalSettings:
    return JournalSettings(
        segment_size=settings.segment_size,
        payload_memory=settings.payload_memory,
        durability=settings.durability,
        spare=True,
        preallocate=settings.preallocate,
    )


def _write_ports(path: Path, addresses: dict[str, dict[str, object]]) -> None:
    """By rename, so that whoever sees the file sees all of it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(addresses) + "\n", encoding="utf-8")
    draft.replace(path)
