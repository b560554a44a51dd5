"""Events as packed blocks: each an Arrow IPC stream of the events of one range of job ids.

A block passes through Spark's shuffle as one value, which costs far less than a row an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.records.columns import DEFAULT_COLUMNS, schema

RANGE_BITS: Final = 16  # a range has this many bits of neighbouring job ids
NO_JOB: Final = -1  # the range of events that are about no job
# Columns with few different values: in blocks they are dictionaries.
WORDS: Final = (
    "event",
    "queue",
    "name",
    "dialect",
    "user",
    "holder",
    "content",
    "reason",
    "to_queue",
)
_WORD: Final = pa.dictionary(pa.int32(), pa.string())


def packed_schema(columns: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """The Arrow schema of what is in a block."""
    return pa.schema(
        [pa.field(field.name, _WORD) if field.name in WORDS else field for field in schema(columns)]
    )


def read_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to read for blocks with these columns."""
    return tuple(dict.fromkeys((*columns, "job_id")))


def pack(batches: Iterable[Any], columns: Sequence[str] = DEFAULT_COLUMNS) -> Iterator[Any]:
    """Batches with the columns `ids` and `rows`, a row for each range of job ids.

    `batches` have the columns that `read_columns` names, in the order of seq and part.
    """
    inside = packed_schema(columns)
    for batch in batches:
        if not batch.num_rows:
            continue
        ids = pc.fill_null(batch.column("job_id"), -1).to_numpy() >> RANGE_BITS
        events = batch.select(columns)
        ranges, blocks = [], []
        for each, rows in _by_range(ids, events):
            ranges.append(each)
            blocks.append(_block(rows, inside))
        yield pa.record_batch(
            [pa.array(ranges, pa.int64()), pa.array(blocks, pa.binary())], names=["ids", "rows"]
        )


def unpack(blocks: Iterable[Any], columns: Sequence[str] = DEFAULT_COLUMNS) -> Any:
    """The events of some blocks as one table in the order of seq and part, if they have a seq.

    A block is bytes, a buffer or a value of the column `rows`. `columns` are those of the table if
    there are no blocks.
    """
    tables = [_read(block) for block in blocks]
    if not tables:
        return packed_schema(columns).empty_table()
    if "seq" in tables[0].column_names:
        tables.sort(key=lambda table: table["seq"][0].as_py())
    events = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return _in_order(events)


def _by_range(ids: Any, events: Any) -> Iterator[tuple[int, Any]]:
    """The events of each range, in the order in which they come."""
    if (ids[1:] == ids[:-1]).all():
        yield int(ids[0]), events
        return
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    bounds = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for rows in np.split(order, bounds):
        yield int(ids[rows[0]]), events.take(pa.array(rows))


def _block(rows: Any, inside: Any) -> bytes:
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for field, column in zip(inside, rows.columns, strict=True)
    ]
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, inside) as stream:
        stream.write_batch(pa.record_batch(columns, schema=inside))
    return bytes(out.getvalue())


def _read(block: Any) -> Any:
    data = block.as_buffer() if isinstance(block, pa.Scalar) else block
    return pa.ipc.open_stream(data).read_all()


def _in_order(events: Any) -> Any:
    names = events.column_names
    if "seq" not in names:
        return events
    seq = events["seq"].to_numpy()
    if (seq[1:] >= seq[:-1]).all():
        return events
    part = events["part"].to_numpy() if "part" in names else np.zeros(len(seq))
    return events.take(pa.array(np.lexsort((part, seq))))
