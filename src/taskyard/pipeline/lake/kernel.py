"""What an executor does with its share of a batch: events in, Parquet files out.

A share has all events of the batch about some ranges of job ids, so that it can tell what became
of those jobs from these events and from the rows of `open_jobs` alone. No commit refers to the
files yet: the driver makes the commits from what the shares return.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.derive import Derivation, numbers
from taskyard.pipeline.lake.files import DataFile, TableWriter, read_files
from taskyard.pipeline.lake.minutes import STATE
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.tables import (
    ATTEMPTS,
    EVENTS,
    JOBS,
    OPEN_JOBS,
    RANGE_BITS,
)
from taskyard.pipeline.records.fields import DEFAULT_COLUMNS, TYPES
from taskyard.pipeline.records.packed import NO_JOB, read_block, read_range

# Rows of events that are worked on at a time: three times as fast as three million at once.
SLICE_EVENTS: Final = 600_000
RESULT: Final = "result binary"  # what a share returns, as Spark's schema


@dataclass
class ShardResult:
    """What one share has made."""

    files: dict[str, list[DataFile]] = field(default_factory=dict)
    parts: Any = None  # of minutes: rows of their state
    failures: list[dict[str, Any]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)  # ranges whose open jobs are written anew
    read: list[tuple[str, int, int]] = field(default_factory=list)  # timeline, first, last record
    rows: int = 0
    last_seq: int = 0
    last_time: int = 0  # microseconds

    @property
    def last_read(self) -> int:
        """The last record that is in the lake with this; -1: none."""
        return max([self.last_seq or -1, *(last for _, _, last in self.read)])


@dataclass
class Kernel:
    """A function for `mapInArrow` that can be pickled."""

    storage: Storage
    step: int
    next_seq: int  # rows of earlier records are in the lake already
    open_jobs: dict[int, list[DataFile]]  # by range of job ids
    keeps_events: bool = True  # false: they are in the lake already
    attempt: str = ""  # a part of the names of files

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        result = ShardResult()
        blocks: dict[int, list[Any]] = {}
        for batch in batches:
            for number, each in enumerate(batch.column("ids").to_pylist()):
                blocks.setdefault(each, []).append(batch.column("rows")[number].as_buffer())
        if not blocks:
            return
        writers = {
            table.name: TableWriter(self.storage, table, self.step, self.attempt)
            for table in (EVENTS, JOBS, ATTEMPTS, OPEN_JOBS)
        }
        parts = [STATE.empty_table()]
        for ranges, found in _slices(blocks, result):
            events = self._drop_known(found)
            if events.num_rows:
                parts.append(self._write_tables(ranges, events, writers, result))
        result.files = {name: writer.close() for name, writer in writers.items()}
        result.parts = pa.concat_tables(parts)
        yield pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], names=["result"])

    def _drop_known(self, events: Any) -> Any:
        if not events.num_rows or pc.min(events["seq"]).as_py() >= self.next_seq:
            return events
        return events.filter(pc.greater_equal(events["seq"], self.next_seq))

    def _write_tables(
        self, ranges: list[int], events: Any, writers: dict[str, TableWriter], result: ShardResult
    ) -> Any:
        """Write what these events make; gives their parts of minutes."""
        events = _with_contents(events)
        if self.keeps_events:
            dates = events["time"].cast(pa.date32())
            rows = events.select(EVENTS.file_schema.names).append_column("date", dates)
            writers["events"].write(rows)
        result.rows += events.num_rows
        result.last_seq = max(result.last_seq, pc.max(events["seq"]).as_py())
        result.last_time = max(result.last_time, pc.max(events["time"]).value)
        present = np.unique(numbers(events["job_id"], NO_JOB) >> RANGE_BITS).tolist()
        touched = [each for each in ranges if each in present and each != NO_JOB]
        result.touched.update(touched)
        kept = [file for each in touched for file in self.open_jobs.get(each, [])]
        derived = Derivation(events, read_files(self.storage, OPEN_JOBS, kept))
        writers["jobs"].write(derived.jobs())
        writers["attempts"].write(derived.attempts())
        writers["open_jobs"].write(derived.open_jobs())
        result.failures += derived.failure_groups()
        return derived.parts()


def _slices(blocks: dict[int, list[Any]], result: ShardResult) -> Iterator[tuple[list[int], Any]]:
    """Neighbouring ranges with about SLICE events, those of each range in order."""
    ranges: list[int] = []
    tables: list[Any] = []
    for each in sorted(blocks):
        found = _unpacked(blocks.pop(each), result)
        if tables and sum(map(len, tables)) + sum(map(len, found)) > SLICE_EVENTS:
            yield ranges, _joined(tables)
            ranges, tables = [], []
        ranges.append(each)
        tables += found
    yield ranges, _joined(tables)


def _unpacked(blocks: list[Any], result: ShardResult) -> list[Any]:
    """The tables in blocks, in order: no two blocks were read from the same records."""
    tables = [read_block(block) for block in blocks]
    ranges = [read_range(table) for table in tables]
    if None in ranges:  # somebody has filtered or enriched the rows
        events = _joined(tables)
        order = np.lexsort((events["part"].to_numpy(), events["seq"].to_numpy()))
        return [events.take(pa.array(order))]
    result.read += [each for each in dict.fromkeys(ranges) if each and each not in result.read]
    tables = [table for table in tables if len(table)] or tables[:1]
    return sorted(tables, key=lambda table: table["seq"][0].as_py() if len(table) else 0)


def _joined(tables: list[Any]) -> Any:
    """One table; the events of each job stay in their order."""
    plain = [table.replace_schema_metadata() for table in tables]
    return pa.concat_tables(plain).unify_dictionaries().combine_chunks()


def _with_contents(events: Any) -> Any:
    """Payloads and results are null if they are not kept."""
    for name in ("payload", "result"):
        if name not in events.schema.names:
            events = events.append_column(name, pa.nulls(len(events), TYPES[name]))
    return events


def needed_columns(names: Iterable[str]) -> list[str]:
    """Those of a data frame of plain events; raises ValueError if one is not there."""
    there = set(names)
    missing = [name for name in DEFAULT_COLUMNS if name not in there]
    if missing:
        raise ValueError(
            f"the events have no column {', '.join(missing)}: build_tables needs all that "
            "`taskyard.events` has by default"
        )
    return [name for name in TYPES if name in there]
