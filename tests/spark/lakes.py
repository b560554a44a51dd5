"""Lakes made from what the oracle says, to read them without having run the pipeline."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from spark.oracle import Tables
from spark.oracle_rows import Row

from taskyard.pipeline.lake.tables import RANGE_BITS, SCHEMA_VERSION, TABLES, WATERMARK, Table

_DATED = {"jobs": "finished_at", "attempts": "ended_at", "queue_minutes": "minute"}


def write_lake(path: Path, tables: Tables, last_time: datetime | None) -> None:
    for name, table in TABLES.items():
        rows = [_divided(name, row) for row in getattr(tables, name, [])]
        _write(path, table, rows)
    watermark: Row = dict.fromkeys(WATERMARK.schema.names)
    watermark |= {
        "step": 0,
        "batch": 0,
        "timeline": "00" * 16,
        "next_seq": 1,
        "last_time": last_time,
        "versions": json.dumps(dict.fromkeys(TABLES, 0)),
        "schema_version": SCHEMA_VERSION,
    }
    _write(path, WATERMARK, [watermark])


def _divided(name: str, row: Row) -> Row:
    if name == "open_jobs":
        return {**row, "ids": row["job_id"] >> RANGE_BITS}
    return {**row, "date": row[_DATED[name]].date()} if name in _DATED else row


def _write(path: Path, table: Table, rows: list[Row]) -> None:
    columns: dict[str, Any] = {
        field.name: pa.array([row.get(field.name) for row in rows], field.type)
        for field in table.schema
    }
    write_deltalake(
        path / table.name,
        pa.table(columns, schema=table.schema),
        partition_by=[table.divided_by] if table.divided_by else None,
    )
