"""The tables of a lake are those of the plain recomputation, however the journal comes in."""

import json
import tarfile
from functools import partial
from pathlib import Path
from random import Random

import pytest
from pipeline.histories import MINUTE, PUSHERS, History, write_history
from pipeline.journals import dropped, written
from pipeline.lake_runs import assert_right, assert_same, fill, read_in, run
from pipeline.oracle import compute, read_records
from pyspark.sql import DataFrame, SparkSession
from support.effort import LONG, effort

from taskyard.engine.compaction import snapshot_queue
from taskyard.engine.model.job import Policy
from taskyard.engine.model.state import FIRST_SESSION_ID
from taskyard.engine.records.describe import masked_session_id
from taskyard.pipeline.journal import open_journal
from taskyard.pipeline.lake import kernel
from taskyard.pipeline.lake.build import build_tables
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.maintain import compact, erase, rebuild
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import RANGE_BITS

SEED = 5


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blocks, moves, replays, dead queues: see `Walk`. The jobs are of two ranges of ids."""
    path = tmp_path_factory.mktemp("history")
    random = Random() if LONG else Random(SEED)
    write_history(path, random, effort(4000, 500), first_id=(1 << RANGE_BITS) - 100)
    return path


def rows_of(spark: SparkSession, data: Path, **options: object) -> DataFrame:
    events = spark.read.format("taskyard.events").option("partitions", 3)
    return events.options(**options).load(str(data))  # type: ignore[arg-type]


@pytest.mark.parametrize("records", [100_000, 300])
def test_packed_events(
    spark: SparkSession, storage: Storage, data: Path, tmp_path: Path, records: int
) -> None:
    read_in(spark, data, storage, checkpoint=str(tmp_path / "checkpoint"), max_records=records)
    assert_right(storage, data)


def test_plain_rows(spark: SparkSession, storage: Storage, data: Path, tmp_path: Path) -> None:
    """As those read them who change them on the way."""
    events = spark.readStream.format("taskyard.events").option("maxRecordsPerTrigger", 600)
    build = partial(build_tables, lake=storage.uri, storage_options=storage.options)
    (
        events.load(str(data))
        .writeStream.foreachBatch(build)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    assert_right(storage, data)


def test_rows_may_be_changed_on_the_way_and_come_again(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    lake, last = tmp_path / "lake", 700
    some = rows_of(spark, data, endingSeq=last)
    with pytest.raises(ValueError, match="have no column queue: build_tables needs all"):
        build_tables(some.drop("queue"), 0, lake=lake)
    for _ in range(2):
        build_tables(some.selectExpr("upper(queue) as loud", "*"), 0, lake=lake)
        assert open_lake(lake).watermark.batch == 1
    build_tables(some.where("seq > 100000"), 1, lake=lake)
    build_tables(rows_of(spark, data, startingSeq=last - 90), 2, lake=lake)
    assert open_lake(lake).watermark.batch == 2
    assert_right(lake, data)


def test_rows_may_be_those_of_some_jobs(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    build_tables(rows_of(spark, data).where("job_id % 3 = 1"), 0, lake=tmp_path)
    want = compute(read_records(data))
    names = ("jobs", "open_jobs", "attempts")
    for name in names:
        setattr(want, name, [row for row in getattr(want, name) if row["job_id"] % 3 == 1])
    assert_same(open_lake(tmp_path), want, names)


def test_a_share_is_worked_on_in_slices(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, where a slice can be made small."""
    monkeypatch.setattr(kernel, "SLICE_EVENTS", 1)
    fill(data, tmp_path, 400)
    assert_right(tmp_path, data)


def test_a_lake_of_rows_is_gone_on_with(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    build_tables(rows_of(spark, data, endingSeq=500), 0, lake=tmp_path)
    read_in(spark, data, tmp_path)
    assert_right(tmp_path, data)


def test_a_journal_that_begins_late(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    running = written(data, 60, segment_size=2000)
    first = dropped(running, 3)
    running.journal.close()
    read_in(spark, data, tmp_path / "packed", max_records=50)
    build_tables(rows_of(spark, data), 0, lake=tmp_path / "plain")
    for name in ("packed", "plain"):
        assert_right(tmp_path / name, data)
        assert min(open_lake(tmp_path / name).arrow("events", ["seq"])["seq"].to_pylist()) == first


def test_a_journal_that_goes_on_is_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    now = write_history(data, Random(1), 100)
    filler = read_in(spark, data, lake)
    step = open_lake(lake).watermark.step
    run(spark, filler)  # nothing is new
    assert open_lake(lake).watermark.step == step
    now = write_history(data, Random(2), 100, now)
    run(spark, filler)
    write_history(data, Random(3), 100, now)
    read_in(spark, data, lake)
    assert_right(lake, data)


def test_a_minute_is_shown_before_its_end_and_is_there_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also after records that are no events."""
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    history = History(data, Random(1))
    for number in (1, 2):
        history.push("mail", "send", Policy())
        history.restart()
        read_in(spark, data, lake)
        before = open_lake(lake)
        queue = history.engine.queue(b"mail")
        assert queue is not None
        snapshot_queue(history.engine, queue, history.now)
        history.write()
        history.journal.sync_point().run()
        read_in(spark, data, lake)
        assert open_lake(lake).watermark.next_seq == before.watermark.next_seq + 1
        for found in (before, open_lake(lake)):
            minutes = found.arrow("queue_minutes", ["arrivals", "depth"]).to_pylist()
            assert minutes == [{"arrivals": number, "depth": number}]
    history.pass_time(MINUTE)
    history.push("mail", "send", Policy())
    history.close()
    read_in(spark, data, lake)
    assert_right(lake, data)


def test_a_journal_with_nothing_about_jobs(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    History(data, Random(1)).close()
    read_in(spark, data, lake)
    assert_right(lake, data)
    assert open_lake(lake).watermark.next_seq == 2
    assert rebuild(spark, Store(Storage(lake))) == 1
    write_history(data, Random(1), 50)
    read_in(spark, data, lake)
    assert_right(lake, data)


def test_the_name_of_a_lake_may_be_strange(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "a lake #1 s\xf8 \u2603 [x]{y}*?"
    written(data, 5).journal.close()
    read_in(spark, data, lake, max_records=10)
    assert_right(lake, data)
    frame = open_lake(lake).frame(spark, "events")
    assert frame.count() == len(list(read_records(data)))


def test_a_percent_sign_is_refused_where_readers_would_decode_it(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="has a % in its name"):
        Store(Storage(tmp_path / "a%20lake"))


def test_a_lake_has_other_numbers_for_sessions(tmp_path: Path) -> None:
    """The ids of Glovebox sessions are secrets."""
    sessions = (FIRST_SESSION_ID | 0x1234_5678_9ABC_DEF1, FIRST_SESSION_ID | 0x0FED_CBA9_8765_4321)
    data, lake = tmp_path / "data", tmp_path / "lake"
    history = History(data, Random(1))
    for session in sessions:
        history.engine.open_session(session, PUSHERS[0], history.now)
    history.engine.detach_session(sessions[0], PUSHERS[0], history.now)
    history.close()
    fill(data, lake)
    rows = open_lake(lake).arrow("events").to_pylist()
    found = {json.loads(row["details"])["id"] for row in rows if row["event"] == "session"}
    salt = open_journal(str(data)).salt()
    assert found == {masked_session_id(salt, session) for session in sessions}
    assert not [session for session in sessions if str(session) in str(rows)]


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_lake_of_a_former_version_is_gone_on_with(
    spark: SparkSession, tmp_path: Path, is_cut_off: bool
) -> None:
    """It has open jobs, a dead letter, a replay, the open minute. `is_cut_off`: its last step is
    in all tables but the watermark."""
    with tarfile.open(Path(__file__).parent / "data" / "former_lake.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    data, lake = tmp_path / "data", tmp_path / "lake"
    if is_cut_off:
        max((lake / "watermark" / "_delta_log").glob("*.json")).unlink()
        assert open_lake(lake).watermark.step == 3
    else:
        assert_right(lake, data)
    read_in(spark, data, lake)
    assert_right(lake, data)
    found = open_lake(lake)
    assert found.watermark.next_seq == 175
    (replay,) = found.arrow("replays").to_pylist()
    assert (replay["to_queue"], replay["new"]) == ("mail", True)
    assert "failed" in found.arrow("open_jobs", ["state"])["state"].to_pylist()
    some = Store(Storage(lake))
    assert compact(some, many=2) > 0
    payloads = found.arrow("jobs", ["job_id", "payload"]).to_pylist()
    assert erase(some, next(row["job_id"] for row in payloads if row["payload"])) > 0
    rebuild(spark, some)
    assert_right(lake, data)
