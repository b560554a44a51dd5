"""From events to tables: what one batch does.

`build_tables` is a function for `foreachBatch`: a batch is a pure function of the tables at the
last watermark and of its events, so a batch that comes again adds nothing.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from taskyard.pipeline.lake import failures, minutes
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import PROVISIONAL, DataFile, TableChange
from taskyard.pipeline.lake.kernel import RESULT, Kernel, ShardResult, needed_columns
from taskyard.pipeline.lake.maintain import maintain
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import LakeInUse, Store
from taskyard.pipeline.lake.tables import FAILURES, TABLES
from taskyard.pipeline.records.packed import PACKED, pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PACKED: Final = ["ids", "rows"]

_builders: dict[str, TableBuilder] = {}  # of this process, by lake


def build_tables(
    events: DataFrame,
    batch_id: int,
    *,
    lake: str | Path,
    storage_options: Mapping[str, str] | None = None,
    retention_days: int | None = None,
) -> None:
    """Add a batch of events to the tables of a lake, once.

    `events` are rows of `taskyard.events` in the order of the journal, packed or plain; plain rows
    may have been filtered or enriched. Made for `foreachBatch(partial(build_tables, lake=...))`.
    Raises LakeInUse if another process fills the same lake.
    """
    storage = Storage(lake, storage_options)
    builder = _builders.get(storage.uri)
    if builder is None:
        # The tables stay open from one batch to the next: that is how another writer is noticed.
        builder = _builders[storage.uri] = TableBuilder(Store(storage))
    try:
        builder.add(events)
        maintain(builder.store, retention_days)
    except BaseException:
        _builders.pop(storage.uri, None)
        raise


class TableBuilder:
    """Makes batches of one lake."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._next_seq = store.next_seq

    def add(self, events: DataFrame) -> int:
        """Add a batch; gives the number of events that were new."""
        count = self.store.run_step(lambda: self._add_batch(events))
        self._next_seq = self.store.next_seq
        return count

    def _add_batch(self, events: DataFrame) -> int:
        store = self.store
        if store.next_seq != self._next_seq:
            raise LakeInUse(store.storage, store.next_seq)
        batch = TableBatch(store)
        results = run_kernel(events, batch.kernel(store.next_seq))
        _check_continues(store, results)
        last = max((result.last_read for result in results), default=-1)
        if last < store.next_seq:
            return 0
        batch.add(results)
        mark: dict[str, Any] = {"next_seq": last + 1, "batch": 1}
        if store.watermark is not None:
            mark["batch"] = store.watermark.batch + 1
        for result in results:
            for timeline, _, _ in result.read:
                mark["timeline"] = timeline
        if batch.last_time:
            mark["last_time"] = _EPOCH + timedelta(microseconds=batch.last_time)
        store.apply(batch.finish(), **mark)
        return sum(result.rows for result in results)


def run_kernel(events: DataFrame, kernel: Kernel) -> list[ShardResult]:
    """Have Spark bring the events about the same jobs together, and run the kernel on them."""
    if events.columns != _PACKED:
        names = needed_columns(events.columns)
        events = events.select(*names).mapInArrow(partial(pack, columns=names), PACKED)
    rows = events.repartition("ids").mapInArrow(kernel, RESULT).collect()
    return [pickle.loads(row.result) for row in rows]


def _check_continues(store: Store, results: list[ShardResult]) -> None:
    """Packed events say what they were read from; none may be missing before them."""
    first = min((first for result in results for _, first, _ in result.read), default=0)
    if store.next_seq and first > store.next_seq:
        raise LakeError(
            f"the batch begins with record {first}, but the lake has the records before "
            f"{store.next_seq} only: the query has a checkpoint of another lake; give it a new one"
        )


class TableBatch:
    """What shares have made of events, put together into changes of the tables."""

    def __init__(self, store: Store, from_nothing: bool = False) -> None:
        """`from_nothing`: begin as if no table but `events` had any rows yet."""
        self._store = store
        self.changes = {name: TableChange() for name in TABLES}
        self.last_time = 0  # microseconds: of the last event, also of earlier batches
        self._open_jobs: dict[int, list[DataFile]] = {}  # by range of job ids
        if from_nothing:
            self._minutes = minutes.STATE.empty_table()
            self._failures = FAILURES.schema.empty_table()
            for name in TABLES:
                if name != "events":
                    self.changes[name].remove = store.files(name)
            return
        if store.watermark is not None and store.watermark.last_time is not None:
            self.last_time = (store.watermark.last_time - _EPOCH) // timedelta(microseconds=1)
        self._minutes = minutes.unpacked(store.read("minute_state"))
        self._failures = store.read("failures")
        for file in store.files("open_jobs"):
            self._open_jobs.setdefault(int(file.partition or 0), []).append(file)
        self.changes["minute_state"].remove = store.files("minute_state")
        self.changes["queue_minutes"].remove = [
            file for file in store.files("queue_minutes") if file.is_provisional
        ]

    def kernel(self, next_seq: int, keeps_events: bool = True) -> Kernel:
        store = self._store
        return Kernel(
            store.storage, store.next_step, next_seq, self._open_jobs, keeps_events, store.attempt
        )

    def add(self, results: list[ShardResult]) -> None:
        """Take in what a kernel of this batch has made; its events come after all before."""
        self.last_time = max([self.last_time, *(result.last_time for result in results)])
        for result in results:
            for name, files in result.files.items():
                self.changes[name].add += files
            self._replace_open_jobs(result)
        self._close_minutes([result.parts for result in results])
        parts = [part for result in results for part in result.failures]
        if parts:
            self._failures = failures.merge(self._failures, parts)

    def _replace_open_jobs(self, result: ShardResult) -> None:
        change = self.changes["open_jobs"]
        for each in result.touched:
            for file in self._open_jobs.pop(each, []):
                if file in change.add:  # of this batch: no commit refers to it yet
                    change.add.remove(file)
                else:
                    change.remove.append(file)
        for file in result.files["open_jobs"]:
            self._open_jobs.setdefault(int(file.partition or 0), []).append(file)

    def _close_minutes(self, parts: list[Any]) -> None:
        """Write the minutes that are over."""
        state = pa.concat_tables([self._minutes, *parts])
        closed, self._minutes = minutes.close_minutes(state, self.last_time // minutes.MINUTE)
        self.changes["queue_minutes"].add += self._store.write("queue_minutes", closed)

    def finish(self) -> dict[str, TableChange]:
        """Write what replaces a file in every batch: the minute of the last event, as far as it
        goes, among it."""
        current, _ = minutes.close_minutes(self._minutes, self.last_time // minutes.MINUTE + 1)
        self.changes["queue_minutes"].add += self._store.write(
            "queue_minutes", current, PROVISIONAL
        )
        kept = minutes.packed(self._minutes)
        self.changes["minute_state"].add = self._store.write("minute_state", kept)
        if self._failures.num_rows:
            self.changes["failures"].add = self._store.write("failures", self._failures)
            self.changes["failures"].remove = self._store.files("failures")
        return self.changes
