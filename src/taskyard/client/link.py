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
from taskyard.client.streaming import CommandStream
from taskyard.client.wire import (
    INCOMPLETE,
    Command,
    Reply,
    create_reader,
    enable_keepalive,
    encode_commands,
    login_commands,
    unavailable_error,
)

_FLUSH_BYTES: Final = 1 << 16  # bytes that are sent at once, before the next turn of the loop


class AsyncConnection(asyncio.Protocol):
    """Made by `connect`. Commands of one turn of the loop are sent together. Time limits are always
    seconds.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = create_reader()
        self._pending_replies: deque[asyncio.Future[Reply]] = deque()
        self._command_stream: CommandStream | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._progressed = asyncio.Event()  # replies arrived, or it can write again, or it is lost
        self._can_write = True
        self._disconnected = asyncio.Event()  # the transport has nothing more to do
        self.connection_error: Unavailable | None = None
        self._stream_error: ClientError | None = None  # a reply that the stream cannot handle

    @classmethod
    async def connect(
        cls, address: Address, seconds: float, tls: ssl.SSLContext | None
    ) -> AsyncConnection:
        """Unavailable, or Refused by the login."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, link = await loop.create_connection(
                    lambda: cls(address),
                    address.host,
                    address.port,
                    ssl=tls,
                    server_hostname=address.host if tls is not None else None,
                )
        except OSError as error:  # a TimeoutError is one
            raise unavailable_error(address, error, sent=False) from error
        try:
            await link._set_up(seconds)
        except BaseException:
            link.close()
            raise
        return link

    async def _set_up(self, seconds: float) -> None:
        commands = login_commands(self._address)
        for reply in await self.exchange(commands, seconds) if commands else []:
            if isinstance(reply, Refused):
                raise reply

    # Commands

    async def exchange(self, commands: Sequence[Command], seconds: float) -> list[Reply]:
        """Return the replies, errors among them; Unavailable. After a timeout the connection is of
        no use.
        """
        futures = self.send_commands(commands)
        try:
            async with asyncio.timeout(seconds):
                return [await future for future in futures]
        except TimeoutError as error:
            raise self.close_after_timeout(error) from error

    def close_after_timeout(self, error: TimeoutError) -> Unavailable:
        """Close, because nothing that arrives now is waited for any more."""
        late = unavailable_error(self._address, error, sent=True)
        self.close(late)
        return late

    def send_commands(self, commands: Sequence[Command]) -> list[asyncio.Future[Reply]]:
        if self.connection_error is not None:
            error = unavailable_error(
                self._address, ConnectionError(str(self.connection_error)), sent=False
            )
            raise error from self.connection_error
        futures = [self._loop.create_future() for _ in commands]
        self._pending_replies += futures
        self._write(encode_commands(commands))
        return futures

    async def stream(self, feed: CommandStream, seconds: float) -> None:
        """Send the commands of the stream, and pass it the replies, until it is done.

        For a connection that nothing else uses.
        """
        self._command_stream = feed
        try:
            while not feed.done:
                if self.connection_error is not None:
                    raise self._stream_error or self.connection_error
                data = feed.next_commands() if self._can_write else b""
                if data:
                    self._write(data)
                    self._flush()
                    await asyncio.sleep(0)
                elif not feed.done:
                    await self._wait_for_progress(seconds)
            if self._stream_error is not None:
                raise self._stream_error
        except BaseException:
            self.close()
            raise
        finally:
            self._command_stream = None

    async def _wait_for_progress(self, seconds: float) -> None:
        self._progressed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._progressed.wait()
        except TimeoutError as error:
            raise unavailable_error(self._address, error, sent=True) from error

    def send_eof(self) -> bool:
        """Have the server answer what waits, and then close; false if that cannot be said."""
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            return False
        self._flush()
        transport.write_eof()
        return True

    def close(self, reason: Unavailable | None = None) -> None:
        """Close; every waiter for a reply gets the reason."""
        transport = self._transport
        self._fail_pending(
            reason
            or unavailable_error(
                self._address, ConnectionError("it was closed"), sent=True, closed=True
            )
        )
        if transport is not None:
            transport.abort()

    async def wait_closed(self) -> None:
        """After `close`: until the event loop can be closed too."""
        await self._disconnected.wait()

    # Writing

    def _write(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._unsent and self._transport is not None:
            data = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            self._transport.write(data)

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        enable_keepalive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            self._dispatch_replies()
        except hiredis.ProtocolError as error:
            self.close(unavailable_error(self._address, error, sent=True))
        except ClientError as error:
            self._stream_error = error
            self.close(unavailable_error(self._address, error, sent=True))

    def _dispatch_replies(self) -> None:
        gets = self._reader.gets
        if self._command_stream is not None:
            replies: list[Reply] = []
            while (reply := gets()) is not INCOMPLETE:
                replies.append(reply)
            self._command_stream.on_replies(replies)
            self._progressed.set()
            return
        asked = self._pending_replies
        while asked and (reply := gets()) is not INCOMPLETE:
            future = asked.popleft()
            if not future.done():  # the caller may have been cancelled
                future.set_result(reply)

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self._progressed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._disconnected.set()
        reason = error or ConnectionError("it closed the connection")
        self._fail_pending(unavailable_error(self._address, reason, sent=True))

    def _fail_pending(self, reason: Unavailable) -> None:
        if self.connection_error is None:
            self.connection_error = reason
        self._transport = None
        self._unsent.clear()
        self._progressed.set()
        while self._pending_replies:
            future = self._pending_replies.popleft()
            if not future.done():
                future.set_exception(self.connection_error)
                future.exception()  # it need not be waited for
