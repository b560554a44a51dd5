"""Parquet files of the tables: how they are written and read, and what a commit says of them."""

from __future__ import annotations

import contextlib
import json
import re
import time
import uuid
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.tables import Table

PROVISIONAL: Final = "provisional-"  # in the name of a file that the next batch replaces
_STEP: Final = re.compile(r"(\d{10})-.*\.parquet$", re.ASCII)
ROW_GROUP: Final = 1 << 17
# Columns of which the log says the lowest and highest value of each file.
BOUNDED: Final = ("seq", "job_id", "last_seq", "step")
_PLAIN: Final = ("error", "uid", "details", "sample_error")  # texts that seldom come again


@dataclass
class DataFile:
    path: str  # within its table
    size: int
    partition: str | None  # the value of the column that the table is partitioned by
    rows: int
    low: dict[str, int] = field(default_factory=dict)
    high: dict[str, int] = field(default_factory=dict)

    @property
    def is_provisional(self) -> bool:
        return f"-{PROVISIONAL}" in self.path

    def can_have_job(self, job: int) -> bool:
        return "job_id" not in self.low or self.low["job_id"] <= job <= self.high["job_id"]


@dataclass
class TableChange:
    """What a step does to one table."""

    add: list[DataFile] = field(default_factory=list)
    remove: list[DataFile] = field(default_factory=list)
    same_rows: bool = False  # the rows are only put into other files

    def actions(self, table: Table) -> list[AddAction | RemoveAction]:
        now = time.time_ns() // 1_000_000
        column = table.partitioned_by

        def values(file: DataFile) -> dict[str, str | None]:
            return {column: file.partition} if column else {}

        added: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.size, values(file), now, not self.same_rows, _stats(file))
            for file in self.add
        ]
        return added + [
            RemoveAction(
                file.path, not self.same_rows, now, size=file.size, partition_values=values(file)
            )
            for file in self.remove
        ]


def _stats(file: DataFile) -> str:
    return json.dumps({"numRecords": file.rows, "minValues": file.low, "maxValues": file.high})


def data_files(delta: DeltaTable, table: Table) -> dict[str, DataFile]:
    """What a version of a table consists of, by path."""
    rows = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    partition = f"partition.{table.partitioned_by}"
    return {
        row["path"]: DataFile(
            row["path"],
            row["size_bytes"],
            None if table.partitioned_by is None else str(row[partition]),
            row["num_records"],
            _bounds(row, "min."),
            _bounds(row, "max."),
        )
        for row in rows
    }


def _bounds(row: dict[str, Any], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): value
        for name, value in row.items()
        if name.startswith(prefix) and isinstance(value, int)
    }


class TableWriter:
    """Writes rows of a table into new files, one for each partition.

    A file that no commit refers to, because its step was cut off, is removed by a later vacuum.
    """

    def __init__(self, storage: Storage, table: Table, step: int, kind: str = "") -> None:
        """`kind` becomes a part of the files' names."""
        self._storage = storage
        self._table = table
        self._begin = f"{step:010d}-{kind}"
        self._open: dict[str | None, _OpenFile] = {}

    def write(self, rows: Any) -> None:
        column = self._table.partitioned_by
        if column is None:
            self._write(None, rows)
            return
        keys = rows[column]
        values = pc.unique(keys)
        rest = rows.drop_columns([column])
        for value in values:
            only = rest if len(values) == 1 else rest.filter(pc.equal(keys, value))
            self._write(str(value.as_py()), only)

    def _write(self, partition: str | None, rows: Any) -> None:
        if not rows.num_rows:
            return
        file = self._open.get(partition)
        if file is None:
            name = f"{self._begin}{uuid.uuid4().hex}.parquet"
            path = f"{self._table.partitioned_by}={partition}/{name}" if partition else name
            made = DataFile(path, 0, partition, 0)
            file = self._open[partition] = _OpenFile(self._storage, self._table, made)
        file.write(rows)

    def close(self) -> list[DataFile]:
        """Finish the files; on a local disk they are safe after this."""
        return [file.close() for file in self._open.values()]


def remove_files(
    storage: Storage, table: Table, step: int, kept: Container[str], attempt: str = ""
) -> None:
    """Remove the files of a table that were written up to a step, but for those to be kept.

    `attempt`: only those that have it in their names.
    """
    files = storage.files(table.name)
    for entry in files.get_file_info(pafs.FileSelector("", recursive=True)):
        path = entry.path.lstrip("/")
        name = path.rpartition("/")[2]
        written = _STEP.match(name)
        if written is None or int(written[1]) > step or attempt not in name or path in kept:
            continue
        with contextlib.suppress(FileNotFoundError):  # another process removes it, too
            files.delete_file(entry.path)


def write_files(
    storage: Storage, table: Table, step: int, rows: Any, kind: str = ""
) -> list[DataFile]:
    writer = TableWriter(storage, table, step, kind)
    writer.write(rows)
    return writer.close()


class _OpenFile:
    def __init__(self, storage: Storage, table: Table, made: DataFile) -> None:
        self._storage = storage
        self._table = table
        self._made = made
        self._names = table.file_schema.names
        self._files = storage.files(table.name)
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: Any) -> None:
        made = self._made
        made.rows += rows.num_rows
        for name in BOUNDED:
            if name not in self._names:
                continue
            bounds = pc.min_max(rows[name])
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is not None:
                made.low[name] = min(made.low.get(name, low), low)
                made.high[name] = max(made.high.get(name, high), high)
        if self._writer is None:
            self._writer = self._create(_file_schema(self._table, rows.schema))
        data = rows.select(self._names)
        if data.schema != self._writer.schema:
            data = data.cast(self._writer.schema)
        self._writer.write_table(data, ROW_GROUP)

    def _create(self, schema: Any) -> pq.ParquetWriter:
        storage = self._storage
        with storage.private():
            storage.make_parent(self._table.name, self._made.path)
            return pq.ParquetWriter(
                self._made.path,
                schema,
                filesystem=self._files,
                compression="zstd",
                compression_level=1,
                use_dictionary=[
                    each.name
                    for each in self._table.file_schema
                    if pa.types.is_string(each.type) and each.name not in _PLAIN
                ],
                write_statistics=[name for name in self._names if name in (*BOUNDED, "time")],
                store_schema=False,
            )

    def close(self) -> DataFile:
        assert self._writer is not None
        self._writer.close()
        self._storage.sync_file(self._table.name, self._made.path)
        self._made.size = self._files.get_file_info(self._made.path).size
        return self._made


def _file_schema(table: Table, given: Any) -> Any:
    """Columns that come as dictionaries are written as they are, which saves making them anew."""
    return pa.schema(
        [
            pa.field(each.name, given.field(each.name).type)
            if pa.types.is_dictionary(given.field(each.name).type)
            else each
            for each in table.file_schema
        ]
    )


def dataset(storage: Storage, table: Table, files: list[DataFile]) -> Any:
    """Some files of a table as a pyarrow.dataset.Dataset.

    Not by way of `DeltaTable.to_pyarrow_dataset`, which finds nothing when it is filtered by a
    column that the log has no bounds of.
    """
    if not files:
        return ds.dataset(table.schema.empty_table())
    column = table.partitioned_by
    keys = pa.schema([table.schema.field(column)]) if column else None
    return ds.dataset(
        [file.path for file in files],
        schema=table.schema,
        format="parquet",
        filesystem=storage.files(table.name),
        partitioning=ds.partitioning(keys, flavor="hive") if keys else None,
    )


def read_files(storage: Storage, table: Table, files: list[DataFile]) -> Any:
    return dataset(storage, table, files).to_table()
