"""Glovebox's JSON: each message has its answer or waits, and the connection goes on."""

from __future__ import annotations

import json

from fuzz.inputs import Choices
from fuzz.talking import check_served, check_server_state, new_server

from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox import messages as glovebox_messages
from taskyard.protocols.glovebox.types import MalformedMessage

SEEDS = [
    (
        b"\0"
        b'{"type":"post","queue":"q","message":"hello","label":1,"notify":["ready","sync","finish"]}\n'
        b'{"type":"fetch","queue":"q","work_timeout":2.5,"block_timeout":1,"sync":"sync","label":7}\n'
        b'{"type":"finish","queue":"q","sequence":1,"shard":0,"label":9,"response":"sync"}\n'
    ),
    (
        b"\1"
        b'{"type":"create","queue":"q","label":3,"retries":2,"shard_max_entries":5}\n'
        b'{"type":"post","queue":"q","message":[1,2,255],"priority":4294967295}\n'
        b'{"type":"pop","queue":"q","timeout":0.5,"label":18446744073709551615,"sync":"write"}\n'
    ),
    b'\2{"type":"fetch","queue":"q","work_timeout":1}\n{"type":"pop","queue":"p"}\n{}\n[]\n"x"\n',
]
WORDS = [
    b'"type":"',
    b"post",
    b"fetch",
    b"finish",
    b"pop",
    b"create",
    b'"queue":"',
    b'"message":',
    b'"label":',
    b'"work_timeout":',
    b'"block_timeout":',
    b'"notify":[',
    b'"sequence":',
    b'"retries":',
    b"1e400",
    b"18446744073709551616",
    b"\\ud800",
]
KNOWN = ("message", "notice", "hello", "nomessage", "error")


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    durable = choices.byte() % 2 == 1
    lines = choices.rest().split(b"\n")[:20]
    for line in lines:
        _check_codec(line)
    yard = new_server()
    peer = yard.connect_glovebox(durable=durable)
    assert peer.next()["type"] == "hello"
    for line in lines:
        peer.send_text(line)
        if peer.closed:
            break
        if not _is_request(line):
            assert peer.responses
            assert peer.responses[-1]["type"] == "error"
            assert peer.responses[-1]["code"] == "BadRequest"
    if not peer.closed:
        peer.send_json(type="create", queue="after", label=77)
        assert peer.responses[-1]["label"] == 77, peer.responses[-1]
    assert all(response["type"] in KNOWN for response in peer.responses)
    yard.advance(10)
    check_served(yard)
    check_server_state(yard)


def _is_request(line: bytes) -> bool:
    try:
        glovebox_messages.decode_request(line)
    except MalformedMessage:
        return False
    return True


def _check_codec(line: bytes) -> None:
    """What is a request here is the same one in the binary form."""
    try:
        request = glovebox_messages.decode_request(line)
    except MalformedMessage as error:
        assert 0 <= error.label < 1 << 64
        json.dumps(str(error))
        return
    try:
        encoded = bincode.encode_request(request)
    except OverflowError:
        return  # a time beyond 32 bits, which the binary form does not have
    assert bincode.encode_request(bincode.decode_request(encoded)) == encoded
