"""A lake as it was when its last batch was finished: all tables at one moment.

Readers (report, SQL, replay) go through here. A batch that is being written is not seen.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.tables import PUBLIC, SCHEMA_VERSION, TABLES, WATERMARK

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Watermark:
    step: int  # how often the lake was changed
    batch: int  # how often because there were new records
    timeline: str
    next_seq: int  # of the first record that is not in the lake
    last_time: datetime | None  # of the last record that is
    versions: dict[str, int]
    schema_version: int

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Self:
        return cls(
            step=row["step"],
            batch=row["batch"],
            timeline=row["timeline"],
            next_seq=row["next_seq"],
            last_time=row["last_time"],
            versions=json.loads(row["versions"]),
            schema_version=row["schema_version"],
        )


class Lake:
    def __init__(self, path: Path, watermark: Watermark) -> None:
        self.path = path
        self.watermark = watermark

    def table(self, name: str) -> DeltaTable:
        """The Delta table at the version of the last finished batch."""
        return DeltaTable(self.path / name, version=self.watermark.versions[name])

    def files(self, name: str) -> list[str]:
        """The absolute paths of a table's Parquet files."""
        return data_files(self.path / name, self.table(name))

    def frame(self, spark: "SparkSession", name: str) -> "DataFrame":
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(TABLES[name].schema, prefer_timestamp_ntz=False)
        files = self.files(name)
        if not files:
            return spark.createDataFrame([], schema)
        reader = spark.read.schema(schema).option("basePath", str(self.path / name))
        return reader.parquet(*files)

    def arrow(
        self,
        name: str,
        columns: list[str] | None = None,
        filter: Any = None,  # noqa: A002
        files: list[str] | None = None,
    ) -> Any:
        """A pyarrow.Table; `filter` is a pyarrow.compute expression, `files` are some of all.

        Not by way of `to_pyarrow_dataset`, which finds nothing when it is filtered by a column that
        the table's commits have no bounds of.
        """
        data = self.dataset(name, files)
        return data.to_table(columns=columns, filter=filter)

    def dataset(self, name: str, files: list[str] | None = None) -> Any:
        """A table, or some of its files, as a pyarrow.dataset.Dataset."""
        table = TABLES[name]
        wanted = self.files(name) if files is None else files
        if not wanted:
            return ds.dataset(table.schema.empty_table())
        divided_by = [table.divided_by] if table.divided_by else []
        divisions = pa.schema([table.schema.field(each) for each in divided_by])
        return ds.dataset(
            wanted,
            schema=table.schema,
            format="parquet",
            partitioning=ds.partitioning(divisions, flavor="hive") if divided_by else None,
            partition_base_dir=str(self.path / name),
        )

    def connect(self) -> "DuckDBPyConnection":
        """Open a DuckDB connection that has the public tables as views."""
        import duckdb

        connection = duckdb.connect()
        connection.execute("set timezone = 'UTC'")
        for name in PUBLIC:
            connection.register(name, self.dataset(name))
        return connection

    def files_of_job(self, name: str, job: int) -> list[str]:
        """Those of a table that can have rows of this job, as their bounds say."""
        actions = pa.table(self.table(name).get_add_actions(flatten=True)).to_pylist()
        return [
            str(self.path / name / file["path"])
            for file in actions
            if _can_have(job, file.get("min.job_id"), file.get("max.job_id"))
        ]


def _can_have(job: int, low: int | None, high: int | None) -> bool:
    return low is None or high is None or low <= job <= high


def data_files(root: Path, table: DeltaTable) -> list[str]:
    """Not `file_uris`, which writes a space in a directory's name as %20."""
    return [str(root / path) for path in pa.table(table.get_add_actions())["path"].to_pylist()]


def last_watermark(path: Path) -> Watermark | None:
    """None: no batch was ever finished."""
    try:
        table = DeltaTable(path / WATERMARK.name)
    except TableNotFoundError:
        return None
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    if not files:
        return None
    newest = max(files, key=lambda file: int(file["max.step"]))
    rows = pq.read_table(path / WATERMARK.name / newest["path"]).to_pylist()
    return Watermark.of_row(max(rows, key=lambda row: int(row["step"])))


def check_version(path: Path, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise LakeError(
            f"{path} was written by a newer Taskyard (tables of version {version}, "
            f"this one knows {SCHEMA_VERSION}); use that one"
        )
    if version < SCHEMA_VERSION:
        raise LakeError(
            f"{path} has tables of version {version}, this Taskyard writes {SCHEMA_VERSION}; "
            "read the journal into another directory with `taskyard lake run`"
        )


def open_lake(path: str | Path) -> Lake:
    found = Path(path).resolve()
    watermark = last_watermark(found)
    if watermark is None:
        raise LakeError(f"there is no lake in {path} yet; make one with `taskyard lake run`")
    check_version(found, watermark.schema_version)
    return Lake(found, watermark)
