"""Frames of WebSockets: which of them become messages, and how those are refused that do not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from support.websocket_ear import Ear, Wire, frame, request

from taskyard.protocols.http.websocket import MAX_PARTS, WebSocket

LIMIT = 1_000_000
TEXT, CONTINUATION, LAST, PING, PONG, CLOSE = 0x81, 0x00, 0x80, 0x89, 0x8A, 0x88
FIRST_PART = 0x01


class Socket:
    """A WebSocket that a client has just been let in on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wire, self.ear = Wire(), Ear()
        self._loop = loop
        self.reader = loop.run_until_complete(self._open())

    async def _open(self) -> WebSocket:
        reader = WebSocket(self.wire, LIMIT)
        reader.complete_handshake(request())
        self.wire.written.clear()
        reader.attach_handler(self.ear, b"")
        return reader

    def feed(self, data: bytes) -> None:
        async def feed() -> None:
            self.reader.feed(data)

        self._loop.run_until_complete(feed())

    def leave(self) -> None:
        """The connection is lost, and nothing of it is left in the loop."""
        self.reader.on_disconnect()
        for _ in range(3):
            self._loop.run_until_complete(asyncio.sleep(0))

    def closed_with(self) -> int:
        """The code of the close frame, which is the last thing that was sent."""
        written = bytes(self.wire.written)
        at = written.rindex(b"\x88")
        assert len(written) == at + 2 + written[at + 1]
        return int.from_bytes(written[at + 2 : at + 4])


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def client(loop: asyncio.AbstractEventLoop) -> Iterator[Socket]:
    socket = Socket(loop)
    yield socket
    socket.leave()


@pytest.mark.parametrize("piece", [1_000, 65_536, 2 * LIMIT])
def test_a_frame_beyond_the_limit_is_refused_and_never_heard(client: Socket, piece: int) -> None:
    sent = frame(TEXT, b"x" * (LIMIT + 1)) + frame(TEXT, b"behind it")
    for start in range(0, len(sent), piece):
        client.feed(sent[start : start + piece])
    assert client.closed_with() == 1009
    assert client.ear.heard == []
    assert client.ear.why == "a message was too large"


def test_what_came_before_a_bad_frame_counts(client: Socket) -> None:
    client.feed(frame(TEXT, b"good") + frame(TEXT, b"x" * (LIMIT + 1)))
    assert client.closed_with() == 1009
    assert client.ear.heard == [("text", b"good")]


@pytest.mark.parametrize("bit", [0x40, 0x20, 0x10])
@pytest.mark.parametrize("kind", [TEXT, 0x82, FIRST_PART, PING, PONG])
def test_reserved_bits_break_the_protocol(client: Socket, bit: int, kind: int) -> None:
    client.feed(frame(kind | bit, b"x") + frame(TEXT, b"behind it"))
    assert client.closed_with() == 1002
    assert client.ear.heard == []
    assert client.ear.why == "a frame was not as the protocol has it"


def test_reserved_bits_in_a_continuation_break_the_protocol(client: Socket) -> None:
    client.feed(frame(FIRST_PART, b"one") + frame(LAST | 0x40, b"two"))
    assert client.closed_with() == 1002
    assert client.ear.heard == []


@pytest.mark.parametrize("wrong", [frame(LAST, b"x"), frame(FIRST_PART, b"x") + frame(TEXT, b"y")])
def test_parts_out_of_order_break_the_protocol(client: Socket, wrong: bytes) -> None:
    client.feed(wrong)
    assert client.closed_with() == 1002
    assert client.ear.heard == []


def test_a_message_may_have_a_bounded_number_of_parts(client: Socket) -> None:
    most = frame(FIRST_PART, b"a") + frame(CONTINUATION) * (MAX_PARTS - 2) + frame(LAST, b"z")
    client.feed(most)
    assert client.ear.heard == [("text", b"az")]
    client.feed(frame(FIRST_PART, b"a") + frame(CONTINUATION) * (MAX_PARTS - 1))
    assert not client.ear.hung_up
    client.feed(frame(LAST, b"z"))
    assert client.closed_with() == 1008
    assert client.ear.heard == [("text", b"az")]
    assert client.ear.why == "a message had more than 4096 frames"


def test_parts_that_are_empty_are_a_message_that_has_begun(client: Socket) -> None:
    client.feed(frame(FIRST_PART))
    assert client.reader.partial_message_bytes() > 0
    client.feed(frame(LAST))
    assert client.reader.partial_message_bytes() == 0
    assert client.ear.heard == [("text", b"")]


def test_parts_together_have_the_limit_of_a_message(client: Socket) -> None:
    client.feed(frame(FIRST_PART, b"x" * 600_000))
    client.feed(frame(LAST, b"x" * 600_000))
    assert client.closed_with() == 1009
    assert client.ear.heard == []


def test_pings_are_answered_and_do_not_count_as_a_message_that_has_begun(client: Socket) -> None:
    client.feed(frame(PING, b"there?") * 2)
    assert client.wire.written == b"\x8a\x06there?" * 2
    assert client.reader.partial_message_bytes() == 0


def test_what_has_begun_behind_a_whole_frame_is_counted(client: Socket) -> None:
    client.feed(frame(TEXT, b"whole") + b"\x81\x85")
    assert client.reader.partial_message_bytes() == 2


def test_a_goodbye_is_answered_and_breaks_nothing(client: Socket) -> None:
    client.feed(frame(CLOSE, b"\x03\xe8bye") + frame(TEXT, b"behind it"))
    assert client.closed_with() == 1000
    assert client.ear.hung_up
    assert client.ear.why == ""
    assert client.ear.heard == []


def test_closing_is_left_to_the_speaker(client: Socket, loop: asyncio.AbstractEventLoop) -> None:
    client.feed(b"\x83\x80abcd")  # no such kind of frame
    assert client.closed_with() == 1002
    loop.run_until_complete(asyncio.sleep(0.02))  # twice as long as picows gives it
    assert not client.wire.closed


def test_memory_of_a_large_frame_is_given_back(client: Socket) -> None:
    client.feed(frame(TEXT, b"x" * 900_000))
    room = client.reader._protocol.get_buffer(0)
    assert len(room) < 100_000
    assert client.wire.written == b""
    client.feed(frame(TEXT, b"small"))
    assert [len(payload) for _, payload in client.ear.heard] == [900_000, 5]


class Failing(Ear):
    def on_text(self, data: bytes) -> None:
        raise MemoryError


def test_an_error_of_who_hears_comes_out_where_the_bytes_went_in(client: Socket) -> None:
    client.reader.attach_handler(Failing(), b"")
    with pytest.raises(MemoryError):
        client.feed(frame(TEXT, b"x"))


def test_the_library_says_nothing_in_the_log(
    client: Socket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger().setLevel(logging.DEBUG)
    client.feed(frame(TEXT, b"x" * (LIMIT + 1)))
    assert caplog.records == []
