"""Lines out of a stream, cut anywhere: the same lines, and the same verdict, as in one piece."""

from __future__ import annotations

from fuzz.inputs import cut, with_cuts

from taskyard.protocols.text import LineBuffer, LineTooLong

LIMIT = 64
SEEDS = [
    with_cuts(b"PING\nPUSH {}\n\n", 3, 2),
    with_cuts(b"x" * 65 + b"\nPING\n", 60, 4, 1),
    with_cuts(b"PING\n" + b"x" * 64 + b"\n" + b"y" * 65),
]


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    wanted = _expected(sent)
    assert _read([sent]) == wanted
    assert _read(pieces) == wanted


def _read(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    buffer = LineBuffer(LIMIT)
    fed = taken = 0
    lines: list[bytes] = []
    for piece in pieces:
        fed += len(piece)
        try:
            buffer.feed(piece)
        except LineTooLong:
            lines += _take(buffer)
            return lines, True
        assert buffer.partial_bytes <= LIMIT
        assert buffer.size + buffer.partial_bytes == fed - taken
        found = _take(buffer)
        taken += sum(len(line) + 1 for line in found)
        assert buffer.size == 0
        lines += found
    return lines, False


def _take(buffer: LineBuffer) -> list[bytes]:
    lines = []
    while (line := buffer.next_line()) is not None:
        lines.append(line)
    return lines


def _expected(sent: bytes) -> tuple[list[bytes], bool]:
    """By the rule itself: a line, or what there is of it, must not be longer than the limit."""
    lines: list[bytes] = []
    parts = sent.split(b"\n")
    for line in parts[:-1]:
        if len(line) > LIMIT:
            return lines, True
        lines.append(line)
    return lines, len(parts[-1]) > LIMIT
