"""One batch: records that are new become a step of the lake."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from taskyard.pipeline.lake import failures, minutes
from taskyard.pipeline.lake.files import PROVISIONAL, DataFile, TableWriter, read_files
from taskyard.pipeline.lake.ingest import Ingest, Ingested, ingest
from taskyard.pipeline.lake.shares import Made, Share, make, share_out
from taskyard.pipeline.lake.snapshot import Watermark
from taskyard.pipeline.lake.spark_tasks import Tasks
from taskyard.pipeline.lake.store import Change, Store
from taskyard.pipeline.lake.tables import FAILURES, MINUTE_STATE, QUEUE_MINUTES, TABLES, Table

if TYPE_CHECKING:
    from taskyard.pipeline.ranges import Range

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST: Final = 50_000  # rows that are worth a task of their own


@dataclass
class State:
    """What a batch begins with: files of the tables that it changes."""

    open_jobs: list[DataFile]
    minute_state: list[DataFile]
    failures: list[DataFile]
    minute: int  # of the last event; what is kept of minutes is of this one
    provisional: list[DataFile] = field(default_factory=list)  # rows of that minute

    @classmethod
    def of(cls, store: Store) -> "State":
        return cls(
            store.files("open_jobs"),
            store.files("minute_state"),
            store.files("failures"),
            minute_of(store.watermark),
            [file for file in store.files("queue_minutes") if file.is_provisional],
        )


@dataclass
class Batch:
    """Events that are in files, and what is to become of them."""

    step: int
    first_seq: int
    last_seq: int
    events: list[str]
    ids: dict[int, int]
    last_minute: int


class Batches:
    """Makes batches of a lake."""

    def __init__(self, tasks: Tasks, store: Store, payloads: bool = False) -> None:
        self._tasks = tasks
        self._store = store
        self._payloads = payloads

    def run(self, ranges: Sequence["Range"], timeline: str) -> int:
        """Read these ranges and write all that they make; gives the number of events."""
        store = self._store
        step = store.next_step
        number = store.watermark.batch + 1 if store.watermark else 1
        tasks = [Ingest(store.path, step, each, self._payloads) for each in ranges]
        told = self._tasks.run(f"batch {number}: read the journal", ingest, tasks)
        changes = {name: Change() for name in TABLES}
        changes["events"].add = [file for each in told for file in each.files]
        last_time = max((each.last_time for each in told), default=0)
        if last_time:
            batch = Batch(
                step,
                ranges[0].first_seq,
                ranges[-1].last_seq,
                [file.path for file in changes["events"].add],
                _added(told),
                last_time // minutes.MINUTE,
            )
            self.derive(batch, State.of(store), changes, f"batch {number}: make the tables")
        mark: dict[str, Any] = {"batch": number, "timeline": timeline}
        mark["next_seq"] = ranges[-1].last_seq + 1
        if last_time:
            mark["last_time"] = _EPOCH + timedelta(microseconds=last_time)
        store.apply(changes, **mark)
        return sum(each.rows for each in told)

    def derive(self, batch: Batch, state: State, changes: dict[str, Change], doc: str) -> None:
        """Add to the changes what the events of a batch make of the other tables."""
        kept: dict[int, list[DataFile]] = {}
        for file in state.open_jobs:
            kept.setdefault(int(file.division or 0), []).append(file)
        made = self._make(batch, kept, doc)
        for each in made:
            for name, files in each.files.items():
                changes[name].add += files
        changes["open_jobs"].remove += [file for each in batch.ids for file in kept.get(each, [])]
        self._add_minutes(batch, state, [_parts(each) for each in made], changes)
        self._add_failures(batch, state, [part for each in made for part in each.failures], changes)

    def _make(self, batch: Batch, kept: dict[int, list[DataFile]], doc: str) -> list[Made]:
        if not batch.ids:
            return []
        weights = {  # a backlog may have many more jobs than the batch has events
            each: amount + sum(file.rows for file in kept.get(each, []))
            for each, amount in batch.ids.items()
        }
        rows = sum(weights.values())
        shares = max(1, min(self._tasks.parallelism, rows // _LEAST))
        tasks = [
            Share(self._store.path, batch.step, batch.events, batch.first_seq, batch.last_seq, each)
            for each in share_out(weights, kept, shares)
        ]
        return self._tasks.run(doc, make, tasks)

    def _add_minutes(
        self, batch: Batch, state: State, parts: list[Any], changes: dict[str, Change]
    ) -> None:
        """Write the minutes before that of the last event, and keep the parts of that one."""
        fresh = pa.concat_tables([MINUTE_STATE.schema.empty_table(), *parts])
        step, limit = batch.step, batch.last_minute
        change = changes["minute_state"]
        if state.minute >= limit:  # records are in order of time: all are of that minute
            change.add = self._write(MINUTE_STATE, step, fresh)
            return
        old = read_files(self._store.path, MINUTE_STATE, state.minute_state)
        closed, left = minutes.close(pa.concat_tables([old, fresh]), limit)
        changes["queue_minutes"].add += self._write(QUEUE_MINUTES, step, closed)
        change.add = self._write(MINUTE_STATE, step, left)
        change.remove = list(state.minute_state)
        changes["queue_minutes"].remove += state.provisional

    def show_last_minute(self) -> None:
        """Write the minute that is not over by the journal, as far as it is known.

        Something of it may still come: then, or when the next one comes, it is written anew.
        """
        store = self._store
        state = State.of(store)
        newest = max((file.step for file in state.minute_state), default=0)
        if newest < max((file.step for file in state.provisional), default=0):
            return
        parts = read_files(store.path, MINUTE_STATE, state.minute_state)
        closed, _ = minutes.close(parts, state.minute + 1)
        if closed.num_rows:
            made = self._write(QUEUE_MINUTES, store.next_step, closed, PROVISIONAL)
            store.apply({"queue_minutes": Change(made, state.provisional)})

    def _add_failures(
        self, batch: Batch, state: State, parts: list[dict[str, Any]], changes: dict[str, Change]
    ) -> None:
        if not parts:
            return
        old = read_files(self._store.path, FAILURES, state.failures)
        merged = failures.merge(old, parts)
        changes["failures"].add = self._write(FAILURES, batch.step, merged)
        changes["failures"].remove = list(state.failures)

    def _write(self, table: Table, step: int, rows: Any, kind: str = "") -> list[DataFile]:
        writer = TableWriter(self._store.path, table, step, kind)
        writer.write(rows)
        return writer.close()


def minute_of(watermark: Watermark | None) -> int:
    last = watermark.last_time if watermark is not None else None
    return (last - _EPOCH) // timedelta(minutes=1) if last is not None else -1


def _added(told: list[Ingested]) -> dict[int, int]:
    total: dict[int, int] = {}
    for each in told:
        for key, amount in each.ids.items():
            total[key] = total.get(key, 0) + amount
    return total


def _parts(made: Made) -> Any:
    return pa.ipc.open_stream(io.BytesIO(made.parts)).read_all().cast(MINUTE_STATE.schema)
