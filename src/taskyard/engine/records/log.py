"""Records that were emitted but not yet written.

Pure: bytes in memory. It gives each record its sequence number and its blob's position, because the
journal sets where the next frame will begin. The journal drains the bytes and writes them.

Commands that arrive together make records that differ in little but the job. Of those only the
first is encoded field by field; the others use its template.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from librt.vecs import append, vec
from mypy_extensions import i32, i64, mypyc_attr, u8

from taskyard.engine.records.decode import SIZE_PREFIX_BYTES
from taskyard.engine.records.job_lifecycle import FINISH, LEASE, PUSH, Record
from taskyard.engine.records.wire import put_u8, put_u32

_MAX_REUSED_BYTES: Final = 2 * 1_048_576  # bytes of records whose buffer is used again
_ID_BYTES: Final = 8  # bytes of the id, which is the first field of a record that has one
_BLOB_SIZE_BYTES: Final = 4  # and of the size of its blob


@mypyc_attr(acyclic=True)
class _RecordTemplate:
    """What stands before the id of alike records, and between that and the blob."""

    __slots__ = ("after_id", "before_id", "size")

    def __init__(self, record: Record) -> None:
        out = BytesWriter()
        put_u8(out, record.kind())
        put_u8(out, record.format_version())
        write_i64_le(out, record.time)
        out.write(record.origin.encoded)
        id_at: i64 = len(out)
        record.encode(out)
        written = out.getvalue()
        self.before_id = written[:id_at]
        self.after_id = written[id_at + _ID_BYTES :]
        self.size: i64 = len(written) + _BLOB_SIZE_BYTES  # of a record without a blob


@mypyc_attr(acyclic=True)
class RecordBuffer:
    __slots__ = (
        "_blob_positions",
        "_blobs",
        "_template_sources",
        "_templates",
        "count",
        "drained_end",
        "next_seq",
        "out",
        "start_position",
    )

    def __init__(self, next_seq: i64 = 1, start_position: i64 = 0) -> None:
        self.next_seq = next_seq
        # where in the journal the first byte of `out` will stand
        self.start_position = start_position
        self.drained_end: i64 = start_position  # end of the last record that was taken out
        self.count: i64 = 0
        self.out = BytesWriter()
        # To read a blob before it is written, in the order of their positions: by number, since
        # a dict takes several times as long for each.
        self._blob_positions = vec[i64]()
        self._blobs: list[bytes] = []
        # By kind: the first of those that were alike until now, and what they have in common, once
        # there was a second one. Not for longer than until they are written: it has its blob.
        self._template_sources: list[Record | None] = [None] * (FINISH + 1)
        self._templates: list[_RecordTemplate | None] = [None] * (FINISH + 1)

    def append(self, record: Record) -> None:
        kind = record.kind()
        if kind < PUSH or kind > FINISH:  # only these are frequent
            self._append_in_full(record, kind)
        else:
            first = self._template_sources[kind]
            if first is not None and record.same_template(first):
                self._append_from_template(record, kind)
            else:
                self._template_sources[kind] = record
                self._templates[kind] = None
                self._append_in_full(record, kind)
        record.seq = self.next_seq
        self.next_seq += 1
        self.count += 1

    def _append_from_template(self, record: Record, kind: i64) -> None:
        stencil = self._templates[kind]
        if stencil is None:
            stencil = _RecordTemplate(record)
            self._templates[kind] = stencil
        out = self.out
        blob = record.blob
        blob_size: i64 = len(blob)
        size = stencil.size + blob_size
        write_i32_le(out, i32(size))
        out.write(stencil.before_id)
        write_i64_le(out, record.job_id())
        out.write(stencil.after_id)
        write_i32_le(out, i32(blob_size))
        at = self.start_position + len(out)
        record.blob_at = at
        if blob_size:
            self.keep_blob(at, blob)
            out.write(blob)
        record.size = size + SIZE_PREFIX_BYTES

    def _append_in_full(self, record: Record, kind: i64) -> None:
        out = self.out
        start: i64 = len(out)
        write_i32_le(out, 0)
        put_u8(out, kind)
        put_u8(out, record.format_version())
        write_i64_le(out, record.time)
        out.write(record.origin.encoded)
        record.encode(out)
        blob = record.blob
        put_u32(out, len(blob))
        at = self.start_position + len(out)
        record.blob_at = at  # also without a blob: it tells whether the record is durable
        if blob:
            self.keep_blob(at, blob)
            out.write(blob)
        size = len(out) - start - SIZE_PREFIX_BYTES
        out[start] = u8(size & 0xFF)
        out[start + 1] = u8((size >> 8) & 0xFF)
        out[start + 2] = u8((size >> 16) & 0xFF)
        out[start + 3] = u8((size >> 24) & 0xFF)
        record.size = size + SIZE_PREFIX_BYTES

    def keep_blob(self, at: i64, blob: bytes) -> None:
        """Keep a blob readable whose position is not behind those of all others."""
        self._blob_positions = append(self._blob_positions, at)
        self._blobs.append(blob)

    def unwritten_blob(self, at: i64) -> bytes | None:
        """The blob at this place, if it is not written yet."""
        places = self._blob_positions
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

    def end_position(self) -> i64:
        """The place up to which the journal must be durable for all so far to be so."""
        return self.start_position + len(self.out) if self.count else self.drained_end

    def size(self) -> i64:
        return len(self.out)

    def drain(self, next_start: i64) -> bytes:
        """Return all records so far; those that follow will begin at `next_start`."""
        data = self.out.getvalue()
        self.drained_end = self.end_position()
        self.start_position = next_start
        self.count = 0
        if len(data) <= _MAX_REUSED_BYTES:
            self.out.truncate(0)  # to let it grow again would copy all of it several times
        else:
            self.out = BytesWriter()
        self._blob_positions = vec[i64]()
        self._blobs = []
        for kind in (PUSH, LEASE, FINISH):
            self._template_sources[kind] = None
        return data
