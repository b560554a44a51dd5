"""WebSocket frames: the same messages wherever the bytes are cut, and none beyond the limit."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from fuzz.inputs import cut, with_cuts

from taskyard.http.messages import Request
from taskyard.http.parser import Incoming
from taskyard.http.websocket import WebSocket

LIMIT = 200


def frame(first: int, payload: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    size = len(payload)
    head = bytes([first, 0x80 | size]) if size < 126 else bytes([first, 0xFE]) + size.to_bytes(2)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


SEEDS = [
    with_cuts(frame(0x81, b'{"type":"pop","queue":"q"}') + frame(0x82, b"\0\1\2"), 3, 10),
    with_cuts(frame(0x01, b"one ") + frame(0x89, b"ping") + frame(0x80, b"two"), 7, 9),
    with_cuts(frame(0x8A, b"pong") + frame(0x88, b"\x03\xe8bye"), 2),
    with_cuts(frame(0x82, b"x" * 190) + frame(0x02, b"y" * 150) + frame(0x80, b"z" * 60), 150, 150),
    with_cuts(frame(0x82, b"x" * 201)),
    with_cuts(b"\x82\xff" + b"\x7f" + b"\xff" * 7 + b"abcd"),
    with_cuts(frame(0x80, b"nothing before it")),
    with_cuts(b"\x81\x03abc"),
]


class Wire(asyncio.Transport):
    """A socket that is none."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _socket if name == "socket" else default

    def write(self, data: Any) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class Ear:
    """Hears messages."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.hung_up = False

    def text(self, data: bytes) -> None:
        self._hear("text", data)

    def data(self, data: bytes) -> None:
        self._hear("data", data)

    def pong(self, data: bytes) -> None:
        self._hear("pong", data)

    def hang_up(self, lingers: bool) -> None:
        self.hung_up = True

    def _hear(self, kind: str, data: bytes) -> None:
        assert len(data) <= LIMIT, f"{len(data)} bytes in a message"
        if not self.hung_up:
            self.heard.append((kind, data))


_loop = asyncio.new_event_loop()
_socket = socket.socket()  # nothing but its options are set


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    whole = _loop.run_until_complete(_talk([sent]))
    assert _loop.run_until_complete(_talk(pieces)) == whole


async def _talk(pieces: list[bytes]) -> tuple[object, bool]:
    wire, ear = Wire(), Ear()
    reader = WebSocket(wire, LIMIT)
    headers = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    reader.shake_hands(Incoming(Request("GET", "/connect", {}, headers), "/connect", True))
    assert wire.written.startswith(b"HTTP/1.1 101 ")
    reader.begin(ear, b"")
    for piece in pieces:
        if wire.closed or ear.hung_up:
            break
        reader.feed(piece)
        assert 0 <= reader.begun() <= 2 * LIMIT + sum(map(len, pieces))
    over = wire.closed or ear.hung_up
    reader.lost()
    return ear.heard, over
