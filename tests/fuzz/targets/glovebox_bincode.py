"""Glovebox's binary form: what is read is written the same again, and each message is answered."""

from __future__ import annotations

from fuzz.inputs import Choices, as_blocks
from fuzz.talking import check_served, check_server_state, new_server

from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox import messages as glovebox_messages
from taskyard.protocols.glovebox import types as t

REQUESTS = [
    t.Post("q", b"hello", 3, 1, 0b1010001),
    t.Fetch("q", 1.5, 2.5, t.WAIT_SYNCED, 7),
    t.Fetch("q", None, 0.0, t.READY, 7),
    t.Finish("q", 1, 0, 9, t.WAIT_SYNCED),
    t.Finish("q", 2, 0, None, t.UNSPECIFIED),
    t.Pop("q", t.WAIT_WRITTEN, 0.5, 2**64 - 1),
    t.Create("q", 3, 2, 5, None),
]
RESPONSES = [
    t.FetchedMessage(1, 0, 2, b"body", True),
    t.Notice(1, 2),
    t.Hello(2**64 - 1),
    t.NoMessage(5),
    t.Error(1, 0, "key"),
    t.Error(1, t.BAD_REQUEST, "key"),
]
SEEDS = [
    b"\0" + as_blocks([bincode.encode_request(request) for request in REQUESTS]),
    b"\1" + as_blocks([bincode.encode_request(request) for request in REQUESTS[::-1]]),
    b"\0" + as_blocks([bincode.encode_response(response) for response in RESPONSES]),
]


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    durable = choices.byte() % 2 == 1
    messages: list[bytes] = []
    while choices and len(messages) < 16:
        messages.append(choices.block())
    for message in messages:
        _check_request(message)
        _check_response(message)
    yard = new_server()
    peer = yard.connect_glovebox(binary=True, durable=durable)
    assert peer.next()["type"] == "hello"
    for message in messages:
        peer.send_data(message)
        if peer.closed:
            break
    if not peer.closed:
        peer.send_request(t.Create("after", 77, None, None, None))
        assert peer.responses[-1]["label"] == 77, peer.responses[-1]
    yard.advance(10)
    check_served(yard)
    check_server_state(yard)


def _check_request(message: bytes) -> None:
    try:
        request = bincode.decode_request(message)
    except t.MalformedMessage:
        return
    encoded = bincode.encode_request(request)
    if isinstance(request, t.Post):  # stages may come in any order, and twice
        assert len(encoded) <= len(message)
    else:
        assert _same_but_nan(encoded, message)
    assert bincode.encode_request(bincode.decode_request(encoded)) == encoded


def _same_but_nan(one: bytes, other: bytes) -> bool:
    """A number that is none may come back as another that is none."""
    return one == other or (len(one) == len(other) and b"\xff" in one.replace(b"\x7f", b"\xff"))


def _check_response(message: bytes) -> None:
    try:
        response = bincode.decode_response(message)
    except t.MalformedMessage:
        return
    assert bincode.encode_response(response) == message
    glovebox_messages.encode_response(response)
