"""The client's side of a WebSocket: what it sends is masked, what comes is taken apart. No I/O."""

from __future__ import annotations

from random import Random

TEXT = 1
BINARY = 2
CLOSE = 8
PING = 9
PONG = 10

_FIN = 0x80
_MASKED = 0x80


def upgrade(path: str, headers: dict[str, str]) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def masked(opcode: int, payload: bytes, chance: Random) -> bytes:
    mask, size = chance.randbytes(4), len(payload)
    first = bytes((_FIN | opcode,))
    if size < 126:
        head = first + bytes((_MASKED | size,))
    elif size <= 0xFFFF:
        head = first + bytes((_MASKED | 126,)) + size.to_bytes(2, "big")
    else:
        head = first + bytes((_MASKED | 127,)) + size.to_bytes(8, "big")
    stream = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ stream).to_bytes(size, "big")


class FrameReader:
    """Bytes of a server in, frames out; each of them is a whole message."""

    def __init__(self) -> None:
        self._unread = b""

    def feed(self, data: bytes) -> None:
        self._unread += data

    def next(self) -> tuple[int, bytes] | None:
        data = self._unread
        if len(data) < 2:
            return None
        assert data[0] & 0xF0 == _FIN, "not a whole message"
        assert data[1] < _MASKED, "a server does not mask"
        size, start = data[1], 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10], "big"), 10
        if len(data) < start + size:
            return None
        self._unread = data[start + size :]
        return data[0] & 0x0F, data[start : start + size]
