"""The format `taskyard`: queues of a server to read jobs from, and to write jobs or results to.

For each batch that a stream has written Spark starts a Python that only says so: what that does not
need, Arrow above all, is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from pyspark.sql.datasource import DataSource

from taskyard.pipeline.spark import job_columns
from taskyard.pipeline.spark.options import OptionError, SourceOptions
from taskyard.pipeline.spark.sink import RowSink, RowStreamWriter, RowWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

T = TypeVar("T", bound=RowSink)
_JOBS: Final = "jobs"
_RESULTS: Final = "results"
_OF_RESULTS: Final = ("url", "mode")


class QueueDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "taskyard"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        from taskyard.pipeline.spark.queue_source import COLUMNS

        return from_arrow_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        raise OptionError(
            "jobs are read as a stream, which can say when they are done: spark.readStream, with "
            ".trigger(availableNow=True) for those that are there now. To look at jobs without "
            "taking them, read the format taskyard.events"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from taskyard.pipeline.spark import queue_source

        options = SourceOptions(self.options, queue_source.KNOWN, queue_source.ALIASES)
        return queue_source.QueueStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return self._sink(RowWriter, schema, overwrite, str(uuid4()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return self._sink(RowStreamWriter, schema, overwrite, None)

    def _sink(self, kind: type[T], schema: StructType, overwrite: bool, query: str | None) -> T:
        """`query`: that of a write which is given none; None for a stream."""
        if overwrite:
            raise OptionError("a queue cannot be overwritten: jobs are added to it, mode append")
        mode = self.options.get("mode", _JOBS)
        if mode == _RESULTS:
            options = SourceOptions(self.options, _OF_RESULTS)
            return kind(options.address(), job_columns.outcome_columns(schema))
        if mode != _JOBS:
            raise OptionError(f"mode must be {_JOBS} or {_RESULTS}, not {mode!r}")
        options = SourceOptions(self.options, job_columns.KNOWN, job_columns.ALIASES)
        columns = job_columns.job_columns(schema, options)
        name, batch = options.text("queryId"), options.number("txnVersion", 0, 2**63 - 1)
        if batch is not None and (query is None or not name):
            raise OptionError(
                "txnVersion is the number of a df.write of a queryId (or txnAppId), which is to be "
                "given too; a stream numbers its batches itself"
            )
        return kind(options.address(), columns, name or query, batch)
