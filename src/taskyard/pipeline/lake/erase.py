"""Erasing a job's payload and result from the lake for good.

Whoever wants it leaves a request in the lake; whoever writes the lake carries it out, and that is
a step like any other, but that the old files go at once.
"""

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.disk import FILE
from taskyard.pipeline.lake.files import DataFile, TableWriter, read_file
from taskyard.pipeline.lake.store import WORK, Change, Store
from taskyard.pipeline.lake.tables import TABLES

_BLOBS: Final = {"events": ("payload", "result"), "jobs": ("payload", "result")}
_OPEN: Final = {"open_jobs": ("payload",)}


def request(lake: Path, job: int) -> Path:
    """The file that is there until the erasure is done."""
    path = lake / WORK / f"erase-{job}"
    path.touch(FILE)
    return path


class Erasures:
    def __init__(self, store: Store) -> None:
        self._store = store

    def carry_out(self) -> int:
        """All that was asked for; gives the number of files that were rewritten."""
        requests = sorted((self._store.path / WORK).glob("erase-*"))
        if not requests:
            return 0
        jobs = [int(path.name.partition("-")[2]) for path in requests]
        changes = {
            name: self._change(name, columns, jobs) for name, columns in {**_BLOBS, **_OPEN}.items()
        }
        count = sum(len(change.remove) for change in changes.values())
        if count:
            self._store.apply(changes)
        self._store.sweep(0)  # earlier versions had it too
        self._store.drop_strays()  # so may what a task left that was tried again
        for path in requests:
            path.unlink(missing_ok=True)
        return count

    def _change(self, name: str, columns: tuple[str, ...], jobs: list[int]) -> Change:
        change = Change()
        for file in self._store.files(name):
            if not _may_have(file, jobs):
                continue
            path = self._store.path / name / file.path
            rows = read_file(path, TABLES[name], file.division)
            found = pc.is_in(rows["job_id"], value_set=pa.array(jobs, pa.int64()))
            if not _has_any(rows.filter(found), columns):
                continue
            writer = TableWriter(self._store.path, TABLES[name], self._store.next_step)
            writer.write(_without(rows, columns, found))
            change.add += writer.close()
            change.remove.append(file)
        return change


def _may_have(file: DataFile, jobs: list[int]) -> bool:
    if "job_id" not in file.low:
        return True
    return any(file.low["job_id"] <= job <= file.high["job_id"] for job in jobs)


def _has_any(rows: Any, columns: tuple[str, ...]) -> bool:
    return any(rows[name].null_count < rows.num_rows for name in columns)


def _without(rows: Any, columns: tuple[str, ...], found: Any) -> Any:
    for name in columns:
        kind = rows.schema.field(name).type
        blank = pc.if_else(found, pa.scalar(None, kind), rows[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, blank)
    return rows
