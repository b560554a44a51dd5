"""Rows written back as the outcomes of jobs that a stream has read: mode results of the sink.

A row says nothing if the lease of its job is over: a task that was tried before has said it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from taskyard.client.address import Address
from taskyard.client.errors import Refused, StaleLease
from taskyard.pipeline.records.json_text import json_text
from taskyard.pipeline.spark.options import OptionError
from taskyard.pipeline.spark.row_commands import RowError, bulk, bulks, is_bytes, is_text
from taskyard.pipeline.spark.row_feed import Refusal, RowFeed, send
from taskyard.pipeline.spark.sink import PushError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SUCCEEDED: Final = "succeeded"
RETRIED: Final = "retried"
FAILED: Final = "failed"
RELEASED: Final = "released"
_OUTCOMES: Final = (SUCCEEDED, RETRIED, FAILED, RELEASED)
_TEXTS: Final = ("ref", "error", "outcome")


@dataclass
class EndedJobs(WriterCommitMessage):
    """What became of a partition."""

    ended: int
    over: int
    """Their lease was over before."""


def check(schema: StructType) -> Sequence[str]:
    """The names of the columns; OptionError if rows of this kind are no outcomes."""
    names: Sequence[str] = schema.names
    if "ref" not in names:
        raise OptionError("mode results needs the column ref, as the stream of jobs gave it")
    for one in schema.fields:
        if one.name not in (*_TEXTS, "result"):
            raise OptionError(
                f"mode results has no use for column {one.name}, only for ref, result, error and "
                "outcome"
            )
        if one.name in _TEXTS and one.dataType.simpleString() != "string":
            raise OptionError(f"column {one.name} is a {one.dataType.simpleString()}, not a string")
    return names


@dataclass(frozen=True)
class _End:
    address: Address
    names: Sequence[str]

    def write(self, iterator: Iterator[Any]) -> EndedJobs:
        context = TaskContext.get()
        assert context is not None
        partition = context.partitionId()
        feed = RowFeed(self._commands(iterator, partition), _settle)
        try:
            send(self.address, feed)
        except Refusal as refusal:
            raise PushError(
                f"row {refusal.row} of partition {partition} was refused by {self.address}: "
                f"{refusal}"
            ) from None
        over = feed.counts.get("over", 0)
        return EndedJobs(feed.answered - over, over)

    def _commands(self, iterator: Iterator[Any], partition: int) -> Iterator[list[bytes]]:
        row = 0
        for batch in iterator:
            columns = [self._values(batch, name) for name in (*_TEXTS, "result")]
            made: list[bytes] = []
            for ref, error, outcome, result in zip(*columns, strict=True):
                made.append(_command(ref, error, outcome, result, row, partition))
                row += 1
            if made:
                yield made

    def _values(self, batch: Any, name: str) -> list[Any]:
        if name not in self.names:
            return [None] * int(batch.num_rows)
        column = batch.column(self.names.index(name))
        if name == "result":
            if not (is_text(column.type) or is_bytes(column.type)):
                column = pc.if_else(column.is_valid(), json_text(column), None)
            column = column.cast(pa.binary())
        found: list[Any] = column.to_pylist()
        return found


def _command(
    ref: str | None,
    error: str | None,
    outcome: str | None,
    result: bytes | None,
    row: int,
    partition: int,
) -> bytes:
    """Without an outcome, a row with an error has failed, and another one has not."""
    if ref is None:
        raise RowError(f"column ref, row {row} of partition {partition}: there is none")
    if outcome is None:
        outcome = SUCCEEDED if error is None else RETRIED
    if outcome == SUCCEEDED:
        if result is None:
            return b"*2\r\n$8\r\nJOB.DONE\r\n" + bulk(ref)
        return b"*3\r\n$8\r\nJOB.DONE\r\n" + bulk(ref) + bulk(result)
    if outcome == RETRIED:
        return b"*3\r\n" + bulks(["JOB.FAIL", ref, error or ""])
    if outcome == FAILED:
        return b"*4\r\n" + bulks(["JOB.FAIL", ref, error or "", "FINAL"])
    if outcome == RELEASED:
        return b"*2\r\n" + bulks(["JOB.RETURN", ref])
    raise RowError(
        f"column outcome, row {row} of partition {partition}: {outcome!r:.100} is none of "
        f"{', '.join(_OUTCOMES)}"
    )


def _settle(refused: Refused) -> str | None:
    return "over" if isinstance(refused, StaleLease) else None


class ResultWriter(DataSourceArrowWriter):
    def __init__(self, address: Address, names: Sequence[str]) -> None:
        self._end = _End(address, names)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._end.write(iterator)


class ResultStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, address: Address, names: Sequence[str]) -> None:
        self._end = _End(address, names)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._end.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Every outcome was safe when its task ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was said stays said."""
