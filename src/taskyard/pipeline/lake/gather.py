"""Rows of events and rows that were kept of open jobs, side by side: columns of both by place."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.lives import NOTHING, Flags, Ints
from taskyard.pipeline.lake.tables import TIME


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
