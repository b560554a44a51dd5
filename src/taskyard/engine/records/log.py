"""The open end of the journal: records that were emitted but not yet written.

Pure: bytes in memory. It gives each record its sequence number and its blob's place, since the
journal has told it where the next frame will begin. The journal takes the bytes out and writes
them.

Commands that come together make records that differ in little but the job. Of those only the first
is put field by field.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from librt.vecs import append, vec
from mypy_extensions import i32, i64, mypyc_attr, u8

from taskyard.engine.records.decode import HEAD
from taskyard.engine.records.job_lifecycle import FINISH, LEASE, PUSH, Record
from taskyard.engine.records.wire import put_u8, put_u32

_KEPT: Final = 2 * 1_048_576  # bytes of records whose buffer is used again
_ID: Final = 8  # bytes of the id, which is the first field of a record that has one
_SIZE: Final = 4  # and of the size of its blob


@mypyc_attr(acyclic=True)
class _Stencil:
    """What stands before the id of alike records, and between that and the blob."""

    __slots__ = ("before", "behind", "size")

    def __init__(self, record: Record) -> None:
        out = BytesWriter()
        put_u8(out, record.kind())
        put_u8(out, record.layout())
        write_i64_le(out, record.time)
        out.write(record.origin.encoded)
        id_at: i64 = len(out)
        record.put(out)
        written = out.getvalue()
        self.before = written[:id_at]
        self.behind = written[id_at + _ID :]
        self.size: i64 = len(written) + _SIZE  # of a record without a blob


@mypyc_attr(acyclic=True)
class Log:
    __slots__ = (
        "_blobs",
        "_firsts",
        "_places",
        "_stencils",
        "base",
        "count",
        "next_seq",
        "out",
        "sealed",
    )

    def __init__(self, next_seq: i64 = 1, base: i64 = 0) -> None:
        self.next_seq = next_seq
        self.base = base  # where in the journal the first byte of `out` will stand
        self.sealed: i64 = base  # end of the last record that was taken out
        self.count: i64 = 0
        self.out = BytesWriter()
        # For who wants a blob before it is written, in the order of their places: by number, since
        # a dict takes several times as long for each that comes.
        self._places = vec[i64]()
        self._blobs: list[bytes] = []
        # By kind: the first of those that were alike until now, and what they have in common, once
        # there was a second one. Not for longer than until they are written: it has its blob.
        self._firsts: list[Record | None] = [None] * (FINISH + 1)
        self._stencils: list[_Stencil | None] = [None] * (FINISH + 1)

    def append(self, record: Record) -> None:
        kind = record.kind()
        if kind < PUSH or kind > FINISH:  # only of these there are many
            self._put(record, kind)
        else:
            first = self._firsts[kind]
            if first is not None and record.is_like(first):
                self._repeat(record, kind)
            else:
                self._firsts[kind] = record
                self._stencils[kind] = None
                self._put(record, kind)
        record.seq = self.next_seq
        self.next_seq += 1
        self.count += 1

    def _repeat(self, record: Record, kind: i64) -> None:
        stencil = self._stencils[kind]
        if stencil is None:
            stencil = _Stencil(record)
            self._stencils[kind] = stencil
        out = self.out
        blob = record.blob
        blob_size: i64 = len(blob)
        size = stencil.size + blob_size
        write_i32_le(out, i32(size))
        out.write(stencil.before)
        write_i64_le(out, record.subject())
        out.write(stencil.behind)
        write_i32_le(out, i32(blob_size))
        at = self.base + len(out)
        record.blob_at = at
        if blob_size:
            self.keep(at, blob)
            out.write(blob)
        record.size = size + HEAD

    def _put(self, record: Record, kind: i64) -> None:
        out = self.out
        start: i64 = len(out)
        write_i32_le(out, 0)
        put_u8(out, kind)
        put_u8(out, record.layout())
        write_i64_le(out, record.time)
        out.write(record.origin.encoded)
        record.put(out)
        blob = record.blob
        put_u32(out, len(blob))
        at = self.base + len(out)
        record.blob_at = at  # also without a blob: it tells whether the record is durable
        if blob:
            self.keep(at, blob)
            out.write(blob)
        size = len(out) - start - HEAD
        out[start] = u8(size & 0xFF)
        out[start + 1] = u8((size >> 8) & 0xFF)
        out[start + 2] = u8((size >> 16) & 0xFF)
        out[start + 3] = u8((size >> 24) & 0xFF)
        record.size = size + HEAD

    def keep(self, at: i64, blob: bytes) -> None:
        """Have a blob at hand whose place is not before those of all others."""
        self._places = append(self._places, at)
        self._blobs.append(blob)

    def blob(self, at: i64) -> bytes | None:
        """The blob at this place, if it is not written yet."""
        places = self._places
        low: i64 = 0
        high: i64 = len(places)
        while low < high:
            middle = (low + high) >> 1
            if places[middle] <= at:
                low = middle + 1
            else:
                high = middle
        if not low or places[low - 1] != at:
            return None
        return self._blobs[low - 1]

    def mark(self) -> i64:
        """The place up to which the journal must be durable for all so far to be so."""
        return self.base + len(self.out) if self.count else self.sealed

    def size(self) -> i64:
        return len(self.out)

    def take(self, next_base: i64) -> bytes:
        """All records so far; those that follow will begin at `next_base`."""
        data = self.out.getvalue()
        self.sealed = self.mark()
        self.base = next_base
        self.count = 0
        if len(data) <= _KEPT:
            self.out.truncate(0)  # to let it grow again would copy all of it several times
        else:
            self.out = BytesWriter()
        self._places = vec[i64]()
        self._blobs = []
        for kind in (PUSH, LEASE, FINISH):
            self._firsts[kind] = None
        return data
