"""The format of the journal on disk: segments, and the frames in them.

A frame is the unit that is written, checked and applied as a whole. Header, 40 bytes, little
endian; then the records:

    u32 length of the records | u32 crc32c | u64 first sequence number | u32 count | u32 reserved, 0
    u64 salt of the segment | u64 last sequence number known durable when this was written

The checksum is over everything but itself. A length of 0 is the end of what was written.

A segment is a file of the journal. All positions of a journal are one space of bytes. A segment
covers [base, base + its length), header included, and the next one begins exactly where it ends, so
a position is an offset in one file. Header, 128 bytes, little endian:

    8 magic | u32 format version | u32 size of this header | 16 timeline id | i64 base
    u64 first sequence number | u64 salt | i64 created | u64 last sequence number known durable
    i64 recovery base | i64 retention base | u32 1 if recycled | reserved, 0
    u32 crc32c of all before it

Whatever else a later format changes, it keeps the magic, the version, the base and the checksum
where they are, so that every older version can tell it from a damaged one.

The recovery base is where replay starts, the retention base where kept segments begin: both 0 until
compaction and retention write them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from google_crc32c import extend, value
from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.records.wire import put_u32
from taskyard.engine.structures.index import REGION_BYTES
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalTooNew

# Frames

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


def record_starts(data: bytes, at: int, end: int) -> bytes:
    """The offsets of all records from `data[at]` to `data[end]`, 8 bytes each, little endian.

    This is the one loop over a journal that must take one record at a time. Plain integers:
    conversions to i64 took half of the time of the interpreted form.
    """
    out = BytesWriter()
    last = end - 6  # where there is space for a size, a kind and a version
    while at <= last:
        size: int = read_i32_le(data, at)
        write_i64_le(out, at)
        if size < 2:
            raise CorruptRecord(f"a record of {size} bytes does not fit at byte {at}")
        at += 4 + size
    if at != end:
        raise CorruptRecord(f"no record ends at byte {end}, where the records should")
    return out.getvalue()


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


# Segments

SEGMENT_HEADER_BYTES: Final = 128
FORMAT_VERSION: Final = 1
OLDEST_FORMAT_VERSION: Final = 1  # that is still read
SUFFIX: Final = ".seg"
_MAGIC: Final = b"TASKYARD"
_DIGITS: Final = 20
_SEGMENT_CRC_AT: Final = 124
_TIMELINE_AT: Final = 16
_BASE_AT: Final = 32
TIMELINE_BYTES: Final = 16


class BadHeader(Exception):
    """The first bytes of a file are not the header of a segment we can read."""


@mypyc_attr(acyclic=True)
class SegmentHeader:
    __slots__ = (
        "base",
        "created",
        "durable",
        "first_seq",
        "recovery_base",
        "recycled",
        "retention_base",
        "salt",
        "timeline",
    )

    def __init__(
        self,
        timeline: bytes,
        base: i64,
        first_seq: i64,
        salt: i64,
        created: i64,
        durable: i64,
        recovery_base: i64 = 0,
        retention_base: i64 = 0,
        recycled: bool = False,
    ) -> None:
        self.timeline = timeline
        self.base = base
        self.first_seq = first_seq  # of the first record that is in it, or will be
        self.salt = salt  # random; tells its frames from those of an earlier use of its blocks
        self.created = created
        self.durable = durable  # last sequence number known durable when it was made
        self.recovery_base = recovery_base
        self.retention_base = retention_base
        self.recycled = recycled  # frames of an earlier segment may stand behind its own

    def encode(self) -> bytes:
        out = BytesWriter()
        out.write(_MAGIC)
        put_u32(out, FORMAT_VERSION)
        put_u32(out, SEGMENT_HEADER_BYTES)
        out.write(self.timeline)
        write_i64_le(out, self.base)
        write_i64_le(out, self.first_seq)
        write_i64_le(out, self.salt)
        write_i64_le(out, self.created)
        write_i64_le(out, self.durable)
        write_i64_le(out, self.recovery_base)
        write_i64_le(out, self.retention_base)
        put_u32(out, 1 if self.recycled else 0)
        out.write(bytes(_SEGMENT_CRC_AT - len(out)))
        put_u32(out, i64(value(out.getvalue())))
        return out.getvalue()


def parse_header(content: SegmentBytes) -> SegmentHeader:
    """Parse the header at the start of a segment, or raise BadHeader with the reason.

    JournalTooNew is no BadHeader: code that tolerates a damaged header must not take it for one.
    """
    if not content.extend_to(SEGMENT_HEADER_BYTES):
        raise BadHeader("the file is too short for a segment")
    data = content.data
    stored = i64(read_i32_le(data, _SEGMENT_CRC_AT)) & 0xFFFF_FFFF
    intact = i64(value(data[:_SEGMENT_CRC_AT])) == stored
    if data[: len(_MAGIC)] != _MAGIC:
        raise BadHeader("it does not begin like a segment")
    if not intact:
        raise BadHeader("the checksum of its header is wrong")
    version = read_i32_le(data, 8)
    if version > FORMAT_VERSION:
        name = segment_name(read_i64_le(data, _BASE_AT))
        raise JournalTooNew(
            name, f"its format is {version}, and this one reads up to {FORMAT_VERSION}"
        )
    if version < OLDEST_FORMAT_VERSION:
        raise BadHeader(
            f"its format is {version}, and there is none before {OLDEST_FORMAT_VERSION}"
        )
    return SegmentHeader(
        data[_TIMELINE_AT : _TIMELINE_AT + TIMELINE_BYTES],
        read_i64_le(data, _BASE_AT),
        read_i64_le(data, 40),
        read_i64_le(data, 48),
        read_i64_le(data, 56),
        read_i64_le(data, 64),
        read_i64_le(data, 72),
        read_i64_le(data, 80),
        bool(read_i32_le(data, 88)),
    )


def segment_name(base: i64) -> str:
    return f"{base:0{_DIGITS}}{SUFFIX}"


def base_of(name: str) -> i64:
    """Return the base in a file's name, or -1 if it is not the name of a segment."""
    digits = name[: -len(SUFFIX)]
    if len(digits) != _DIGITS or not name.endswith(SUFFIX) or not digits.isdecimal():
        return -1
    if not digits.isascii() or int(digits) >= 1 << 63:
        return -1
    return int(digits)


def segment_names(directory: Disk) -> list[str]:
    """The segments of a journal, in order. Other files are none of its business."""
    return sorted(name for name in directory.names() if base_of(name) >= 0)


@mypyc_attr(acyclic=True)
class Segment:
    """A segment that is being written, or has been and is not on disk for certain yet."""

    __slots__ = ("base", "end", "file", "header_is_durable", "salt")

    def __init__(self, file: File, base: i64, salt: i64) -> None:
        self.file = file
        self.base = base
        self.salt = salt
        self.end: i64 = 0  # position behind its last frame, once it is full
        self.header_is_durable = False  # its header and its name are on disk for certain


def new_salt(entropy: Callable[[int], bytes]) -> i64:
    """Return any number but 0, which is what unwritten space has."""
    salt: i64 = 0
    while not salt:
        salt = read_i64_le(entropy(8), 0)
    return salt


def create_segment(directory: Disk, header: SegmentHeader, source: str) -> Segment:
    """Make a new segment in the file `source`, which has the space for it.

    It gets its name last: a file without a header must not be taken for a segment, nor one that was
    given up for the place that it would have had.
    """
    file = directory.open(source)
    try:
        file.write_at(0, [header.encode()])
        directory.rename(source, segment_name(header.base))
    except OSError:
        file.close()
        raise
    return Segment(file, header.base, header.salt)


def read_segment(directory: Disk, name: str) -> SegmentBytes:
    file = directory.view(name)
    try:
        return SegmentBytes(file.read_at(0, file.data_size()), file.size())
    finally:
        file.close()


# Index of frames


@mypyc_attr(acyclic=True)
class FrameIndex:
    """Where frames begin, roughly: enough to read a part of a segment without all that is before
    it.

    For each region of positions it has the first frame that reaches into it, if only with its end.
    """

    __slots__ = ("_last_region", "_starts")

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._last_region: i64 = -1  # region that the last frame ended in

    def add(self, start: i64, end: i64) -> None:
        """A frame stands from `start` to `end`; they are added in order."""
        zone = end // REGION_BYTES
        if zone == self._last_region:
            return
        self._last_region = zone
        first = start // REGION_BYTES
        while zone >= first and zone not in self._starts:
            self._starts[zone] = start
            zone -= 1

    def first_frame_start(self, zone: i64) -> i64:
        """Return where the first frame begins that reaches into this region; -1: none does."""
        return self._starts.get(zone, -1)

    def forget_before(self, position: i64) -> None:
        """Frames before that position are gone."""
        for zone in [zone for zone in self._starts if (zone + 1) * REGION_BYTES <= position]:
            del self._starts[zone]
