"""Records of the journal as rows of Arrow batches, many at a time.

Only the columns that are asked for are made. The rows are those that `taskyard.journal.reader`
gives, one a record, but for carries, which are no events; and one more for each job of a batch
that was leased, with the same `seq` and `part` from 1 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from taskyard.engine import records as r
from taskyard.engine.decode import VERSIONS
from taskyard.engine.errors import CorruptRecord
from taskyard.engine.job import DIALECT_NAMES
from taskyard.journal.record_walk import record_starts
from taskyard.pipeline.records.columns import (
    ALL_COLUMNS,
    BLOB_COLUMNS,
    DEFAULT_COLUMNS,
    TYPES,
    schema,
)
from taskyard.pipeline.records.found import Ints, Records, array_of
from taskyard.pipeline.records.layouts import read_head, read_jobs
from taskyard.pipeline.records.rare import Batch, read_others

__all__ = ["ALL_COLUMNS", "BLOB_COLUMNS", "DEFAULT_COLUMNS", "decode", "decode_frames", "schema"]

Frame = tuple[int, int, int]  # begin and end of its records, and the number of the first

_REASONS: Final = {
    r.FINISH: r.FINISH_WAYS,
    r.RELEASE: r.RELEASE_REASONS,
    r.REMOVE: r.REMOVE_CAUSES,
}
_HEX: Final = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)


def decode(
    data: bytes,
    at: int,
    end: int,
    first_seq: int,
    columns: Sequence[str] = DEFAULT_COLUMNS,
) -> Any:
    """The records from `data[at]` to `data[end]`; the first has number `first_seq`."""
    return decode_frames(data, [(at, end, first_seq)], columns)


def decode_frames(
    data: bytes,
    frames: Iterable[Frame],
    columns: Sequence[str] = DEFAULT_COLUMNS,
    first: int = 0,
    last: int | None = None,
    salt: Callable[[], bytes] = bytes,
) -> Any:
    """The records of several frames, of those from number `first` to `last`.

    `salt` gives that of the journal, for the numbers that stand for sessions.
    CorruptRecord if there is anything in them that is no record of a known kind.
    """
    kept = schema(columns)
    starts, seqs = _walk(data, frames)
    if len(seqs) and (first > seqs[0] or (last is not None and last < seqs[-1])):
        inside = (seqs >= first) & (seqs <= (seqs[-1] if last is None else last))
        starts, seqs = starts[inside], seqs[inside]
    if not len(starts):
        return _empty(kept)
    try:
        found, batches = _find(data, starts, seqs, frozenset(columns), salt)
    except IndexError as error:
        raise CorruptRecord("a field reaches beyond the end of the data") from error
    rows = _Rows(found, batches)
    return pa.record_batch([rows.column(name) for name in columns], schema=kept)


def _empty(kept: Any) -> Any:
    return pa.record_batch([pa.nulls(0, field.type) for field in kept], schema=kept)


def _walk(data: bytes, frames: Iterable[Frame]) -> tuple[Ints, Ints]:
    """Where all records begin, and their numbers."""
    starts: list[bytes] = []
    seqs: list[Ints] = []
    for at, end, first_seq in frames:
        if end > len(data):
            raise CorruptRecord(f"a frame ends at byte {end} of {len(data)}")
        walked = record_starts(data, at, end)
        starts.append(walked)
        seqs.append(np.arange(first_seq, first_seq + len(walked) // 8))
    numbers = np.concatenate(seqs) if seqs else np.zeros(0, np.int64)
    return np.frombuffer(b"".join(starts), "<i8"), numbers


def _find(
    data: bytes,
    starts: Ints,
    seqs: Ints,
    wanted: frozenset[str],
    salt: Callable[[], bytes],
) -> tuple[Records, list[Batch]]:
    kinds = np.frombuffer(data, np.uint8)[starts + 4]
    carried = kinds >= r.FIRST_CARRY
    if carried.any():
        _check_versions(data, starts)
        starts, seqs = starts[~carried], seqs[~carried]
    found = Records(data, starts, seqs, wanted, salt)
    _check_versions(data, starts)
    fields = read_head(found)
    read_jobs(found, fields)
    return found, read_others(found, fields)


def _newest() -> NDArray[np.int64]:
    newest = np.zeros(256, np.int64)
    for kind in r.EVENT_NAMES:
        newest[kind] = VERSIONS.get(kind, 1)
    return newest


_NEWEST: Final = _newest()


def _check_versions(data: bytes, starts: Ints) -> None:
    octets = np.frombuffer(data, np.uint8)
    newest = _NEWEST[octets[starts + 4]]
    versions = octets[starts + 5]
    wrong = (versions < 1) | (versions > newest)
    if not wrong.any():
        return
    start = int(starts[wrong.argmax()])
    if not newest[wrong.argmax()]:
        raise CorruptRecord(
            f"unknown kind of record {data[start + 4]}: written by a newer version?"
        )
    raise CorruptRecord(f"unknown version of a record at byte {start}: of a newer server?")


class _Rows:
    """The columns, made of what was found; with more rows than records if there are batches."""

    def __init__(self, found: Records, batches: list[Batch]) -> None:
        self._found = found
        self._batches = batches
        self._rows: Ints | None = None  # the record of each row, if that is not simply the next
        self._parts = np.zeros(found.count, np.int32)
        if batches:
            self._spread()

    def _spread(self) -> None:
        counts = np.ones(self._found.count, np.int64)
        for batch in self._batches:
            counts[batch.index] += len(batch.ids)
        self._rows = np.repeat(np.arange(len(counts)), counts)
        begins = np.cumsum(counts) - counts
        self._parts = (np.arange(len(self._rows)) - begins[self._rows]).astype(np.int32)

    def column(self, name: str) -> Any:
        kind = TYPES[name]
        if name == "part":
            return pa.array(self._parts)
        if name == "seq":
            return self._spread_array(pa.array(self._found.seqs))
        if name == "event":
            return self._events()
        if self._batches and name in ("job_id", "queue", "attempt", "details"):
            return self._of_batches(name, kind)
        return self._spread_array(self._column(name, kind))

    def _spread_array(self, array: Any) -> Any:
        if self._rows is None:
            return array
        if array.null_count == len(array):
            return pa.nulls(len(self._rows), array.type)
        return array.take(pa.array(self._rows))

    def _column(self, name: str, kind: Any) -> Any:
        """A column with one place a record."""
        found = self._found
        special = _SPECIAL.get(name)
        if special is not None:
            return special(found)
        if pa.types.is_string(kind):
            return found.text(name, _ERRORS.get(name, "backslashreplace"))
        if pa.types.is_binary(kind):
            return found.binary(name, keep_empty=name == "payload")
        column = found.numbers.get(name)
        if column is None:
            return pa.nulls(found.count, kind)
        return array_of(kind, *column)

    def _events(self) -> Any:
        kinds = self._found.kinds
        if self._rows is not None:
            kinds = np.where(self._parts > 0, np.uint8(r.LEASE), kinds[self._rows])
        return _events().take(pa.array(kinds))

    def _of_batches(self, name: str, kind: Any) -> Any:
        """A column in which the jobs of a batch have other values than its record."""
        values = [_of_batch(batch, name, kind) for batch in self._batches]
        own = self._spread_array(self._column(name, kind))
        return pc.replace_with_mask(own, pa.array(self._parts > 0), pa.concat_arrays(values))


def _of_batch(batch: Batch, name: str, kind: Any) -> Any:
    if name == "job_id":
        return pa.array(batch.ids)
    if name == "queue":
        queues = [queue.decode(errors="backslashreplace") for queue in batch.queues]
        places = np.repeat(np.arange(len(queues)), batch.counts)
        return pa.array(queues, kind).take(pa.array(places))
    if name == "details" or batch.attempts is None:
        return pa.nulls(len(batch.ids), kind)
    return pa.array(np.minimum(batch.attempts, 0x7FFF_FFFF).astype(np.int32))


def _words(names: Sequence[str]) -> list[str]:
    """The word for each number of a byte; a number that has none stands for itself."""
    return [names[number] if number < len(names) else str(number) for number in range(256)]


# Made when they are needed: the first array that pyarrow makes has it import pandas, which takes a
# third of a second in each of the many processes that only plan what others read.


@cache
def _events() -> Any:
    return pa.array([r.EVENT_NAMES.get(kind) for kind in range(256)], pa.string())


@cache
def _dialects() -> Any:
    return pa.array(_words(DIALECT_NAMES), pa.string())


@cache
def _contents() -> Any:
    return pa.array(["opaque", "json", *["opaque"] * 254], pa.string())


@cache
def _reason_words() -> Any:
    words = [_words(_REASONS.get(kind, ())) for kind in range(r.REMOVE + 1)]
    return pa.array([word for one in words for word in one], pa.string())


def _dialect(found: Records) -> Any:
    return _dialects().take(pa.array(found.numbers["dialect"][0]))


def _content(found: Records) -> Any:
    return _spelled(found, "content", _contents())


def _reason(found: Records) -> Any:
    """Words that numbers stand for, and what fails say in their own."""
    words = _spelled(found, "reason", _reason_words())
    if "reason" not in found.spans and "reason" not in found.patches:
        return words
    return pc.coalesce(words, found.text("reason", "strict"))


def _spelled(found: Records, name: str, words: Any) -> Any:
    column = found.numbers.get(name)
    if column is None:
        return pa.nulls(found.count, pa.string())
    return words.take(pa.array(column[0], mask=~column[1]))


def _uid(found: Records) -> Any:
    """The 16 bytes of a uid as 32 hexadecimal digits."""
    span = found.spans.get("uid")
    if span is None:
        return pa.nulls(found.count, pa.string())
    there = span[1] > 0
    digits = _HEX[found.bytes_at(span[0][there], 16)]
    bounds = np.zeros(found.count + 1, np.int32)
    np.cumsum(32 * there, out=bounds[1:])
    bitmap = np.packbits(there, bitorder="little")
    buffers = [pa.py_buffer(bitmap), pa.py_buffer(bounds), pa.py_buffer(digits.tobytes())]
    return pa.Array.from_buffers(pa.string(), found.count, buffers)


def _blocked_by(found: Records) -> Any:
    kind = TYPES["blocked_by"]
    span = found.spans.get("blocked_by")
    if span is None:
        return pa.nulls(found.count, kind)
    there = span[1] > 0
    counts = np.where(there, span[1] // 8, 0)
    bounds = np.zeros(found.count + 1, np.int32)
    np.cumsum(counts, out=bounds[1:])
    within = np.arange(bounds[-1]) - np.repeat(bounds[:-1], counts)
    ids = found.i64(np.repeat(span[0], counts) + 8 * within)
    bitmap = np.packbits(there, bitorder="little")
    buffers = [pa.py_buffer(bitmap), pa.py_buffer(bounds)]
    return pa.Array.from_buffers(kind, found.count, buffers, children=[pa.array(ids)])


_SPECIAL: Final = {
    "dialect": _dialect,
    "content": _content,
    "reason": _reason,
    "uid": _uid,
    "blocked_by": _blocked_by,
}
# What becomes of bytes that are not UTF-8, by column: as the decoder and a dump do it.
_ERRORS: Final = {
    "user": "replace",
    "holder": "replace",
    "error": "replace",
    "name": "strict",
    "message": "strict",
    "consumer": "strict",
}
