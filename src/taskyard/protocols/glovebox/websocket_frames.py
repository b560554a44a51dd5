"""WebSocket frames as a server sends them: whole messages, unmasked."""

from __future__ import annotations

from typing import Final

TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

_FIN: Final = 0x80


def encode_frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    first = _FIN | opcode
    if size < 126:
        return bytes((first, size)) + payload
    if size <= 0xFFFF:
        return bytes((first, 126)) + size.to_bytes(2, "big") + payload
    return bytes((first, 127)) + size.to_bytes(8, "big") + payload
