"""Rows of a data frame pushed as jobs, by the executors, each partition over its own connection.

Each job has a uid, so that a task that is tried again, a speculative one, or a batch that is
written again after a restart pushes nothing twice: the server knows the uids it has seen.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from taskyard.client.address import Address
from taskyard.client.commands import is_key_duplicate
from taskyard.client.errors import Duplicate, Refused
from taskyard.pipeline.spark.job_columns import JobColumns
from taskyard.pipeline.spark.row_feed import Refusal, RowFeed, send

if TYPE_CHECKING:
    from taskyard.pipeline.spark.row_commands import RowUids

# What Spark tells the tasks of a stream. The id is kept in the checkpoint, so that it is that of
# the query through all of its restarts.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class PushError(Exception):
    """A row was not pushed. Those before it in its partition were, and those behind it were not,
    or some of them: writing the same again goes on from there.
    """


@dataclass
class PushedRows(WriterCommitMessage):
    """What became of a partition."""

    pushed: int
    known: int
    """Their uid was known already: they were pushed by a try before this one."""
    kept_out: int
    """Another job with their key waited in the queue."""


@dataclass(frozen=True)
class Push:
    """What the tasks need to know."""

    address: Address
    columns: JobColumns
    query: str | None
    """None: Spark is asked."""

    def write(self, iterator: Iterator[Any]) -> PushedRows:
        from taskyard.pipeline.spark.row_commands import RowCommands

        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        commands = RowCommands(self.columns, self._uids(context), partition)
        feed = RowFeed((commands.make(batch) for batch in iterator if batch.num_rows), _settle)
        try:
            send(self.address, feed)
        except Refusal as refusal:
            place = commands.place(refusal.row)
            raise PushError(f"{place} was refused by {self.address}: {refusal}") from None
        known, kept_out = feed.counts.get("known", 0), feed.counts.get("kept out", 0)
        return PushedRows(feed.answered - known - kept_out, known, kept_out)

    def _uids(self, context: TaskContext) -> RowUids | None:
        from taskyard.pipeline.spark.row_commands import RowUids

        query, batch = self.query, 0
        if query is None:
            query = context.getLocalProperty(_QUERY_ID)
        number = context.getLocalProperty(_BATCH_ID)
        if number is not None:
            batch = int(number)
        return None if query is None else RowUids(query, batch, context.partitionId())


def _settle(refused: Refused) -> str | None:
    if not isinstance(refused, Duplicate):
        return None
    return "kept out" if is_key_duplicate(refused) else "known"


class JobWriter(DataSourceArrowWriter):
    """Of one df.write."""

    def __init__(self, address: Address, columns: JobColumns, query: str | None) -> None:
        """`query`: without one, the uids are those of this write alone."""
        self._push = Push(address, columns, query or str(uuid.uuid4()))

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._push.write(iterator)


class JobStreamWriter(DataSourceStreamArrowWriter):
    """Of a query."""

    def __init__(self, address: Address, columns: JobColumns, query: str | None) -> None:
        self._push = Push(address, columns, query)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._push.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every job was safe when its task ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was pushed stays: the batch comes again, and finds it known."""
