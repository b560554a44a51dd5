"""`start_lake`: a streaming query that keeps a lake up to date with a journal."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from taskyard.journal.errors import JournalCorrupt, RecordsRemoved, SegmentRemoved
from taskyard.pipeline.journal import (
    JournalContents,
    TimelineChanged,
    open_journal,
    plan_ranges,
    read_range,
)
from taskyard.pipeline.lake.build import TableBuilder
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.maintain import maintain
from taskyard.pipeline.lake.snapshot import Watermark
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import CHECKPOINT, Store
from taskyard.pipeline.records.fields import ALL_COLUMNS, DEFAULT_COLUMNS
from taskyard.pipeline.spark.events_source import CommitListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MAX_RECORDS: Final = 3_000_000
# Bytes of the journal in a batch with payloads: the executors hold them.
MAX_BYTES: Final = 256 << 20
# seconds; a server that is started again and reads its journal takes less
DEFAULT_PATIENCE_S: Final = 600.0
# seconds for which a server keeps records for a lake that does not run
READER_LEASE_S: Final = 7 * 86_400
_COMPARED_RECORDS: Final = 100  # records before the next one, of which most are events
_ID_DIGITS: Final = 8  # of the lake's id, in the name of its reader
_OLD_CHECKPOINT_S: Final = 86_400.0  # seconds after which a checkpoint that nobody uses is removed
_CHECKPOINT_NAME: Final = re.compile("lake-[0-9a-f]{32}")


@dataclass(frozen=True)
class BatchProgress:
    """What is known after a batch."""

    watermark: Watermark
    events: int
    seconds: float
    durable_seq: int  # of the journal


class Stopped(Exception):
    """The query was asked to stop before this batch."""


def start_lake(
    spark: SparkSession,
    lake: str | Path,
    *,
    data: str | Path | None = None,
    url: str | None = None,
    token: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    available_now: bool = False,
    trigger: str = "10 seconds",
    payloads: bool = False,
    max_records: int = MAX_RECORDS,
    retention_days: int | None = None,
    reader: str | None = None,
    patience: float = DEFAULT_PATIENCE_S,
) -> StreamingQuery:
    """Start a query that reads a journal into the tables of a lake.

    The journal is that of the data directory `data`, or of the server at `url`, which keeps what
    the lake has not read yet. `available_now`: end with the last record that there is now; else
    look for more at each `trigger`. Raises LakeError if the lake is of another journal.
    """
    filler = LakeFiller(
        Storage(lake, storage_options),
        data=None if data is None else str(data),
        url=url,
        token=token,
        checkpoint=None if checkpoint is None else str(checkpoint),
        payloads=payloads,
        max_records=max_records,
        retention_days=retention_days,
        reader=reader or "",
        patience=patience,
    )
    return filler.start(spark, None if available_now else trigger)


@dataclass(eq=False, repr=False)
class LakeFiller:
    """Fills one lake, with one query after another: see `start_lake`."""

    storage: InitVar[Storage]
    _: KW_ONLY
    data: str | None = None
    url: str | None = None
    token: str | None = None
    checkpoint: str | None = None
    payloads: bool = False
    max_records: int = MAX_RECORDS
    retention_days: int | None = None
    reader: str = ""
    patience: float = DEFAULT_PATIENCE_S
    on_batch: Callable[[BatchProgress], None] = lambda progress: None

    def __post_init__(self, storage: Storage) -> None:
        if (self.data is None) == (self.url is None):
            raise ValueError("one of data and url must be given")
        self._journal = open_journal(self.data or self.url or "", self.token)
        view = self._journal.contents()  # before anything is made
        self.store = Store(storage)
        self._builder = TableBuilder(self.store)
        self.reader = self.reader or f"lake-{self.store.id.replace('-', '')[:_ID_DIGITS]}"
        self._start = int(view.first_seq)
        self.check_journal()
        self.error: Exception | None = None  # of the batch that has failed
        self._listener: CommitListener | None = None
        self._batch_lock = threading.Lock()
        self._stopping = False

    @property
    def next_seq(self) -> int:
        return self.store.next_seq or self._start

    def start(self, spark: SparkSession, trigger: str | None) -> StreamingQuery:
        """Start a query; without a trigger it ends with the last record that there is now."""
        name = f"taskyard lake {self.store.storage.uri}"
        options = {
            "packed": "true",
            "columns": ",".join(ALL_COLUMNS if self.payloads else DEFAULT_COLUMNS),
            "startingSeq": str(self.next_seq),
            "maxRecordsPerTrigger": str(self.max_records),
            "partitions": str(max(2, spark.sparkContext.defaultParallelism)),
        }
        if self.payloads:
            options["maxBytesPerTrigger"] = str(MAX_BYTES)
        if self.url is None:
            options["path"] = str(self.data)
        else:
            options |= {"url": self.url, "reader": self.reader, "lease": str(READER_LEASE_S)}
            if self.patience:
                options["patience"] = str(self.patience)
            if self.token:
                options["token"] = self.token
            self._add_commit_listener(spark, self.url, name)
        self.error = None
        events = spark.readStream.format("taskyard.events").options(**options).load()
        checkpoint = make_checkpoint(self.store, self.checkpoint)
        writer = events.writeStream.foreachBatch(self._add_batch).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=trigger).start()

    def _add_commit_listener(self, spark: SparkSession, url: str, name: str) -> None:
        """Have what a query has finished committed, also that of its last batch."""
        if self._listener is None:
            self._listener = CommitListener(
                url, self.reader, READER_LEASE_S, self.token, query=name
            )
            spark.streams.addListener(self._listener)

    def stop(self, query: StreamingQuery) -> None:
        """Stop a query behind the batch that it makes now."""
        with self._batch_lock:
            self._stopping = True
            query.stop()

    def _add_batch(self, events: DataFrame, batch_id: int) -> None:
        with self._batch_lock:
            if self._stopping:
                raise Stopped
            try:
                began = time.monotonic()
                self.check_journal()
                rows = self._builder.add(events)
                maintain(self.store, self.retention_days)
                mark = self.store.watermark
                if mark is not None:
                    seconds = time.monotonic() - began
                    self.on_batch(BatchProgress(mark, rows, seconds, self.durable_seq))
            except Exception as error:
                self.error = error
                raise

    def check_journal(self) -> None:
        """See how far the journal is, and that it is the one that the lake was made of.

        A server may have come back with another one, also between two batches. Raises LakeError.
        """
        view = self._journal.contents(max(self.next_seq - _COMPARED_RECORDS, 0))
        self.durable_seq = view.durable_seq
        check_continues(view, self.store.watermark)
        check_same_journal(view, self.store.watermark)


# The journal


def check_continues(view: JournalContents, mark: Watermark | None) -> None:
    """Raise LakeError if the journal does not have the records that follow those of the lake."""
    if mark is None or not mark.next_seq:
        return
    try:
        view.check_timeline(mark.timeline, mark.next_seq)
    except TimelineChanged as error:
        raise LakeError(_timeline_error(mark, error.last_common)) from error
    if mark.next_seq < view.first_seq:
        missing = view.first_seq - mark.next_seq
        raise LakeError(
            f"the journal begins at record {view.first_seq} by now, the lake has all before "
            f"{mark.next_seq}: {missing:,} record{'s are' if missing > 1 else ' is'} missing; "
            "what is there can be read into another lake, with --lake DIR, and this one can still "
            "be asked"
        )


def _timeline_error(mark: Watermark, last_common: int) -> str:
    if not last_common:
        return (
            f"the lake has records up to {mark.next_seq - 1} of another journal than this one; "
            "read this one into another lake, with --lake DIR"
        )
    return (
        f"the journal was repaired or restored, and records {last_common + 1} to "
        f"{mark.next_seq - 1} of the lake are not in it any more; read it into another lake, with "
        "--lake DIR"
    )


def check_same_journal(view: JournalContents, mark: Watermark | None) -> None:
    """A backup that was put back has the old timeline, and later other records than the lake.

    The view must have the last records before the next one.
    """
    if mark is None:
        return
    if view.durable_seq < mark.next_seq - 1:
        if view.is_behind:
            return
        raise LakeError(
            f"the journal ends with record {view.durable_seq}, and the lake has records up to "
            f"{mark.next_seq - 1}: it was restored from a backup, or is another one; read it into "
            "another lake, with --lake DIR"
        )
    if mark.last_time is None:
        return
    first = max(view.first_seq, mark.next_seq - _COMPARED_RECORDS)
    found = _last_time(view, first, mark.next_seq - 1)
    if found is not None and found != mark.last_time:
        raise LakeError(
            f"the record before {mark.next_seq} is of {found.isoformat()} in the journal and of "
            f"{mark.last_time.isoformat()} in the lake: it was restored from a backup, or is "
            "another one; read it into another lake, with --lake DIR"
        )


def _last_time(view: JournalContents, first: int, last: int) -> datetime | None:
    """Of the last event among these records; None: that cannot be told."""
    found: Any = None
    try:
        for some in plan_ranges(view, first, last, 1):
            for batch in read_range(some, ("seq", "time")):
                if batch.num_rows:
                    found = batch.column("time")[-1].as_py()
    except (JournalCorrupt, SegmentRemoved, RecordsRemoved):
        return None  # the lake does not need it any more
    return None if found is None else found.astimezone(UTC)


# Spark's checkpoint


def make_checkpoint(store: Store, given: str | None) -> str:
    """Name a directory for the checkpoint of one query.

    The tables say where a query begins, so that no query needs the checkpoint of another, and two
    processes never write the same one. What earlier queries have left is removed after a day.
    """
    name = f"lake-{uuid.uuid4().hex}"
    if given is not None and "://" in given:
        return f"{given.rstrip('/')}/{name}"
    if given is not None:
        root = Path(given).absolute()
    elif store.storage.path is not None:
        root = store.storage.path / CHECKPOINT
    else:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        root = Path(state) / "taskyard" / "checkpoints" / store.id
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in root.glob("lake-*"):
        if _CHECKPOINT_NAME.fullmatch(path.name) and _is_old(path):
            shutil.rmtree(path, ignore_errors=True)
    return str(root / name)


def _is_old(checkpoint: Path) -> bool:
    try:
        newest = max(path.stat().st_mtime for path in (checkpoint, *checkpoint.iterdir()))
    except OSError:
        return False  # somebody else is removing it
    return time.time() - newest > _OLD_CHECKPOINT_S
