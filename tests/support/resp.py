"""RESP as tests speak it: requests as bytes, replies as the raw bytes of one whole reply.

A side is a server whose clients can be asked the same questions as those of another side: a real
Redis, a Taskyard process, or a simulated one. Nothing here knows the broker's code.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any, Protocol

from support.simulated import SimulatedPeer, SimulatedServer
from support.sockets import HANG_GUARD

Address = tuple[str, int]
LONGEST_WAIT = 120.0  # simulated seconds after which a reply will not come any more
TICK = 0.001


def command(*words: bytes | str | int) -> bytes:
    """A request as client libraries send it."""
    parts = [as_bytes(word) for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def inline(*words: bytes | str | int) -> bytes:
    """A request as one types it, quoted where it must be."""
    return b" ".join(quoted(as_bytes(word)) for word in words) + b"\r\n"


def quoted(word: bytes) -> bytes:
    if word and all(33 <= byte <= 126 and byte not in b"\"'\\" for byte in word):
        return word
    return b'"%b"' % b"".join(b"\\x%02x" % byte for byte in word)


def as_bytes(word: bytes | str | int) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(*items: bytes) -> bytes:
    """An array of replies that are already encoded."""
    return b"*%d\r\n" % len(items) + b"".join(items)


# Reading


class Incomplete(Exception):
    """The reply is not all there yet."""


class ErrorReply(str):
    """The text of an error, for replies that are looked into."""

    __slots__ = ()


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The reply that begins there as Python has it, and where it ends. Maps are lists of pairs."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise Incomplete
    kind, line, end = data[at : at + 1], data[at + 1 : end], end + 2
    if kind in b"$=!":
        return _decode_bulk(data, int(line), end)
    if kind in b"*~>%":
        return _decode_items(data, int(line) * (2 if kind == b"%" else 1), end)
    plain: dict[bytes, Callable[[bytes], Any]] = {
        b"+": bytes,
        b"-": _error,
        b":": int,
        b",": float,
        b"#": _flag,
        b"_": _nothing,
    }
    assert kind in plain, f"no reply begins with {data[at : at + 20]!r}"
    return plain[kind](line), end


def _decode_bulk(data: bytes, size: int, at: int) -> tuple[bytes | None, int]:
    if size < 0:
        return None, at
    if len(data) < at + size + 2:
        raise Incomplete
    assert data[at + size : at + size + 2] == b"\r\n", data[at : at + size + 2]
    return data[at : at + size], at + size + 2


def _decode_items(data: bytes, size: int, at: int) -> tuple[list[Any] | None, int]:
    if size < 0:
        return None, at
    items = []
    for _ in range(size):
        item, at = decode(data, at)
        items.append(item)
    return items, at


def _error(line: bytes) -> ErrorReply:
    return ErrorReply(line.decode(errors="replace"))


def _flag(line: bytes) -> bool:
    return {b"t": True, b"f": False}[line]


def _nothing(line: bytes) -> None:
    assert line == b""


def value(reply: bytes) -> Any:
    """What this one reply says."""
    decoded, end = decode(reply)
    assert end == len(reply), f"{reply[end:]!r} behind a reply"
    return decoded


def replies(data: bytes) -> list[bytes]:
    """These whole replies, one by one."""
    found = []
    while data:
        _, end = decode(data)
        found.append(data[:end])
        data = data[end:]
    return found


# Clients and servers


class RespClient(Protocol):
    """One connection."""

    def send(self, data: bytes) -> None: ...

    def reply(self) -> bytes:
        """The next whole reply, for which time may have to pass; b"" if the connection ends."""

    def drain(self) -> tuple[bytes, bool]:
        """All that the server had to say without waiting, and whether it can say more."""

    def close(self) -> None: ...


def ask(client: RespClient, *words: bytes | str | int) -> bytes:
    client.send(command(*words))
    return client.reply()


class RespSide(Protocol):
    def connect(self) -> RespClient: ...


class SocketClient:
    """A connection over TCP."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket = socket.create_connection(address, timeout=HANG_GUARD)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread = b""

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def reply(self) -> bytes:
        while True:
            try:
                _, end = decode(self._unread)
            except Incomplete:
                if not self._receive():
                    assert not self._unread, f"closed within {self._unread!r}"
                    return b""
            else:
                reply, self._unread = self._unread[:end], self._unread[end:]
                return reply

    def drain(self) -> tuple[bytes, bool]:
        """Two round trips on a second connection give the server the turns it needs."""
        with contextlib.closing(SocketClient(self._address)) as probe:
            for _ in range(2):
                assert ask(probe, "PING") == b"+PONG\r\n"
        self._socket.setblocking(False)
        is_open = True
        with contextlib.suppress(BlockingIOError):
            while is_open:
                is_open = self._receive()
        self._socket.settimeout(HANG_GUARD)
        data, self._unread = self._unread, b""
        return data, is_open

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bool:
        """Wait for more; false at the end of the stream."""
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionResetError:  # it ended with requests unread
            return False
        self._unread += data
        return bool(data)


class SocketSide:
    """A Redis or a Taskyard that listens there."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def connect(self) -> SocketClient:
        return SocketClient(self._address)


class SimulatedClient:
    """A connection to a server whose clock moves while a reply is waited for."""

    def __init__(self, yard: SimulatedServer, peer: SimulatedPeer) -> None:
        self._yard = yard
        self._peer = peer
        self._unread = b""

    def send(self, data: bytes) -> None:
        self._peer.send(data)

    def reply(self) -> bytes:
        waited = 0.0
        while True:
            self._unread += self._peer.take()
            with contextlib.suppress(Incomplete):
                _, end = decode(self._unread)
                reply, self._unread = self._unread[:end], self._unread[end:]
                return reply
            if self._peer.closed:
                assert not self._unread, f"closed within {self._unread!r}"
                return b""
            assert waited < LONGEST_WAIT, f"no whole reply but {self._unread!r}"
            self._yard.advance(TICK)
            waited += TICK

    def drain(self) -> tuple[bytes, bool]:
        self._yard.run_pending()
        data, self._unread = self._unread + self._peer.take(), b""
        return data, not self._peer.closed

    def close(self) -> None:
        self._peer.close()


class SimulatedSide:
    def __init__(self, yard: SimulatedServer) -> None:
        self.yard = yard

    def connect(self) -> SimulatedClient:
        return SimulatedClient(self.yard, self.yard.connect("resp"))
