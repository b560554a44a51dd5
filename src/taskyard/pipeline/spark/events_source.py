"""`taskyard.events`: the records of a journal as rows, in batch queries and in streams.

An offset is {"timeline": ..., "seq": the next record to be read}. The driver only plans; the
executors read their ranges by themselves, from the path or over HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from taskyard.journal.errors import LeftBehind
from taskyard.pipeline.journal_view import Journal, JournalView, Range
from taskyard.pipeline.ranges import open_journal, plan, read
from taskyard.pipeline.readers import LEASE, Commits
from taskyard.pipeline.records.columns import TYPES, parse_columns
from taskyard.pipeline.records.packed import pack, read_columns
from taskyard.pipeline.web import RegisteredReader, Web

_OPTIONS: Final = (
    "path",
    "url",
    "token",
    "columns",
    "reader",
    "lease",
    "startingSeq",
    "startingOffsets",
    "endingSeq",
    "maxRecordsPerTrigger",
    "partitions",
    "packed",
)
# The names that the sources of Spark itself have for the same.
_ALIASES: Final = {"maxoffsetspertrigger": "maxrecordspertrigger", "minpartitions": "partitions"}
_SPARK_TYPES: Final[list[tuple[Any, DataType]]] = [
    (pa.types.is_int64, LongType()),
    (pa.types.is_int32, IntegerType()),
    (pa.types.is_timestamp, TimestampType()),
    (pa.types.is_string, StringType()),
    (pa.types.is_boolean, BooleanType()),
    (pa.types.is_binary, BinaryType()),
    (pa.types.is_list, ArrayType(LongType())),
]
# What a packed source gives: see taskyard.pipeline.records.packed.
_PACKED: Final = StructType([StructField("ids", LongType()), StructField("rows", BinaryType())])


class BadOption(ValueError):
    """An option of the source cannot be what it is."""


class EventsDataSource(DataSource):
    """`spark.read.format("taskyard.events")`; its options are in docs/spark-events.md."""

    @classmethod
    def name(cls) -> str:
        return "taskyard.events"

    def schema(self) -> StructType:
        options = EventOptions(self.options)
        return _PACKED if options.packed else spark_schema(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return EventsReader(EventOptions(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EventsStreamReader(EventOptions(self.options))


class EventOptions:
    """What the options say, checked."""

    def __init__(self, given: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in _OPTIONS}
        self._given: dict[str, str] = {}
        for key, value in given.items():
            name = _ALIASES.get(key.lower(), key.lower())
            if name not in known:
                raise BadOption(f"there is no option {key!r}: there are {', '.join(_OPTIONS)}")
            if name in self._given:
                raise BadOption(f"the option {known[name]} is given twice, once as {key}")
            self._given[name] = value
        self.path = self._given.get("path")
        self.url = self._given.get("url")
        self.token = self._given.get("token")
        if not self.path and not self.url:
            raise BadOption("one of the options path (a data directory) and url must be given")
        self.columns = parse_columns(self._given.get("columns", ""))
        self.starting = self._number("startingSeq", 1)
        self.starts_latest = self._starts_latest()
        self.ending = self._number("endingSeq", 1)
        self.limit = self._number("maxRecordsPerTrigger", 1)
        self.partitions = self._number("partitions", 1) or 2 * (os.cpu_count() or 1)
        self.lease = self._number("lease", 1) or LEASE
        self.packed = self._flag("packed")
        self.reader = self._given.get("reader")
        if self.reader and not self._server():
            raise BadOption("the option reader needs url: the server keeps records for it")

    def _number(self, name: str, least: int) -> int | None:
        text = self._given.get(name.lower())
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise BadOption(f"the option {name} must be a number from {least} on, not {text!r}")
        return int(text)

    def _flag(self, name: str) -> bool:
        text = self._given.get(name.lower(), "false").lower()
        if text not in ("true", "false"):
            raise BadOption(f"the option {name} must be true or false, not {text!r}")
        return text == "true"

    def _starts_latest(self) -> bool:
        """Whether a stream begins behind what there is already."""
        where = self._given.get("startingoffsets", "earliest")
        if where not in ("earliest", "latest"):
            raise BadOption(f"startingOffsets must be earliest or latest, not {where!r}")
        if "startingoffsets" in self._given and self.starting is not None:
            raise BadOption("startingOffsets and startingSeq cannot be given together")
        return where == "latest"

    def _server(self) -> str | None:
        if self.url:
            return self.url
        return self.path if self.path and "://" in self.path else None

    def journal(self) -> Journal:
        """By path if there is one: that is cheaper for the server."""
        return open_journal(self.path or self.url or "", self.token)

    def rows(self, partition: RangePartition) -> Iterator[Any]:
        """What an executor makes of a range."""
        wanted = partition.wanted
        if not self.packed:
            return read(wanted, self.columns)
        told = (partition.timeline, wanted.first_seq, wanted.last_seq)
        return pack(read(wanted, read_columns(self.columns)), self.columns, told)

    def commits(self) -> Commits | None:
        server = self._server()
        if not self.reader or server is None:
            return None
        return Commits(RegisteredReader(Web(server, self.token), self.reader, self.lease))


def spark_schema(columns: Iterable[str]) -> StructType:
    return StructType([StructField(name, _spark_type(TYPES[name])) for name in columns])


def _spark_type(kind: Any) -> DataType:
    return next(found for test, found in _SPARK_TYPES if test(kind))


class RangePartition(InputPartition):
    def __init__(self, wanted: Range, timeline: str) -> None:
        self.wanted = wanted
        self.timeline = timeline

    def __repr__(self) -> str:
        return f"RangePartition({self.wanted.first_seq} to {self.wanted.last_seq})"


class EventsReader(DataSourceReader):
    """A batch query: all that is there when it starts, or a part of it."""

    def __init__(self, options: EventOptions) -> None:
        if options.starts_latest:
            raise BadOption("startingOffsets=latest is for streams: a batch query reads the past")
        self._options = options

    # There is no pushFilters: Spark 4.3 keeps what the filters of one query have left for the next
    # query on the same data frame, which then misses rows.

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        view = options.journal().view(options.starting or 0)
        first = options.starting or view.first_seq
        last = min(view.durable_seq, options.ending or view.durable_seq)
        ranges = plan(view, first, last, options.partitions)
        return [RangePartition(each, view.timeline) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return self._options.rows(partition)


class EventsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: from the checkpoint, or the first record there is, to the last durable one."""

    def __init__(self, options: EventOptions) -> None:
        self._options = options
        self._journal = options.journal()
        self._commits = options.commits()
        self._begun = False  # the reader is registered
        self._target: int | None = None  # where a query that ends will end
        self._latest: dict[str, Any] | None = None

    # The driver's side

    def initialOffset(self) -> dict[str, Any]:
        starting = self._options.starting
        view = self._journal.view(starting or 0)
        if self._options.starts_latest:
            starting = view.durable_seq + 1
        if starting is not None and starting < view.first_seq:
            raise LeftBehind(starting, view.first_seq)
        first = starting or view.first_seq
        self._begin(first)
        return _offset(view, first)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end(self._journal.view())

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        seq = int(start["seq"])
        # Spark asks what comes next only after all before `start` has been written for good.
        self._done(seq)
        view = self._checked_view(start)
        end = self._end(view)
        if self._target is not None:
            end = min(end, self._target)
        self._latest = _offset(view, max(end, seq))
        if isinstance(limit, ReadMaxRows):
            end = min(end, seq + limit.max_rows)
        if end <= seq:
            return start
        return _offset(view, end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = int(start["seq"]), int(end["seq"]) - 1
        if first > last:
            return []
        self._begin(first)
        view = self._checked_view(start)
        # A batch that was begun before the journal was restored had other records then, and a
        # sink may have them by its number.
        view.check_timeline(str(end["timeline"]), last + 1)
        if view.durable_seq < last:
            # A batch that was begun before: its records were durable then, but beside a server
            # the files may not say so again until the next write.
            view = view.with_durable(last)
        ranges = plan(view, first, last, self._options.partitions)
        return [RangePartition(each, view.timeline) for each in ranges]

    def commit(self, end: dict[str, Any]) -> None:
        self._done(int(end["seq"]))

    def _checked_view(self, start: dict[str, Any]) -> JournalView:
        seq = int(start["seq"])
        view = self._journal.view(seq)
        view.check_timeline(str(start["timeline"]), seq)
        if seq < view.first_seq:
            raise LeftBehind(seq, view.first_seq)
        return view

    def _end(self, view: JournalView) -> int:
        """The record behind the last that is wanted of those there are."""
        ending = self._options.ending
        return min(view.durable_seq, ending or view.durable_seq) + 1

    def _begin(self, seq: int) -> None:
        if self._commits is not None and not self._begun:
            self._commits.begin(seq)
            self._begun = True

    def _done(self, seq: int) -> None:
        if self._commits is None:
            return
        if self._begun:
            self._commits.note(seq)
        else:
            self._begin(seq)

    # The executors' side

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return self._options.rows(partition)


def _offset(view: JournalView, seq: int) -> dict[str, Any]:
    return {"timeline": view.timeline, "seq": seq}
