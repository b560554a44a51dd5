"""The sink: rows of a data frame become commands, each partition over its own connection.

Spark hands batches of Arrow to `RowSink.write`, row_commands.py makes a command of each row,
`RowFeed` keeps a window of them on their way, and a task ends when the server has answered all,
which it does when they are on its disk. Commands may be sent twice without harm: a job has a uid
that the server knows again, and an outcome counts only as long as the lease holds.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from taskyard.client.address import Address
from taskyard.client.backoff import Backoff
from taskyard.client.commands import unexpected
from taskyard.client.connection import Connection
from taskyard.client.errors import (
    Draining,
    Duplicate,
    NotNow,
    QueueFull,
    Refused,
    StaleLease,
    Unavailable,
)
from taskyard.client.retrying import Patience, not_now
from taskyard.client.settings import PATIENCE, TIMEOUT, first
from taskyard.client.wire import Reply
from taskyard.pipeline.spark.job_columns import JobColumns

if TYPE_CHECKING:
    from taskyard.pipeline.spark.row_commands import JobCommands, OutcomeCommands

# What Spark tells the tasks of a stream. The id is kept in the checkpoint, so that it is that of
# the query through all of its restarts.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"

_MOST_ROWS: Final = 16_384  # on their way
_MOST_BYTES: Final = 8 << 20
_CHUNK_ROWS: Final = 1024  # that are handed to the connection at once
_CHUNK_BYTES: Final = 1 << 18


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
        send(self.address, RowFeed(made, refused))
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


class RowFeed:
    """A Feed, see taskyard.client.streaming. After a loss, `rewind` and stream it again."""

    def __init__(
        self,
        batches: Iterator[list[bytes]],
        refused: Callable[[int, Refused], Exception | None],
    ) -> None:
        """`refused`: what the refusal of a row is to raise; None if it is no error."""
        self._batches = batches
        self._refused = refused
        self._rows = 0  # that were taken out of batches
        self._waiting: deque[tuple[int, bytes]] = deque()  # rows and their commands
        self._sent: deque[tuple[int, bytes]] = deque()
        self._bytes = 0  # of those
        self._put_off: list[tuple[int, bytes]] = []
        self._passing: Refused | None = None
        self._ended = False
        self.answered = 0
        self.error: Exception | None = None
        """What has ended it early."""

    @property
    def done(self) -> bool:
        nothing_left = self._ended and not self._waiting
        return not self._sent and (nothing_left or self._passing is not None)

    def next(self) -> bytes:
        sent, waiting = self._sent, self._waiting
        if self._passing is not None or len(sent) >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            return b""
        while not waiting and not self._ended:
            self._take_batch()
        commands: list[bytes] = []
        size = 0
        while waiting and len(commands) < _CHUNK_ROWS and size < _CHUNK_BYTES:
            one = waiting.popleft()
            sent.append(one)
            commands.append(one[1])
            size += len(one[1])
        self._bytes += size
        return b"".join(commands)

    def _take_batch(self) -> None:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._ended = True
        except Exception as error:
            # What is on its way is read to its end first, so that it is known to be safe.
            self._ended, self.error = True, error
        else:
            self._waiting.extend(enumerate(batch, self._rows))
            self._rows += len(batch)

    def take(self, replies: Sequence[Reply]) -> None:
        sent = self._sent
        for reply in replies:
            if not sent:
                raise unexpected(reply)  # to what was never asked
            one = sent.popleft()
            self._bytes -= len(one[1])
            if type(reply) is not int:
                self._take_other(one, reply)
        self.answered += len(replies)

    def _take_other(self, one: tuple[int, bytes], reply: Reply) -> None:
        if isinstance(reply, NotNow | QueueFull | Draining):
            self._passing = reply
            self._put_off.append(one)
            self.answered -= 1
        elif isinstance(reply, Refused):
            error = self._refused(one[0], reply)
            if error is not None:
                self._ended = True
                self._waiting.clear()
                self.error = self.error or error
        elif reply not in (b"OK", b"delayed", b"ready", b"failed"):
            raise unexpected(reply)

    def rewind(self) -> None:
        """The connection was lost, or the server could not do it: go on with what has no answer."""
        self._waiting.extendleft(sorted([*self._put_off, *self._sent], reverse=True))
        self._put_off.clear()
        self._sent.clear()
        self._bytes = 0
        self._passing = None

    def held_up(self) -> Unavailable | None:
        """Why what was sent last is to be sent again, if it is."""
        if self._passing is None or self.error is not None:
            return None
        return not_now(self._passing)


def send(address: Address, feed: RowFeed) -> None:
    """Send all of it, however often the connection is lost, as long as the server comes back."""
    patience = Patience(first(address.patience, PATIENCE), Backoff())
    with Connection(address, timeout=first(address.timeout, TIMEOUT)) as connection:
        while True:
            before = feed.answered
            try:
                connection.stream(feed)
                held_up = feed.held_up()
            except Unavailable as lost:
                held_up = lost
            if held_up is None:
                break
            if feed.answered > before:
                patience.renew()
            time.sleep(patience.pause(held_up))
            feed.rewind()
    if feed.error is not None:
        raise feed.error
