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

from taskyard.pipeline.records.fields import DEFAULT_COLUMNS, TYPES, schema

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
PACKED: Final = "ids bigint, rows binary"  # what blocks stand in, as Spark's schema
_RANGE: Final = b"taskyard.range"  # in the schema of a block
# A third of the processor time: a block is copied several times on its way through Spark.
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")
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
    batches: Iterable[Any], columns: Sequence[str], read: tuple[str, int, int] | None = None
) -> Iterator[Any]:
    """Batches with the columns `ids` and `rows`, a row for each range of job ids.

    `batches` have the columns that `read_columns` names, in the order of seq and part. `read` is
    what they were read from: a timeline, its first and its last record. Each block says that, so
    there is a block even if none of these records is an event. Rows that somebody has filtered or
    enriched were read from nothing that is known, and may be in any order.
    """
    inside = packed_schema(columns)
    if read is not None:
        inside = inside.with_metadata({_RANGE: json.dumps(read)})
    is_empty = True
    for batch in batches:
        if batch.num_rows:
            is_empty = False
            ids = pc.fill_null(batch.column("job_id"), NO_JOB).to_numpy() >> RANGE_BITS
            arrays = [
                column.cast(TYPES[name]).dictionary_encode()
                if name in WORDS
                else column.cast(TYPES[name])
                for name, column in zip(columns, batch.select(columns).columns, strict=True)
            ]
            yield _blocks(_by_range(ids, pa.record_batch(arrays, schema=inside)))
    if is_empty:
        yield _blocks(
            [(NO_JOB, pa.record_batch([pa.nulls(0, f.type) for f in inside], schema=inside))]
        )


def read_block(block: Any) -> Any:
    """The events of one block, a buffer or a value of the column `rows`, as a table."""
    data = block.as_buffer() if isinstance(block, pa.Scalar) else block
    return pa.ipc.open_stream(data).read_all()


def read_range(block: Any) -> tuple[str, int, int] | None:
    """The timeline, the first and the last record of what an unpacked block was read from."""
    found = (block.schema.metadata or {}).get(_RANGE)
    return None if found is None else tuple(json.loads(found))


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


def _blocks(parts: Iterable[tuple[int, Any]]) -> Any:
    ranges: list[int] = []
    blocks: list[bytes] = []
    for each, events in parts:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, events.schema, options=_COMPRESSED) as stream:
            stream.write_batch(events)
        ranges.append(each)
        blocks.append(bytes(out.getvalue()))
    columns = [pa.array(ranges, pa.int64()), pa.array(blocks, pa.binary())]
    return pa.record_batch(columns, names=["ids", "rows"])
