"""The connections of an asynchronous client, in one event loop.

One carries the commands of all tasks, which need not wait for each other's answers; what waits on
the server has connections of its own.
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
from taskyard.client.link import Link
from taskyard.client.wire import Command, Reply

T = TypeVar("T")

_RESCUE: Final = 2.0  # seconds
_GOODBYE: Final = 1.0


class Links:
    def __init__(
        self, address: Address, timeout: float, most: int, tls: ssl.SSLContext | None
    ) -> None:
        """`most`: how many to keep of those that wait."""
        self.loop = asyncio.get_running_loop()
        self._address = address
        self._timeout = timeout
        self._most = most
        self._tls = tls
        self._opening = asyncio.Lock()
        self._main: Link | None = None
        self._failure: ClientError | None = None  # of the last try to open that one
        self._idle: list[Link] = []
        self._busy: set[Link] = set()
        self._rescues: set[asyncio.Task[None]] = set()
        self._closed = False

    async def exchange(self, call: Call[Any]) -> Reply:
        """The reply to one command, which may be an error; Unavailable."""
        if call.wait or call.alone:
            async with self.extra() as link:
                return await self._ask(link, call)
        return await self._ask(await self._shared(), call)

    async def _ask(self, link: Link, call: Call[Any]) -> Reply:
        [future] = link.send([call.words])
        try:
            async with asyncio.timeout(self._timeout + call.wait):
                return await (asyncio.shield(future) if call.takes else future)
        except TimeoutError as error:
            raise link.late(error) from error
        except asyncio.CancelledError:
            if call.takes and (link is self._main or link.end_input()):
                self._busy.discard(link)  # it ends by itself
                self._spawn(self._rescue(link, call, future))
            raise

    async def exchange_all(self, words: Sequence[Command]) -> list[Reply]:
        return await (await self._shared()).ask(words, self._timeout)

    @contextlib.asynccontextmanager
    async def extra(self) -> AsyncIterator[Link]:
        """A connection for this task alone. It is kept for others, unless something went wrong."""
        link = self._pop()
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
                if good and link.lost is None and len(self._idle) < self._most and not self._closed:
                    self._idle.append(link)
                else:
                    link.close()

    async def close(self) -> None:
        self._closed = True
        if self._rescues:
            await asyncio.wait(self._rescues)
        links = [*self._idle, *self._busy, *([self._main] if self._main else [])]
        for link in links:
            link.close()
        self._idle.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                for link in links:
                    await link.wait_closed()

    def _pop(self) -> Link | None:
        while self._idle:
            link = self._idle.pop()
            if link.lost is None:
                return link
        return None

    async def _shared(self) -> Link:
        main = self._main
        if main is not None and main.lost is None and not self._closed:
            return main
        others = self._opening.locked()
        async with self._opening:
            if self._main is None or self._main.lost is not None:
                if others and self._failure is not None:
                    raise self._failure  # all who waited for it: each alone would take as long
                self._main = await self._open()
            return self._main

    async def _open(self) -> Link:
        self._failure = None
        try:
            return await self._connect()
        except ClientError as error:
            self._failure = error
            raise

    async def _connect(self) -> Link:
        self._check_open()
        link = await Link.connect(self._address, self._timeout, self._tls)
        try:
            self._check_open()  # still
        except Closed:
            link.close()
            raise
        return link

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self._address}: the client was closed")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._rescues.add(task)
        task.add_done_callback(self._rescues.discard)

    async def _rescue(self, link: Link, call: Call[Any], future: asyncio.Future[Reply]) -> None:
        """Give back the jobs of a take that was cancelled: they may be on their way already."""
        await self._give_back(call, future)
        if link is not self._main:
            link.close()
            await link.wait_closed()

    async def _give_back(self, call: Call[Any], future: asyncio.Future[Reply]) -> None:
        with contextlib.suppress(ClientError, TimeoutError):
            async with asyncio.timeout(_RESCUE):
                jobs = call.read(await future, False)
                # The last one first, so that they have their old order then.
                words = [commands.give_back(job, 0.0).words for job in reversed(jobs)]
                if words:
                    await self.exchange_all(words)
