"""A RESP connection whose client sends what is wrong, too large, or too much."""

import pytest
from support.replies_resp import command
from support.simulated import SimulatedPeer, SimulatedServer
from support.wire import Wire, exchange

from taskyard.protocols.resp.wire import MAX_LINE

MIB = 1 << 20


@pytest.mark.parametrize(
    ("sent", "reply"),
    [
        (b"*1\r\n:4\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*1\r\n\n", b"-ERR Protocol error: expected '$', got ' '\r\n"),
        (b"*1\r\n\xff", b"-ERR Protocol error: expected '$', got '\xff'\r\n"),
        (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
        (b'SET k "v\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"x" * (MAX_LINE + 1), b"-ERR Protocol error: too big inline request\r\n"),
    ],
)
def test_a_client_hears_what_is_wrong_and_is_left(
    shared_wire: Wire, sent: bytes, reply: bytes
) -> None:
    peer = shared_wire.connect("resp")
    peer.send(command("RPUSH", "broken", "a") + sent + command("DEL", "broken"))
    assert peer.read_line().startswith(b":")
    peer.expect(reply)
    peer.expect_closed()
    other = shared_wire.connect("resp")
    exchange(other, command("EXISTS", "broken"), b":1\r\n")


def test_an_argument_over_the_limit_is_refused_and_the_connection_goes_on(
    shared_wire: Wire,
) -> None:
    peer = shared_wire.connect("resp")
    large = b"x" * (MIB + 1)
    refusal = b"-ERR an argument is larger than the limit of 1048576 bytes\r\n"
    peer.send(command("RPUSH", "large", large) + command("LLEN", "large"))
    peer.expect(refusal + b":0\r\n")
    exchange(peer, command("ECHO", large[1:]), b"$1048576\r\n" + large[1:] + b"\r\n")
    exchange(peer, command(large), b"-ERR unknown command '', with args beginning with: \r\n")
    peer.send(command("RPUSH", large))
    peer.expect(b"-ERR wrong number of arguments for 'rpush' command\r\n")
    exchange(peer, command("PING"), b"+PONG\r\n")


def test_a_client_that_sends_much_while_its_command_waits_is_not_read_for_ever() -> None:
    yard = SimulatedServer()
    peer = yard.connect("resp")
    peer.send(command("BLPOP", "q", "0"))
    sent = 0
    while is_read(peer):
        peer.send(command("RPUSH", "other", b"x" * 1000))
        sent += 1
    assert 200 < sent < 300
    exchange(yard.connect("resp"), command("RPUSH", "q", "a"), b":1\r\n")
    assert is_read(peer)
    peer.expect(b"*2\r\n$1\r\nq\r\n$1\r\na\r\n")
    peer.expect(b"".join(b":%d\r\n" % number for number in range(1, sent + 1)))


def is_read(peer: SimulatedPeer) -> bool:
    """Whether the server takes what this client sends."""
    return peer.reading


def test_a_command_larger_than_what_is_read_ahead_arrives_all_the_same() -> None:
    yard = SimulatedServer()
    peer = yard.connect("resp")
    data = command("ECHO", b"x" * MIB)
    for piece in (data[at : at + 50_000] for at in range(0, len(data), 50_000)):
        assert peer.reading
        peer.send(piece)
    peer.expect(b"$%d\r\n%b\r\n" % (MIB, b"x" * MIB))
