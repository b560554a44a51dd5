"""TLS between a socket and a connection: to either it looks like the other.

The event loop's own TLS gives up all replies that are still to come when a client closes its half,
cannot close one half itself, and does not tell a client why it was refused. Here a connection is
the same with and without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import Any, Final

from taskyard.server.net.connection import Connection
from taskyard.server.tls import holder_name

_RECORD: Final = 16_384  # bytes that TLS has in one piece at most
# What is encrypted at once. The buffers in between never shrink, so that each connection would
# keep as much memory as its largest reply took.
_PORTION: Final = 65_536
_FAREWELL: Final = 2.0  # seconds that a client has to read why it was refused

log = logging.getLogger("taskyard")


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """A protocol to the socket's transport, and the transport of the connection."""

    def __init__(self, context: ssl.SSLContext, connection: Connection, patience: float) -> None:
        super().__init__()
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connection: Connection | None = connection  # until it is lost
        connection.outer = self
        self._patience = patience  # seconds for the handshake
        self._socket: asyncio.Transport | None = None
        self._alarm: asyncio.TimerHandle | None = None  # as long as the connection is not told
        self._ended = False  # the client has closed its half
        self._hushed = False  # we have closed ours, and what still comes is dropped
        self._closing = False
        self._certificate_name = ""

    # From the socket

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(self._patience, self._give_up)

    def data_received(self, data: bytes) -> None:
        if self._ended or self._hushed:
            return
        self._incoming.write(data)
        if self._alarm is None or self._shake_hands():
            self._read()

    def eof_received(self) -> bool:
        """With a word of farewell or without: requests tell their own length, so that one that was
        cut short is never taken for a whole one, and the others can be answered."""
        if self._alarm is not None:
            return False
        self._end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        connection, self._connection = self._connection, None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            if connection is not None:
                connection.left()
        elif connection is not None:
            connection.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._connection is not None and self._alarm is None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None and self._alarm is None:
            self._connection.resume_writing()

    # Handshake

    def _shake_hands(self) -> bool:
        """Go on with that; whether it is done."""
        try:
            self._tls.do_handshake()
            name = holder_name(self._tls.getpeercert())
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ValueError) as error:
            self._refuse(_reason(error))
            return False
        assert self._alarm is not None
        assert self._connection is not None
        self._alarm.cancel()
        self._alarm = None
        self._certificate_name = name
        self._flush()
        self._connection.connection_made(self)
        return True

    def _give_up(self) -> None:
        self._tell_log("the handshake took too long")
        self.abort()

    def _refuse(self, reason: str) -> None:
        """The client learns why from an alert, which a close might overtake as long as it sends."""
        assert self._alarm is not None
        self._tell_log(reason)
        self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(_FAREWELL, self.abort)
        self._hushed = True
        self._flush()
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write_eof()

    def _tell_log(self, reason: str) -> None:
        address = self.get_extra_info("peername")
        told = {} if self._connection is None else {"connection": int(self._connection.number)}
        host = address[0] if address else "a client"
        log.debug("no TLS with %s: %s", host, reason, extra={"fields": told})

    # Reading

    def _read(self) -> None:
        if self._hushed:
            return
        parts: list[bytes] = []
        ended = False
        failure: ssl.SSLError | None = None
        try:
            # To be told that there is no more is an exception, which costs more than to ask.
            while self._incoming.pending or self._tls.pending():
                part = self._tls.read(_RECORD)
                if not part:
                    ended = True
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            failure = error
        if self._outgoing.pending:
            self._flush()
        if failure is not None:
            self._hushed = True  # what came before it counts, but there is no way back
        if parts and self._connection is not None:
            self._connection.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if failure is not None:
            self._tell_log(_reason(failure))
            self.abort()
        elif ended:
            self._end()

    def _end(self) -> None:
        """The client closes its half; it may still wait for replies."""
        if self._ended or self._connection is None:
            return
        self._ended = True
        if not self._connection.eof_received():
            self.close()

    # As the connection's transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls
        if name == "certificate_name":
            return self._certificate_name
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._hushed or self._closing or not data:
            return
        if len(data) <= _PORTION:
            self._tls.write(data)
            self._flush()
            return
        view = memoryview(data)
        for start in range(0, len(view), _PORTION):
            self._tls.write(view[start : start + _PORTION])
            self._flush()

    def _flush(self) -> None:
        socket = self._socket
        if socket is not None and not socket.is_closing():
            data = self._outgoing.read()
            if data:
                socket.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._socket is not None:
            self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    def is_reading(self) -> bool:
        return self._socket is not None and self._socket.is_reading()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def is_closing(self) -> bool:
        return self._closing or self._socket is None or self._socket.is_closing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._hushed or self._socket is None or self._socket.is_closing():
            return
        self._take_leave()
        self._socket.write_eof()

    def close(self) -> None:
        if self._closing or self._socket is None:
            return
        if not self._hushed:
            self._take_leave()
        self._closing = True
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        if self._socket is not None:
            self._socket.abort()

    def _take_leave(self) -> None:
        """Say that nothing more comes, so that the client can tell the end from an attack."""
        self._hushed = True
        with contextlib.suppress(ssl.SSLError):  # the client has not said the same, and need not
            self._tls.unwrap()
        self._flush()


def _reason(error: Exception) -> str:
    text = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return str(text).lower().replace("_", " ")
