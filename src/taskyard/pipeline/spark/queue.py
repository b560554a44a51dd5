"""The format `taskyard`: queues of a server to read jobs from, and to write jobs or results to.

For each batch that a stream has written Spark starts a Python that only says so: what that does not
need, Arrow above all, is imported where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from taskyard.pipeline.spark import job_columns
from taskyard.pipeline.spark.options import OptionError, Options
from taskyard.pipeline.spark.sink import JobStreamWriter, JobWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_JOBS: Final = "jobs"
_RESULTS: Final = "results"
_OF_RESULTS: Final = ("url", "mode")


class QueueDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "taskyard"

    def schema(self) -> str:
        from taskyard.pipeline.spark.queue_source import SCHEMA

        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        raise OptionError(
            "jobs are read as a stream, which can say when they are done: spark.readStream, with "
            ".trigger(availableNow=True) for those that are there now. To look at jobs without "
            "taking them, read the format taskyard.events"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from taskyard.pipeline.spark import queue_source

        options = Options(self.options, queue_source.KNOWN, queue_source.ALIASES)
        return queue_source.QueueStreamReader(queue_source.queue_options(options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = self._to_write(overwrite)
        if options.text("mode") == _RESULTS:
            from taskyard.pipeline.spark.results import ResultWriter, check

            return ResultWriter(options.address(), check(schema))
        columns = job_columns.job_columns(schema, options)
        return JobWriter(options.address(), columns, options.text("queryId"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = self._to_write(overwrite)
        if options.text("mode") == _RESULTS:
            from taskyard.pipeline.spark.results import ResultStreamWriter, check

            return ResultStreamWriter(options.address(), check(schema))
        columns = job_columns.job_columns(schema, options)
        return JobStreamWriter(options.address(), columns, options.text("queryId"))

    def _to_write(self, overwrite: bool) -> Options:
        if overwrite:
            raise OptionError("a queue cannot be overwritten: jobs are added to it, mode append")
        mode = self.options.get("mode", _JOBS)
        if mode not in (_JOBS, _RESULTS):
            raise OptionError(f"mode must be {_JOBS} or {_RESULTS}, not {mode!r}")
        return Options(self.options, _OF_RESULTS if mode == _RESULTS else job_columns.KNOWN)
