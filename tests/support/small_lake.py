"""A lake as small as can be: tables that a test fills by itself, without a journal or Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from taskyard.pipeline.lake.files import Change, write_files
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import TABLES

BEGAN = datetime(2030, 1, 31, 8, tzinfo=UTC)


class SmallLake:
    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, **rows: list[dict[str, Any]]) -> None:
        """Add rows to tables, as a batch does it; what a row does not say is null."""
        store = Store(Storage(self.path))
        changes = {}
        for name, added in rows.items():
            table = pa.Table.from_pylist(added, schema=TABLES[name].schema)
            changes[name] = Change(write_files(store.storage, TABLES[name], store.next_step, table))
        store.apply(changes, batch=store.next_step, timeline="00" * 16, last_time=BEGAN)


def closed_job(id: int, **more: Any) -> dict[str, Any]:
    """A row of `jobs`: it failed for good, a minute after the one before."""
    payload = more.pop("payload", b'{"n":%d}' % id)
    finished = BEGAN + timedelta(minutes=id)
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
        "finished_at": finished,
        "outcome": "failed",
        "error": "TimeoutError: no answer\n  at line 1",
        "error_class": "TimeoutError",
        "date": finished.date(),
    }
    return {**row, **more}
