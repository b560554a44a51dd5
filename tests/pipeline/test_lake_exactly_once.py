"""Every record is in all tables of a lake once, whoever is killed, and whatever is lost."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pipeline.lake_driver import GOOD, REFUSED, STOP, Drivers
from pipeline.lake_runs import assert_right, fill, read_in, run
from pipeline.seaweed import S3
from pyspark.sql import SparkSession
from support.child import state_of
from support.effort import LONG
from support.waiting import SPARK_GUARD, wait_for

from taskyard.pipeline.lake import store
from taskyard.pipeline.lake.files import TableChange
from taskyard.pipeline.lake.snapshot import last_watermark, open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import CHECKPOINT, LakeInUse, Store
from taskyard.pipeline.lake.stream import LakeFiller, make_checkpoint
from taskyard.pipeline.lake.tables import JOBS, TABLES, WATERMARK

COMMITTED = (*TABLES, WATERMARK.name)
KILLS = [("_make_table", COMMITTED[0]), ("_make_table", COMMITTED[-1])]
KILLS += [("_commit", name) for name in COMMITTED]
RECORDS = 100  # in a batch; there are more than ten


@pytest.fixture(scope="module")
def drivers(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    with Drivers(tmp_path_factory.mktemp("drivers")) as drivers:
        yield drivers


@pytest.mark.parametrize("losing", [0, 1] if LONG else [0])
def test_a_driver_is_killed_while_it_makes_the_tables_and_after_each_commit(
    spark: SparkSession, drivers: Drivers, data: Path, tmp_path: Path, losing: int
) -> None:
    """Spark's checkpoint is lost every other time. The first ones are in the first batch ever."""
    for number, (method, table) in enumerate(KILLS):
        killed = drivers.run(data, tmp_path, max_records=RECORDS, method=method, table=table)
        assert killed == "SIGKILL", drivers.log()
        if number % 2 == losing:
            shutil.rmtree(tmp_path / CHECKPOINT, ignore_errors=True)  # it may have none yet
        if last_watermark(Storage(tmp_path)) is not None:
            assert_right(tmp_path, data)
    read_in(spark, data, tmp_path)
    assert_right(tmp_path, data)
    assert open_lake(tmp_path).watermark.next_seq > RECORDS * 8


@pytest.mark.parametrize("table", ["events", "watermark"])
def test_a_driver_that_comes_back_after_another_has_begun_is_refused(
    spark: SparkSession, drivers: Drivers, data: Path, tmp_path: Path, table: str
) -> None:
    at = {"method": "_commit", "table": table, "send": STOP}
    pid = drivers.start(data, tmp_path, max_records=RECORDS, **at)
    wait_for(lambda: state_of(pid) == "T", SPARK_GUARD)
    read_in(spark, data, tmp_path, checkpoint=str(tmp_path / "another"))
    end = open_lake(tmp_path).watermark
    os.kill(pid, signal.SIGCONT)
    assert drivers.wait() == REFUSED, drivers.log()
    assert drivers.said() == (
        f"another process fills the lake in {tmp_path}: it has committed the records before "
        f"{end.next_seq} meanwhile; one process at a time can do that"
    )
    assert open_lake(tmp_path).watermark.versions == end.versions
    assert_right(tmp_path, data)


def test_of_two_that_have_opened_the_lake_the_second_is_refused(
    spark: SparkSession, storage: Storage, data: Path, tmp_path: Path
) -> None:
    checkpoints = [str(tmp_path / name) for name in ("one", "other")]
    both = [LakeFiller(storage, data=str(data), checkpoint=each) for each in checkpoints]
    run(spark, both[0])
    with pytest.raises(LakeInUse, match="one process at a time can do that"):
        run(spark, both[1])
    assert_right(storage, data)


def test_on_s3_a_driver_is_killed_between_commits(
    spark: SparkSession, drivers: Drivers, s3: S3, data: Path, tmp_path: Path
) -> None:
    storage = Storage(s3.uri("killed"), s3.options)
    for number, table in enumerate(("events", "watermark", "attempts")):
        what = {"max_records": RECORDS, "checkpoint": str(tmp_path / str(number))}
        at = {"method": "_commit", "table": table, "storage_options": s3.options}
        assert drivers.run(data, storage.uri, **what, **at) == "SIGKILL", drivers.log()
    read_in(spark, data, storage, checkpoint=str(tmp_path))
    assert_right(storage, data)


def test_of_two_drivers_at_once_one_fills_the_lake(
    spark: SparkSession, drivers: Drivers, data: Path, tmp_path: Path
) -> None:
    """Which one is left to chance; the tables, too, are made by both."""
    drivers.start(data, tmp_path, max_records=RECORDS)
    try:
        read_in(spark, data, tmp_path, max_records=RECORDS)
    except LakeInUse:
        assert drivers.wait() == GOOD, drivers.log()
    else:
        assert drivers.wait() in (GOOD, REFUSED), drivers.log()
    assert_right(tmp_path, data)
    assert open_lake(tmp_path).watermark.next_seq > RECORDS * 8


def test_a_step_is_not_refused_if_another_process_comes_right_behind_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[Store] = []
    original = DeltaTable.update_incremental

    def look(delta: DeltaTable) -> None:
        if not others and "watermark" in delta.table_uri:
            others.append(Store(Storage(tmp_path)))
            others[0].run_step(others[0].vacuum)
        original(delta)

    monkeypatch.setattr(DeltaTable, "update_incremental", look)
    fill(data, tmp_path, RECORDS * 5)
    assert others
    assert_right(tmp_path, data)


def test_only_old_checkpoints_of_lakes_are_removed(tmp_path: Path) -> None:
    store, given = Store(Storage(tmp_path / "lake")), tmp_path / "given"
    paths = [given / name for name in ("mine", "lake-mine", f"lake-{7:032x}", f"lake-{8:032x}")]
    for path in paths:
        (path / "offsets").mkdir(parents=True)
        os.utime(path / "offsets", (0, 0))
        os.utime(path, (0, 0))
    os.utime(paths[-1] / "offsets")  # a query has been here
    made = {make_checkpoint(store, str(given)) for _ in range(2)}
    assert len(made) == 2  # two processes never share one
    assert sorted(given.iterdir()) == sorted({*paths} - {paths[2]})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "lake", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may make a small disk")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


# PyArrow tries once more to close the files that could not be written.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk(data: Path, small_disk: Path) -> None:
    """It grows, and each time something else is what has no space any more."""
    lake, full = small_disk / "lake", 0
    for size in range(100, 600, 100):
        subprocess.run(["mount", "-o", f"remount,size={size}k", small_disk], check=True)
        try:
            fill(data, lake, RECORDS)
        except LakeInUse:
            raise  # nobody else is there
        except Exception as error:
            assert re.search("No space left|Storage full", str(error)), error  # noqa: PT017
            full += 1
        if last_watermark(Storage(lake)) is not None:
            assert_right(lake, data)
    assert full >= 3
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    fill(data, lake)
    assert_right(lake, data)


# Power


def _tear(lake: Path, *names: str) -> None:
    """Of the last commits of some tables there is nothing but their names."""
    for name in names:
        newest = max((lake / name / "_delta_log").glob("*.json"))
        for line in newest.read_text().splitlines():
            if added := json.loads(line).get("add"):
                (lake / name / added["path"]).write_bytes(b"PAR1")
        newest.write_bytes(b"")


@pytest.mark.parametrize("names", [["watermark"], ["events", "open_jobs", "watermark"]])
def test_what_had_not_come_to_the_disk_is_made_again(
    data: Path, tmp_path: Path, names: list[str]
) -> None:
    fill(data, tmp_path, RECORDS * 5)
    before = open_lake(tmp_path).watermark.next_seq
    _tear(tmp_path, *names)
    assert open_lake(tmp_path).watermark.next_seq < before
    fill(data, tmp_path)
    assert_right(tmp_path, data)


@pytest.mark.parametrize("torn", [slice(-2, None), slice(-2, -1)])
def test_a_vacuum_has_two_commits_that_may_be_torn(data: Path, tmp_path: Path, torn: slice) -> None:
    fill(data, tmp_path, RECORDS * 5)
    table = Store(Storage(tmp_path))._tables["open_jobs"]
    version = table.version()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert DeltaTable(table.table_uri).version() == version + 2
    for entry in sorted((tmp_path / "open_jobs" / "_delta_log").glob("*.json"))[torn]:
        entry.write_bytes(bytes(entry.stat().st_size))
    fill(data, tmp_path)
    assert_right(tmp_path, data)


@pytest.mark.parametrize("half", [False, True])
def test_checkpoints_of_logs_may_be_torn(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    monkeypatch.setattr(store, "_CHECKPOINT_INTERVAL", 3)
    fill(data, tmp_path, RECORDS * 3)
    logs = [path.parent for path in tmp_path.glob("*/_delta_log/_last_checkpoint")]
    assert {log.parent.name for log in logs} >= {"events", "watermark"}
    for log in logs:
        newest = max(log.glob("*.checkpoint.parquet"))
        content = newest.read_bytes()
        newest.write_bytes(bytes(len(content) // 2) + content[len(content) // 2 :] if half else b"")
    fill(data, tmp_path)
    assert_right(tmp_path, data)


def test_a_lake_that_rests_for_days_keeps_the_logs_that_are_needed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit after that makes a checkpoint, and the driver is killed before the watermark."""
    monkeypatch.setattr(store, "_CHECKPOINT_INTERVAL", 2)
    fill(data, tmp_path, RECORDS * 3)
    before = open_lake(tmp_path)
    for path in tmp_path.glob("*/_delta_log/*"):
        os.utime(path, (0, 0))
    some = Store(Storage(tmp_path))
    some._commit(JOBS, some.next_step, TableChange())
    while some._tables["jobs"].version() % 2:
        some._commit(JOBS, some.next_step, TableChange())
    assert not (tmp_path / "jobs" / "_delta_log" / f"{0:020d}.json").exists()
    assert_right(before, data)
    assert_right(tmp_path, data)
    fill(data, tmp_path)
    assert_right(tmp_path, data)
