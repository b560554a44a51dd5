"""RESP byte by byte beside a real Redis: what is a request, and what is the end of a connection."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.redis_server import RedisServer
from support.resp import RespClient, SimulatedSide, command, inline
from support.simulated import SimulatedServer

PING = b"*1\r\n$4\r\nPING\r\n"

STREAMS = {
    "nothing": b"",
    "empty lines": b"\r\n\n  \r\n\t\n",
    "an empty array": b"*0\r\n",
    "no array": b"*-1\r\n",
    "less than no array": b"*-5\r\n",
    "an empty word": b"*1\r\n$0\r\n\r\n",
    "an inline word": b"PING\r\n",
    "ended by a line feed": b"PING\n",
    "many spaces": b"  ECHO \t  x  \r\n",
    "quotes": b'ECHO "a b"\r\nECHO \'a b\'\r\nECHO ""\r\n',
    "escapes": b'ECHO "\\x41\\n\\r\\t\\a\\b\\\\\\"\\z\\xzz"\r\n',
    "single quotes": b"ECHO 'it\\'s \\n \"x\"'\r\n",
    "a quote in a word": b'ECHO a"b c"\r\n',
    "a word after a quote": b'ECHO "a"b\r\n',
    "an open quote": b'ECHO "a\r\n',
    "an open single quote": b"ECHO 'a\r\n",
    "an escape at the end": b'ECHO "a\\\r\n',
    "no number of words": b"*x\r\n",
    "an empty number of words": b"*\r\n",
    "a number with a sign": b"*+1\r\n$4\r\nPING\r\n",
    "a number with a space": b"* 1\r\n$4\r\nPING\r\n",
    "too many words": b"*2147483648\r\n",
    "far too many words": b"*99999999999999999999\r\n",
    "no size": b"*1\r\n$\r\n",
    "a size that is none": b"*1\r\n$x\r\n",
    "a negative size": b"*1\r\n$-1\r\n",
    "too large a size": b"*1\r\n$536870913\r\n",
    "a byte for a word": b"*1\r\n\xff\r\n",
    "an integer for a word": b"*1\r\n:4\r\n",
    "a line for a word": b"*1\r\nPING\r\n",
    "an array in an array": b"*1\r\n*1\r\n$4\r\nPING\r\n",
    "a word of other bytes": b"*2\r\n$4\r\nECHO\r\n$7\r\n\x00\xff\r\n*1\r\r\n",
    "a line of 60 kB": b"ECHO " + b"x" * 60_000 + b"\r\n",
    "requests behind a goodbye": b"QUIT\r\nPING\r\n",
    "a goodbye with words": b"QUIT now\r\n",
}


NO_END = b"-ERR Protocol error: expected CRLF after a bulk string\r\n"
TOO_LONG = b"-ERR Protocol error: too big inline request\r\n"

# Bytes that no client sends, which Redis reads in another way: what is told instead, and why.
DIFFERENCES = {
    "Redis takes the first line of a request for a command": (
        b"GET / HTTP/1.1\r\n",
        (b"-ERR Protocol error: this port does not speak HTTP\r\n", False),
    ),
    "Redis drops two bytes behind a word, whatever they are": (
        b"*1\r\n$3\r\nPING\r\n",
        (NO_END, False),
    ),
    "Redis takes a longer line if it happens to have its end in the same read": (
        b"ECHO " + b"x" * 70_000 + b"\r\n",
        (TOO_LONG, False),
    ),
    "the same, without an end": (b"x" * 70_000, (TOO_LONG, False)),
    "Redis sees no end of a line behind a NUL, and waits for ever": (
        b"ECHO a\x00b\r\n",
        (b"$3\r\na\x00b\r\n+PONG\r\n", True),
    ),
    "a number is refused before its line has come to an end": (
        b"**",
        (b"-ERR Protocol error: invalid multibulk length\r\n", False),
    ),
    "zeros before a number do no harm": (b"*01\r\n$04\r\nPING\r\n", (b"+PONG\r\n" * 2, True)),
}


def told_by(client: RespClient, *pieces: bytes) -> tuple[bytes, bool]:
    """What comes back by the time that all of it has been read, and whether more could come."""
    with contextlib.closing(client):
        with contextlib.suppress(ConnectionError):  # it may have been closed by now
            for piece in pieces:
                client.send(piece)
        return client.drain()


def simulated() -> RespClient:
    return SimulatedSide(SimulatedServer()).connect()


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_a_stream_is_read_as_by_redis(redis_server: RedisServer, stream: bytes) -> None:
    wanted = told_by(redis_server.connect(), stream + PING)
    assert told_by(simulated(), stream + PING) == wanted


@pytest.mark.parametrize(("stream", "told"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_stream_is_read_in_a_way_of_its_own(stream: bytes, told: tuple[bytes, bool]) -> None:
    assert told_by(simulated(), stream + PING) == told


@pytest.mark.parametrize("name", [name for name in STREAMS if len(STREAMS[name]) < 100])
def test_a_stream_may_be_split_anywhere(name: str) -> None:
    data = STREAMS[name] + PING
    wanted = told_by(simulated(), data)
    for at in range(1, len(data)):
        assert told_by(simulated(), data[:at], data[at:]) == wanted
    assert told_by(simulated(), *(bytes([byte]) for byte in data)) == wanted


text = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8).map(str.encode)
parts = st.one_of(
    st.sampled_from(
        [stream for stream in STREAMS.values() if stream.isascii() and len(stream) < 99]
    ),
    st.sampled_from([b"*", b"$", b"\r\n", b"\n", b"1", b"4", b"-", b'"', b"'", b" ", b"ECHO"]),
    st.just(PING),
    st.builds(command, st.just(b"ECHO"), text),
    st.builds(inline, st.just(b"ECHO"), text),
    text,
)


@settings(max_examples=effort(150, 30))
@given(stream=st.lists(parts, max_size=8).map(lambda pieces: b"".join(pieces) + b"\r\n"))
def test_any_stream_is_read_as_by_redis(redis_server: RedisServer, stream: bytes) -> None:
    wanted, is_open = told_by(redis_server.connect(), stream)
    told, _ = told_by(simulated(), stream)
    if told.endswith(NO_END):  # a difference on purpose: up to there they are the same
        assert wanted.startswith(told.removesuffix(NO_END))
    else:
        assert told_by(simulated(), stream) == (wanted, is_open)
