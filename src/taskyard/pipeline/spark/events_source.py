"""`taskyard.events`: the records of a journal as rows, in batch queries and in streams.

An offset is {"timeline": ..., "seq": the next record to be read}. The driver only plans; the
executors read their ranges by themselves, from the path or over HTTP.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.types import StructType

from taskyard.journal.errors import JournalError, RecordsRemoved
from taskyard.pipeline.journal import (
    PATIENCE,
    JournalContents,
    JournalSource,
    Range,
    last_seq_within,
    open_journal,
    plan_ranges,
    read_range,
)
from taskyard.pipeline.journal_http import LEASE, RegisteredReader, ServerHttpClient
from taskyard.pipeline.records.fields import parse_columns, schema
from taskyard.pipeline.records.packed import PACKED, pack, read_columns
from taskyard.pipeline.spark.options import OptionError, SourceOptions, parse_offset

_OPTIONS: Final = (
    "path",
    "url",
    "token",
    "patience",
    "columns",
    "reader",
    "lease",
    "startingSeq",
    "startingOffsets",
    "endingSeq",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "partitions",
    "packed",
)
# The names that the sources of Spark itself have for the same.
_ALIASES: Final = {"maxoffsetspertrigger": "maxrecordspertrigger", "minpartitions": "partitions"}
_log: Final = logging.getLogger("taskyard.spark")


class EventsDataSource(DataSource):
    """`spark.read.format("taskyard.events")`; its options are in docs/spark-events.md."""

    @classmethod
    def name(cls) -> str:
        return "taskyard.events"

    def schema(self) -> StructType | str:
        options = EventOptions(self.options)
        return PACKED if options.packed else from_arrow_schema(schema(options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventsReader(EventOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EventsStreamReader(EventOptions(self.options))


class EventOptions:
    """What the options say, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = SourceOptions(given, _OPTIONS, _ALIASES)
        self._token = options.text("token")
        path, url = options.text("path") or "", options.text("url")
        self._location = path or url or ""
        if not self._location:
            raise OptionError("one of the options path (a data directory) and url must be given")
        is_url = path.startswith(("http://", "https://"))
        if is_url and "@" in path:
            raise OptionError(
                "a URL with a user belongs in the option url: Spark shows a path in its plans"
            )
        self._server = url or (path if is_url else None)
        patience = options.seconds("patience")
        self._patience = PATIENCE if patience is None else patience
        self.columns = parse_columns(options.text("columns") or "")
        self.starting = options.number("startingSeq", 1)
        where = options.text("startingOffsets")
        if where not in (None, "earliest", "latest"):
            raise OptionError(f"startingOffsets must be earliest or latest, not {where!r}")
        if where is not None and self.starting is not None:
            raise OptionError("startingOffsets and startingSeq cannot be given together")
        self.starts_latest = where == "latest"  # behind what there is already
        self.ending = options.number("endingSeq", 1)
        self.max_records = options.number("maxRecordsPerTrigger", 1)
        self.max_bytes = options.number("maxBytesPerTrigger", 1)
        self.partitions = options.number("partitions", 1) or 2 * (os.cpu_count() or 1)
        self.packed = options.flag("packed")
        self._lease = options.number("lease", 1) or LEASE
        self._reader = options.text("reader")
        if self._reader and not self._server:
            raise OptionError("the option reader needs url: the server keeps records for it")

    def journal(self) -> JournalSource:
        """By path if there is one: that is cheaper for the server."""
        return open_journal(self._location, self._token, self._patience)

    def plan(self, view: JournalContents, first: int, last: int) -> list[InputPartition]:
        return [InputPartition(each) for each in plan_ranges(view, first, last, self.partitions)]

    def rows(self, partition: InputPartition) -> Iterator[Any]:
        """What an executor makes of a range."""
        wanted: Range = partition.value
        if not self.packed:
            return read_range(wanted, self.columns)
        told = (wanted.timeline, wanted.first_seq, wanted.last_seq)
        return pack(read_range(wanted, read_columns(self.columns)), self.columns, told)

    def registered_reader(self) -> RegisteredReader | None:
        if not self._reader or self._server is None:
            return None
        web = ServerHttpClient(self._server, self._token, self._patience)
        return RegisteredReader(web, self._reader, self._lease)


class EventsReader(DataSourceReader):
    """A batch query: all that is there when it starts, or a part of it."""

    def __init__(self, options: EventOptions) -> None:
        if options.starts_latest:
            raise OptionError("startingOffsets=latest is for streams: a batch query reads the past")
        self._options = options

    # There is no pushFilters: Spark 4.3 keeps what the filters of one query have left for the next
    # query on the same data frame, which then misses rows.

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        view = options.journal().contents(options.starting or 0)
        last = min(view.durable_seq, options.ending or view.durable_seq)
        return options.plan(view, options.starting or view.first_seq, last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._options.rows(partition)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: from the checkpoint, or the first record there is, to the last durable one."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._journal = options.journal()
        self._reader = options.registered_reader()
        self._is_registered = False  # the reader is registered
        self._target: int | None = None  # where a query that ends will end
        self._latest: dict[str, Any] | None = None

    # The driver's side

    def initialOffset(self) -> dict[str, Any]:
        starting = self._options.starting
        view = self._journal.contents(starting or 0)
        if self._options.starts_latest:
            starting = view.durable_seq + 1
        if starting is not None and starting < view.first_seq:
            raise RecordsRemoved(starting, view.first_seq)
        first = starting or view.first_seq
        self._report_done(first)
        return _offset(view, first)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end_seq(self._journal.contents())

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_records is not None:
            return ReadMaxRows(options.max_records)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        seq = int(start["seq"])
        # Spark asks what comes next only after all before `start` has been written for good.
        self._report_done(seq)
        view = self._checked_view(start)
        end = self._end_seq(view)
        if self._target is not None:
            end = min(end, self._target)
        self._latest = _offset(view, max(end, seq))
        if end <= seq:
            return start
        return _offset(
            view, end if isinstance(limit, ReadAllAvailable) else self._limit_end(view, seq, end)
        )

    def _limit_end(self, view: JournalContents, seq: int, end: int) -> int:
        """The end of one batch; Spark can tell of one limit only, and there may be both."""
        options = self._options
        if options.max_records is not None:
            end = min(end, seq + options.max_records)
        if options.max_bytes is not None:
            end = last_seq_within(view, seq, end - 1, options.max_bytes) + 1
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = int(start["seq"]), int(end["seq"]) - 1
        if first > last:
            return []
        if not self._is_registered:
            self._report_done(first)
        view = self._checked_view(start)
        # A batch that was begun before the journal was restored had other records then, and a
        # sink may have them by its number.
        view.check_timeline(str(end["timeline"]), last + 1)
        if view.durable_seq < last:
            # A batch that was begun before: its records were durable then, but beside a server
            # the files may not say so again until the next write.
            view = view.with_durable_seq(last)
        return self._options.plan(view, first, last)

    def commit(self, end: dict[str, Any]) -> None:
        self._report_done(int(end["seq"]))

    def _checked_view(self, start: dict[str, Any]) -> JournalContents:
        seq = int(start["seq"])
        view = self._journal.contents(seq)
        view.check_timeline(str(start["timeline"]), seq)
        if seq < view.first_seq:
            raise RecordsRemoved(seq, view.first_seq)
        return view

    def _end_seq(self, view: JournalContents) -> int:
        """The record behind the last that is wanted of those there are."""
        ending = self._options.ending
        return min(view.durable_seq, ending or view.durable_seq) + 1

    def _report_done(self, seq: int) -> None:
        """All before this record is done."""
        if self._reader is None:
            return
        if self._is_registered:
            self._reader.report_progress(seq)
        else:
            self._reader.start(seq)
            self._is_registered = True

    # The executors' side

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._options.rows(partition)


def _offset(view: JournalContents, seq: int) -> dict[str, Any]:
    return {"timeline": view.timeline, "seq": seq}


class CommitListener(StreamingQueryListener):
    """Commits what a query has finished, its last batch too.

    Spark tells a source of a batch only when the next one begins. For queries that end
    (`availableNow`) add this to `spark.streams`, so that the server need not keep the last batch.
    """

    def __init__(
        self,
        url: str,
        reader: str,
        lease: float = LEASE,
        token: str | None = None,
        query: str | None = None,
    ) -> None:
        """`query`: the name of the query; without it, every query on events is meant."""
        self._reader = RegisteredReader(ServerHttpClient(url, token), reader, lease)
        self._query = query
        self._next_seqs: dict[str, int] = {}  # how far each query is

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if self._query not in (None, event.progress.name):
            return
        for source in event.progress.sources:
            offset = parse_offset(source.endOffset)
            if offset.keys() == {"timeline", "seq"}:  # one of ours
                self._next_seqs[str(event.progress.id)] = int(offset["seq"])
                self._report_progress(int(offset["seq"]))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if next_seq := self._next_seqs.get(str(event.id)):
            self._report_progress(next_seq, last=True)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if next_seq := self._next_seqs.pop(str(event.id), None):
            self._report_progress(next_seq, last=True)

    def _report_progress(self, next_seq: int, last: bool = False) -> None:
        """What cannot be committed now is with the next commit: no reason to disturb the query."""
        try:
            self._reader.report_progress(next_seq, last)
        except JournalError as error:
            _log.warning("record %s could not be committed: %s", next_seq - 1, error)
