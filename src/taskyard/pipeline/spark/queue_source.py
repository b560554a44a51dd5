"""Jobs of queues as a stream: a batch of the stream is a numbered batch that the server leases.

Spark's offset is the number of the batch. Asking for the next number says that the one before is
done, and Spark asks only when it is. The same number gives the same jobs, through retries and
restarts, for as long as it is not done; see docs/spark-queues.md.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from taskyard.client.address import Address
from taskyard.client.client import Client
from taskyard.client.commands import unexpected
from taskyard.client.connection import Connection
from taskyard.client.errors import Problem, QueueNotFound, StaleBatch
from taskyard.client.settings import PATIENCE, TIMEOUT, first
from taskyard.names import NAME_RULE, valid_name
from taskyard.pipeline.spark.claim import hold
from taskyard.pipeline.spark.options import OptionError, Options

SCHEMA: Final = (
    "id bigint, uid string, queue string, name string, payload binary, attempt int, fails int, "
    "ref string, priority bigint, pushed_at timestamp"
)
KNOWN: Final = ("url", "queues", "consumer", "maxJobsPerBatch", "partitions", "ttr")
# The names that Spark's users know from other sources, for the same.
ALIASES: Final = {
    "maxjobspertrigger": "maxjobsperbatch",
    "maxoffsetspertrigger": "maxjobsperbatch",
    "minpartitions": "partitions",
}
_ARROW: Final = pa.schema(
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
_MOST_JOBS: Final = 1_000_000  # of a batch
_JOBS: Final = 100_000  # unless maxJobsPerBatch says so
_PARTITIONS: Final = 8  # unless `partitions` says so, and fewer if the batch is small
_SMALL: Final = 500
_READ: Final = 10_000  # jobs that are asked for at once
_AFTERMATH: Final = 15.0  # seconds


@dataclass(frozen=True)
class QueueOptions:
    """Crosses to the executors."""

    url: str = field(repr=False)  # with the password
    address: Address
    queues: Sequence[str]
    consumer: str
    most: int
    partitions: int | None
    ttr: float | None


def queue_options(options: Options) -> QueueOptions:
    """OptionError with what is wrong."""
    queues = [one.strip() for one in options.needed("queues", "mail,thumbs").split(",")]
    consumer = options.needed("consumer", "nightly-report")
    for what, name in [("consumer", consumer), *(("queues", one) for one in queues)]:
        if not valid_name(name):
            raise OptionError(f"{what}: {name!r} {NAME_RULE}")
    return QueueOptions(
        options.needed("url", "taskyard://localhost:8002"),
        options.address(),
        queues,
        consumer,
        options.number("maxJobsPerBatch", 1, _MOST_JOBS) or _JOBS,
        options.number("partitions", 1, 10_000),
        options.seconds("ttr"),
    )


@dataclass
class Places(InputPartition):
    """A part of a batch, for one task."""

    batch: int
    start: int
    count: int


class LostBatch(Exception):
    """The jobs of the batch are not this query's any more."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offsets also name consumer and broker, for Acknowledger, and to find mix-ups."""

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._lock: int | None = None  # no other query has the consumer meanwhile
        self._left: int | None = None  # jobs that availableNow may still take
        self._held = 0  # a batch that was out when it began
        self._latest: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_lock": None}  # an executor has its own

    # On the driver

    def initialOffset(self) -> dict[str, Any]:
        """Of a query without a checkpoint: a batch that an earlier one has left comes again."""
        last, is_open = self._last()
        return self._offset(last - 1 if is_open else last, 0)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Spark asks when the batch before is written and logged as done."""
        options, client = self._options, self._connected()
        done = self._batch_of(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else _MOST_JOBS
        counts = self._left is not None and done + 1 != self._held
        if counts:
            most = min(most, self._left or 0)
        try:
            if not most:
                client.ack_batch(options.consumer, done)
                return start
            number, count = client.lease_batch(
                options.consumer, done + 1, min(most, _MOST_JOBS), options.queues, options.ttr
            )
        except StaleBatch as error:
            raise self._lost(error) from None
        if not count:
            self._latest = start
            return start
        if counts:
            self._left = max((self._left or 0) - count, 0)
        # The jobs that wait behind this batch, in queues as Spark's progress shows them.
        self._latest = {**self._offset(number, count), "ready": self._ready()}
        return self._offset(number, count)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What Spark shows in its progress beside the offset that a batch has reached."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        """As many jobs as wait now, beside those of a batch that is out already. Which ones is the
        queues' business: a job of higher priority that is pushed later goes first there, too.
        """
        last, is_open = self._last()
        self._held = last if is_open else 0
        self._left = self._ready()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        batch, count = self._batch_of(end), int(end["count"])
        if batch == self._batch_of(start):
            return []
        wanted = self._options.partitions or min(_PARTITIONS, -(-count // _SMALL))
        parts = max(min(wanted, count), 1)
        bounds = [count * at // parts for at in range(parts + 1)]
        return [Places(batch, here, there - here) for here, there in itertools.pairwise(bounds)]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the request for the next batch has said it, and before this is called."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # On an executor

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Places)
        options = self._options
        address = options.address
        timeout = first(address.timeout, TIMEOUT)
        patience = first(address.patience, PATIENCE)
        at, end = partition.start, partition.start + partition.count
        with Connection(address, timeout=timeout, patience=patience) as connection:
            while at < end:
                try:
                    places = connection.call(
                        "BATCH.READ",
                        options.consumer,
                        partition.batch,
                        at,
                        min(end - at, _READ),
                        repeat=True,
                    )
                except StaleBatch as error:
                    raise self._lost(error) from None
                if not isinstance(places, list) or not places:
                    raise unexpected(places)
                at += len(places)
                yield _table(places)

    # How it is done

    def _connected(self) -> Client:
        if self._client is None:
            options = self._options
            # Spark ends the process of a query that was stopped a little later.
            self._lock = hold(options.address, options.consumer, _AFTERMATH)
            self._client = Client(options.url, heartbeats=False)
        return self._client

    def _offset(self, batch: int, count: int) -> dict[str, Any]:
        options = self._options
        return {
            "batch": batch,
            "count": count,
            "consumer": options.consumer,
            "broker": str(options.address),
        }

    def _batch_of(self, offset: dict[str, Any]) -> int:
        if offset["consumer"] != self._options.consumer:
            raise OptionError(
                f"the checkpoint is that of consumer {offset['consumer']}, and this query's is "
                f"{self._options.consumer}: give it a checkpoint of its own"
            )
        return int(offset["batch"])

    def _last(self) -> tuple[int, bool]:
        """The number of the consumer's last batch, and whether that is out."""
        name = quote(self._options.consumer, safe="")
        try:
            view = self._connected().call_api("GET", f"/api/v1/consumers/{name}")
        except Problem as problem:
            if problem.status != 404:
                raise
            return 0, False
        return view["batch"], view["open"]

    def _ready(self) -> int:
        return sum(self._waiting(queue) for queue in self._options.queues)

    def _waiting(self, queue: str) -> int:
        try:
            return int(self._connected().queue(queue).counts.ready)
        except QueueNotFound:
            return 0

    def _lost(self, error: StaleBatch) -> LostBatch:
        consumer = self._options.consumer
        return LostBatch(
            f"{error}. The jobs of that batch went back to their queues, where others may have "
            f"had them: this query cannot go on from its checkpoint. Look at `taskyard consumers "
            f"show {consumer}`, drop the consumer, and start with a new checkpoint"
        )


def _table(places: list[Any]) -> Any:
    """Jobs as BATCH.READ gives them; nothing stands where one was ended by itself meanwhile."""
    jobs = [one for one in places if one is not None]
    if not jobs:
        return pa.RecordBatch.from_pylist([], schema=_ARROW)
    # A later server may say more of a job behind these.
    refs, ids, uids, queues, names, attempts, fails, _, payloads, *more = zip(*jobs, strict=True)
    priorities, pushed = more[:2]
    columns = (ids, uids, queues, names, payloads, attempts, fails, refs, priorities, pushed)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
