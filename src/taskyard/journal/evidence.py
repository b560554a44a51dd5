"""What lies behind the first place where no intact frame stands, and what it gives away."""

from __future__ import annotations

from librt.strings import read_i32_le, read_i64_le
from mypy_extensions import i64

from taskyard.journal.disk import Disk
from taskyard.journal.frames import (
    FRAME_HEADER_BYTES,
    Frame,
    SegmentBytes,
    frame_at,
    next_frame,
    salt_at,
    written_end,
)
from taskyard.journal.segment import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentHeader,
    parse_header,
    read_segment,
)


def frames_behind(content: SegmentBytes, start: i64, end: i64, salt: i64) -> list[Frame]:
    """All intact frames of a salt that begin anywhere in the bytes from `start` to `end`."""
    found: list[Frame] = []
    while True:
        frame = next_frame(content, start, end, salt)
        if frame is None:
            return found
        found.append(frame)
        start = frame.end


def highest_durable_behind(
    content: SegmentBytes, start: i64, end: i64, header: SegmentHeader | None, next_seq: i64
) -> i64:
    """The highest sequence number that a frame in the bytes from `start` to `end` says was durable.

    0 if none says it of `next_seq` or a later one.
    """
    if header is None:
        return _highest_durable_of_any_salt(content, start, end, next_seq)
    highest: i64 = 0
    for frame in frames_behind(content, start, end, header.salt):
        if frame.durable >= next_seq:
            highest = max(highest, frame.durable)
    return highest


def highest_durable_in(directory: Disk, later: list[str], next_seq: i64) -> i64:
    """The same of whole segments that begin behind that place."""
    highest: i64 = 0
    for name in later:
        content = read_segment(directory, name)
        header = _header(content)
        if header is not None and header.durable >= next_seq:
            highest = max(highest, header.durable)
        end = written_end(content, 0)
        highest = max(
            highest, highest_durable_behind(content, SEGMENT_HEADER_BYTES, end, header, next_seq)
        )
    return highest


def _header(content: SegmentBytes) -> SegmentHeader | None:
    try:
        return parse_header(content)
    except BadHeader:
        return None


def is_first_frame_intact(content: SegmentBytes) -> bool:
    """Whether a segment's first frame is intact, whatever became of the segment's header.

    Both begin in the same sector of the disk, so a crash cannot keep the one without the other.
    """
    return (
        frame_at(content, SEGMENT_HEADER_BYTES, salt_at(content, SEGMENT_HEADER_BYTES)) is not None
    )


def _highest_durable_of_any_salt(content: SegmentBytes, start: i64, end: i64, next_seq: i64) -> i64:
    """The same where the header is lost, and with it the salt: every byte may begin a frame.

    Few pass the cheap tests, so this takes some tenths of a second for a segment, compiled.
    """
    highest: i64 = 0
    offset = start
    last = min(end, content.size - FRAME_HEADER_BYTES)
    content.extend_to(last + FRAME_HEADER_BYTES)
    data = content.data
    while offset <= last:
        durable = read_i64_le(data, offset + 32)
        if (
            durable >= next_seq
            and durable > highest
            and durable < read_i64_le(data, offset + 8)
            and not read_i32_le(data, offset + 20)
            and frame_at(content, offset, salt_at(content, offset)) is not None
        ):
            highest = durable
        offset += 1
    return highest
