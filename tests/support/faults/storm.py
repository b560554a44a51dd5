"""Clients over TCP that talk at random beside a test, and come back whenever they were cut off.

The test goes on in its own thread: it waits for replies, does something to the server or to the
line, and has the clients gathered when it wants to tell their book of it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from random import Random
from types import TracebackType
from typing import Protocol, Self

from support.drill.glovebox import GloveboxDriver
from support.sockets import HANG_GUARD
from support.talk import ProtocolDriver
from support.waiting import wait_for

PAUSE = 0.02  # seconds before somebody tries again to come in
LISTENERS = {"glovebox": "http", "api": "http"}  # of protocols that have none of their own

Address = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[Address], Awaitable[Streams]]


class LoadedClient(Protocol):
    """A client that has come, and what it speaks."""

    @property
    def dialect(self) -> str: ...

    @property
    def talk(self) -> ProtocolDriver: ...


class ClientSource(Protocol):
    """Whoever knows the clients, and keeps the history checker of what they are told."""

    def add_client(self, name: str) -> LoadedClient: ...

    def on_connection_lost(self, talk: ProtocolDriver) -> None:
        """Its connection has ended in the middle of something."""


async def open_connection(address: Address) -> Streams:
    return await asyncio.open_connection(*address)


class TcpClientLoad:
    """A context. `find` gives the address of a listener; who finds none tries again."""

    def __init__(
        self,
        crowd: ClientSource,
        find: Callable[[str], Address],
        chance: Random,
        clients: int,
        *,
        connect: Connect = open_connection,
        patience: float = HANG_GUARD,
    ) -> None:
        """`patience`: seconds without a reply, after which a client gives up its connection."""
        self._crowd = crowd
        self._find = find
        self._chance = chance
        self._clients = clients
        self._connect = connect
        self._patience = patience
        self._thread = threading.Thread(target=self._run, name="storm")
        self._gate = threading.Event()
        self._over = False
        self._failure: BaseException | None = None
        self._met = 0
        self._away = 0  # clients that wait to be let in
        self.replies = 0
        self.cut_off = 0  # connections that ended in the middle of something

    def __enter__(self) -> Self:
        self._gate.set()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._gate.clear()
        self._over = True
        self._thread.join(HANG_GUARD)
        if error is None:
            self._check_clients()

    def wait(self, replies: int) -> None:
        """Until there are so many more."""
        enough = self.replies + replies
        self.wait_until(lambda: self.replies >= enough)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        def there() -> bool:
            self._check_clients()
            return condition()

        wait_for(there)

    def pause_clients(self) -> None:
        """Nobody comes in any more; return when all have gone, of themselves or cut off."""
        self._gate.clear()
        self.wait_until(lambda: self._away == self._clients)

    def resume_clients(self) -> None:
        self._gate.set()

    def _check_clients(self) -> None:
        if self._failure is not None:
            raise AssertionError(f"a client: {self._failure!r}") from self._failure

    # In the thread of the clients

    def _run(self) -> None:
        try:
            asyncio.run(self._run_clients())
        except BaseExceptionGroup as failures:
            self._failure = failures.exceptions[0]
        except BaseException as failure:
            self._failure = failure

    async def _run_clients(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._clients):
                group.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while not self._over:
            if not self._gate.is_set():
                await self._wait_for_server()
            elif not await self._run_visit():
                await asyncio.sleep(PAUSE)

    async def _wait_for_server(self) -> None:
        self._away += 1
        while not self._gate.is_set() and not self._over:  # noqa: ASYNC110 (of another thread)
            await asyncio.sleep(PAUSE)
        self._away -= 1

    async def _run_visit(self) -> bool:
        """One connection; true if it was the client that has left."""
        self._met += 1
        met = self._crowd.add_client(f"c{self._met}")
        try:
            reader, writer = await self._connect(
                self._find(LISTENERS.get(met.dialect, met.dialect))
            )
        except (OSError, KeyError, ValueError):  # no server, or no ports file of it
            self._crowd.on_connection_lost(met.talk)
            return False
        try:
            await self._exchange_randomly(met.talk, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self.cut_off += 1
            self._crowd.on_connection_lost(met.talk)
            writer.transport.abort()
            return False
        writer.close()
        return True

    async def _exchange_randomly(
        self, talk: ProtocolDriver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        chance = self._chance
        while chance.random() > 0.01 and self._gate.is_set():
            pipelined = chance.choice([1, 1, 1, 2, 8])
            writer.write(b"".join(talk.request() for _ in range(pipelined)))
            while not talk.is_idle():
                data = await asyncio.wait_for(reader.read(65_536), self._patience)
                if not data:
                    raise ConnectionResetError
                talk.receive(data)
                if isinstance(talk, GloveboxDriver):
                    writer.write(talk.answer())
            self.replies += pipelined
        talk.leave()
