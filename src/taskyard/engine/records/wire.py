"""How fields of a record are laid out in bytes: little endian, lengths before contents."""

from __future__ import annotations

import sys
from array import array

from librt.strings import (
    BytesWriter,
    read_i32_le,
    read_i64_le,
    write_i16_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i16, i32, i64, mypyc_attr, u8

from taskyard.engine.model.events import CorruptRecord


def put_short_bytes(out: BytesWriter, data: bytes) -> None:
    """Bytes of at most 65,535: two bytes of length, then the bytes."""
    size: i64 = len(data)
    write_i16_le(out, i16(size if size < 1 << 15 else size - (1 << 16)))
    out.write(data)


def put_u8(out: BytesWriter, value: i64) -> None:
    out.append(u8(value))  # as a plain int it would take the slow way when compiled


def put_text(out: BytesWriter, text: str) -> None:
    put_short_bytes(out, text.encode())


def put_i64(out: BytesWriter, value: i64) -> None:
    write_i64_le(out, value)


def put_u64(out: BytesWriter, value: int) -> None:
    """An unsigned 64-bit value, which need not fit i64."""
    write_i64_le(out, value if value < 1 << 63 else value - (1 << 64))


def put_u32(out: BytesWriter, value: i64) -> None:
    write_i32_le(out, i32(value if value < 1 << 31 else value - (1 << 32)))


def put_ids(out: BytesWriter, ids: list[int]) -> None:
    put_u32(out, len(ids))
    for id in ids:
        write_i64_le(out, id)


def put_array(out: BytesWriter, values: array[int]) -> None:
    """All of them at once, each as wide as in the array; how many there are stands elsewhere."""
    if sys.byteorder != "little":
        values = values[:]
        values.byteswap()
    out.write(values.tobytes())


@mypyc_attr(acyclic=True)
class FieldReader:
    """Reads the fields of one record in the order they were put."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: i64, end: i64) -> None:
        self.data = data
        self.at = at
        self.end = end

    def _advance(self, size: i64) -> i64:
        at = self.at
        after = at + size
        if size < 0 or after > self.end:
            raise CorruptRecord(f"a field reaches beyond the end of its record, at byte {at}")
        self.at = after
        return at

    def u8(self) -> i64:
        return self.data[self._advance(1)]

    def u32(self) -> i64:
        value = i64(read_i32_le(self.data, self._advance(4)))
        return value if value >= 0 else value + (1 << 32)

    def s64(self) -> i64:
        return read_i64_le(self.data, self._advance(8))

    def u64(self) -> int:
        value: int = read_i64_le(self.data, self._advance(8))
        return value if value >= 0 else value + (1 << 64)

    def raw_bytes(self, size: i64) -> bytes:
        at = self._advance(size)
        return self.data[at : at + size]

    def short_bytes(self) -> bytes:
        at = self._advance(2)
        low: i64 = self.data[at]
        high: i64 = self.data[at + 1]
        return self.raw_bytes(low | (high << 8))

    def text(self) -> str:
        return self.short_bytes().decode()

    def ids(self) -> list[int]:
        count = self.u32()
        if count > (self.end - self.at) // 8:
            raise CorruptRecord(f"a list of {count} ids does not fit its record")
        return [self.s64() for _ in range(count)]
