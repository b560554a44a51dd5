"""Frames in the bytes of a segment: only those whose checksum is right, and no byte beyond.

An input is parts, each of them a byte that says what it is, two of size, and its bytes. Those of
frames get a header with the right checksum, so that there is something to be found.
"""

from __future__ import annotations

from fuzz.inputs import Choices

from taskyard.engine.model.events import CorruptRecord
from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    SegmentBytes,
    SegmentHeader,
    frame_at,
    frame_header,
    frame_length,
    next_frame,
    record_starts,
    torn_end,
    written_end,
)
from taskyard.journal.recovery import frames_behind, highest_durable_behind, is_first_frame_intact

SALT = 0x0123_4567_89AB_CDEF
OTHER = 0x1111_2222_3333_4444


def part(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(2, "little") + body


SEEDS = [
    part(0, b"\x02\0\0\0ab") + part(0, b"\x03\0\0\0abc" * 3) + part(2, bytes(64)),
    part(0, b"body") + part(1, b"other") + part(2, b"garbage" * 8) + part(0, b"behind"),
    part(2, SALT.to_bytes(8, "little") * 3) + part(3, b"torn") + part(0, b"x"),
    part(2, bytes(100)) + part(3, b"\xff" * 20),
]
LONGEST = 2048


def fuzz(data: bytes) -> None:
    built = build(data)
    content = SegmentBytes(built.rstrip(b"\0"), len(built))
    size = content.size
    found = frames_behind(content, 0, size, SALT)
    at = 0
    for frame in found:
        assert at <= frame.offset < frame.body < frame.end <= size
        assert frame_length(content.data, frame.offset) == frame.end - frame.body
        assert frame_at(content, frame.offset, OTHER) is None
        at = frame.end
        try:
            starts = record_starts(content.data, frame.body, frame.end)
        except CorruptRecord:
            continue
        assert len(starts) % 8 == 0
    assert next_frame(content, 0, size, 0) is None
    is_first_frame_intact(content)
    for start in {0, len(content.data), size, *(frame.end for frame in found[:2])}:
        assert start <= max(start, written_end(content, start)) <= max(start, size)
        assert start <= torn_end(content, start, SALT)
        header = SegmentHeader(bytes(16), 0, 1, SALT, 0, 0)
        highest_durable_behind(content, start, size, header, 1)
        assert highest_durable_behind(content, start, size, None, 1) >= 0


def build(data: bytes) -> bytes:
    choices = Choices(data)
    out = bytearray()
    seq = 1
    while choices and len(out) < 1 << 16:
        kind = choices.below(4)
        body = choices.block()
        if kind == 2:
            out += body
            continue
        head = frame_header(body, seq, len(body), OTHER if kind == 1 else SALT, seq - 1)
        seq += len(body)
        if kind == 3:  # without its end
            out += (head + body)[: FRAME_HEADER_BYTES + len(body) // 2]
        else:
            out += head + body
    return bytes(out)
