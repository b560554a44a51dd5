"""Fields in bytes: what is put comes back, and nothing is read beyond its record."""

import pytest
from engine.harness import property_settings
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.records.wire import (
    FieldReader,
    put_i64,
    put_ids,
    put_short_bytes,
    put_text,
    put_u32,
    put_u64,
)

i64s = st.integers(-(2**63), 2**63 - 1)


def reader(data: bytes) -> FieldReader:
    return FieldReader(data, 0, len(data))


@given(i64s, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.text(max_size=50))
@property_settings
def test_what_is_put_comes_back(signed: int, unsigned: int, small: int, text: str) -> None:
    out = BytesWriter()
    put_i64(out, signed)
    put_u64(out, unsigned)
    put_u32(out, small)
    put_text(out, text.replace("\ud800", ""))
    fields = reader(out.getvalue())
    assert fields.s64() == signed
    assert fields.u64() == unsigned
    assert fields.u32() == small
    assert fields.text() == text
    assert fields.at == fields.end


@given(st.lists(i64s, max_size=20))
@property_settings
def test_lists_of_ids_come_back(ids: list[int]) -> None:
    out = BytesWriter()
    put_ids(out, ids)
    assert reader(out.getvalue()).ids() == ids


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535])
def test_short_bytes_may_have_up_to_65535(size: int) -> None:
    out = BytesWriter()
    put_short_bytes(out, b"x" * size)
    assert reader(out.getvalue()).short_bytes() == b"x" * size


def test_integers_are_little_endian() -> None:
    out = BytesWriter()
    put_u32(out, 0x01020304)
    put_i64(out, -2)
    put_text(out, "ab")
    assert out.getvalue() == b"\x04\x03\x02\x01\xfe" + b"\xff" * 7 + b"\x02\x00ab"


@pytest.mark.parametrize("size", range(8))
def test_a_field_that_is_cut_off_is_refused(size: int) -> None:
    data = b"\x07" * size
    for read in (FieldReader.s64, FieldReader.u64):
        with pytest.raises(CorruptRecord):
            read(reader(data))
    if size < 4:
        with pytest.raises(CorruptRecord):
            reader(data).u32()
    with pytest.raises(CorruptRecord):
        reader(data).short_bytes()
    with pytest.raises(CorruptRecord):
        reader(data).ids()


def test_reading_stops_at_the_end_of_the_record_not_of_the_data() -> None:
    fields = FieldReader(b"\x01\x02\x03\x04", 1, 3)
    assert fields.u8() == 2
    assert fields.raw_bytes(1) == b"\x03"
    with pytest.raises(CorruptRecord):
        fields.u8()


def test_a_size_that_is_negative_is_refused() -> None:
    with pytest.raises(CorruptRecord):
        reader(b"abc").raw_bytes(-1)


def test_a_list_too_long_for_its_record_is_refused_before_it_is_made() -> None:
    with pytest.raises(CorruptRecord):
        reader(b"\xff\xff\xff\xff" + b"\x00" * 16).ids()
