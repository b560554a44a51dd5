"""Events as packed blocks: each an Arrow IPC stream of the events of one range of job ids.

A block passes through Spark's shuffle as one value, which costs far less than a row an event.
"""

from __future__ import annotations

import json
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
_RANGE: Final = b"taskyard.range"  # in the schema of a block
_WORD: Final = pa.dictionary(pa.int32(), pa.string())


def packed_schema(columns: Iterable[str] = DEFAULT_COLUMNS) -> Any:
    """The Arrow schema of what is in a block."""
    return pa.schema(
        [pa.field(field.name, _WORD) if field.name in WORDS else field for field in schema(columns)]
    )


def read_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to read for blocks with these columns."""
    return tuple(dict.fromkeys((*columns, "job_id")))


def pack(
    batches: Iterable[Any],
    columns: Sequence[str] = DEFAULT_COLUMNS,
    read: tuple[str, int, int] | None = None,
) -> Iterator[Any]:
    """Batches with the columns `ids` and `rows`, a row for each range of job ids.

    `batches` have the columns that `read_columns` names, in the order of seq and part. `read` is
    what they were read from: a timeline, its first and its last record. Each block says that, so
    there is a block even if none of these records is an event.
    """
    inside = packed_schema(columns)
    if read is not None:
        inside = inside.with_metadata({_RANGE: json.dumps(read)})
    is_empty = True
    for batch in batches:
        if not batch.num_rows:
            continue
        is_empty = False
        ids = pc.fill_null(batch.column("job_id"), -1).to_numpy() >> RANGE_BITS
        events = batch.select(columns)
        ranges, blocks = [], []
        for each, rows in _by_range(ids, events):
            ranges.append(each)
            blocks.append(_block([_encoded(rows, inside)], inside))
        yield _batch(ranges, blocks)
    if is_empty and read is not None:
        yield _batch([NO_JOB], [_block([], inside)])


def read_range(block: Any) -> tuple[str, int, int] | None:
    """The timeline, the first and the last record of what an unpacked block was read from."""
    found = (block.schema.metadata or {}).get(_RANGE)
    return None if found is None else tuple(json.loads(found))


def unpack(blocks: Iterable[Any], columns: Sequence[str] = DEFAULT_COLUMNS) -> Any:
    """The events of some blocks as one table in the order of seq and part, if they have a seq.

    A block is bytes, a buffer or a value of the column `rows`. `columns` are those of the table if
    there are no blocks.
    """
    tables = [_read(block) for block in blocks]
    if not tables:
        return packed_schema(columns).empty_table()
    if "seq" in tables[0].column_names:
        tables.sort(key=lambda table: table["seq"][0].as_py() if len(table) else 0)
    plain = [table.replace_schema_metadata() for table in tables]
    events = pa.concat_tables(plain).unify_dictionaries().combine_chunks()
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


def _batch(ranges: list[int], blocks: list[bytes]) -> Any:
    columns = [pa.array(ranges, pa.int64()), pa.array(blocks, pa.binary())]
    return pa.record_batch(columns, names=["ids", "rows"])


def _encoded(rows: Any, inside: Any) -> Any:
    columns = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for field, column in zip(inside, rows.columns, strict=True)
    ]
    return pa.record_batch(columns, schema=inside)


def _block(batches: list[Any], inside: Any) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, inside) as stream:
        for batch in batches:
            stream.write_batch(batch)
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
