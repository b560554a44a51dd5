"""Arguments that are announced as the one before are read without looking: nobody can tell."""

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.effort import effort
from support.replies_resp import command

from taskyard.protocols.resp.wire import (
    BROKEN,
    COMMAND,
    MAX_COMMAND,
    UNAUTHENTICATED_ARGS,
    UNAUTHENTICATED_BULK,
    RespFrameParser,
)

Found = tuple[list[bytes], bool]  # a command, and whether some of it was too large

LIMITS = (0, 9, 100, 1000, 9999, 10_000)  # bytes of an argument that is kept
SIZES = (0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10_000)
FILLS = (b"x", b"$1\r\n", b"\r\n", b"$10\r\n", b"*1\r\n$1\r\n", b"\x00\xff")


def read_all(reader: RespFrameParser, pieces: Iterable[bytes]) -> list[Found | str]:
    """The commands in these pieces; the last one may be the text of what is wrong."""
    found: list[Found | str] = []
    for piece in pieces:
        reader.feed(piece)
        while (kind := reader.parse_next()) == COMMAND:
            found.append((reader.args, reader.oversize))
        if kind == BROKEN:
            return [*found, reader.error]
    return found


def single_bytes(data: bytes) -> Iterator[bytes]:
    return (data[at : at + 1] for at in range(len(data)))


def sent(words: list[bytes], limit: int) -> Found:
    """What comes of a command: those beyond the limit are left out."""
    kept = [word if len(word) <= limit else b"" for word in words]
    return kept, any(len(word) > limit for word in words)


def filled(fill: bytes, size: int) -> bytes:
    return (fill * size)[:size]


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, list[list[bytes]]]:
    """A limit, and commands whose arguments are of two or three lengths."""
    limit = draw(st.sampled_from(LIMITS))
    near = [size for size in (limit - 1, limit, limit + 1) if size >= 0]
    few = draw(st.lists(st.sampled_from((*SIZES, *near)), min_size=1, max_size=3))
    words = st.builds(filled, st.sampled_from(FILLS), st.sampled_from(few))
    return limit, draw(st.lists(st.lists(words, min_size=1, max_size=8), max_size=5))


@given(streams(), st.data())
@settings(max_examples=effort(400, 100))
def test_what_was_sent_is_read_however_it_is_cut(
    stream: tuple[int, list[list[bytes]]], data: st.DataObject
) -> None:
    limit, commands = stream
    whole = b"".join(command(*words) for words in commands)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    wanted = [sent(words, limit) for words in commands]
    assert read_all(RespFrameParser(limit), pieces) == wanted
    assert read_all(RespFrameParser(limit), [whole]) == wanted
    assert [read_all(RespFrameParser(limit), [command(*words)]) for words in commands] == [
        [each] for each in wanted
    ]


STREAM: list[list[bytes]] = [
    [b"RPUSH", b"queue", b"hello", b"world", b"", b"", b"x" * 12, b"y" * 12, b"$5\r\n!"],
    [b"x" * 12, b"y" * 13, b"z" * 13, b"x" * 12, b"12345"],  # some are over the limit
    [b"hello"],
    [b"a", b"b", b"", b"c", b"", b""],
]


def test_every_split_gives_the_same_commands() -> None:
    whole = b"".join(command(*words) for words in STREAM)
    wanted = [sent(words, 12) for words in STREAM]
    assert read_all(RespFrameParser(12), single_bytes(whole)) == wanted
    for at in range(len(whole) + 1):
        assert read_all(RespFrameParser(12), [whole[:at], whole[at:]]) == wanted, at
    for size in range(2, 30):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert read_all(RespFrameParser(12), pieces) == wanted, size


@pytest.mark.parametrize("size", range(1, 40))
def test_as_much_is_held_as_when_it_comes_byte_by_byte(size: int) -> None:
    whole = b"".join(command(*words) for words in STREAM)
    reader, slow = RespFrameParser(12), RespFrameParser(12)
    for at in range(0, len(whole), size):
        piece = whole[at : at + size]
        assert read_all(reader, [piece]) == read_all(slow, single_bytes(piece))
        assert (reader.buffered_bytes(), reader.partial_command_bytes()) == (
            slow.buffered_bytes(),
            slow.partial_command_bytes(),
        )
        assert reader.pending_bytes() == slow.pending_bytes() == 0


# What is wrong

WRONG = [
    b"$-1\r\n",
    b"$abc\r\n",
    b"$5x\r\nhello\r\n",
    b"$5 \r\nhello\r\n",
    b"$\r\n",
    b"$5\nhello\r\n",
    b"$5\rhello\r\n",
    b"$5\r\rhello\r\n",
    b"$5\n\rhello\r\n",
    b"$55555555555555555555\r\n",
    b"$-5\r\nhello\r\n",
    b"$+5\r\nhello\r\n",
    b":5\r\nhello\r\n",
    b"*5\r\nhello\r\n",
    b"5\r\nhello\r\n",
    b"\r\n$5\r\nhello\r\n",
    b"$5\r\nhell\r\n$5\r\nhello\r\n",
    b"$5\r\nhello!\r\n",
    b"$5\r\nhello\n\r",
    b"$5\r\nhello\rx",
    b"$5\r\nhello$5\r\nhello\r\n",
]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("good", [0, 1, 2, 5])
def test_a_wrong_announcement_is_refused_as_if_it_were_the_first(wrong: bytes, good: int) -> None:
    """Also with much behind it, so that a whole word can be looked at."""
    tail = b"$5\r\nhello\r\n" * 3
    (error,) = read_all(RespFrameParser(100), [b"*9\r\n" + wrong + tail])
    assert isinstance(error, str)
    stream = command(b"hello", b"hello") + b"*9\r\n" + b"$5\r\nhello\r\n" * good + wrong + tail
    for pieces in ([stream], single_bytes(stream), *halves(stream)):
        assert read_all(RespFrameParser(100), pieces) == [([b"hello", b"hello"], False), error]


def halves(data: bytes) -> Iterator[list[bytes]]:
    return ([data[:at], data[at:]] for at in range(len(data)))


@given(st.sampled_from(SIZES), st.integers(1, 6), st.integers(0, 10), st.integers(0, 255))
@settings(max_examples=effort(400, 100))
@example(5, 3, 1, ord("6"))
def test_a_wrong_byte_in_an_announcement_is_noticed_wherever_it_is(
    size: int, good: int, at: int, byte: int
) -> None:
    head = b"$%d\r\n" % size
    place = at % len(head)
    damaged = head[:place] + bytes([byte]) + head[place + 1 :]
    body = b"x" * size + b"\r\n"
    tail = (head + body) * 2
    alone = read_all(RespFrameParser(10_000), [b"*%d\r\n" % 3 + damaged + body + tail])
    found = read_all(
        RespFrameParser(10_000),
        [b"*%d\r\n" % (good + 3) + (head + body) * good + damaged + body + tail],
    )
    if alone and isinstance(alone[0], tuple):
        words, oversize = alone[0]
        alone[0] = [b"x" * size] * good + words, oversize
    assert found == alone


@pytest.mark.parametrize("size", [1000, 9999, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("end", [b"\rx", b"x\n", b"0\r", b"\n\n"])
def test_the_end_of_a_long_announcement_is_looked_at_too(size: int, end: bytes) -> None:
    block = b"$%d\r\n%b\r\n" % (size, b"x" * size)
    wrong = b"$%d%b" % (size, end)
    stream = b"*5\r\n" + block * 3 + wrong + b"x" * size + b"\r\n" + block
    assert read_all(RespFrameParser(size), [stream]) == ["invalid bulk length"]


def test_another_spelling_of_the_same_length_is_read_too() -> None:
    stream = b"*6\r\n" + b"".join(
        head + b"hello\r\n" for head in (b"$5\r\n", b"$5\r\n", b"$05\r\n", b"$05\r\n", b"$5\r\n")
    )
    stream += b"$005\r\nhello\r\n"
    for pieces in ([stream], single_bytes(stream), *halves(stream)):
        assert read_all(RespFrameParser(100), pieces) == [([b"hello"] * 6, False)]


def test_arguments_of_one_size_may_have_so_many_bytes_and_no_more() -> None:
    size = 8192
    block = b"$%d\r\n%b\r\n" % (size, b"x" * size)
    full = MAX_COMMAND // size
    reader = RespFrameParser(size)
    reader.feed(b"*%d\r\n" % full + block * full)
    assert reader.parse_next() == COMMAND
    assert sum(map(len, reader.args)) == MAX_COMMAND
    reader.feed(b"*%d\r\n" % (full + 1) + block * full + block)
    assert (reader.parse_next(), reader.error) == (BROKEN, "too big command")


# Those who have to log in first


@pytest.mark.parametrize("size", [9, 9999, UNAUTHENTICATED_BULK, UNAUTHENTICATED_BULK + 1, 20_000])
def test_a_client_that_gets_another_bound_between_commands_is_held_to_it(size: int) -> None:
    words = command(b"x" * size, b"y" * size)
    reader = RespFrameParser(1 << 20)
    reader.feed(words * 3)
    assert reader.parse_next() == COMMAND
    reader.limit_unauthenticated_input(unauthenticated=True)
    if size <= UNAUTHENTICATED_BULK:
        assert reader.parse_next() == COMMAND
        reader.limit_unauthenticated_input(unauthenticated=False)
        assert reader.parse_next() == COMMAND
        assert reader.args == [b"x" * size, b"y" * size]
    else:
        assert (reader.parse_next(), reader.error) == (BROKEN, "unauthenticated bulk length")


def test_a_client_that_has_logged_in_may_send_what_it_could_not_before() -> None:
    reader = RespFrameParser(1 << 20)
    reader.limit_unauthenticated_input(unauthenticated=True)
    reader.feed(command(b"AUTH!", b"hello") + command(b"hello", b"x" * 20_000, b"y" * 20_000))
    assert reader.parse_next() == COMMAND
    reader.limit_unauthenticated_input(unauthenticated=False)
    assert reader.parse_next() == COMMAND
    assert reader.args == [b"hello", b"x" * 20_000, b"y" * 20_000]


def test_the_number_of_arguments_is_bound_whatever_their_size() -> None:
    reader = RespFrameParser(1 << 20)
    reader.feed(command(*[b"x"] * (UNAUTHENTICATED_ARGS + 1)) * 2)
    assert reader.parse_next() == COMMAND
    reader.limit_unauthenticated_input(unauthenticated=True)
    assert (reader.parse_next(), reader.error) == (BROKEN, "unauthenticated multibulk length")
