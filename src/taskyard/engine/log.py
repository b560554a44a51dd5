"""The open end of the journal: records that were emitted but not yet written.

Pure: bytes in memory. It gives each record its sequence number and its blob's place, since the
journal has told it where the next frame will begin. The journal takes the bytes out and writes
them.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i64, mypyc_attr, u8

from taskyard.engine.decode import HEAD
from taskyard.engine.records import Record
from taskyard.engine.wire import put_u8, put_u32


@mypyc_attr(acyclic=True)
class Log:
    __slots__ = ("base", "blobs", "count", "next_seq", "out", "sealed")

    def __init__(self, next_seq: i64 = 1, base: i64 = 0) -> None:
        self.next_seq = next_seq
        self.base = base  # where in the journal the first byte of `out` will stand
        self.sealed: i64 = base  # end of the last record that was taken out
        self.count: i64 = 0
        self.out = BytesWriter()
        self.blobs: dict[int, bytes] = {}  # by place, for who wants one before it is written

    def append(self, record: Record) -> None:
        out = self.out
        start: i64 = len(out)
        write_i32_le(out, 0)
        put_u8(out, record.kind())
        put_u8(out, record.layout())
        write_i64_le(out, record.time)
        out.write(record.origin.encoded)
        record.put(out)
        blob = record.blob
        put_u32(out, len(blob))
        at = self.base + len(out)
        record.blob_at = at  # also without a blob: it tells whether the record is durable
        if blob:
            self.blobs[at] = blob
            out.write(blob)
        size = len(out) - start - HEAD
        out[start] = u8(size & 0xFF)
        out[start + 1] = u8((size >> 8) & 0xFF)
        out[start + 2] = u8((size >> 16) & 0xFF)
        out[start + 3] = u8((size >> 24) & 0xFF)
        record.size = size + HEAD
        record.seq = self.next_seq
        self.next_seq += 1
        self.count += 1

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
        self.out = BytesWriter()
        self.blobs = {}
        return data
