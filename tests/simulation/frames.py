"""WebSockets from the client's side, as much as is needed: bytes in, messages out. No I/O."""

from __future__ import annotations

import base64
from random import Random


def handshake(chance: Random) -> bytes:
    key = base64.b64encode(chance.randbytes(16)).decode()
    return (
        "GET /connect/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    ).encode()


def masked(opcode: int, payload: bytes, chance: Random) -> bytes:
    """A message in one frame, as a client has to send it."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, 0x80 | size))
    elif size < 1 << 16:
        head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    mask = chance.randbytes(4)
    long_mask = (mask * (size // 4 + 1))[:size]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(long_mask, "big")
    return head + mask + mixed.to_bytes(size, "big")


class Frames:
    """What a server sends: the answer to the handshake, then frames that are not masked."""

    def __init__(self) -> None:
        self._unread = b""
        self._begun = False
        self._refused = False  # by a server that is about to stop

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        if self._refused:
            return []
        self._unread += data
        if not self._begun:
            head, end, rest = self._unread.partition(b"\r\n\r\n")
            if not end:
                return []
            if head.startswith(b"HTTP/1.1 503 "):
                self._refused = True
                return []
            assert head.startswith(b"HTTP/1.1 101 "), head
            self._begun = True
            self._unread = rest
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def _next(self) -> tuple[int, bytes] | None:
        data = self._unread
        if len(data) < 2:
            return None
        assert data[0] & 0x80, "not a whole message"
        size, start = data[1], 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10], "big"), 10
        if len(data) < start + size or (start > 2 and len(data) < start):
            return None
        self._unread = data[start + size :]
        return data[0] & 0x0F, data[start : start + size]
