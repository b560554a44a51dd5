"""The connections of an asynchronous client, in one event loop.

One has the commands of all tasks, which need not wait for each other's answers; commands that wait
on the server have connections of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any, Final, TypeVar

from taskyard.client import commands
from taskyard.client.address import Address
from taskyard.client.commands import Call
from taskyard.client.errors import ClientError, Closed
from taskyard.client.link import AsyncConnection
from taskyard.client.wire import Command, Reply

T = TypeVar("T")

_RELEASE_TIMEOUT_S: Final = 2.0  # seconds
_CLOSE_TIMEOUT_S: Final = 1.0


class AsyncConnectionPool:
    def __init__(
        self, address: Address, timeout: float, max_idle: int, tls: ssl.SSLContext | None
    ) -> None:
        """`most`: how many to keep of those that wait."""
        self.loop = asyncio.get_running_loop()
        self._address = address
        self._timeout = timeout
        self._max_idle = max_idle
        self._tls = tls
        self._open_lock = asyncio.Lock()
        self._shared_connection: AsyncConnection | None = None
        self._open_error: ClientError | None = None  # of the last try to open that one
        self._idle: list[AsyncConnection] = []
        self._busy: set[AsyncConnection] = set()
        self._release_tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Reply:
        """The reply to one command, which may be an error; Unavailable."""
        if call.wait or call.own_connection:
            async with self.borrow_connection() as link:
                return await self._exchange_on(link, call)
        return await self._exchange_on(await self._get_shared_connection(), call)

    async def _exchange_on(self, link: AsyncConnection, call: Call[Any]) -> Reply:
        [future] = link.send_commands([call.words])
        try:
            async with asyncio.timeout(self._timeout + call.wait):
                return await (asyncio.shield(future) if call.leases_jobs else future)
        except TimeoutError as error:
            raise link.close_after_timeout(error) from error
        except asyncio.CancelledError:
            if call.leases_jobs and (link is self._shared_connection or link.send_eof()):
                self._busy.discard(link)  # it ends by itself
                self._spawn_release(self._release_cancelled_fetch(link, call, future))
            raise

    async def exchange_all(self, words: Sequence[Command]) -> list[Reply]:
        return await (await self._get_shared_connection()).exchange(words, self._timeout)

    @contextlib.asynccontextmanager
    async def borrow_connection(self) -> AsyncIterator[AsyncConnection]:
        """Borrow a connection for this task alone. It is kept for others, unless something went
        wrong.
        """
        link = self._pop_idle()
        if link is None:
            link = await self._connect()
        self._busy.add(link)
        good = False
        try:
            yield link
            good = True
        finally:
            if link in self._busy:
                self._busy.remove(link)
                if (
                    good
                    and link.connection_error is None
                    and len(self._idle) < self._max_idle
                    and not self._closed
                ):
                    self._idle.append(link)
                else:
                    link.close()

    async def close(self) -> None:
        self._closed = True
        if self._release_tasks:
            await asyncio.wait(self._release_tasks)
        links = [
            *self._idle,
            *self._busy,
            *([self._shared_connection] if self._shared_connection else []),
        ]
        for link in links:
            link.close()
        self._idle.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                for link in links:
                    await link.wait_closed()

    def _pop_idle(self) -> AsyncConnection | None:
        while self._idle:
            link = self._idle.pop()
            if link.connection_error is None:
                return link
        return None

    async def _get_shared_connection(self) -> AsyncConnection:
        main = self._shared_connection
        if main is not None and main.connection_error is None and not self._closed:
            return main
        others = self._open_lock.locked()
        async with self._open_lock:
            if (
                self._shared_connection is None
                or self._shared_connection.connection_error is not None
            ):
                if others and self._open_error is not None:
                    raise self._open_error  # for all that waited for it
                self._shared_connection = await self._open_shared_connection()
            return self._shared_connection

    async def _open_shared_connection(self) -> AsyncConnection:
        self._open_error = None
        try:
            return await self._connect()
        except ClientError as error:
            self._open_error = error
            raise

    async def _connect(self) -> AsyncConnection:
        self._check_open()
        link = await AsyncConnection.connect(self._address, self._timeout, self._tls)
        try:
            self._check_open()  # still
        except Closed:
            link.close()
            raise
        return link

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self._address}: the client was closed")

    def _spawn_release(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)

    async def _release_cancelled_fetch(
        self, link: AsyncConnection, call: Call[Any], future: asyncio.Future[Reply]
    ) -> None:
        """Release the jobs of a fetch that was cancelled: they may be leased already."""
        await self._release_jobs(call, future)
        if link is not self._shared_connection:
            link.close()
            await link.wait_closed()

    async def _release_jobs(self, call: Call[Any], future: asyncio.Future[Reply]) -> None:
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_RELEASE_TIMEOUT_S):
                jobs = call.read_reply(await future, False)
                # The last one first, so that they have their old order then.
                words = [commands.give_back(job, 0.0).words for job in reversed(jobs)]
                if words:
                    await self.exchange_all(words)
