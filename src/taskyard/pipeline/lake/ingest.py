"""Records of the journal into files of `events`: what one task does with its range."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.files import DataFile, TableWriter
from taskyard.pipeline.lake.gather import numbers
from taskyard.pipeline.lake.tables import EVENTS, RANGE_BITS
from taskyard.pipeline.ranges import Range, read
from taskyard.pipeline.records.rows import ALL_COLUMNS, DEFAULT_COLUMNS

_AT_ONCE: Final = 1 << 17  # rows


@dataclass
class Ingest:
    lake: Path
    step: int
    range: Range
    payloads: bool


@dataclass
class Ingested:
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    last_time: int = 0  # microseconds
    ids: dict[int, int] = field(default_factory=dict)  # id range to rows about its jobs


def ingest(task: Ingest) -> Ingested:
    writer = TableWriter(task.lake, EVENTS, task.step)
    done = Ingested()
    columns = ALL_COLUMNS if task.payloads else DEFAULT_COLUMNS
    for batch in read(task.range, columns, _AT_ONCE):
        if batch.num_rows:
            writer.write(_event_rows(batch))
            _count(batch, done)
    done.files = writer.close()
    return done


def _event_rows(batch: Any) -> Any:
    rows = pa.Table.from_batches([batch])
    columns = [
        rows[field.name] if field.name in batch.schema.names else pa.nulls(len(rows), field.type)
        for field in EVENTS.file_schema
    ]
    dates = pc.cast(rows["time"], pa.date32())
    return pa.table([*columns, dates], names=[*EVENTS.file_schema.names, "date"])


def _count(batch: Any, done: Ingested) -> None:
    done.rows += batch.num_rows
    done.last_time = max(done.last_time, batch.column("time")[-1].value)
    add_ids(numbers(batch.column("job_id"), -1), done.ids)


def add_ids(jobs: Any, found: dict[int, int]) -> None:
    """Count rows by id range; those about no job are left out."""
    ranges = jobs[jobs >= 0] >> RANGE_BITS
    if not len(ranges):
        return
    first = int(ranges.min())
    if int(ranges.max()) - first < 1 << 24:
        counts = np.bincount(ranges - first)
        present = np.flatnonzero(counts)
        pairs = zip((present + first).tolist(), counts[present].tolist(), strict=True)
    else:
        some, amounts = np.unique(ranges, return_counts=True)
        pairs = zip(some.tolist(), amounts.tolist(), strict=True)
    for each, amount in pairs:
        found[each] = found.get(each, 0) + amount
