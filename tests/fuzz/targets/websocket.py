"""WebSocket frames: the same messages wherever the bytes are cut, and none beyond the limit."""

from __future__ import annotations

import asyncio

from fuzz.inputs import cut, with_cuts
from support.websocket_ear import Ear, Wire, frame, request

from taskyard.protocols.http.websocket import WebSocket

LIMIT = 200


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


_loop = asyncio.new_event_loop()


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    whole = _loop.run_until_complete(_talk([sent]))
    assert _loop.run_until_complete(_talk(pieces)) == whole


async def _talk(pieces: list[bytes]) -> tuple[object, bool]:
    wire, ear = Wire(), Ear()
    reader = WebSocket(wire, LIMIT)
    reader.complete_handshake(request())
    assert wire.written.startswith(b"HTTP/1.1 101 ")
    reader.attach_handler(ear, b"")
    for piece in pieces:
        if wire.closed or ear.hung_up:
            break
        reader.feed(piece)
        assert 0 <= reader.partial_message_bytes() <= 2 * LIMIT + sum(map(len, pieces))
    over = wire.closed or ear.hung_up
    reader.on_disconnect()
    assert all(len(payload) <= LIMIT for _, payload in ear.heard)
    return ear.heard, over
