"""A lake as small as can be: tables that a test fills by itself, without a journal or Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskyard.pipeline.lake.files import TableChange, write_files
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import RANGE_BITS, TABLES

BEGAN = datetime(2030, 1, 31, 8, tzinfo=UTC)


# Whose day is that of a row.
_DATED = {
    "jobs": "finished_at",
    "attempts": "ended_at",
    "queue_minutes": "minute",
    "events": "time",
}


class SmallLake:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, last_time: datetime = BEGAN, **rows: list[dict[str, Any]]) -> None:
        """Add rows to tables, as a batch does it; what a row does not say is null."""
        fill(Storage(self.path), last_time, **rows)


def fill(storage: Storage, last_time: datetime = BEGAN, **rows: list[dict[str, Any]]) -> None:
    store = Store(storage)
    changes = {}
    for name, added in rows.items():
        placed = [{**_place(name, row), **row} for row in added]
        table = pa.Table.from_pylist(placed, schema=TABLES[name].schema)
        changes[name] = TableChange(write_files(storage, TABLES[name], store.next_step, table))
    store.apply(changes, batch=store.next_step, timeline="00" * 16, last_time=last_time)


def _place(name: str, row: dict[str, Any]) -> dict[str, Any]:
    """The column by which the files of a table are placed."""
    if name == "open_jobs":
        return {"ids": row["job_id"] >> RANGE_BITS}
    return {"date": row.get(_DATED[name], BEGAN).date()}


def closed_job(id: int, **more: Any) -> dict[str, Any]:
    """A row of `jobs`: it failed for good, a minute after the one before."""
    payload = more.pop("payload", b'{"n":%d}' % id)
    row = {
        "job_id": id,
        "run": 1,
        "uid": f"{id:032x}",
        "queue": "mail",
        "first_queue": "mail",
        "name": "send",
        "priority": id % 3,
        "payload": payload,
        "payload_size": len(payload) if payload is not None else 9,
        "finished_at": BEGAN + timedelta(minutes=id),
        "outcome": "failed",
        "error": "TimeoutError: no answer\n  at line 1",
        "error_class": "TimeoutError",
    }
    return {**row, **more}
