"""Jobs of queues as a stream: a batch of the stream is a numbered batch that the server leases.

Spark's offset is the number of the batch. Asking for the next number says that the one before is
done, and Spark asks only when it is. The same number gives the same jobs, through retries and
restarts, for as long as it is not done; see docs/spark-queues.md.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from taskyard.client.commands import unexpected_reply
from taskyard.client.connection import Connection
from taskyard.client.errors import Claimed, ClientError, QueueNotFound, StaleBatch
from taskyard.client.sync import Client
from taskyard.client.url import DEFAULT_PATIENCE_S, DEFAULT_TIMEOUT_S, first_given
from taskyard.pipeline.spark.options import OptionError, SourceOptions, parse_offset
from taskyard.shared.text import NAME_RULE, valid_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KNOWN: Final = ("url", "queues", "consumer", "maxJobsPerBatch", "partitions", "ttr")
# The names that Spark's users know from other sources, for the same.
ALIASES: Final = {
    "maxjobspertrigger": "maxjobsperbatch",
    "maxoffsetspertrigger": "maxjobsperbatch",
    "minpartitions": "partitions",
}
COLUMNS: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("uid", pa.string()),
        ("queue", pa.string()),
        ("name", pa.string()),
        ("payload", pa.binary()),
        ("attempt", pa.int32()),
        ("fails", pa.int32()),
        ("ref", pa.string()),
        ("priority", pa.int64()),
        ("pushed_at", pa.timestamp("us", tz="UTC")),
    ]
)
_MAX_JOBS: Final = 1_000_000  # of a batch
_JOBS: Final = 100_000  # unless maxJobsPerBatch says so
_PARTITIONS: Final = 8  # unless `partitions` says so, and fewer if the batch is small
_SMALL_BATCH: Final = 500
_READ_JOBS: Final = 10_000  # jobs that are asked for at once
# Seconds. Spark ends the process of a query that was stopped a little later.
_TASK_EXIT_S: Final = 10.0
_PAUSE: Final = 0.05

_log = logging.getLogger("taskyard.spark")


@dataclass
class BatchSlice(InputPartition):
    """A part of a batch, for one task."""

    batch: int
    start: int
    count: int


class LostBatch(Exception):
    """The jobs of the batch are not this query's any more."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offsets also name consumer and broker, for BatchAcknowledger, and to find mix-ups."""

    def __init__(self, options: SourceOptions) -> None:
        """OptionError with what is wrong."""
        self._queues = [
            one.strip() for one in options.required_text("queues", "mail,thumbs").split(",")
        ]
        self._consumer = options.required_text("consumer", "nightly-report")
        names = [("consumer", self._consumer), *(("queues", one) for one in self._queues)]
        for what, name in names:
            if not valid_name(name):
                raise OptionError(f"{what}: {name!r} {NAME_RULE}")
        self._address = options.address()
        self._url = options.required_text("url", "taskyard://localhost:8002")
        self._max_jobs = options.number("maxJobsPerBatch", 1, _MAX_JOBS) or _JOBS
        self._partitions = options.number("partitions", 1, 10_000)
        self._ttr = options.seconds("ttr")
        self._client: Client | None = None  # of the driver; no other one has the consumer
        self._left: int | None = None  # jobs that availableNow may still take
        self._open_batch = 0  # a batch that was out when it began
        self._latest: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}  # an executor has its own

    # On the driver

    def initialOffset(self) -> dict[str, Any]:
        """Of a query without a checkpoint: a batch that an earlier one has left comes again."""
        last, is_open = self._last()
        return self._offset(last - 1 if is_open else last, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_jobs)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Spark asks when the batch before is written and logged as done."""
        client, done = self._get_client(), self._batch_of(start)
        most = min(limit.max_rows if isinstance(limit, ReadMaxRows) else _MAX_JOBS, _MAX_JOBS)
        counts = self._left is not None and done + 1 != self._open_batch
        if counts:
            most = min(most, self._left or 0)
        try:
            if not most:
                client.ack_batch(self._consumer, done)
                return start
            number, count = client.lease_batch(
                self._consumer, done + 1, most, self._queues, self._ttr
            )
        except StaleBatch as error:
            raise self._lost_batch_error(error) from None
        if not count:
            self._latest = {**start, "holder": client.holder}
            return start
        if counts:
            self._left = max((self._left or 0) - count, 0)
        end = self._offset(number, count)
        # The jobs that wait behind this batch, in queues as Spark's progress shows them.
        self._latest = {**end, "ready": self._ready(), "holder": client.holder}
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What Spark shows in its progress beside the offset that a batch has reached."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        """As many jobs as wait now, beside those of a batch that is out already. Which ones is the
        queues' business: a job of higher priority that is pushed later goes first there, too.
        """
        last, is_open = self._last()
        self._open_batch = last if is_open else 0
        self._left = self._ready()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The first that Spark asks of a query that goes on with a batch of its checkpoint."""
        self._get_client()
        batch, count = self._batch_of(end), int(end["count"])
        if batch == self._batch_of(start):
            return []
        wanted = self._partitions or min(_PARTITIONS, -(-count // _SMALL_BATCH))
        parts = max(min(wanted, count), 1)
        bounds = [count * at // parts for at in range(parts + 1)]
        return [BatchSlice(batch, here, there - here) for here, there in itertools.pairwise(bounds)]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the request for the next batch has said it, and before this is called."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # On an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, BatchSlice)
        timeout = first_given(self._address.timeout, DEFAULT_TIMEOUT_S)
        patience = first_given(self._address.patience, DEFAULT_PATIENCE_S)
        at, end = partition.start, partition.start + partition.count
        with Connection(self._address, timeout=timeout, patience=patience) as connection:
            while at < end:
                words = (
                    "BATCH.READ",
                    self._consumer,
                    partition.batch,
                    at,
                    min(end - at, _READ_JOBS),
                )
                try:
                    places = connection.call(*words, repeat=True)
                except StaleBatch as error:
                    raise self._lost_batch_error(error) from None
                if not isinstance(places, list) or not places:
                    raise unexpected_reply(places)
                at += len(places)
                yield _table(places)

    # How it is done

    def _get_client(self) -> Client:
        """With the consumer to itself: if another query has it that ends, in a moment."""
        if self._client is None:
            client = Client(self._url, heartbeats=False, claims=[self._consumer])
            until = time.monotonic() + _TASK_EXIT_S
            while self._client is None:
                try:
                    client.ping()
                except Claimed:
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_PAUSE)
                else:
                    self._client = client
        return self._client

    def _offset(self, batch: int, count: int) -> dict[str, Any]:
        broker = str(self._address)
        return {"batch": batch, "count": count, "consumer": self._consumer, "broker": broker}

    def _batch_of(self, offset: dict[str, Any]) -> int:
        if offset["consumer"] != self._consumer:
            raise OptionError(
                f"the checkpoint is that of consumer {offset['consumer']}, and this query's is "
                f"{self._consumer}: give it a checkpoint of its own"
            )
        return int(offset["batch"])

    def _last(self) -> tuple[int, bool]:
        """The number of the consumer's last batch, and whether that is out."""
        known = (one for one in self._get_client().consumers() if one.name == self._consumer)
        return next(((one.batch, one.open) for one in known), (0, False))

    def _ready(self) -> int:
        return sum(self._waiting(queue) for queue in self._queues)

    def _waiting(self, queue: str) -> int:
        try:
            return int(self._get_client().queue(queue).counts.ready)
        except QueueNotFound:
            return 0

    def _lost_batch_error(self, error: StaleBatch) -> LostBatch:
        return LostBatch(
            f"{error}. The jobs of that batch went back to their queues, where others may have "
            f"had them: this query cannot go on from its checkpoint. Look at `taskyard consumers "
            f"show {self._consumer}`, drop the consumer, and start with a new checkpoint"
        )


def _table(places: list[Any]) -> Any:
    """Jobs as BATCH.READ gives them; nothing stands where one was ended by itself meanwhile."""
    jobs = [one for one in places if one is not None]
    if not jobs:
        return pa.RecordBatch.from_pylist([], schema=COLUMNS)
    # A later server may say more of a job behind these.
    refs, ids, uids, queues, names, attempts, fails, _, payloads, *more = zip(*jobs, strict=True)
    priorities, pushed = more[:2]
    columns = (ids, uids, queues, names, payloads, attempts, fails, refs, priorities, pushed)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)


class BatchAcknowledger(StreamingQueryListener):
    """Tells a server as soon as a query is done with a batch: Spark tells of it when it is in its
    log of those that are done.

    The request for the next batch says so too, but it comes late when a query is triggered
    seldom, and not at all when it is stopped.
    """

    def __init__(self, url: str) -> None:
        self._client = Client(url, heartbeats=False)
        self._broker = str(self._client.address)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            end, latest = parse_offset(source.endOffset), parse_offset(source.latestOffset)
            if end.get("broker") != self._broker or not end["batch"] or "holder" not in latest:
                continue  # of a batch that was in the checkpoint, Spark tells no holder
            try:
                self._client.ack_batch(end["consumer"], end["batch"], latest["holder"])
            except ClientError as error:  # the request for the next batch says it again
                _log.warning("batch %d is not acknowledged: %s", end["batch"], error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def acknowledge(spark: SparkSession, url: str) -> BatchAcknowledger:
    """Have every batch of this server's jobs acknowledged when a query of the session is done
    with it. What is given back can be handed to `spark.streams.removeListener`.
    """
    listener = BatchAcknowledger(url)
    spark.streams.addListener(listener)
    return listener
