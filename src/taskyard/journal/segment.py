"""Segments: the files of the journal, and how their positions follow one another.

All positions of a journal are one space of bytes. A segment covers [base, base + its length),
header included, and the next one begins exactly where it ends, so a position is an offset in one
file. Header, 128 bytes, little endian:

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

from google_crc32c import value
from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64, mypyc_attr

from taskyard.engine.records.wire import put_u32
from taskyard.journal.disk import Disk, File
from taskyard.journal.errors import JournalTooNew
from taskyard.journal.frames import SegmentBytes

SEGMENT_HEADER_BYTES: Final = 128
FORMAT_VERSION: Final = 1
OLDEST_FORMAT_VERSION: Final = 1  # that is still read
SUFFIX: Final = ".seg"
_MAGIC: Final = b"TASKYARD"
_DIGITS: Final = 20
_CRC_AT: Final = 124
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
        out.write(bytes(_CRC_AT - len(out)))
        put_u32(out, i64(value(out.getvalue())))
        return out.getvalue()


def parse_header(content: SegmentBytes) -> SegmentHeader:
    """Parse the header at the start of a segment, or raise BadHeader with the reason.

    JournalTooNew is no BadHeader: code that tolerates a damaged header must not take it for one.
    """
    if not content.extend_to(SEGMENT_HEADER_BYTES):
        raise BadHeader("the file is too short for a segment")
    data = content.data
    stored = i64(read_i32_le(data, _CRC_AT)) & 0xFFFF_FFFF
    intact = i64(value(data[:_CRC_AT])) == stored
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
