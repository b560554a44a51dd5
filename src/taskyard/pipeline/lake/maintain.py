"""What keeps a lake in order: merging small files, dropping old days, erasing, rebuilding."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import DataFile, TableChange, read_files
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FILE_BYTES: Final = 8 << 20  # bytes: a larger file is left as it is
MIN_SMALL_FILES: Final = 16  # small files of one day that are too many
_MERGED: Final = ("events", "jobs", "attempts", "queue_minutes")
_DATED: Final = ("events", "jobs", "attempts")
_BLOBS: Final = {
    "events": ("payload", "result"),
    "jobs": ("payload", "result"),
    "open_jobs": ("payload",),
}
_VACUUM_INTERVAL: Final = 50  # steps
_CHUNK_ROWS: Final = 3_000_000  # events that are rebuilt at a time


def maintain(store: Store, retention_days: int | None = None) -> None:
    """Do what there is to do between two batches."""
    store.run_step(lambda: drop_old(store, retention_days))
    store.run_step(lambda: compact(store))
    if store.next_step % _VACUUM_INTERVAL == 0:
        store.run_step(store.vacuum)


def drop_old(store: Store, retention_days: int | None) -> int:
    """Remove the days before the retention; gives the number of files."""
    mark = store.watermark
    if retention_days is None or mark is None or mark.last_time is None:
        return 0
    first = mark.last_time.date() - timedelta(days=retention_days)
    changes = {
        name: TableChange(remove=[file for file in store.files(name) if _is_before(file, first)])
        for name in _DATED
    }
    dropped = sum(len(change.remove) for change in changes.values())
    if dropped:
        store.apply(changes)
    return dropped


def _is_before(file: DataFile, first: date) -> bool:
    return file.partition is not None and date.fromisoformat(file.partition) < first


def compact(store: Store, many: int = MIN_SMALL_FILES) -> int:
    """Merge small files of the same day; gives the number of those that were merged."""
    changes: dict[str, TableChange] = {}
    for name in _MERGED:
        for files in _groups(store.files(name), many):
            change = changes.setdefault(name, TableChange(same_rows=True))
            rows = read_files(store.storage, TABLES[name], files)
            change.add += store.write(name, rows)
            change.remove += files
    if changes:
        store.apply(changes)
    return sum(len(change.remove) for change in changes.values())


def _groups(files: list[DataFile], many: int) -> list[list[DataFile]]:
    """Neighbouring small files of a day that make a large one together."""
    days: dict[str | None, list[DataFile]] = {}
    for file in files:
        if file.size < SMALL_FILE_BYTES and not file.is_provisional:
            days.setdefault(file.partition, []).append(file)
    found = []
    for small in days.values():
        if len(small) < many:
            continue
        small.sort(key=lambda file: (file.low.get("seq", 0), file.path))
        group: list[DataFile] = []
        for file in small:
            group.append(file)
            if sum(each.size for each in group) >= SMALL_FILE_BYTES:
                found.append(group)
                group = []
        if len(group) > 1:
            found.append(group)
    return found


def erase(store: Store, job: int) -> int:
    """Erase the payload and the result of a job, from earlier versions too.

    Gives the number of files that had any of it.
    """
    count = store.run_step(lambda: _erase(store, job))
    store.run_step(store.purge)
    return count


def _erase(store: Store, job: int) -> int:
    changes = {name: _without_blobs(store, name, columns, job) for name, columns in _BLOBS.items()}
    count = sum(len(change.remove) for change in changes.values())
    if count:
        store.apply(changes)
    return count


def _without_blobs(store: Store, name: str, columns: tuple[str, ...], job: int) -> TableChange:
    change = TableChange()
    for file in store.files(name):
        if not file.can_have_job(job):
            continue
        rows = read_files(store.storage, TABLES[name], [file])
        found = pc.equal(rows["job_id"], job)
        its = rows.filter(found)
        if all(its[column].null_count == its.num_rows for column in columns):
            continue
        for column in columns:
            kind = rows.schema.field(column).type
            blank = pc.if_else(pc.fill_null(found, False), pa.scalar(None, kind), rows[column])
            rows = rows.set_column(rows.schema.get_field_index(column), column, blank)
        change.add += store.write(name, rows)
        change.remove.append(file)
    return change


def rebuild(
    spark: SparkSession, store: Store, on_progress: Callable[[int], None] = lambda done: None
) -> int:
    """Make all other tables once more, from `events` alone; gives the number of events.

    It is one step: nobody sees any of it before all of it is there.
    """
    if store.watermark is None:
        raise LakeError(
            f"there is no lake in {store.storage.uri} yet; make one with `taskyard lake run`"
        )
    return store.run_step(lambda: _rebuild(spark, store, on_progress), tries=1)


def _rebuild(spark: SparkSession, store: Store, on_progress: Callable[[int], None]) -> int:
    from taskyard.pipeline.lake.build import TableBatch, run_kernel
    from taskyard.pipeline.lake.snapshot import Lake

    assert store.watermark is not None
    events = Lake(store.storage, store.watermark).frame(spark, "events")
    files = sorted(store.files("events"), key=lambda file: file.low["seq"])
    _check_all_there(files, store.files("queue_minutes"))
    batch = TableBatch(store, from_nothing=True)
    done = 0
    for first, last in _chunks_of_rows(files, _CHUNK_ROWS):
        some = events.where(events["seq"].between(first, last)).drop("date")
        results = run_kernel(some, batch.kernel(first, keeps_events=False))
        batch.add(results)
        done += sum(result.rows for result in results)
        on_progress(done)
    store.apply(batch.finish())
    return done


def _chunks_of_rows(files: list[DataFile], rows: int) -> list[tuple[int, int]]:
    """Stretches of records with about so many rows; the files are in order of their first one."""
    bounds: list[int] = []
    held = rows
    for file in files:
        if held >= rows and file.low["seq"] not in bounds:
            bounds.append(file.low["seq"])
            held = 0
        held += file.rows
    bounds.append(max((file.high["seq"] for file in files), default=0) + 1)
    return [(first, end - 1) for first, end in pairwise(bounds)]


def _check_all_there(events: list[DataFile], minutes: list[DataFile]) -> None:
    """Minutes outlast the events that the retention drops."""
    first = min((file.partition or "" for file in events), default="9999")
    if any((file.partition or "") < first for file in minutes):
        raise LakeError(
            f"events before {first} were dropped, and the jobs that were open then cannot be made "
            "of the rest; the tables are left as they are"
        )
