"""A frame is read back as it was written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journal.building import flipped

from taskyard.journal.format import (
    FRAME_HEADER_BYTES,
    Frame,
    SegmentBytes,
    frame_header,
    next_frame,
    written_end,
)
from taskyard.journal.format import (
    frame_at as frame_in,
)

SALT = 0x1122_3344_5566_7788
U63 = st.integers(0, 2**63 - 1)


def content(data: bytes) -> SegmentBytes:
    return SegmentBytes(data, len(data))


def frame_at(data: bytes, offset: int, salt: int) -> Frame | None:
    return frame_in(content(data), offset, salt)


def frame(body: bytes = b"records", first_seq: int = 5, count: int = 2, durable: int = 3) -> bytes:
    return frame_header(body, first_seq, count, SALT, durable) + body


def test_layout_is_the_documented_one() -> None:
    header = frame_header(b"abc", 0x0102, 3, SALT, 0x0405)
    assert header[0:4] == b"\x03\0\0\0"
    assert header[8:16] == b"\x02\x01\0\0\0\0\0\0"
    assert header[16:20] == b"\x03\0\0\0"
    assert header[20:24] == bytes(4)
    assert header[24:32] == b"\x88\x77\x66\x55\x44\x33\x22\x11"
    assert header[32:40] == b"\x05\x04\0\0\0\0\0\0"
    assert len(header) == FRAME_HEADER_BYTES


@given(
    body=st.binary(min_size=1, max_size=300),
    first_seq=U63,
    count=st.integers(1, 2**32 - 1),
    salt=st.integers(-(2**63), 2**63 - 1),
    durable=U63,
    before=st.binary(max_size=50),
)
def test_what_is_written_is_read_back(
    body: bytes, first_seq: int, count: int, salt: int, durable: int, before: bytes
) -> None:
    data = before + frame_header(body, first_seq, count, salt, durable) + body
    found = frame_at(data, len(before), salt)
    assert found is not None
    assert data[found.body : found.end] == body
    assert (found.first_seq, found.count, found.durable) == (first_seq, count, durable)


def test_no_flipped_bit_goes_unnoticed() -> None:
    whole = frame()
    for bit in range(len(whole) * 8):
        assert frame_at(flipped(whole, bit), 0, SALT) is None, f"bit {bit}"


def test_no_missing_end_goes_unnoticed() -> None:
    whole = frame()
    for size in range(len(whole)):
        assert frame_at(whole[:size], 0, SALT) is None
        assert frame_at(whole[:size] + bytes(100), 0, SALT) is None


def test_zeros_are_no_frame() -> None:
    assert frame_at(bytes(1000), 0, 0) is None


def test_a_frame_of_another_segment_is_none() -> None:
    assert frame_at(frame(), 0, SALT + 1) is None


@pytest.mark.parametrize("gap", [0, 1, 39, 40, 1000])
def test_an_intact_frame_is_found_behind_a_damage(gap: int) -> None:
    whole = frame()
    data = flipped(whole, 9) + b"\xff" * gap + whole
    found = next_frame(content(data), 0, len(data), SALT)
    assert found is not None
    assert found.offset == len(whole) + gap


def test_where_the_written_part_ends() -> None:
    for size in (0, 1, 65_535, 65_536, 65_537, 200_000):
        for zeros in (0, 1, 65_536, 131_073):
            data = b"x" * size + bytes(zeros)
            assert written_end(content(data), 0) == size
            assert written_end(content(data), size) == size


def test_a_frame_may_end_in_zeros_that_were_not_read() -> None:
    whole = frame(b"records" + bytes(5000))
    unread = SegmentBytes(whole[: FRAME_HEADER_BYTES + 7], len(whole) + 100)
    found = frame_in(unread, 0, SALT)
    assert found is not None
    assert unread.data[found.body : found.end] == b"records" + bytes(5000)
    assert frame_in(SegmentBytes(whole[: FRAME_HEADER_BYTES + 7], len(whole) - 1), 0, SALT) is None
