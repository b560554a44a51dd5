"""The journal of a data directory as a source of Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from spark.journals import add_jobs, drain, dropped, offset_of, written
from spark.plain_rows import plain_rows

from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JOURNAL, Reach, load_identity, save_identity
from taskyard.journal.reader import JournalReader
from taskyard.pipeline.journal_view import TimelineChanged
from taskyard.pipeline.records.columns import DEFAULT_COLUMNS, UnknownColumn
from taskyard.pipeline.records.packed import RANGE_BITS, packed_schema, unpack
from taskyard.pipeline.spark.events_source import BadOption, EventOptions, EventsStreamReader


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
    reader = JournalReader(RealDisk(str(data / JOURNAL)), blobs=True)
    plain = plain_rows(entry.record for entry in reader.read())
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


def test_a_stream_is_limited_and_goes_on_where_it_was(
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


def test_a_stream_that_fell_behind_says_how_much_is_missing(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    run = written(data, 5)
    checkpoint = tmp_path / "checkpoint"
    assert drain(spark, checkpoint, {"path": str(data)}) == [(0, list(range(1, 17)))]
    add_jobs(run, 60)
    missed = dropped(run, 3) - 17
    assert missed > 1
    with pytest.raises(StreamingQueryException, match=f"{missed} records were missed"):
        drain(spark, checkpoint, {"path": str(data)})


def test_a_stream_does_not_go_on_in_another_history(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    written(data, 5).journal.close()
    checkpoint = tmp_path / "checkpoint"
    assert drain(spark, checkpoint, {"path": str(data)}) == [(0, list(range(1, 17)))]
    disk = RealDisk(str(data))
    identity = load_identity(disk)
    assert identity is not None
    save_identity(disk, identity.branch(b"t" * 16, Reach(1000, 10), 1))
    with pytest.raises(StreamingQueryException, match=r"another timeline now .* records up to 10"):
        drain(spark, checkpoint, {"path": str(data)})


def test_a_batch_of_another_history_is_not_read_again(data: Path) -> None:
    """Its sink may have it by its number, with the records that it had then."""
    written(data, 5).journal.close()
    reader = EventsStreamReader(EventOptions({"path": str(data)}))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert repr(reader.partitions(start, end)) == "[RangePartition(1 to 16)]"
    disk = RealDisk(str(data))
    identity = load_identity(disk)
    assert identity is not None
    save_identity(disk, identity.branch(b"t" * 16, Reach(1000, 10), 1))
    with pytest.raises(TimelineChanged, match="records up to 10"):
        reader.partitions(start, end)
    assert reader.partitions(start, {**end, "seq": 11})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of the options path"),
        ({"path": "x", "colums": "seq"}, "no option 'colums': there are path, url"),
        ({"path": "x", "startingSeq": "0"}, "startingSeq must be a number from 1 on, not '0'"),
        ({"path": "x", "maxRecordsPerTrigger": "many"}, "maxRecordsPerTrigger must be a number"),
        ({"path": "x", "reader": "lake"}, "the option reader needs url"),
        ({"path": "x", "startingOffsets": "now"}, "must be earliest or latest, not 'now'"),
        (
            {"path": "x", "startingOffsets": "latest", "startingSeq": "3"},
            "cannot be given together",
        ),
        ({"path": "x", "minPartitions": "3", "partitions": "3"}, "partitions is given twice"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        EventOptions(options)


def test_options_may_be_in_lower_case() -> None:
    options = EventOptions({"path": "x", "maxrecordspertrigger": "7", "columns": "+payload"})
    assert options.limit == 7
    assert options.columns == (*DEFAULT_COLUMNS, "payload")
    with pytest.raises(UnknownColumn):
        EventOptions({"path": "x", "columns": "colour"})


def test_the_usual_names_of_options_mean_the_same() -> None:
    options = EventOptions({"path": "x", "maxOffsetsPerTrigger": "7", "minPartitions": "3"})
    assert (options.limit, options.partitions) == (7, 3)


def test_a_stream_can_begin_behind_what_there_is(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    run = written(data, 5)
    options = {"path": str(data), "startingOffsets": "latest"}
    assert drain(spark, tmp_path / "latest", options) == [(0, [])]
    add_jobs(run, 5)
    assert drain(spark, tmp_path / "latest", options) == [(1, list(range(17, 32)))]
    earliest = drain(spark, tmp_path / "earliest", {**options, "startingOffsets": "earliest"})
    assert earliest == [(0, list(range(1, 32)))]


def test_a_query_of_what_there_is_cannot_begin_behind_it(spark: SparkSession, data: Path) -> None:
    written(data, 5).journal.close()
    with pytest.raises(Exception, match="startingOffsets=latest is for streams"):
        numbers(events(spark, data, startingOffsets="latest"))


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
        rows = unpack([block.rows])
        assert rows.schema == packed_schema(plain.column_names)
        if "job_id" in rows.column_names:
            jobs = rows["job_id"].to_pylist()
            assert {-1 if job is None else job >> RANGE_BITS for job in jobs} == {block.ids}
    rows = unpack(row.rows for row in reversed(blocks)).cast(plain.schema)
    if "seq" not in rows.column_names:
        rows, plain = rows.sort_by("time"), plain.sort_by("time")
    assert rows.equals(plain)


def test_a_stream_of_packed_blocks_has_all_events(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    written(data, 20).journal.close()
    seqs: list[int] = []

    def take(frame: DataFrame, number: int) -> None:
        seqs.extend(unpack(row.rows for row in frame.collect())["seq"].to_pylist())

    options = {"path": str(data), "packed": "true", "maxRecordsPerTrigger": "25"}
    stream = spark.readStream.format("taskyard.events").options(**options).load()
    writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert seqs == list(range(1, 62))
    assert unpack([]).num_rows == 0
