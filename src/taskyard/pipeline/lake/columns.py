"""Columns of events and of open jobs as NumPy arrays and back."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake import lives as l
from taskyard.pipeline.lake.lives import NOTHING, Flags, Ints
from taskyard.pipeline.lake.tables import TIME

_DAY: Final = 86_400_000_000
_OUTCOME_OF: Final = {"ttl": "expired"}  # where it is not called as the cause


class Gather:
    """Takes values of a column by place; `source[place]` is a row, kept ones come first."""

    def __init__(self, kept: Any, events: Any, source: Ints) -> None:
        self._kept = kept
        self._events = events
        self._source = source
        self._columns: dict[tuple[str, str], Any] = {}

    def column(self, kept_name: str, name: str) -> Any:
        """Both tables' columns as one array."""
        found = self._columns.get((kept_name, name))
        if found is None:
            parts = [*self._kept[kept_name].chunks, *self._events[name].chunks]
            found = _joined(parts, self._events[name].type)
            self._columns[kept_name, name] = found
        return found

    def take(self, kept_name: str, name: str, places: Ints) -> Any:
        """The values at these places; null where a place is -1."""
        rows = pa.array(self._source[places], mask=places < 0)
        return self.column(kept_name, name).take(rows)


def _joined(parts: list[Any], kind: Any) -> Any:
    if not pa.types.is_dictionary(kind):
        return pa.concat_arrays([part.cast(kind) for part in parts]) if parts else pa.nulls(0, kind)
    encoded = [part if part.type == kind else _encoded(part, kind) for part in parts]
    chunked = pa.chunked_array(encoded, kind).unify_dictionaries()
    return chunked.combine_chunks() if chunked.num_chunks else pa.array([], kind)


def _encoded(part: Any, kind: Any) -> Any:
    plain = part.dictionary_decode() if pa.types.is_dictionary(part.type) else part
    return plain.dictionary_encode().cast(kind)


def numbers(column: Any, absent: int) -> Ints:
    """A column as plain integers."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, pa.scalar(absent, array.type))
    found: Ints = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def flags(column: Any) -> Flags:
    found: Flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.bool_)
    return found


def times(values: Ints) -> Any:
    return pa.array(values, mask=values == NOTHING).view(TIME)


def seconds_between(start: Ints, end: Ints) -> Any:
    unknown = (start == NOTHING) | (end == NOTHING)
    return pa.array(np.where(unknown, 0, end - start) / 1_000_000, mask=unknown)


def only(array: Any, where: Flags) -> Any:
    """Null elsewhere."""
    return pc.if_else(pa.array(where), array, pa.scalar(None, array.type))


def waiting(state: Any) -> Flags:
    found: Flags = (state >= l.BLOCKED) & (state <= l.READY)
    return found


def coded(column: Any, codes: Mapping[str, int], other: int) -> Any:
    """The number of each word; `other` for one that has none, and where there is none."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    words = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    known = [codes.get(word, other) for word in words.dictionary.to_pylist()]
    return np.array([*known, other], np.int8)[numbers(words.indices, len(known))]


ENDS: Final = pa.array(
    [
        {
            l.FINISH: "succeeded",
            l.RETRY: "retried",
            l.FAIL: "failed",
            l.RELEASE: "released",
            l.REMOVE: "removed",
            l.MOVE: "moved",
        }.get(code)
        for code in range(l.STRANGE)
    ],
    pa.string(),
).dictionary_encode()


def outcomes(code: Any, reason: Any) -> Any:
    words = [_OUTCOME_OF.get(word, word) for word in reason.dictionary.to_pylist()]
    names = pa.array([*words, "succeeded", "failed", None], pa.string())
    places = numbers(reason.indices, len(words) + 2)
    places = np.where(code == l.FINISH, len(words), places)
    places = np.where(code == l.FAIL, len(words) + 1, places)
    return names.take(pa.array(places))


def dates(time: Ints) -> Any:
    return pa.array((time // _DAY).astype(np.int32)).view(pa.date32())


def table(columns: dict[str, Any], schema: Any) -> Any:
    """In the schema's order; words may stay dictionaries."""
    arrays = [_fitting(columns[field.name], field.type) for field in schema]
    return pa.table(arrays, names=schema.names)


def _fitting(column: Any, kind: Any) -> Any:
    if column.type == kind or pa.types.is_dictionary(column.type):
        return column
    return column.cast(kind)
