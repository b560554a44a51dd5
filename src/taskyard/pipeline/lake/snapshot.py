"""A lake at one moment: all tables as they were when its last batch was finished.

Readers (SQL, the report, replay) go through here. They never see a batch that is being written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError

from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import DataFile, data_files, dataset, read_files
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.tables import (
    PUBLIC,
    READABLE,
    REPLAYS,
    SCHEMA_VERSION,
    WATERMARK,
    Table,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

_GLOB: Final = re.compile(r"[\[\]{}*?\\]")  # Spark would look for other files


@dataclass(frozen=True, slots=True)
class Watermark:
    step: int  # how often the lake was changed
    batch: int  # how often because there were new records
    timeline: str  # of the journal; empty if it was built from plain rows only
    next_seq: int  # of the first record that is not in the lake
    last_time: datetime | None  # of the last record that is
    versions: dict[str, int]
    schema_version: int
    written_at: datetime | None = None

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Self:
        return cls(**{**row, "versions": json.loads(row["versions"])})


class Lake:
    def __init__(self, storage: Storage, watermark: Watermark) -> None:
        self.storage = storage
        self.watermark = watermark
        self._files: dict[str, list[DataFile]] = {}

    @property
    def path(self) -> Path | None:
        """The lake's directory, if it is on a disk of this machine."""
        return self.storage.path

    @property
    def id(self) -> str:
        """Name the lake for as long as it has its events; a copy has the same name."""
        return str(self.storage.table("events").metadata().id)

    def files(self, name: str) -> list[DataFile]:
        """List the Parquet files of a table."""
        found = self._files.get(name)
        if found is None:
            found = self._files[name] = self._list_files(name)
        return found

    def _list_files(self, name: str) -> list[DataFile]:
        # Replays are written by another command, at any time: there is no moment to keep to.
        version = self.watermark.versions.get(name)
        try:
            delta = self.storage.table(name, version)
        except TableNotFoundError as error:
            if version is None:
                return []
            raise LakeError(
                f"{self.storage.uri} has changed so often since it was opened that this version of "
                f"{name} is not there any more; open it again"
            ) from error
        return list(data_files(delta, READABLE[name]).values())

    def dataset(self, name: str, files: list[DataFile] | None = None) -> Any:
        """A table, or some of its files, as a pyarrow.dataset.Dataset."""
        return dataset(self.storage, READABLE[name], self.files(name) if files is None else files)

    def arrow(
        self,
        name: str,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        files: list[DataFile] | None = None,
    ) -> Any:
        """A pyarrow.Table; `filter` is a pyarrow.compute expression, `files` are some of all."""
        return self.dataset(name, files).to_table(columns=columns, filter=filter)

    def files_of_job(self, name: str, job: int) -> list[DataFile]:
        """List the files that can have rows of this job, as their bounds say."""
        return [file for file in self.files(name) if file.can_have_job(job)]

    def connect(self) -> DuckDBPyConnection:
        """Open a DuckDB connection that has the tables as views."""
        import duckdb

        connection = duckdb.connect()
        connection.execute("set timezone = 'UTC'")
        for name in (*PUBLIC, REPLAYS.name):
            connection.register(name, self.dataset(name))
        connection.register(WATERMARK.name, self._watermarks())
        return connection

    def frame(self, spark: SparkSession, name: str) -> DataFrame:
        """A table as a data frame: from a disk by Spark itself, else by `taskyard.lake`."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(READABLE[name].schema, prefer_timestamp_ntz=False)
        if not self.files(name):
            return spark.createDataFrame([], schema)
        if self.path is None:
            reader = spark.read.format("taskyard.lake").options(table=name, **self.storage.options)
            if name in self.watermark.versions:  # so that all frames are of one moment
                reader = reader.option("versionAsOf", self.watermark.versions[name])
            return reader.load(self.storage.uri)
        root = self.path / name
        reader = spark.read.schema(schema).option("basePath", str(root))
        paths = [str(root / file.path) for file in self.files(name)]
        return reader.parquet(*[_GLOB.sub(r"\\\g<0>", path) for path in paths])

    def create_views(self, spark: SparkSession) -> None:
        """Make the tables temporary views of a session."""
        for name in (*PUBLIC, REPLAYS.name):
            self.frame(spark, name).createOrReplaceTempView(name)
        spark.createDataFrame(self._watermarks()).createOrReplaceTempView(WATERMARK.name)

    def _watermarks(self) -> Any:
        rows = read_watermarks(self.storage, self.storage.table(WATERMARK.name))
        return rows.filter(pa.compute.field("step") <= self.watermark.step)


def open_lake(
    where: str | Path | Storage, storage_options: Mapping[str, str] | None = None
) -> Lake:
    """Open a lake at its last finished batch. Raises LakeError if there is none."""
    storage = where if isinstance(where, Storage) else Storage(where, storage_options)
    watermark = last_watermark(storage)
    if watermark is None:
        raise LakeError(f"there is no lake in {storage.uri} yet; make one with `taskyard lake run`")
    check_version(storage, watermark.schema_version)
    return Lake(storage, watermark)


def last_watermark(storage: Storage) -> Watermark | None:
    """None: no batch was ever finished."""
    try:
        delta = storage.table(WATERMARK.name)
    except TableNotFoundError:
        return None
    rows = read_watermarks(storage, delta, newest=True).to_pylist()
    return Watermark.of_row(max(rows, key=lambda row: int(row["step"]))) if rows else None


def read_watermarks(storage: Storage, delta: DeltaTable, newest: bool = False) -> Any:
    """The rows of the watermark table; `newest`: of the file that has the last one only."""
    files = list(data_files(delta, WATERMARK).values())
    if newest and files:
        files = [max(files, key=lambda file: file.high.get("step", 0))]
    return read_files(storage, WATERMARK, files)


def check_version(storage: Storage, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise LakeError(
            f"{storage.uri} was written by a newer Taskyard (tables of version {version}, "
            f"this one knows {SCHEMA_VERSION}); use that one"
        )
    if version < SCHEMA_VERSION:
        raise LakeError(
            f"{storage.uri} has tables of version {version}, this Taskyard writes "
            f"{SCHEMA_VERSION}; read the journal into another lake with `taskyard lake run`"
        )


def find_table(name: str) -> Table:
    """Raises LakeError, with the names that there are."""
    table = READABLE.get(name)
    if table is None:
        raise LakeError(f"a lake has no table {name!r}: it has {', '.join(READABLE)}")
    return table
