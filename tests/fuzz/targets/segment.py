"""Segment headers: what is intact is written the same again; anything else is BadHeader.

With an odd first byte the checksum is put right, so that what stands behind it is tried too.
"""

from __future__ import annotations

from google_crc32c import value

from taskyard.journal.errors import JournalTooNew
from taskyard.journal.format import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentBytes,
    SegmentHeader,
    base_of,
    parse_header,
    segment_name,
)

PLAIN = SegmentHeader(b"t" * 16, 0, 1, 77, 5, 0).encode()
LATER = SegmentHeader(b"t" * 16, 1 << 40, 99, -5, 1 << 50, 98, 7, 8, True).encode()
SEEDS = [b"\0" + PLAIN, b"\1" + PLAIN, b"\1" + LATER, b"\1" + LATER[:90], b"\1" + PLAIN[:8] + b"\2"]
LONGEST = 200
CRC_AT = SEGMENT_HEADER_BYTES - 4


def fuzz(data: bytes) -> None:
    header = data[1:]
    if data[:1] and data[0] & 1 and len(header) >= SEGMENT_HEADER_BYTES:
        crc = value(header[:CRC_AT]).to_bytes(4, "little")
        header = header[:CRC_AT] + crc + header[SEGMENT_HEADER_BYTES:]
    for size in (len(header), len(header) + SEGMENT_HEADER_BYTES):
        try:
            found = parse_header(SegmentBytes(header, size))
        except (BadHeader, JournalTooNew) as error:
            assert str(error)
            continue
        encoded = found.encode()
        again = parse_header(SegmentBytes(encoded, len(encoded)))
        assert again.encode() == encoded
        if found.base >= 0:
            assert base_of(segment_name(found.base)) == found.base
    base_of(header.decode("latin-1"))
