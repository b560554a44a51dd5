"""Both ends of a WebSocket's reading side: a transport that is none, and who hears the messages."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from taskyard.protocols.http.wire import ParsedRequest, Request

_socket = socket.socket()  # nothing but its options are set


def frame(first: int, payload: bytes = b"", mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """As a client sends it; `first` is its first byte."""
    size = len(payload)
    head = bytes([first, 0x80 | min(size, 127)])
    if size > 0xFFFF:
        head = bytes([first, 0xFF]) + size.to_bytes(8)
    elif size > 125:
        head = bytes([first, 0xFE]) + size.to_bytes(2)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def request() -> ParsedRequest:
    """The one that asks for an upgrade."""
    headers = {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    return ParsedRequest(Request("GET", "/connect", {}, headers), "/connect", True)


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
        self.why = ""

    def on_text(self, data: bytes) -> None:
        self._hear("text", data)

    def on_binary(self, data: bytes) -> None:
        self._hear("data", data)

    def on_pong(self, data: bytes) -> None:
        self._hear("pong", data)

    def on_close(self, why: str) -> None:
        self.hung_up = True
        self.why = why

    def _hear(self, kind: str, data: bytes) -> None:
        if not self.hung_up:
            self.heard.append((kind, data))
