"""The journal of a data directory as a source of Spark."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipeline.journals import add_jobs, drain, dropped, dropped_beyond, offset_of, written
from pipeline.oracle import read_records
from pipeline.plain_rows import plain_rows
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JournalExtent, load_identity, save_identity
from taskyard.pipeline import journal
from taskyard.pipeline.journal import TimelineChanged, open_journal
from taskyard.pipeline.records.fields import DEFAULT_COLUMNS, UnknownColumn
from taskyard.pipeline.records.packed import RANGE_BITS, pack, packed_schema, read_block, read_range
from taskyard.pipeline.spark.events_source import EventOptions, EventsReader, EventsStreamReader
from taskyard.pipeline.spark.options import OptionError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def events(spark: SparkSession, data: Path, **options: Any) -> DataFrame:
    return spark.read.format("taskyard.events").options(**options).load(str(data))


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row["seq"] for row in frame.select("seq").collect())


def test_all_records_are_rows(spark: SparkSession, data: Path) -> None:
    written(data, 40).journal.close()
    frame = events(spark, data, columns="+payload,result", partitions=3)
    plain = plain_rows(read_records(data))
    assert frame.orderBy("seq").toArrow().to_pylist() == plain
    assert len(plain) == 121


def test_a_part_can_be_named_or_filtered(spark: SparkSession, data: Path) -> None:
    written(data, 20).journal.close()
    assert numbers(events(spark, data, startingSeq=5, endingSeq=9)) == [5, 6, 7, 8, 9]
    frame = events(spark, data, columns="seq,event")
    assert frame.columns == ["seq", "event"]
    assert numbers(frame.where("seq > 7 and seq <= 11 and event = 'lease'")) == [9]
    assert numbers(frame) == list(range(1, 62))


def test_records_that_are_gone_are_missed(spark: SparkSession, data: Path) -> None:
    first = dropped(written(data, 60), 3)
    assert numbers(events(spark, data)) == list(range(first, 182))
    with pytest.raises(Exception, match=f"{first - 2} records were missed"):
        numbers(events(spark, data, startingSeq=2))


def test_a_stream_is_limited_and_goes_on_where_it_was_or_says_how_much_is_missing(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    run = written(data, 33)
    checkpoint = tmp_path / "checkpoint"
    options = {"path": str(data), "maxRecordsPerTrigger": 40, "columns": "seq,event"}
    assert drain(spark, checkpoint, options) == [
        (0, list(range(1, 41))),
        (1, list(range(41, 81))),
        (2, list(range(81, 101))),
    ]
    assert offset_of(checkpoint, 2)["seq"] == 101
    add_jobs(run, 5)
    assert drain(spark, checkpoint, options) == [(3, list(range(101, 116)))]
    assert drain(spark, checkpoint, options) == []
    add_jobs(run, 60)
    first = dropped_beyond(run, 117)
    with pytest.raises(StreamingQueryException, match=f"{first - 116} records were missed"):
        drain(spark, checkpoint, options)


def test_a_batch_that_failed_is_the_same_when_it_comes_again(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    run = written(data, 20)
    checkpoint = tmp_path / "checkpoint"
    options = {"path": str(data), "startingSeq": 11, "maxRecordsPerTrigger": 30}

    def fail(frame: DataFrame, number: int) -> None:
        raise RuntimeError("not today")

    with pytest.raises(StreamingQueryException, match="not today"):
        drain(spark, checkpoint, options, fail)
    add_jobs(run, 5)
    again = drain(spark, checkpoint, {**options, "maxRecordsPerTrigger": 1000})
    assert again == [(0, list(range(11, 41))), (1, list(range(41, 77)))]


def test_a_batch_of_another_history_is_not_read_again(data: Path) -> None:
    """Its sink may have it by its number, with the records that it had then."""
    written(data, 5).journal.close()
    reader = EventsStreamReader(EventOptions({"path": str(data)}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    (planned,) = reader.partitions(start, end)
    assert (planned.value.first_seq, planned.value.last_seq) == (1, 16)
    disk = RealDisk(str(data))
    identity = load_identity(disk)
    assert identity is not None
    save_identity(disk, identity.branch(b"t" * 16, JournalExtent(1000, 10), 1))
    with pytest.raises(TimelineChanged, match="records up to 10"):
        reader.partitions(start, end)
    later = EventsStreamReader(EventOptions({"path": str(data)}))  # as after a restart
    with pytest.raises(TimelineChanged, match=r"another timeline now .* records up to 10"):
        later.latestOffset(end, ReadAllAvailable())
    assert reader.partitions(start, {**end, "seq": 11})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of the options path"),
        ({"path": "x", "colums": "seq"}, "no option colums, only columns, "),
        ({"path": "x", "startingSeq": "0"}, "startingSeq must be a number from 1 on, not '0'"),
        ({"path": "x", "maxRecordsPerTrigger": "many"}, "maxRecordsPerTrigger must be a number"),
        ({"path": "x", "maxBytesPerTrigger": "0"}, "maxBytesPerTrigger must be a number from 1 on"),
        ({"path": "x", "patience": "long"}, "patience must be a duration like 90s or 1h30m"),
        ({"path": "x", "packed": "yes"}, "packed must be true or false, not 'yes'"),
        ({"path": "x", "reader": "lake"}, "the option reader needs url"),
        ({"path": "x", "startingOffsets": "now"}, "must be earliest or latest, not 'now'"),
        (
            {"path": "x", "startingOffsets": "latest", "startingSeq": "3"},
            "cannot be given together",
        ),
        ({"path": "http://ann:hush@host:80"}, "a URL with a user belongs in the option url"),
        ({"path": "file:///x", "reader": "lake"}, "the option reader needs url"),
        ({"path": "x", "minPartitions": "3", "partitions": "3"}, "partitions is given twice"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        EventOptions(options)
    assert "hush" not in str(raised.value)


def test_options_may_be_in_lower_case_and_have_their_usual_names() -> None:
    options = EventOptions({"path": "x", "maxrecordspertrigger": "7", "columns": "+payload"})
    assert options.max_records == 7
    assert options.columns == (*DEFAULT_COLUMNS, "payload")
    with pytest.raises(UnknownColumn):
        EventOptions({"path": "x", "columns": "colour"})
    options = EventOptions({"path": "x", "maxOffsetsPerTrigger": "7", "minPartitions": "3"})
    assert (options.max_records, options.partitions) == (7, 3)


def test_a_batch_is_limited_by_the_bytes_of_its_records(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_MIN_RANGE_BYTES", 400)
    written(data, 60).journal.close()
    options = {"path": str(data), "maxBytesPerTrigger": "2000"}
    reader = EventsStreamReader(EventOptions(options))
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    ends = [1]
    while (end := reader.latestOffset(start, limit)) != start:
        planned = reader.partitions(start, end)
        assert sum(each.value.bytes for each in planned) <= 2500
        assert reader.reportLatestOffset() == {**end, "seq": 182}
        start = end
        ends.append(end["seq"])
    assert ends[-1] == 182
    assert len(ends) > 4
    both = EventsStreamReader(EventOptions({**options, "maxRecordsPerTrigger": "2"}))
    assert both.latestOffset(both.initialOffset(), both.getDefaultReadLimit())["seq"] == 3
    assert both.latestOffset(both.initialOffset(), ReadAllAvailable())["seq"] == 182


def test_a_stream_can_begin_behind_what_there_is(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    run = written(data, 5)
    options = {"path": str(data), "startingOffsets": "latest"}
    assert drain(spark, tmp_path / "latest", options) == [(0, [])]
    add_jobs(run, 5)
    assert drain(spark, tmp_path / "latest", options) == [(1, list(range(17, 32)))]
    earliest = EventOptions({"path": str(data), "startingOffsets": "earliest"})
    assert EventsStreamReader(earliest).initialOffset()["seq"] == 1


def test_a_query_of_what_there_is_cannot_begin_behind_it() -> None:
    with pytest.raises(OptionError, match="startingOffsets=latest is for streams"):
        EventsReader(EventOptions({"path": "x", "startingOffsets": "latest"}))


def unpacked(blocks: Iterable[bytes]) -> pa.Table:
    """The events of these blocks, in their order if they say it."""
    tables = [read_block(block) for block in blocks]
    plain = [table.replace_schema_metadata() for table in tables if table.num_rows]
    events = pa.concat_tables(plain).unify_dictionaries()
    return events.sort_by("seq") if "seq" in events.column_names else events


@pytest.mark.parametrize("columns", ["+payload,result", "seq,queue,event", "job_id,time"])
def test_packed_blocks_have_the_events_of_a_range_of_jobs(
    spark: SparkSession, data: Path, columns: str
) -> None:
    run = written(data, 40)
    run.engine.state.next_id = 3 << RANGE_BITS
    add_jobs(run, 5)
    run.journal.close()
    frame = events(spark, data, columns=columns, packed="true", partitions=3)
    assert frame.dtypes == [("ids", "bigint"), ("rows", "binary")]
    blocks = frame.collect()
    assert {row.ids for row in blocks} == {-1, 0, 3}
    plain = events(spark, data, columns=columns).toArrow()
    for block in blocks:
        rows = read_block(block.rows)
        assert rows.schema == packed_schema(plain.column_names)
        found = read_range(rows)
        assert found is not None
        assert found[0] == open_journal(str(data)).contents().timeline
        if "job_id" in rows.column_names:
            jobs = rows["job_id"].to_pylist()
            assert {-1 if job is None else job >> RANGE_BITS for job in jobs} == {block.ids}
    rows = unpacked(row.rows for row in reversed(blocks)).cast(plain.schema)
    if "seq" not in rows.column_names:
        rows, plain = rows.sort_by("time"), plain.sort_by("time")
    assert rows.equals(plain)


def test_a_range_without_events_is_a_block_all_the_same() -> None:
    """The records of a snapshot, for instance: it says that they have been read."""
    (blocks,) = pack([], ("seq", "event"), ("timeline", 3, 4))
    assert blocks["ids"].to_pylist() == [-1]
    block = read_block(blocks["rows"][0])
    assert (block.num_rows, read_range(block)) == (0, ("timeline", 3, 4))
