"""How far a lake is and how large, without changing it."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.status import read_status
from taskyard.pipeline.lake.store import RUNNING, Writer, writer_of
from taskyard.pipeline.lake.tables import PUBLIC


def describe(path: Path) -> dict[str, Any]:
    lake = open_lake(path)
    mark = lake.watermark
    told = read_status(lake.path) or {}
    writer = writer_of(lake.path)
    is_its = writer is not None and writer.doing == RUNNING and writer.pid == told.get("pid")
    if writer is not None and not is_its:  # what is told is of the run before
        told = {**told, "error": None, "events_per_second": None}
    return {
        "lake": str(lake.path),
        "state": _state(writer, told.get("state", "stopped"), is_its),
        "pid": writer.pid if writer is not None else None,
        "batch": mark.batch,
        "timeline": mark.timeline,
        "next_seq": mark.next_seq,
        "last_time": mark.last_time.isoformat() if mark.last_time else None,
        "lag_records": told.get("lag_records"),
        "events_per_second": told.get("events_per_second"),
        "error": told.get("error"),
        "ui": told.get("ui") if is_its else None,
        "schema_version": mark.schema_version,
        "tables": [_table(lake, name) for name in PUBLIC],
    }


def _state(writer: Writer | None, told: str, is_its: bool) -> str:
    if writer is None:
        return told if told in ("failed", "stopped") else "killed"
    if is_its:
        return told
    return "starting" if writer.doing == RUNNING else writer.doing


def _table(lake: Any, name: str) -> dict[str, Any]:
    files = pa.table(lake.table(name).get_add_actions(flatten=True)).to_pylist()
    return {
        "table": name,
        "rows": sum(file["num_records"] for file in files),
        "files": len(files),
        "bytes": sum(file["size_bytes"] for file in files),
        "version": lake.watermark.versions[name],
    }
