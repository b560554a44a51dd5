"""Frames: the unit that is written, checked and applied as a whole.

Header, 40 bytes, little endian; then the records:

    u32 length of the records | u32 crc32c | u64 first sequence number | u32 count | u32 reserved, 0
    u64 salt of the segment | u64 last sequence number known durable when this was written

The checksum is over everything but itself. A length of 0 is the end of what was written.
"""

from __future__ import annotations

from typing import Final

from google_crc32c import extend, value
from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.records.wire import put_u32

FRAME_HEADER_BYTES: Final = 40
MAX_BODY_BYTES: Final = 0x7FFF_FFFF
_CRC_AT: Final = 4
_CHECKED_AT: Final = 8  # the checksum is over what is before and after it
_SALT_AT: Final = 24
_ZEROS: Final = bytes(65_536)
_CHUNK_BYTES: Final = 65_536


@mypyc_attr(acyclic=True)
class SegmentBytes:
    """The bytes of a segment, without the zeros at its end that were not worth reading.

    To read the 64 MiB that were reserved and never written takes 40 to 140 ms.
    """

    __slots__ = ("data", "size")

    def __init__(self, data: bytes, size: i64) -> None:
        self.data = data
        self.size = size  # with those zeros

    def extend_to(self, end: i64) -> bool:
        """Whether there are so many bytes; if so they are in `data` from now on.

        A frame may end in zeros, and some file systems keep no blocks for zeros.
        """
        missing = end - len(self.data)
        if missing <= 0:
            return True
        if end > self.size:
            return False
        self.data += bytes(missing)
        return True


@mypyc_attr(acyclic=True)
class Frame:
    """A frame that was found and is intact. Offsets are in the bytes it was found in."""

    __slots__ = ("body", "count", "durable", "end", "first_seq", "offset")

    def __init__(self, offset: i64, end: i64, first_seq: i64, count: i64, durable: i64) -> None:
        self.offset = offset
        self.body: i64 = offset + FRAME_HEADER_BYTES
        self.end = end
        self.first_seq = first_seq
        self.count = count
        self.durable = durable

    def last_seq(self) -> i64:
        return self.first_seq + self.count - 1


def frame_header(body: bytes, first_seq: i64, count: i64, salt: i64, durable: i64) -> bytes:
    rest = BytesWriter()
    write_i64_le(rest, first_seq)
    put_u32(rest, count)
    put_u32(rest, 0)
    write_i64_le(rest, salt)
    write_i64_le(rest, durable)
    checked = rest.getvalue()
    out = BytesWriter()
    put_u32(out, len(body))
    length = out.getvalue()
    put_u32(out, i64(extend(value(length + checked), body)))
    out.write(checked)
    return out.getvalue()


def frame_length(data: bytes, offset: i64) -> i64:
    """Return the bytes of records in a possible frame at this offset; 0 if there is no space for
    one.
    """
    return _u32(data, offset) if offset + FRAME_HEADER_BYTES <= len(data) else i64(0)


def frame_at(content: SegmentBytes, offset: i64, salt: i64) -> Frame | None:
    """Return the frame at this offset, unless there is none of this salt, or it is not intact."""
    body = offset + FRAME_HEADER_BYTES
    if not content.extend_to(body):
        return None
    length = _u32(content.data, offset)
    end = body + length
    if not length or read_i64_le(content.data, offset + _SALT_AT) != salt:
        return None
    if not content.extend_to(end):
        return None
    data = content.data
    checked = data[offset : offset + _CRC_AT] + data[offset + _CHECKED_AT : body]
    if _extend(value(checked), data, body, end) != _u32(data, offset + _CRC_AT):
        return None
    first_seq = read_i64_le(data, offset + 8)
    return Frame(offset, end, first_seq, _u32(data, offset + 16), read_i64_le(data, offset + 32))


def next_frame(content: SegmentBytes, start: i64, end: i64, salt: i64) -> Frame | None:
    """The first intact frame of this salt that begins anywhere from `start` to `end`.

    Behind a damaged frame nothing says where the next one begins; its salt gives it away.
    """
    if not salt:
        return None  # no segment has this one
    pattern = salt_bytes(salt)
    found: i64 = content.data.find(pattern, start + _SALT_AT, end)
    while found >= 0:
        frame = frame_at(content, found - _SALT_AT, salt)
        if frame is not None:
            return frame
        found = content.data.find(pattern, found + 1, end)
    return None


def salt_at(content: SegmentBytes, offset: i64) -> i64:
    """Return the salt of a possible frame at this offset, or 0 if there is no space for one."""
    if not content.extend_to(offset + FRAME_HEADER_BYTES):
        return 0
    return read_i64_le(content.data, offset + _SALT_AT)


def salt_bytes(salt: i64) -> bytes:
    out = BytesWriter()
    write_i64_le(out, salt)
    return out.getvalue()


def written_end(content: SegmentBytes, start: i64) -> i64:
    """Return where the zeros begin that fill the remainder from `start` on."""
    data = content.data
    end: i64 = len(data)
    step: i64 = len(_ZEROS)
    while end - step >= start and data[end - step : end] == _ZEROS:
        end -= step
    low = max(start, end - step)
    return low + len(data[low:end].rstrip(b"\0"))


def torn_end(content: SegmentBytes, start: i64, salt: i64) -> i64:
    """Return where the last frame of this salt ends that begins behind `start`, intact or not.

    `start` if there is none: what is there is of an earlier use of the file.
    """
    found: i64 = content.data.rfind(salt_bytes(salt), start + _SALT_AT)
    if found < 0:
        return start
    offset = found - _SALT_AT
    content.extend_to(offset + FRAME_HEADER_BYTES)
    return min(offset + FRAME_HEADER_BYTES + _u32(content.data, offset), content.size)


def _extend(crc: int, data: bytes, start: i64, end: i64) -> i64:
    """Continue the checksum over a part of `data`, which is copied in small pieces.

    One copy of it all would be memory that is new each time; that took longer than the checksum.
    """
    while end - start > _CHUNK_BYTES:
        crc = extend(crc, data[start : start + _CHUNK_BYTES])
        start += _CHUNK_BYTES
    return i64(extend(crc, data[start:end]))


def _u32(data: bytes, at: i64) -> i64:
    value = i64(read_i32_le(data, at))
    return value if value >= 0 else value + (1 << 32)
