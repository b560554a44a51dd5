"""Everything that speaks HTTP, in this process on a real socket: for what the server decides by
functions that it is given. Its journal is in memory."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Self, TypeVar

from support.sockets import HANG_GUARD, POLL_INTERVAL
from support.websocket_client import connect
from websockets.sync.client import ClientConnection

from taskyard.access.principal import Allow, check_rules
from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import AnchoredClock
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.identity import JournalSettings
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal
from taskyard.journal.retention import RetentionLimits
from taskyard.protocols.http.wire import Identify, anonymous
from taskyard.server.app import HttpApplication
from taskyard.server.net.connection import Connection, ConnectionRegistry
from taskyard.server.runtime import AsyncioScheduler
from taskyard.server.settings.schema import Settings

T = TypeVar("T")


class WebServer:
    def __init__(self, allow: Allow = check_rules, identify: Identify = anonymous) -> None:
        self._allow = allow
        self._identify = identify
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.disk = MemoryDisk()

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._await(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_GUARD)
        self._scheduler.close()
        self._loop.close()

    def do(self, call: Callable[[], T]) -> T:
        """Something that only the loop's thread may do."""

        async def done() -> T:
            return call()

        return self._await(done())

    def wait_until_quiet(self) -> None:
        """All WebSockets are gone, and what that has changed is on disk."""
        deadline = time.monotonic() + HANG_GUARD
        while not self.do(self._is_quiet):
            assert time.monotonic() < deadline, "in vain"
            time.sleep(POLL_INTERVAL)

    def _is_quiet(self) -> bool:
        on_disk = self.engine.records.end_position() <= self.broker.journal.durable
        return on_disk and not self.web.glovebox.stats.open_connections

    def get(self, path: str, **headers: str) -> tuple[int, str, bytes]:
        """The status, the kind and the bytes of an answer."""
        return self.ask("GET", path, **headers)

    def ask(
        self, method: str, path: str, value: object = None, **headers: str
    ) -> tuple[int, str, bytes]:
        with closing(HTTPConnection(*self.address, timeout=HANG_GUARD)) as connection:
            body = None if value is None else json.dumps(value)
            sent = {"content-type": "application/json", **headers}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.headers["content-type"], answer.read()

    def websocket(self, **headers: str) -> ClientConnection:
        host, port = self.address
        return connect(f"ws://{host}:{port}/connect/", additional_headers=headers)

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HANG_GUARD)

    async def _start(self) -> None:
        clock = AnchoredClock()
        chance = random.Random(1)
        state = State(EngineSettings())
        settings = JournalSettings(
            segment_size=1 << 20, payload_memory=1 << 20, durability="sync", prepare_ahead=False
        )
        journal, _ = open_journal(self.disk, settings, state, clock.now(), chance.randbytes)
        self._scheduler = AsyncioScheduler(self._loop, clock)
        self.engine = Engine(state, journal.records, journal.salt, chance)
        self.engine.boot("test", clock.now())
        self.broker = Broker(
            self.engine, journal, clock, self._scheduler, "sync", True, 200, RetentionLimits()
        )
        self.broker.flush_journal()
        self.web = HttpApplication(
            Settings(),
            self.broker,
            self._scheduler,
            allow=self._allow,
            identify=self._identify,
        )
        self._open = ConnectionRegistry()
        factory = partial(Connection, self.web.http, 1 << 20, self._open)
        self._listener = await self._loop.create_server(factory, "127.0.0.1", 0)
        self.address: tuple[str, int] = self._listener.sockets[0].getsockname()[:2]

    async def _stop(self) -> None:
        self._listener.close()
        self.web.stop()
        for receiver in self.broker.connections():
            receiver.shut_down()
        await self._open.wait_until_closed(HANG_GUARD)
        await asyncio.sleep(0)  # what was closed is freed
