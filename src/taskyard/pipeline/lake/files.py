"""Parquet files of the tables: how tasks write them, and what a Delta commit says of them."""

import json
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from taskyard.pipeline.lake.disk import DIRECTORY, make_file, sync_file
from taskyard.pipeline.lake.tables import Table

PROVISIONAL: Final = "provisional-"  # a kind of file whose rows are replaced when more is known
ROW_GROUP: Final = 1 << 17
# Numbers by which files and row groups are told apart: they have lowest and highest values.
BOUNDED: Final = ("seq", "job_id", "last_seq", "step")
_PLAIN: Final = ("error", "uid", "details", "payload", "result", "sample_error", "waits", "runs")


@dataclass
class DataFile:
    path: str  # within its table
    size: int
    division: str | None  # the value of the column that the table is divided by
    rows: int
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Which made it."""
        return int(self.path.rpartition("/")[2].partition("-")[0])

    @property
    def is_provisional(self) -> bool:
        return f"-{PROVISIONAL}" in self.path

    def stats(self) -> str:
        return json.dumps({"numRecords": self.rows, "minValues": self.low, "maxValues": self.high})


class TableWriter:
    """Writes rows of a table into new files, one for each value that it is divided by.

    The names begin with the number of the step, so that what a step that never came to its end
    has left behind can be told from the rest.
    """

    def __init__(self, lake: Path, table: Table, step: int, kind: str = "") -> None:
        """`kind` is a part of the names too."""
        self._root = lake / table.name
        self._table = table
        self._begin = f"{step:010d}-{kind}"
        self._open: dict[str | None, _OpenFile] = {}

    def write(self, rows: Any) -> None:
        divided_by = self._table.divided_by
        if divided_by is None:
            self._write(None, rows)
            return
        column = rows[divided_by]
        values = pc.unique(column)
        rest = rows.drop_columns([divided_by])
        for value in values:
            only = rest if len(values) == 1 else rest.filter(pc.equal(column, value))
            self._write(str(value.as_py()), only)

    def _write(self, division: str | None, rows: Any) -> None:
        if not rows.num_rows:
            return
        file = self._open.get(division)
        if file is None:
            file = self._open[division] = _OpenFile(self._root, self._table, self._begin, division)
        file.write(rows)

    def close(self) -> list[DataFile]:
        """All is on disk after this."""
        return [file.close() for file in self._open.values()]


class _OpenFile:
    def __init__(self, root: Path, table: Table, begin: str, division: str | None) -> None:
        self._root = root
        name = f"{begin}{uuid.uuid4().hex}.parquet"
        self._path = f"{table.divided_by}={division}/{name}" if division is not None else name
        (root / self._path).parent.mkdir(DIRECTORY, exist_ok=True)
        make_file(root / self._path)
        self._schema = table.file_schema
        names = self._schema.names
        self._writer = pq.ParquetWriter(
            root / self._path,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[
                each.name
                for each in self._schema
                if pa.types.is_string(each.type) and each.name not in _PLAIN
            ],
            write_statistics=[name for name in names if name in (*BOUNDED, "time")],
            store_schema=False,
        )
        self._made = DataFile(self._path, 0, division, 0)

    def write(self, rows: Any) -> None:
        made = self._made
        made.rows += rows.num_rows
        for name in BOUNDED:
            if name not in self._schema.names:
                continue
            bounds = pc.min_max(rows[name])
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is not None:
                made.low[name] = min(made.low.get(name, low), low)
                made.high[name] = max(made.high.get(name, high), high)
        self._writer.write_table(rows.select(self._schema.names).cast(self._schema), ROW_GROUP)

    def close(self) -> DataFile:
        self._writer.close()
        path = self._root / self._path
        sync_file(path)
        sync_file(path.parent)
        if path.parent != self._root:
            sync_file(self._root)  # which may have got that directory just now
        self._made.size = os.path.getsize(path)
        return self._made


def read_file(path: Path, table: Table, division: str | None) -> Any:
    """The rows of a file, with the column that is only in its path."""
    rows = pq.ParquetFile(path).read()
    if table.divided_by is None:
        return rows.select(table.schema.names)
    kind = table.schema.field(table.divided_by).type
    value = pa.scalar(division, pa.string()).cast(kind)
    rows = rows.append_column(table.divided_by, pa.repeat(value, rows.num_rows))
    return rows.select(table.schema.names)


def read_files(lake: Path, table: Table, files: list[DataFile]) -> Any:
    found = [read_file(lake / table.name / file.path, table, file.division) for file in files]
    empty = table.schema.empty_table()
    return pa.concat_tables([empty, *[rows.cast(table.schema) for rows in found]])
