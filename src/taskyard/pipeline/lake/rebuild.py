"""`taskyard lake rebuild`: the other tables once more, from `events` alone.

Nothing of it is seen before all of it is there: it is one step, in which every file is replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from taskyard.pipeline.lake.batch import Batch, Batches, State
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import DataFile
from taskyard.pipeline.lake.gather import numbers
from taskyard.pipeline.lake.ingest import add_ids
from taskyard.pipeline.lake.minutes import MINUTE
from taskyard.pipeline.lake.spark_tasks import Tasks
from taskyard.pipeline.lake.store import Change, Store
from taskyard.pipeline.lake.tables import TABLES

PORTION: Final = 3_000_000  # events at a time
_DERIVED: Final = tuple(name for name in TABLES if name != "events")
_KEPT: Final = ("open_jobs", "minute_state", "failures")  # replaced with each portion


@dataclass
class Survey:
    path: Path
    first_seq: int
    last_seq: int


@dataclass
class Surveyed:
    ids: dict[int, int] = field(default_factory=dict)
    last_time: int = 0


def survey(task: Survey) -> Surveyed:
    """Which jobs a file is about."""
    found = Surveyed()
    file = pq.ParquetFile(task.path)
    for batch in file.iter_batches(1 << 17, columns=["seq", "time", "job_id"]):
        seqs = numbers(batch.column("seq"), -1)
        inside = (seqs >= task.first_seq) & (seqs <= task.last_seq)
        if inside.any():
            add_ids(numbers(batch.column("job_id"), -1)[inside], found.ids)
            last = int(numbers(batch.column("time"), 0)[inside].max())
            found.last_time = max(found.last_time, last)
    return found


class Rebuild:
    def __init__(
        self,
        tasks: Tasks,
        store: Store,
        tell: Callable[[int, int], None] = lambda done, total: None,
        portion: int = PORTION,
    ) -> None:
        self._tasks = tasks
        self._store = store
        self._tell = tell
        self._portion = portion
        self._batches = Batches(tasks, store)

    def run(self) -> int:
        """Gives the number of events that it was made of."""
        store = self._store
        if store.watermark is None:
            raise LakeError(
                f"there is no lake in {store.path} yet; make one with `taskyard lake run`"
            )
        files = sorted(store.files("events"), key=lambda file: file.low["seq"])
        _check_all_there(files, store.files("queue_minutes"))
        total = sum(file.rows for file in files)
        result = {name: Change() for name in TABLES}
        state = State([], [], [], -1)
        done = 0
        for first, last, some in _portions(files, self._portion):
            self._add(first, last, some, state, result)
            done += sum(file.rows for file in some if file.low["seq"] >= first)
            self._tell(done, total)
        for name in _DERIVED:
            result[name].remove = store.files(name)
        for name in _KEPT:
            result[name].add = getattr(state, name)
        store.apply(result)
        return total

    def _add(
        self,
        first: int,
        last: int,
        files: list[DataFile],
        state: State,
        result: dict[str, Change],
    ) -> None:
        root = self._store.path / "events"
        surveys = [Survey(root / file.path, first, last) for file in files]
        told = self._tasks.run("rebuild: look at events", survey, surveys)
        ids: dict[int, int] = {}
        for each in told:
            for key, amount in each.ids.items():
                ids[key] = ids.get(key, 0) + amount
        minute = max(each.last_time for each in told) // MINUTE
        paths = [file.path for file in files]
        batch = Batch(self._store.next_step, first, last, paths, ids, minute)
        changes = {name: Change() for name in TABLES}
        self._batches.derive(batch, state, changes, "rebuild: make the tables")
        for name in _DERIVED:
            if name in _KEPT:
                self._replace(name, state, changes[name])
            else:
                result[name].add += changes[name].add
        state.minute = minute

    def _replace(self, name: str, state: State, change: Change) -> None:
        gone = {file.path for file in change.remove}
        kept: list[DataFile] = getattr(state, name)
        setattr(state, name, [file for file in kept if file.path not in gone] + change.add)
        for path in gone:  # nobody has ever seen it
            (self._store.path / name / path).unlink()


def _portions(files: list[DataFile], rows: int) -> list[tuple[int, int, list[DataFile]]]:
    """Stretches of records with about so many rows, and the files that have any of them."""
    bounds: list[int] = []
    held = rows
    for file in files:
        if held >= rows:
            bounds.append(file.low["seq"])
            held = 0
        held += file.rows
    ends = [
        *[bound - 1 for bound in bounds[1:]],
        max((file.high["seq"] for file in files), default=0),
    ]
    return [
        (first, last, [f for f in files if f.low["seq"] <= last and f.high["seq"] >= first])
        for first, last in zip(bounds, ends, strict=True)
        if first <= last
    ]


def _check_all_there(events: list[DataFile], minutes: list[DataFile]) -> None:
    """Minutes outlast the events that the retention drops. What came before is known no more."""
    first = min((file.division or "" for file in events), default="9999")
    if any((file.division or "") < first for file in minutes):
        raise LakeError(
            f"events before {first} were dropped, and the jobs that were open then cannot be made "
            "of the rest; the tables are left as they are"
        )
