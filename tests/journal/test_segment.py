"""The header of a segment, and the names of segments."""

import google_crc32c
import pytest
from journal.building import flipped

from taskyard.journal.errors import JournalTooNew
from taskyard.journal.format import (
    SEGMENT_HEADER_BYTES,
    BadHeader,
    SegmentBytes,
    SegmentHeader,
    base_of,
    create_segment,
    parse_header,
    segment_name,
    segment_names,
)
from taskyard.journal.memory import MemoryDisk

HEADER = SegmentHeader(bytes(range(16)), 1 << 40, 77, -5, 1_700_000_000_000_000, 70, 11, 12)


def parsed(data: bytes) -> SegmentHeader:
    return parse_header(SegmentBytes(data, len(data)))


def test_what_is_written_is_read_back() -> None:
    read = parsed(HEADER.encode())
    assert read.timeline == bytes(range(16))
    assert (read.base, read.first_seq, read.salt) == (1 << 40, 77, -5)
    assert (read.created, read.durable) == (1_700_000_000_000_000, 70)
    assert (read.recovery_base, read.retention_base) == (11, 12)
    assert len(HEADER.encode()) == SEGMENT_HEADER_BYTES


def test_no_flipped_bit_goes_unnoticed() -> None:
    for bit in range(SEGMENT_HEADER_BYTES * 8):
        with pytest.raises(BadHeader):
            parsed(flipped(HEADER.encode(), bit))


def test_a_short_file_is_no_segment() -> None:
    with pytest.raises(BadHeader, match="too short"):
        parsed(HEADER.encode()[:-1])


def of_format(version: int) -> bytes:
    head = HEADER.encode()[:8] + version.to_bytes(4, "little") + HEADER.encode()[12:124]
    crc: int = google_crc32c.value(head)
    return head + crc.to_bytes(4, "little")


def test_a_newer_format_is_named_and_is_no_damage() -> None:
    name = segment_name(HEADER.base)
    with pytest.raises(
        JournalTooNew,
        match=rf"{name} was written by a newer version of Taskyard \(its format is 2, and this one "
        "reads up to 1",
    ):
        parsed(of_format(2))


def test_there_is_no_format_before_the_first() -> None:
    with pytest.raises(BadHeader, match="its format is 0, and there is none before 1"):
        parsed(of_format(0))


def test_a_format_is_not_believed_if_the_checksum_is_wrong() -> None:
    with pytest.raises(BadHeader, match="checksum"):
        parsed(HEADER.encode()[:8] + b"\x02\0\0\0" + HEADER.encode()[12:])


def test_names_say_the_base() -> None:
    assert segment_name(66_206) == "00000000000000066206.seg"
    assert base_of("00000000000000066206.seg") == 66_206


@pytest.mark.parametrize(
    "name",
    [
        "66206.seg",
        "00000000000000066206.new",
        "0000000000000006620x.seg",
        "-0000000000000066206.seg",
        "99999999999999999999.seg",
        "\u0660" * 20 + ".seg",  # digits, but not ours
        "²" * 20 + ".seg",
        ".seg",
        "",
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert base_of(name) == -1


def test_segments_are_listed_in_order() -> None:
    disk = MemoryDisk()
    for base in (500, 0, 70):
        disk.put(segment_name(base), b"")
    disk.put("notes.txt", b"")
    assert segment_names(disk) == [segment_name(0), segment_name(70), segment_name(500)]


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_a_file_has_the_name_of_a_segment_only_with_its_header(operation: str) -> None:
    disk = MemoryDisk()
    disk.put("spare", bytes(4096))
    disk.fail_call(operation, keep=10)
    with pytest.raises(OSError, match="injected"):
        create_segment(disk, HEADER, "spare")
    assert disk.names() == ["spare"]
    create_segment(disk, HEADER, "spare")
    assert disk.names() == [segment_name(HEADER.base)]
    assert disk.content(segment_name(HEADER.base)) == HEADER.encode() + bytes(4096 - 128)
