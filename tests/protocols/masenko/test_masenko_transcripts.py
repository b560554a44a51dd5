"""Masenko conversations, replayed whole, cut at every byte, byte by byte, and in one write.

However the bytes arrive, the replies are the same. INFO's metrics and the reason in `unmarshal
payload: <why>` are free, so they stand as `{}` and `...` here.
"""

import re

import pytest
from support.effort import LONG
from support.simulated import SimulatedServer
from support.wire import Peer, Wire

Steps = list[tuple[bytes, bytes]]

CANNOT_UNMARSHAL = b'ERR {"msg":"cannot unmarshal payload"}\n'
UNMARSHAL = b'ERR {"msg":"unmarshal payload: ..."}\n'
MISSING_ID = b'ERR {"msg":"missing id"}\n'
NOT_ACQUIRED = b'ERR {"msg":"task not acquired"}\n'
ALL_FINISHED = b'OK {"queues":[{"name":"default","ready":0,"delayed":0,"to_ack":0}],"metrics":{}}\n'
EVERY_ATTRIBUTE = (
    b'PUSH {"name":"mail","queue":"q","deadqueue":"dead","payload":{ "b" : 1.50, "a" : '
    b'[ 1e3 ,null ] },"retry":0,"execute_at":"2001-02-03T04:05:06.789+01:00",'
    b'"blocked_by":[9],"unknown":{}}\n'
)
BLOCKERS_256 = b",".join(b"%d" % number for number in range(1, 257))

TRANSCRIPTS: dict[str, Steps] = {
    "ping": [
        (b"PING\n", b"PONG {}\n"),
        (b"ping \n", b"PONG {}\n"),
        (b"PING {}\r\n", b"PONG {}\n"),
    ],
    "unknown verbs": [
        (b"BOGUS\n", b'ERR {"msg":"unknown verb BOGUS"}\n'),
        (b"BOGUS {}\n", b'ERR {"msg":"unknown verb BOGUS"}\n'),
        (b"\n", b'ERR {"msg":"unknown verb "}\n'),
        (b" \r\n", b'ERR {"msg":"unknown verb "}\n'),
        (b'A"B\\C\n', b'ERR {"msg":"unknown verb A\\"B\\\\C"}\n'),
        (b"DONE\n", b'ERR {"msg":"DONE is not allowed outside of a transaction."}\n'),
        (b"PING\n", b"PONG {}\n"),
    ],
    "push, fetch, ack": [
        (b'PUSH {"name":"a"}\n', b'OK {"id":1}\n'),
        (b'FETCH {"queues":["default"]}\n', b'OK {"id":1,"queue":"default","name":"a"}\n'),
        (b'ACK {"id":1}\n', b"OK {}\n"),
        (b'ACK {"id":1}\n', NOT_ACQUIRED),
        (b"INFO\n", ALL_FINISHED),
        (b'INFO {"a":1}\n', ALL_FINISHED),
    ],
    "every attribute": [
        (
            EVERY_ATTRIBUTE,
            b'OK {"id":1}\n',
        ),
        (
            b'FETCH {"queues":["x","q"],"timeout":"2.5s"}\n',
            b'OK {"id":1,"queue":"q","name":"mail","payload":{"b":1.50,"a":[1e3,null]}}\n',
        ),
        (b'NACK {"id":1}\n', b"OK {}\n"),
        (
            b'FETCH {"queues":["dead"],"timeout":1000000000}\n',
            b'OK {"id":1,"queue":"dead","name":"mail","payload":{"b":1.50,"a":[1e3,null]}}\n',
        ),
        (b'ACK {"id":1}\n', b"OK {}\n"),
    ],
    "text beyond ASCII": [
        (
            'PUSH {"name":"é","queue":"очередь","payload":"日本 😀"}\n'.encode(),
            b'OK {"id":1}\n',
        ),
        (
            'FETCH {"queues":["очередь"]}\n'.encode(),
            'OK {"id":1,"queue":"очередь","name":"é","payload":"日本 😀"}\n'.encode(),
        ),
    ],
    "bad pushes": [
        (b"PUSH\n", CANNOT_UNMARSHAL),
        (b"PUSH {\n", CANNOT_UNMARSHAL),
        (b'PUSH {"name":1}\n', CANNOT_UNMARSHAL),
        (b'PUSH {"name":"a","retry":-1}\n', CANNOT_UNMARSHAL),
        (b'PUSH {"name":"a","retry":256}\n', CANNOT_UNMARSHAL),
        (b'PUSH {"name":"a","execute_at":"2030-01-01T00:00:00"}\n', CANNOT_UNMARSHAL),
        (b'PUSH {"name":"a","blocked_by":["1"]}\n', CANNOT_UNMARSHAL),
        (b'PUSH {"name":"a"} x\n', CANNOT_UNMARSHAL),
        (b'PUSH {"name":"\xff"}\n', CANNOT_UNMARSHAL),
        (b"PUSH {}\n", b'ERR {"msg":"invalid task name \\"\\""}\n'),
        (b'PUSH {"name":"a b"}\n', b'ERR {"msg":"invalid task name \\"a b\\""}\n'),
        (b'PUSH {"name":"a","queue":"x y"}\n', b'ERR {"msg":"invalid queue name \\"x y\\""}\n'),
        (
            b'PUSH {"name":"a","deadqueue":"x y"}\n',
            b'ERR {"msg":"invalid queue name \\"x y\\""}\n',
        ),
        (
            b'PUSH {"name":"a","blocked_by":[0]}\n',
            b'ERR {"msg":"cannot use relative blocked by outside of a transaction"}\n',
        ),
        (b'PUSH {"name":"a"}\n', b'OK {"id":1}\n'),
    ],
    "too many blockers": [
        (
            b'PUSH {"name":"a","blocked_by":[' + BLOCKERS_256 + b"]}\n",
            b'ERR {"msg":"at most 255 blocked by task IDs can be provided"}\n',
        ),
    ],
    "bad fetches": [
        (b"FETCH {\n", CANNOT_UNMARSHAL),
        (b'FETCH {"queues":"q"}\n', CANNOT_UNMARSHAL),
        (b'FETCH {"queues":[1]}\n', CANNOT_UNMARSHAL),
        (b'FETCH {"timeout":"soon"}\n', CANNOT_UNMARSHAL),
        (b'FETCH {"queues":["x y"]}\n', b'ERR {"msg":"invalid queue name \\"x y\\""}\n'),
        (b'FETCH {"timeout":0}\n', b'ERR {"msg":"timeout must be greater than zero"}\n'),
        (
            b'FETCH {"timeout":"45s"}\n',
            b'ERR {"msg":"timeout must be smaller than the heartbeat frequency 45s"}\n',
        ),
        (b'FETCH {"queues":[]}\n', b"EMPTY {}\n"),
    ],
    "bad acks and nacks": [
        (b"ACK {}\n", MISSING_ID),
        (b'NACK {"id":0}\n', MISSING_ID),
        (b"ACK {\n", UNMARSHAL),
        (b'NACK {"id":"1"}\n', UNMARSHAL),
        (b'ACK {"id":-1}\n', UNMARSHAL),
        (b'NACK {"id":1} x\n', UNMARSHAL),
        (b'ACK {"id":7}\n', NOT_ACQUIRED),
        (b'NACK {"id":7}\n', NOT_ACQUIRED),
    ],
    "a nack without retries": [
        (b'PUSH {"name":"a","retry":0}\n', b'OK {"id":1}\n'),
        (b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n'),
        (b'NACK {"id":1}\n', b"OK {}\n"),
        (b'NACK {"id":1}\n', NOT_ACQUIRED),
        (b"INFO\n", ALL_FINISHED),
    ],
    "blocked tasks": [
        (b'PUSH {"name":"a"}\n', b'OK {"id":1}\n'),
        (b'PUSH {"name":"b","blocked_by":[1]}\n', b'OK {"id":2}\n'),
        (b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n'),
        (
            b"INFO\n",
            b'OK {"queues":[{"name":"default","ready":0,"delayed":1,"to_ack":1}],"metrics":{}}\n',
        ),
        (b'ACK {"id":1}\n', b"OK {}\n"),
        (b"FETCH\n", b'OK {"id":2,"queue":"default","name":"b"}\n'),
    ],
    "a transaction": [
        (b'PUSH {"name":"a"}\n', b'OK {"id":1}\n'),
        (b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n'),
        (b"ATOMIC\n", b""),
        (b'PUSH {"name":"b","payload":[1, 2]}\n', b""),
        (b'ACK {"id":1}\n', b""),
        (b'PUSH {"name":"c","blocked_by":[-1]}\n', b""),
        (b"DONE\n", b'OK {"ids":[2,3]}\n'),
        (b"FETCH\n", b'OK {"id":2,"queue":"default","name":"b","payload":[1,2]}\n'),
        (b"atomic {}\r\n", b""),
        (b'ack {"id":2}\r\n', b""),
        (b"done {}\r\n", b"OK {}\n"),
        (b"FETCH\n", b'OK {"id":3,"queue":"default","name":"c"}\n'),
        (b"ATOMIC\n", b""),
        (b"DONE\n", b"OK {}\n"),
    ],
    "failed transactions": [
        (b"ATOMIC\n", b""),
        (b'PUSH {"name":"a"}\n', b""),
        (b"PING\n", b""),
        (b"DONE\n", b'ERR {"msg":"PING is not allowed in transaction."}\n'),
        (b"ATOMIC\n", b""),
        (b'PUSH {"name":"a"}\n', b""),
        (b"PUSH {}\n", b""),
        (b"QUIT\n", b""),
        (b"DONE\n", b'ERR {"msg":"message 1: PUSH: invalid task name \\"\\""}\n'),
        (b"ATOMIC\n", b""),
        (b"ACK {\n", b""),
        (b"DONE\n", b'ERR {"msg":"message 0: ACK: unmarshal payload: ..."}\n'),
        (b"ATOMIC\n", b""),
        (b'PUSH {"name":"a"}\n', b""),
        (b'ACK {"id":9}\n', b""),
        (b"DONE\n", b'ERR {"msg":"task 9 not acquired"}\n'),
        (b"ATOMIC\n", b""),
        (b'PUSH {"name":"a","blocked_by":[0]}\n', b""),
        (b"DONE\n", b'ERR {"msg":"message 0: PUSH: cannot self reference in blocked by"}\n'),
        (b"ATOMIC\n", b""),
        (b'PUSH {"name":"a"}\n', b""),
        (b'PUSH {"name":"a","blocked_by":[-2]}\n', b""),
        (
            b"DONE\n",
            b'ERR {"msg":"message 1: PUSH: invalid relative task position in blocked by"}\n',
        ),
        (b"DONE\n", b'ERR {"msg":"DONE is not allowed outside of a transaction."}\n'),
        (b'PUSH {"name":"a"}\n', b'OK {"id":1}\n'),
    ],
    "quit": [
        (b'PUSH {"name":"a"}\n', b'OK {"id":1}\n'),
        (b"QUIT {}\n", b"OK {}\n"),
    ],
}

METRICS = re.compile(rb'"metrics":\{.*\}(?=\}\n)')
REASON = re.compile(rb'(?<=unmarshal payload: )(?:[^"\\]|\\.)+')


def read_replies(peer: Peer, expected: bytes) -> bytes:
    """As many lines as are expected, with what is free in them left out."""
    lines = [peer.read_line() for _ in range(expected.count(b"\n"))]
    return b"".join(REASON.sub(b"...", METRICS.sub(b'"metrics":{}', line)) for line in lines)


def expect_end(peer: Peer, steps: Steps) -> None:
    """After the last reply the connection is closed if the client quit, and silent otherwise."""
    if steps[-1][0].startswith(b"QUIT"):
        peer.expect_closed()
    else:
        peer.expect_nothing()


def replay_in_pieces(pieces: list[bytes], steps: Steps) -> None:
    """Send the pieces to a new server; the replies must be those of the conversation."""
    peer = SimulatedServer().connect()
    for piece in pieces:
        peer.send(piece)
    expected = b"".join(received for _, received in steps)
    assert read_replies(peer, expected) == expected, pieces
    expect_end(peer, steps)


@pytest.fixture(params=TRANSCRIPTS.values(), ids=list(TRANSCRIPTS))
def steps(request: pytest.FixtureRequest) -> Steps:
    conversation: Steps = request.param
    return conversation


def test_a_conversation_goes_as_written(wire: Wire, steps: Steps) -> None:
    peer = wire.connect()
    for sent, received in steps:
        peer.send(sent)
        assert read_replies(peer, received) == received
        if not received:
            peer.expect_nothing()
    expect_end(peer, steps)


def test_a_conversation_in_one_write_has_the_same_replies(wire: Wire, steps: Steps) -> None:
    peer = wire.connect()
    peer.send(b"".join(sent for sent, _ in steps))
    expected = b"".join(received for _, received in steps)
    assert read_replies(peer, expected) == expected
    expect_end(peer, steps)


def test_a_conversation_cut_at_any_byte_has_the_same_replies(steps: Steps) -> None:
    whole = b"".join(sent for sent, _ in steps)
    for cut in range(1, len(whole), 1 if LONG else 5):
        replay_in_pieces([whole[:cut], whole[cut:]], steps)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_conversation_in_pieces_of_a_few_bytes_has_the_same_replies(
    steps: Steps, size: int
) -> None:
    whole = b"".join(sent for sent, _ in steps)
    replay_in_pieces([whole[at : at + size] for at in range(0, len(whole), size)], steps)
