"""RESP's commands out of a stream, cut anywhere: the same commands as in one piece."""

from __future__ import annotations

from fuzz.inputs import Choices, cut, with_cuts

from taskyard.protocols.resp import wire as r

LIMIT = 256  # of an argument
SEEDS = [
    b"\0" + with_cuts(b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nLLEN\r\n$1\r\nq\r\n", 5, 3, 1, 1),
    b"\0" + with_cuts(b"SET key \"a b\\x41\\n\" 'it\\'s'\r\nPING\n\r\n", 9),
    b"\0" + with_cuts(b"*0\r\n*-1\r\n*2\r\n$0\r\n\r\n$257\r\n" + b"x" * 257 + b"\r\nPING\r\n", 30),
    b"\1" + with_cuts(b"*11\r\n"),
    b"\1" + with_cuts(b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", 7),
    b"\0" + with_cuts(b"*1\r\n:1\r\n"),
    b"\0" + with_cuts(b"*1\r\n$536870913\r\n"),
    b"\0" + with_cuts(b"*9999999999999999999\r\n", 8),
    b"\0" + with_cuts(b"*1048576\r\n$300\r\n", 8),
    b"\0" + with_cuts(b'"open\n', 2),
    b"\0" + with_cuts(b"*1\r\n$2\r\nabc\r\n", 2),
]
WORDS = [b"*1\r\n", b"*2\r\n", b"$1\r\n", b"$0\r\n\r\n", b"$-1\r\n", b"\r\n", b'"', b"'", b"\\x4"]


def fuzz(data: bytes) -> None:
    unknown = Choices(data).byte() % 2 == 1
    sent, pieces = cut(data[1:])
    assert _read([sent], unknown) == _read(pieces, unknown)
    if b"\n" not in sent:
        words = r.split_quoted(sent)
        if words is not None and b'"' not in sent and b"'" not in sent:
            assert all(words)


def _read(pieces: list[bytes], unknown: bool) -> list[object]:
    reader = r.RespFrameParser(LIMIT)
    reader.limit_unauthenticated_input(unknown)
    found: list[object] = []
    fed = 0
    for piece in pieces:
        reader.feed(piece)
        fed += len(piece)
        while (kind := reader.parse_next()) == r.COMMAND:
            assert reader.args
            assert all(len(arg) <= LIMIT or not sent_as_bulk(arg) for arg in reader.args)
            found.append((list(reader.args), reader.oversize))
        if kind == r.BROKEN:
            assert reader.error
            return [*found, reader.error]
        assert not reader.error
        assert 0 <= reader.buffered_bytes() <= fed + len(reader.args) * r.ARG_OVERHEAD
        assert not reader.pending_bytes()
    found.append(reader.partial_command_bytes() > 0)
    return found


def sent_as_bulk(arg: bytes) -> bool:
    """Words of a line have the limit of the line."""
    return len(arg) > r.MAX_LINE
