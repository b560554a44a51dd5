"""RESP commands out of a stream of bytes: whole or in pieces, good or bad."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
import redis.connection
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.replies_resp import command

from taskyard.protocols.resp.wire import (
    BROKEN,
    COMMAND,
    INCOMPLETE,
    MAX_ARGS,
    MAX_BULK,
    MAX_COMMAND,
    MAX_LINE,
    RespFrameParser,
    split_quoted,
)

LIMIT = 1 << 20
MIB = 1 << 20

Found = list[bytes] | str

TOO_LARGE = [b"(an argument is left out)"]


def read_all(reader: RespFrameParser, pieces: Iterable[bytes]) -> list[Found]:
    """The commands in these pieces; the last one may be the text of what is wrong."""
    found: list[Found] = []
    for piece in pieces:
        reader.feed(piece)
        while True:
            kind = reader.parse_next()
            if kind == INCOMPLETE:
                break
            if kind == BROKEN:
                return [*found, reader.error]
            found.append(taken(reader))
    return found


def taken(reader: RespFrameParser) -> list[bytes]:
    return TOO_LARGE if reader.oversize else reader.args


def read_whole(data: bytes, limit: int = LIMIT) -> list[Found]:
    return read_all(RespFrameParser(limit), [data])


def single_bytes(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


# What commands look like


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        (b"*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
        (
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nv\r\n\x00\xff\r\n",
            [[b"SET", b"k", b"v\r\n\x00\xff"]],
        ),
        (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [[b"ECHO", b""]]),
        (b"*1\r\n$04\r\nPING\r\n", [[b"PING"]]),
        (b"*0\r\n", []),
        (b"*-1\r\n", []),
        (b"*0\r\n*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
        (b"*-17\r\n\r\n*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
        (b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n", [[b"PING"], [b"QUIT"]]),
        (b"*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$1\r\nx\r\n", [[b"PING"], [b"PING"], [b"x"]]),
        (b"*2\r\n$1\r\na\r\n$", []),
    ],
)
def test_an_array_of_bulk_strings_is_a_command(data: bytes, commands: list[Found]) -> None:
    assert read_whole(data) == commands
    assert read_all(RespFrameParser(LIMIT), single_bytes(data)) == commands


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"PING\r\n", [b"PING"]),
        (b"PING\n", [b"PING"]),
        (b"  SET \t k   v  \r\n", [b"SET", b"k", b"v"]),
        (b"$4\r\n", [b"$4"]),
        (b"a*1\n", [b"a*1"]),
        (b'SET k "a b"\r\n', [b"SET", b"k", b"a b"]),
        (b"SET k 'a b'\r\n", [b"SET", b"k", b"a b"]),
        (b'SET k ""\r\n', [b"SET", b"k", b""]),
        (b"SET k ''\r\n", [b"SET", b"k", b""]),
        (b'"PI\\x4eG"\n', [b"PING"]),
        (b'x "\\n\\r\\t\\b\\a\\\\\\"\\q"\n', [b"x", b'\n\r\t\b\a\\"q']),
        (b'x "\\x00\\xfF\\xg0\\x1"\n', [b"x", b"\x00\xffxg0x1"]),
        (b"x 'it\\'s \\n \\x41 \"'\n", [b"x", b"it's \\n \\x41 \""]),
        (b'x "it\'s"\n', [b"x", b"it's"]),
        (b'x pre"fix"\n', [b"x", b"prefix"]),
        (b'"a" "b"\n', [b"a", b"b"]),
    ],
)
def test_a_line_of_words_is_a_command(line: bytes, words: list[bytes]) -> None:
    assert read_whole(line) == [words]
    assert read_all(RespFrameParser(LIMIT), single_bytes(line)) == [words]


def test_empty_lines_are_no_commands() -> None:
    assert read_whole(b"\r\n\n  \r\n\t\nPING\n\r\n") == [[b"PING"]]


@pytest.mark.parametrize("line", [b'"', b"'", b'"a', b'a"', b'"a"b', b"'a'b", b'"a\\"', b"'a\\'"])
def test_quotes_without_an_end_are_not_balanced(line: bytes) -> None:
    assert split_quoted(line) is None
    assert read_whole(b"PING\n" + line + b"\nPING\n") == [[b"PING"], "unbalanced quotes in request"]


words_of_lines = st.lists(st.binary(max_size=8), min_size=1, max_size=5)


@given(words_of_lines)
@example([b""])
@example([b"'", b'"', b"\\", b"\\x41", b"\n"])
def test_quoted_words_come_back(words: list[bytes]) -> None:
    line = b" ".join(b'"%b"' % b"".join(b"\\x%02x" % byte for byte in word) for word in words)
    assert split_quoted(line) == words


# However it arrives

STREAM = (
    command("SET", "key", b"\r\n*1\r\n$4\r\nPING\r\n")
    + b"PING\r\n\r\n"
    + command("RPUSH", "q", b"", b"x" * 40, b"\xff\x00")
    + b"*0\r\nSET k \"a\\x20b\" 'c d'\n*-1\r\n"
    + command("ECHO", b"y" * 70)  # over the limit
    + command("GET", "k")
)
COMMANDS: list[Found] = [
    [b"SET", b"key", b"\r\n*1\r\n$4\r\nPING\r\n"],
    [b"PING"],
    [b"RPUSH", b"q", b"", b"x" * 40, b"\xff\x00"],
    [b"SET", b"k", b"a b", b"c d"],
    TOO_LARGE,
    [b"GET", b"k"],
]


def test_every_split_gives_the_same_commands() -> None:
    assert read_whole(STREAM, 64) == COMMANDS
    assert read_all(RespFrameParser(64), single_bytes(STREAM)) == COMMANDS
    for at in range(1, len(STREAM)):
        assert read_all(RespFrameParser(64), [STREAM[:at], STREAM[at:]]) == COMMANDS, at


@pytest.mark.parametrize("size", [2, 3, 7, 19, 64])
def test_pieces_of_any_size_give_the_same_commands(size: int) -> None:
    data = STREAM * 5
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert read_all(RespFrameParser(64), pieces) == COMMANDS * 5


def test_random_pieces_that_are_read_now_and_then_give_the_same_commands() -> None:
    """As on a connection whose commands have to wait while more comes in."""
    chance = Random(7)
    for _ in range(300):
        data = STREAM * 3
        cuts = sorted(chance.sample(range(len(data)), 12))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        reader = RespFrameParser(64)
        found: list[Found] = []
        for piece in pieces:
            reader.feed(piece)
            if chance.random() < 0.6 and reader.parse_next() == COMMAND:
                found.append(taken(reader))
        found += read_all(reader, [b""])
        assert found == COMMANDS * 3


@given(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=6), max_size=6), st.data())
def test_commands_come_back_however_they_are_cut(
    commands: list[list[bytes]], data: st.DataObject
) -> None:
    stream = b"".join(command(*words) for words in commands)
    cut = data.draw(st.integers(0, len(stream)))
    assert read_all(RespFrameParser(LIMIT), [stream[:cut], stream[cut:]]) == commands


def test_what_redis_py_sends_is_read_as_it_was_meant() -> None:
    connection: Any = redis.connection.Connection()  # type: ignore[no-untyped-call]
    requests: list[tuple[tuple[bytes | str | int | float, ...], list[bytes]]] = [
        (("PING",), [b"PING"]),
        (
            ("SET", "\u00e9", b"\x00\xff", "EX", 10),
            [b"SET", b"\xc3\xa9", b"\x00\xff", b"EX", b"10"],
        ),
        (("CLIENT SETINFO", "LIB-NAME", "x"), [b"CLIENT", b"SETINFO", b"LIB-NAME", b"x"]),
        (("BLPOP", "q", 0.5), [b"BLPOP", b"q", b"0.5"]),
        (("RPUSH", "q", "", b"x" * 300_000), [b"RPUSH", b"q", b"", b"x" * 300_000]),
    ]
    for request, words in requests:
        assert read_all(RespFrameParser(LIMIT), connection.pack_command(*request)) == [words]
    stream = b"".join(connection.pack_commands([request for request, _ in requests]))
    assert read_whole(stream) == [words for _, words in requests]


# What is wrong


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*-\r\n", "invalid multibulk length"),
        (b"*1\n$4\nPING\n", "invalid multibulk length"),
        (b"*1\r$4\r\n", "invalid multibulk length"),
        (b"*1 \r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*1.0\r\n", "invalid multibulk length"),
        (b"*%d\r\n" % (MAX_ARGS + 1), "invalid multibulk length"),
        (b"*111111111111111111111111", "invalid multibulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$-0x", "invalid bulk length"),
        (b"*1\r\n$%d\r\n" % (MAX_BULK + 1), "invalid bulk length"),
        (b"*1\r\n$18446744073709551617\r\n", "invalid bulk length"),
        (b"*1\r\n:4\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n", "expected '$', got '*'"),
        (b"*2\r\n$1\r\na\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n$4\r\nPINGPING", "expected CRLF after a bulk string"),
        (b"*1\r\n$4\r\nPING\n\r", "expected CRLF after a bulk string"),
        (b"*1\r\n$3\r\nPING\r\n", "expected CRLF after a bulk string"),
        (b"*1\r\n$0\r\nPING", "expected CRLF after a bulk string"),
    ],
)
def test_what_is_no_command_breaks_the_stream(data: bytes, error: str) -> None:
    good = command("PING")
    for pieces in ([good + data], [good, data], single_bytes(good + data)):
        assert read_all(RespFrameParser(LIMIT), pieces) == [[b"PING"], error]


def test_the_most_arguments_are_a_command() -> None:
    reader = RespFrameParser(LIMIT)
    reader.feed(b"*%d\r\n" % MAX_ARGS)
    assert reader.parse_next() == INCOMPLETE
    reader.feed(b"$0\r\n\r\n" * MAX_ARGS)
    assert reader.parse_next() == COMMAND
    assert reader.args == [b""] * MAX_ARGS


def test_an_argument_over_the_limit_is_left_out_and_what_follows_is_read() -> None:
    reader = RespFrameParser(100)
    reader.feed(command("SET", "k", b"x" * 100) + command("SET", "k", b"x" * 101, b"y" * 500, "z"))
    assert reader.parse_next() == COMMAND
    assert (reader.args, reader.oversize) == ([b"SET", b"k", b"x" * 100], False)
    assert reader.parse_next() == COMMAND
    assert (reader.args, reader.oversize) == ([b"SET", b"k", b"", b"", b"z"], True)
    reader.feed(b"PING\n")
    assert reader.parse_next() == COMMAND
    assert (reader.args, reader.oversize) == ([b"PING"], False)


def test_an_argument_over_the_limit_needs_its_end_as_well() -> None:
    assert read_whole(b"*1\r\n$200\r\n" + b"x" * 202, 100) == ["expected CRLF after a bulk string"]


def test_a_command_may_have_so_many_bytes_and_no_more() -> None:
    block = b"$%d\r\n%b\r\n" % (MIB, b"x" * MIB)
    full = MAX_COMMAND // MIB
    reader = RespFrameParser(MIB)
    reader.feed(b"*%d\r\n" % (full + 1))
    for _ in range(full):
        reader.feed(block)
        assert reader.parse_next() == INCOMPLETE
    reader.feed(b"$0\r\n\r\n")
    assert reader.parse_next() == COMMAND
    assert sum(map(len, reader.args)) == MAX_COMMAND
    reader.feed(b"*%d\r\n" % (full + 1) + block * full + b"$1\r\n")
    assert (reader.parse_next(), reader.error) == (BROKEN, "too big command")


def test_a_line_may_have_so_many_bytes_and_no_more() -> None:
    longest = b"x" * MAX_LINE
    assert read_whole(longest + b"\n") == [[longest]]
    assert read_whole(longest + b"x\n") == ["too big inline request"]
    assert read_whole(longest) == []
    assert read_whole(longest + b"x") == ["too big inline request"]
    pieces = [longest[at : at + 1000] for at in range(0, MAX_LINE, 1000)]
    assert read_all(RespFrameParser(LIMIT), [*pieces, b"\n"]) == [[longest]]
    assert read_all(RespFrameParser(LIMIT), [*pieces, b"x"]) == ["too big inline request"]


@settings(max_examples=effort(300, 60))
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_end_in_commands_or_an_error(pieces: list[bytes]) -> None:
    check_bounded(pieces)


def test_streams_with_a_few_wrong_bytes_end_in_commands_or_an_error() -> None:
    chance = Random(11)
    for _ in range(2000):
        data = bytearray(STREAM * 2)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            action = chance.random()
            if action < 0.4:
                data[at] = chance.choice(b"*$\r\n-0123456789'\"\\ \x00\xff")
            elif action < 0.7:
                del data[at : at + chance.randint(1, 9)]
            else:
                data[at:at] = chance.choice([b"*", b"$", b"\r\n", b"9", b"-", b"*3\r\n", b"'"])
        cut = chance.randrange(len(data) + 1)
        check_bounded([bytes(data[:cut]), bytes(data[cut:])])


def check_bounded(pieces: list[bytes]) -> None:
    """No piece gives more commands than it has bytes, and cuts make no difference."""
    reader = RespFrameParser(64)
    for piece in pieces:
        reader.feed(piece)
        for _ in range(sum(map(len, pieces)) + 1):
            kind = reader.parse_next()
            if kind != COMMAND:
                break
            assert reader.args
        else:
            raise AssertionError("it goes on for ever")
        if kind == BROKEN:
            assert reader.error
            break
    whole = read_whole(b"".join(pieces), 64)
    assert read_all(RespFrameParser(64), pieces) == whole
    assert read_all(RespFrameParser(64), single_bytes(b"".join(pieces))) == whole


# Work and memory


def allocated(reader: RespFrameParser, pieces: Iterable[bytes]) -> tuple[int, int]:
    """Bytes that were allocated while these were read, in all and kept at once at most."""
    total = most = 0
    tracemalloc.start()
    try:
        for piece in pieces:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            reader.feed(piece)
            while reader.parse_next() == COMMAND:
                pass
            peak = tracemalloc.get_traced_memory()[1]
            total += peak - before
            most = max(most, peak)
    finally:
        tracemalloc.stop()
    return total, most


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [100, 1000, 65_536])
def test_a_large_argument_in_small_pieces_is_copied_a_few_times_at_most(size: int) -> None:
    data = command("RPUSH", "q", b"x" * MIB)
    total, _ = allocated(RespFrameParser(MIB), cut(data, size))
    assert total < 4 * MIB


def test_many_arguments_in_small_pieces_are_copied_a_few_times_at_most() -> None:
    data = command("RPUSH", *([b"x" * 40] * 10_000))
    total, _ = allocated(RespFrameParser(MIB), cut(data, 1000))
    assert total < 8 * len(data)


def test_a_long_line_in_small_pieces_is_copied_a_few_times_at_most() -> None:
    data = b"x" * (MAX_LINE - 1) + b"\n"
    total, _ = allocated(RespFrameParser(MIB), cut(data, 64))
    assert total < 8 * MAX_LINE


def test_what_came_while_nobody_read_is_copied_a_few_times_at_most() -> None:
    """Pieces of an argument that is left out, all there when they are looked at."""
    reader = RespFrameParser(100)
    reader.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % MIB)
    pieces = cut(b"x" * MIB + b"\r\n", 64)
    for piece in pieces[:-1]:
        reader.feed(piece)
    total, _ = allocated(reader, pieces[-1:])
    assert total < 4 * MIB
    assert (reader.args, reader.oversize) == ([b"ECHO", b""], True)


def test_an_argument_over_the_limit_is_never_kept() -> None:
    piece = b"x" * MIB
    reader = RespFrameParser(MIB)
    reader.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (100 * MIB))
    assert reader.parse_next() == INCOMPLETE
    _, most = allocated(reader, [piece] * 99)
    assert most < MIB // 2
