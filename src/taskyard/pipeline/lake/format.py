"""`taskyard.lake`: a lake's tables as a source of Spark, on any storage and without jars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from taskyard.pipeline.lake.files import DataFile
    from taskyard.pipeline.lake.storage import Storage
    from taskyard.pipeline.lake.tables import Table

_OWN: Final = ("path", "table", "versionasof")
_PARTITION_BYTES: Final = 32 << 20


class LakeDataSource(DataSource):
    """`spark.read.format("taskyard.lake").option("table", "jobs").load("s3://bucket/lake")`.

    Tables are read at the last finished batch, or at the version `versionAsOf`. All other options
    are those of the storage.
    """

    @classmethod
    def name(cls) -> str:
        return "taskyard.lake"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        from taskyard.pipeline.lake.snapshot import find_table

        schema = find_table(self._place()[1]).schema
        return from_arrow_schema(schema, prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        from taskyard.pipeline.lake.files import data_files
        from taskyard.pipeline.lake.snapshot import find_table, open_lake
        from taskyard.pipeline.lake.storage import Storage

        lake, name = self._place()
        storage, table = Storage(lake, self._storage_options()), find_table(name)
        version = self.options.get("versionAsOf")
        if version is None:
            return LakeReader(storage, table, open_lake(storage).files(name))
        found = data_files(storage.table(name, int(version)), table)
        return LakeReader(storage, table, list(found.values()))

    def _place(self) -> tuple[str, str]:
        """The lake and the table: by the option, or as the last part of the path."""
        path = self.options.get("path", "")
        if not path:
            raise ValueError("load() needs the path or the URI of a lake")
        table = self.options.get("table")
        if table is None:
            path, _, table = path.rstrip("/").rpartition("/")
        return path, table

    def _storage_options(self) -> dict[str, str]:
        return {key: value for key, value in self.options.items() if key.lower() not in _OWN}


@dataclass
class FilesPartition(InputPartition):
    files: list[DataFile]


class LakeReader(DataSourceReader):
    def __init__(self, storage: Storage, table: Table, files: list[DataFile]) -> None:
        self._storage = storage
        self._table = table
        self._files = files

    def partitions(self) -> Sequence[InputPartition]:
        """Put files together until they are worth a task."""
        groups: list[list[DataFile]] = []
        size = _PARTITION_BYTES
        for file in self._files:
            if size >= _PARTITION_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.size
        return [FilesPartition(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from taskyard.pipeline.lake.files import dataset

        assert isinstance(partition, FilesPartition)
        yield from dataset(self._storage, self._table, partition.files).to_batches()
