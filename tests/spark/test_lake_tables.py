"""The tables of the lake are those of the plain recomputation, however the journal comes in."""

import json
from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from spark.histories import MINUTE, History, write_history
from spark.kept import give_kept
from spark.lake_runs import HereTasks, assert_same, read_in
from spark.oracle import compute, read_records

from taskyard.cli.main import main
from taskyard.engine.job import Policy
from taskyard.pipeline.lake.batch import Batch, Batches
from taskyard.pipeline.lake.files import DataFile
from taskyard.pipeline.lake.maintain import Maintenance
from taskyard.pipeline.lake.rebuild import Rebuild
from taskyard.pipeline.lake.shares import SLICE
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.spark_tasks import SparkTasks
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.views import create_views


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history")
    write_history(path, Random(5), 1000)
    return path


@settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.integers(0, 1 << 32), st.sampled_from((150, 400, 100_000)))
def test_random_histories_give_the_tables_of_the_plain_recomputation(seed: int, batch: int) -> None:
    with TemporaryDirectory() as place:
        data, lake = Path(place) / "data", Path(place) / "lake"
        data.mkdir()
        write_history(data, Random(seed), 400)
        read_in(data, lake, batch=batch)
        assert_same(lake, compute(read_records(data)))


def test_on_spark_the_tables_are_the_same(data: Path, tmp_path: Path, spark: SparkSession) -> None:
    read_in(data, tmp_path / "lake", SparkTasks(spark), batch=1500)
    want = compute(read_records(data))
    assert_same(tmp_path / "lake", want)
    lake = open_lake(tmp_path / "lake")
    create_views(spark, lake)
    (row,) = spark.sql("select count(*) as n, sum(run_seconds) as s from jobs").collect()
    assert row.n == len(want.jobs)
    assert row.s == pytest.approx(sum(each["run_seconds"] for each in want.jobs))
    assert not spark.sql("select * from replays").collect()
    (row,) = spark.sql("select count(distinct date) as n from events").collect()
    assert row.n == len({file.split("date=")[1][:10] for file in lake.files("events")})


def test_questions_are_answered_on_the_command_line(
    data: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read_in(data, tmp_path)
    give_kept(monkeypatch, spark)
    query = "select outcome, count(*) as n from jobs group by outcome order by n desc, outcome"
    assert main(["lake", "sql", query, "--lake", str(tmp_path), "--format", "json"]) == 0
    want = Counter(row["outcome"] for row in compute(read_records(data)).jobs)
    told = capsys.readouterr()
    assert [json.loads(line) for line in told.out.splitlines()] == [
        {"outcome": outcome, "n": n}
        for outcome, n in sorted(want.items(), key=lambda each: (-each[1], each[0]))
    ]
    assert told.err == ""


def test_a_rebuild_and_a_compaction_change_nothing(data: Path, tmp_path: Path) -> None:
    read_in(data, tmp_path, batch=600)
    want = compute(read_records(data))
    store = Store(tmp_path)
    try:
        before = sum(len(store.files(name)) for name in ("events", "jobs", "attempts"))
        assert Maintenance(HereTasks(), store).compact(many=2) > 0
        assert sum(len(store.files(name)) for name in ("events", "jobs", "attempts")) < before
        assert_same(tmp_path, want)
        total = Rebuild(HereTasks(), store, portion=700).run()
        assert total == sum(file.rows for file in store.files("events"))
        assert_same(tmp_path, want)
    finally:
        store.close()


def test_a_journal_that_goes_on_is_gone_on_with(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    now = write_history(data, Random(1), 200)
    read_in(data, lake)
    write_history(data, Random(2), 200, now)
    read_in(data, lake)
    assert_same(lake, compute(read_records(data)))
    batch = open_lake(lake).watermark.batch
    read_in(data, lake)
    assert open_lake(lake).watermark.batch == batch


def _show_last_minute(lake: Path) -> int:
    """Gives the number of rows of all minutes."""
    store = Store(lake)
    try:
        Batches(HereTasks(), store).show_last_minute()
    finally:
        store.close()
    return int(open_lake(lake).arrow("queue_minutes", ["minute"]).num_rows)


def test_a_minute_that_was_shown_before_its_end_is_there_once(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    history = History(data, Random(1))
    for number in range(3):
        history.push("mail", "send", Policy())
        history.restart()
        read_in(data, lake)
        assert _show_last_minute(lake) == 1
        assert _show_last_minute(lake) == 1
        assert open_lake(lake).arrow("queue_minutes", ["arrivals"]).to_pylist() == [
            {"arrivals": number + 1}
        ]
    history.pass_time(MINUTE)
    history.push("mail", "send", Policy())
    history.close()
    read_in(data, lake)
    assert_same(lake, compute(read_records(data)))


def test_a_task_holds_a_part_of_a_backlog_at_a_time(
    tmp_path: Path,
) -> None:
    """Few events in each of many id ranges that are full of open jobs."""
    seen: list[list[list[int]]] = []
    files = {each: [DataFile("", 0, str(each), 60_000)] for each in range(100)}

    class Noted(HereTasks):
        def run(self, doc: str, work: Any, tasks: Any) -> Any:
            seen.append([[len(slice.kept) for slice in task.slices] for task in tasks])
            return []

    store = Store(tmp_path)
    try:
        batch = Batch(1, 1, 100, [], dict.fromkeys(range(100), 1), 0)
        Batches(Noted(), store)._make(batch, files, "")
    finally:
        store.close()
    (shares,) = seen
    assert len(shares) == Noted.parallelism
    assert sum(sum(each) for each in shares) == 100
    assert max(max(each) for each in shares) * 60_000 <= SLICE
