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

from taskyard.engine.model.events import CorruptRecord
from taskyard.engine.model.job import DIALECT_NAMES
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.decode import VERSIONS
from taskyard.journal.format import record_starts
from taskyard.pipeline.records.fields import TYPES, schema
from taskyard.pipeline.records.layouts import ColumnBuilder, Ints

Frame = tuple[int, int, int]  # begin and end of its records, and the number of the first

# What becomes of bytes that are not UTF-8, by column: as the decoder and a dump do it.
_ERRORS: Final = {
    "user": "replace",
    "holder": "replace",
    "error": "replace",
    "name": "strict",
    "message": "strict",
    "consumer": "strict",
    "reason": "strict",
}
_NEWEST: Final = np.zeros(256, np.int64)  # version of each kind; 0: there is no such kind
for _kind in r.EVENT_NAMES:
    _NEWEST[_kind] = VERSIONS.get(_kind, 1)


def decode_frames(
    data: bytes,
    frames: Iterable[Frame],
    columns: Sequence[str],
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
        return pa.record_batch([pa.nulls(0, field.type) for field in kept], schema=kept)
    try:
        found = _find(data, starts, seqs, columns, salt)
    except IndexError as error:
        raise CorruptRecord("a field reaches beyond the end of the data") from error
    return pa.record_batch([_column(found, name) for name in columns], schema=kept)


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
    data: bytes, starts: Ints, seqs: Ints, columns: Sequence[str], salt: Callable[[], bytes]
) -> ColumnBuilder:
    octets = np.frombuffer(data, np.uint8)
    kinds, versions = octets[starts + 4], octets[starts + 5]
    wrong = (versions < 1) | (versions > _NEWEST[kinds])
    if wrong.any():
        at = wrong.argmax()
        if not _NEWEST[kinds[at]]:
            kind = kinds[at]
            raise CorruptRecord(f"unknown kind of record {kind}: written by a newer version?")
        at = starts[at]
        raise CorruptRecord(f"unknown version of a record at byte {at}: of a newer server?")
    events = kinds < r.FIRST_SNAPSHOT
    return ColumnBuilder(data, starts[events], seqs[events], columns, salt)


def _column(found: ColumnBuilder, name: str) -> Any:
    kind = TYPES[name]
    if name in ("seq", "part"):
        return pa.array(found.seqs if name == "seq" else found.parts).cast(kind)
    if name in ("event", "dialect", "content", "reason"):
        return _spelled(found, name)
    if name in ("uid", "blocked_by"):
        return _unlike_bytes(found, name)
    if pa.types.is_string(kind):
        return _text(found, name)
    if pa.types.is_binary(kind):
        return found.binary(name, keep_empty=name == "payload")
    if name not in found.numbers:
        return pa.nulls(found.count, kind)
    numbers, there = found.numbers[name]
    mask = None if there.all() else ~there
    return pa.array(numbers, mask=mask).cast(kind)


def _text(found: ColumnBuilder, name: str) -> Any:
    values = found.binary(name)
    errors = _ERRORS.get(name, "backslashreplace")
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        try:
            decoded = [each and each.decode(errors=errors) for each in values.to_pylist()]
        except UnicodeDecodeError as error:
            raise CorruptRecord(f"a text of the column {name} is not UTF-8") from error
        texts = pa.array(decoded, pa.string())
    patches = found.overrides.get(name)
    if not patches:
        return texts
    mask = np.zeros(found.count, np.bool_)
    mask[list(patches)] = True
    ordered = pa.array([patches[index] for index in sorted(patches)], pa.string())
    return pc.replace_with_mask(texts, pa.array(mask), ordered)


def _spelled(found: ColumnBuilder, name: str) -> Any:
    """Words that numbers stand for; of reasons there are some that stand there as they are."""
    if name not in found.numbers:
        return _text(found, name)
    numbers, there = found.numbers[name]
    words = _words(name).take(pa.array(numbers, mask=~there))
    return pc.coalesce(words, _text(found, name)) if name == "reason" else words


@cache
def _words(column: str) -> Any:
    """The word for each number, and for each kind of record if it is a reason.

    Made when it is needed: the first array that pyarrow makes has it import pandas, which takes a
    third of a second in each of the many processes that only plan what others read.
    """
    if column == "event":
        return pa.array([r.EVENT_NAMES.get(kind) for kind in range(256)], pa.string())
    if column == "content":
        return pa.array(["opaque", "json", *["opaque"] * 254], pa.string())
    names: dict[int, Sequence[str]] = {0: DIALECT_NAMES}
    if column == "reason":
        names = {r.FINISH: r.FINISH_WAYS, r.RELEASE: r.RELEASE_REASONS, r.REMOVE: r.REMOVE_CAUSES}
    words = [str(number % 256) for number in range(256 * (max(names) + 1))]
    for kind, some in names.items():
        words[256 * kind : 256 * kind + len(some)] = some
    return pa.array(words, pa.string())


def _unlike_bytes(found: ColumnBuilder, name: str) -> Any:
    """Uids as hexadecimal digits, and lists of ids: their bytes, with other bounds."""
    kind = TYPES[name]
    if name not in found.spans:
        return pa.nulls(found.count, kind)
    there, bounds, data = found.binary(name).buffers()
    bounds = np.frombuffer(bounds, np.int32)[: found.count + 1]
    octets = data.to_pybytes()[: bounds[-1]]
    if name == "uid":
        buffers = [there, pa.py_buffer(2 * bounds), pa.py_buffer(octets.hex().encode())]
        return pa.Array.from_buffers(kind, found.count, buffers)
    ids = pa.array(np.frombuffer(octets, "<i8"))
    return pa.Array.from_buffers(
        kind, found.count, [there, pa.py_buffer(bounds // 8)], children=[ids]
    )
