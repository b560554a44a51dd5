"""Between a socket and a dialect: bytes in, bytes out, back-pressure both ways."""

from __future__ import annotations

import asyncio
from asyncio.protocols import Protocol
from typing import Final
from typing import Protocol as Seam

from taskyard.broker.receiver import Receiver

_LINGER: Final = 2.0  # seconds that a client has to read its last reply while it still sends


class Dialect(Seam):
    """What speaks a protocol on the connections of a listener."""

    def connect(self, transport: Connection, peer: str) -> Receiver: ...


class OpenConnections:
    """Those that are there now, and a way to wait until there are none."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._none = asyncio.Event()
        self._none.set()
        self.closing = False  # those that still come are shut down at once

    def add(self, connection: Connection) -> None:
        self._open.add(connection)
        self._none.clear()

    def discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._none.set()

    async def all_closed(self, seconds: float) -> None:
        """Give them this long to go; then they are cut off."""
        try:
            await asyncio.wait_for(self._none.wait(), seconds)
        except TimeoutError:
            for connection in list(self._open):
                connection.abort()


class Connection(Protocol):
    """One client. What the dialect writes goes out as it is; a client that does not read is not
    read from, so that its replies stay within bounds."""

    def __init__(
        self, dialect: Dialect, output_limit: int, open_connections: OpenConnections
    ) -> None:
        self._dialect = dialect
        self._output_limit = output_limit
        self._open = open_connections
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._stuffed = False  # the client does not read what it was sent
        self._wanted = True  # the dialect wants to read
        self._ended = False  # nothing more can be read
        self._lingering: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(high=self._output_limit)
        self._transport = transport
        self._open.add(self)
        receiver = self._dialect.connect(self, _peer(transport))
        self._receiver = receiver
        if self._open.closing:
            receiver.shut_down()

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.feed(data)

    def eof_received(self) -> bool:
        """The client may have closed only its half of the connection, and wait for replies."""
        self._ended = True
        if self._lingering is not None:
            return False
        if self._receiver is not None:
            self._receiver.ended()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        receiver = self._receiver
        self._receiver = None
        self._open.discard(self)
        if self._lingering is not None:
            self._lingering.cancel()
        if receiver is not None:
            receiver.lost()

    def pause_writing(self) -> None:
        self._stuff(True)

    def resume_writing(self) -> None:
        self._stuff(False)
        if self._receiver is not None:
            self._receiver.resume()

    def _stuff(self, stuffed: bool) -> None:
        self._stuffed = stuffed
        if self._receiver is not None:
            self._receiver.stuffed = stuffed
        self._choose()

    # As the dialect's transport

    def become(self, receiver: Receiver) -> None:
        """The connection goes on in another protocol."""
        receiver.stuffed = self._stuffed
        self._receiver = receiver

    def raw(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():  # uvloop would raise
            transport.write(data)

    def pause_reading(self) -> None:
        self._wanted = False
        self._choose()

    def resume_reading(self) -> None:
        self._wanted = True
        self._choose()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def linger(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            self.close()
            return
        transport.write_eof()
        self._lingering = asyncio.get_running_loop().call_later(_LINGER, self.abort)
        self.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _choose(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            return
        wanted = self._wanted and not self._stuffed
        if wanted != transport.is_reading():
            if wanted:
                transport.resume_reading()
            else:
                transport.pause_reading()


def _peer(transport: asyncio.BaseTransport) -> str:
    address = transport.get_extra_info("peername")
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else "unknown"
