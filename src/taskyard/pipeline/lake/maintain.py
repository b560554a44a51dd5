"""What keeps a lake in order: small files put together, old days dropped, erasures carried out."""

from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from taskyard.pipeline.lake.erase import Erasures
from taskyard.pipeline.lake.files import DataFile, TableWriter, read_file
from taskyard.pipeline.lake.spark_tasks import Tasks
from taskyard.pipeline.lake.store import Change, Store
from taskyard.pipeline.lake.tables import TABLES

SMALL: Final = 8 << 20  # bytes: a larger file is left as it is
MANY: Final = 16  # small files of one day that are too many
_COMPACTED: Final = ("events", "jobs", "attempts", "queue_minutes")
_DATED: Final = ("events", "jobs", "attempts")


@dataclass
class Compaction:
    lake: Path
    step: int
    table: str
    files: list[DataFile]


def compact(task: Compaction) -> list[DataFile]:
    """One file of several, its rows in the order of their records."""
    table = TABLES[task.table]
    writer = TableWriter(task.lake, table, task.step)
    for file in task.files:
        rows = read_file(task.lake / table.name / file.path, table, file.division)
        writer.write(rows)
    return writer.close()


class Maintenance:
    def __init__(self, tasks: Tasks, store: Store, retention_days: int | None = None) -> None:
        self._tasks = tasks
        self._store = store
        self._retention_days = retention_days
        self._erasures = Erasures(store)
        self._looked_at = -1

    def look(self) -> None:
        """Whatever there is to do, between two batches."""
        self._erasures.carry_out()
        step = self._store.next_step
        if step == self._looked_at:
            return
        self.drop_old()
        self.compact()
        self._looked_at = self._store.next_step

    def drop_old(self) -> int:
        """Remove the days before the retention; gives the number of files."""
        mark = self._store.watermark
        if self._retention_days is None or mark is None or mark.last_time is None:
            return 0
        first = mark.last_time.date() - timedelta(days=self._retention_days)
        changes = {
            name: Change(
                remove=[file for file in self._store.files(name) if _is_before(file, first)]
            )
            for name in _DATED
        }
        dropped = sum(len(change.remove) for change in changes.values())
        if dropped:
            self._store.apply(changes)
        return dropped

    def compact(self, many: int = MANY) -> int:
        """Put small files of the same day together; gives the number of those that went."""
        tasks = [
            Compaction(self._store.path, self._store.next_step, name, files)
            for name in _COMPACTED
            for files in _groups(self._store.files(name), many)
        ]
        if not tasks:
            return 0
        made = self._tasks.run("compact small files", compact, tasks)
        changes: dict[str, Change] = {}
        for task, files in zip(tasks, made, strict=True):
            change = changes.setdefault(task.table, Change(same_rows=True))
            change.add += files
            change.remove += task.files
        self._store.apply(changes)
        return sum(len(task.files) for task in tasks)


def _is_before(file: DataFile, first: date) -> bool:
    return file.division is not None and date.fromisoformat(file.division) < first


def _groups(files: list[DataFile], many: int) -> list[list[DataFile]]:
    """Neighbouring small files of a day that make a large one together."""
    days: dict[str | None, list[DataFile]] = {}
    for file in files:
        if file.size < SMALL and not file.is_provisional:
            days.setdefault(file.division, []).append(file)
    found = []
    for small in days.values():
        if len(small) < many:
            continue
        small.sort(key=lambda file: (file.low.get("seq", 0), file.path))
        group: list[DataFile] = []
        for file in small:
            group.append(file)
            if sum(each.size for each in group) >= SMALL:
                found.append(group)
                group = []
        if len(group) > 1:
            found.append(group)
    return found
