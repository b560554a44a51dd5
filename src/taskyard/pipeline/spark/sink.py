"""The sink: rows of a data frame become commands, each partition over its own connection.

Spark hands batches of Arrow to `RowSink.write`, row_commands.py makes a command of each row,
`CommandFeed` keeps a window of them on their way, and a task ends when the server has answered all,
which it does when they are on its disk. Commands may be sent twice without harm: a job has a uid
that the server knows again, and an outcome counts only as long as the lease holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from taskyard.client.errors import Duplicate, Refused, StaleLease
from taskyard.client.feeding import CommandFeed, send_all
from taskyard.client.url import Address
from taskyard.pipeline.spark.job_columns import JobColumns

if TYPE_CHECKING:
    from taskyard.pipeline.spark.row_commands import JobCommands, OutcomeCommands

# What Spark tells the tasks of a stream. The id is kept in the checkpoint, so that it is that of
# the query through all of its restarts.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"


class PushError(Exception):
    """A row was not pushed. Those before it in its partition were, and those behind it were not,
    or some of them: writing the same again goes on from there.
    """


@dataclass(frozen=True)
class RowSink:
    """What the tasks need to know: it crosses to the executors."""

    address: Address
    columns: JobColumns | Sequence[str]
    """Of jobs; or, where the rows are outcomes, the names of all columns."""
    query: str | None = None
    """Of which the uids are made; None: that of the stream."""
    batch: int | None = None

    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        commands = self._commands(context, partition)
        done_before = Duplicate if isinstance(self.columns, JobColumns) else StaleLease

        def refused(row: int, reason: Refused) -> PushError | None:
            if isinstance(reason, done_before):
                return None
            place = f"row {row} of partition {partition}"
            return PushError(f"{place} was refused by {self.address}: {reason}")

        made = (commands.make(batch) for batch in batches if batch.num_rows)
        send_all(self.address, CommandFeed(made, refused))
        return WriterCommitMessage()

    def _commands(self, context: TaskContext, partition: int) -> JobCommands | OutcomeCommands:
        # Arrow is imported by the tasks only, not by the driver's process of each batch.
        from taskyard.pipeline.spark.row_commands import JobCommands, OutcomeCommands

        if not isinstance(self.columns, JobColumns):
            return OutcomeCommands(self.columns, partition)
        query, batch = self.query, self.batch
        if query is None:
            query = context.getLocalProperty(_QUERY_ID)
        if batch is None:
            batch = int(context.getLocalProperty(_BATCH_ID) or 0)
        return JobCommands(self.columns, partition, query, batch)


class RowWriter(RowSink, DataSourceArrowWriter):
    """Of one df.write."""


class RowStreamWriter(RowSink, DataSourceStreamArrowWriter):
    """Of a query. Commits have nothing left to do; after an abort the batch comes again, and what
    was written of it is known.
    """
