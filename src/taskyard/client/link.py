"""One connection of an asynchronous client: commands of many tasks, each answered in its turn."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

import hiredis

from taskyard.client.address import Address
from taskyard.client.errors import ClientError, Refused, Unavailable
from taskyard.client.streaming import Feed
from taskyard.client.wire import (
    INCOMPLETE,
    Command,
    Reply,
    greeting,
    keep_alive,
    pack,
    reader,
    unavailable,
)

_ENOUGH: Final = 1 << 16  # bytes that are sent at once, before the loop has its next turn


class Link(asyncio.Protocol):
    """From `connect`. What is asked in one turn of the loop is sent in one go. `within` is always
    a number of seconds.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = reader()
        self._asked: deque[asyncio.Future[Reply]] = deque()
        self._feed: Feed | None = None
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._moved = asyncio.Event()  # replies came, or there is room to write, or it is lost
        self._room = True
        self._gone = asyncio.Event()  # the transport has nothing more to do
        self.lost: Unavailable | None = None
        self._wrong: ClientError | None = None  # what the feed cannot do with a reply

    @classmethod
    async def connect(cls, address: Address, within: float, tls: ssl.SSLContext | None) -> Link:
        """Unavailable, or Refused by the greeting."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within):
                _, link = await loop.create_connection(
                    lambda: cls(address),
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=address.host if tls is not None else None,
                )
        except OSError as error:  # a TimeoutError is one
            raise unavailable(address, error, sent=False) from error
        try:
            await link._greet(within)
        except BaseException:
            link.close()
            raise
        return link

    async def _greet(self, within: float) -> None:
        commands = greeting(self._address)
        for reply in await self.ask(commands, within) if commands else []:
            if isinstance(reply, Refused):
                raise reply

    # What is asked

    async def ask(self, commands: Sequence[Command], within: float) -> list[Reply]:
        """The replies, errors among them; Unavailable. After a timeout the link is of no use."""
        futures = self.send(commands)
        try:
            async with asyncio.timeout(within):
                return [await future for future in futures]
        except TimeoutError as error:
            raise self.late(error) from error

    def late(self, error: TimeoutError) -> Unavailable:
        """Nothing that comes now can be waited for any more."""
        late = unavailable(self._address, error, sent=True)
        self.close(late)
        return late

    def send(self, commands: Sequence[Command]) -> list[asyncio.Future[Reply]]:
        if self.lost is not None:
            error = unavailable(self._address, ConnectionError(str(self.lost)), sent=False)
            raise error from self.lost
        futures = [self._loop.create_future() for _ in commands]
        self._asked += futures
        self._write(pack(commands))
        return futures

    async def stream(self, feed: Feed, within: float) -> None:
        """Send what the feed gives, and let it have the replies, until it is done. For a link
        that nothing else is asked on.
        """
        self._feed = feed
        try:
            while not feed.done:
                if self.lost is not None:
                    raise self._wrong or self.lost
                data = feed.next() if self._room else b""
                if data:
                    self._write(data)
                    self._flush()
                    await asyncio.sleep(0)
                elif not feed.done:
                    await self._wait(within)
            if self._wrong is not None:
                raise self._wrong
        except BaseException:
            self.close()
            raise
        finally:
            self._feed = None

    async def _wait(self, within: float) -> None:
        self._moved.clear()
        try:
            async with asyncio.timeout(within):
                await self._moved.wait()
        except TimeoutError as error:
            raise unavailable(self._address, error, sent=True) from error

    def end_input(self) -> bool:
        """Have the server answer what waits, and then close; false if that cannot be said."""
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            return False
        self._flush()
        transport.write_eof()
        return True

    def close(self, reason: Unavailable | None = None) -> None:
        """Whoever waits for a reply gets the reason."""
        transport = self._transport
        self._end(
            reason
            or unavailable(self._address, ConnectionError("it was closed"), sent=True, closed=True)
        )
        if transport is not None:
            transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: until the event loop can be closed too."""
        await self._gone.wait()

    # Writing

    def _write(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_size += len(data)
        if self._unsent_size >= _ENOUGH:
            self._flush()

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_size = 0
            self._transport.write(data)

    # What the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            self._read()
        except hiredis.ProtocolError as error:
            self.close(unavailable(self._address, error, sent=True))
        except ClientError as error:
            self._wrong = error
            self.close(unavailable(self._address, error, sent=True))

    def _read(self) -> None:
        gets = self._reader.gets
        if self._feed is not None:
            replies: list[Reply] = []
            while (reply := gets()) is not INCOMPLETE:
                replies.append(reply)
            self._feed.take(replies)
            self._moved.set()
            return
        asked = self._asked
        while asked and (reply := gets()) is not INCOMPLETE:
            future = asked.popleft()
            if not future.done():  # whoever asked may have been cancelled
                future.set_result(reply)

    def pause_writing(self) -> None:
        self._room = False

    def resume_writing(self) -> None:
        self._room = True
        self._moved.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        reason = error or ConnectionError("it closed the connection")
        self._end(unavailable(self._address, reason, sent=True))

    def _end(self, reason: Unavailable) -> None:
        if self.lost is None:
            self.lost = reason
        self._transport = None
        self._unsent.clear()
        self._moved.set()
        while self._asked:
            future = self._asked.popleft()
            if not future.done():
                future.set_exception(self.lost)
                future.exception()  # it need not be waited for
