"""What keeps a lake small, private and safe changes no answer, and erases what it is to erase."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pipeline.histories import PUSHERS, WORKERS, History, write_history
from pipeline.journals import written
from pipeline.lake_runs import assert_right, fill, read_in
from pyspark.sql import SparkSession
from support.small_lake import SmallLake, closed_job

from taskyard.engine.model.job import JSON, NewJob, Policy
from taskyard.pipeline.lake import failures, store
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.files import read_files
from taskyard.pipeline.lake.maintain import compact, drop_old, erase, maintain, rebuild
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import FAILURES, PUBLIC, TIME
from taskyard.pipeline.records.fields import ALL_COLUMNS

MERGED = ("events", "jobs", "attempts", "queue_minutes")


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made")
    fill(data, path, 200)
    return path


@pytest.fixture
def lake(made: Path, tmp_path: Path) -> Path:
    """A copy, which may be changed."""
    return Path(shutil.copytree(made, tmp_path / "lake"))


def rows_of(lake: Path) -> dict[str, list[str]]:
    found = open_lake(lake)
    return {name: sorted(map(repr, found.arrow(name).to_pylist())) for name in PUBLIC}


def count_files(some: Store) -> int:
    return sum(len(some.files(name)) for name in MERGED)


def test_small_files_are_merged(data: Path, lake: Path) -> None:
    """Readers that are at the files before find them for a quarter of an hour."""
    some, before = Store(Storage(lake)), open_lake(lake)
    files, rows = count_files(some), rows_of(lake)
    merged = compact(some, many=2)
    assert merged > 0
    assert count_files(some) < files
    assert compact(some, many=2) == 0
    some.run_step(some.vacuum)
    assert rows_of(lake) == rows
    assert_right(lake, data)
    assert_right(before, data)
    some.run_step(some.purge)
    assert rows_of(lake) == rows
    with pytest.raises(FileNotFoundError):
        before.arrow("events")


def test_files_of_steps_that_came_to_no_end_go_after_a_day(lake: Path) -> None:
    strays = [lake / "jobs" / "date=2026-02-02" / f"0000000099-{name}.parquet" for name in "ab"]
    strays[0].parent.mkdir(exist_ok=True)
    for path in strays:
        path.write_bytes(b"half a file")
    os.utime(strays[0], (0, 0))
    rows, some = rows_of(lake), Store(Storage(lake))
    some.run_step(some.vacuum)
    assert [path.exists() for path in strays] == [False, True]
    assert rows_of(lake) == rows


def test_batches_merge_and_vacuum_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    written(data, 56).journal.close()
    monkeypatch.setattr("taskyard.pipeline.lake.maintain._VACUUM_INTERVAL", 3)
    fill(data, lake, 10)
    assert open_lake(lake).watermark.batch == 17
    assert len(open_lake(lake).files("events")) == 2
    assert_right(lake, data)


def test_days_before_the_retention_go(spark: SparkSession, data: Path, lake: Path) -> None:
    some = Store(Storage(lake))
    last = open_lake(lake).watermark.last_time
    assert last is not None
    rows = rows_of(lake)
    dropped = drop_old(some, 1)
    assert dropped > 0
    assert drop_old(some, 1) == 0
    first = (last - timedelta(days=1)).date()
    for name in PUBLIC:
        if name in ("events", "jobs", "attempts"):
            dates = open_lake(lake).arrow(name, ["date"])["date"].to_pylist()
            assert min(dates) >= first
        else:
            assert rows_of(lake)[name] == rows[name]
    with pytest.raises(LakeError, match="were dropped, and the jobs that were open then cannot"):
        rebuild(spark, some)
    some.run_step(some.purge)
    left = {path.parent.name for path in (lake / "events").rglob("date=*/*.parquet")}
    assert min(left) >= f"date={first}"


def test_a_rebuild_makes_the_same_tables(
    spark: SparkSession, data: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(lake)
    told: list[int] = []
    monkeypatch.setattr("taskyard.pipeline.lake.maintain._CHUNK_ROWS", 300)
    total = rebuild(spark, Store(Storage(lake)), told.append)
    assert told[-1] == total == len(rows["events"])
    assert len(told) > 1
    assert rows_of(lake) == rows
    write_more(data, lake.parent / "more")
    fill(lake.parent / "more", lake)
    assert_right(lake, lake.parent / "more")
    assert rebuild(spark, Store(Storage(lake))) > total
    assert_right(lake, lake.parent / "more")


def test_a_lake_without_events_is_made_of_none(spark: SparkSession, tmp_path: Path) -> None:
    Store(Storage(tmp_path)).apply({}, batch=1)
    assert rebuild(spark, Store(Storage(tmp_path))) == 0


def write_more(data: Path, copy: Path) -> None:
    shutil.copytree(data, copy)
    write_history(copy, Random(12), 100)


# Erasing


SECRET = b"of a person who wants to be forgotten"


@pytest.fixture(scope="module")
def with_secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three jobs have it: one is done, one is open, one is dead."""
    path = tmp_path_factory.mktemp("secrets")
    history = History(path, Random(1))
    for number in range(3):
        payload = SECRET + b"%d" % number
        new = NewJob(f"q{number}", "send", payload, Policy(max_fails=1), 0, 0, JSON)
        history.engine.push(new, PUSHERS[0], history.now)
        history.push("other", "send", Policy())
    done = history.lease("q0", WORKERS[0], 1)
    dead = history.lease("q2", WORKERS[0], 1)
    assert done is not None
    assert dead is not None
    history.engine.complete(done.id, SECRET + b" result", WORKERS[0], history.now, 0)
    history.nack(dead, WORKERS[0], b"no")
    history.close()
    return path


def contents(storage: Storage) -> Iterator[bytes]:
    """All that is in files of a lake, as it is stored and, of Parquet, as it is read."""
    for name in (*PUBLIC, "minute_state", "watermark"):
        files = storage.files(name)
        for info in files.get_file_info(pafs.FileSelector("", recursive=True)):
            if info.is_file:
                with files.open_input_file(info.path) as file:
                    yield file.read()
                if info.path.endswith(".parquet") and "_delta_log" not in info.path:
                    yield repr(pq.read_table(info.path, filesystem=files)).encode()
                    table = pq.ParquetFile(files.open_input_file(info.path)).read()
                    yield repr(table.to_pylist()).encode()


def test_what_is_erased_is_in_no_file_any_more(storage: Storage, with_secrets: Path) -> None:
    fill(with_secrets, storage, 4, ALL_COLUMNS)
    rows = open_lake(storage).arrow("events").to_pylist()
    jobs = {row["job_id"] for row in rows if SECRET in (row["payload"] or b"")}
    assert len(jobs) == 3
    _leave_a_stray(storage)
    some = Store(storage)
    for job in jobs:
        assert any(SECRET in each for each in contents(storage))
        assert erase(some, job) > 0
        assert erase(some, job) == 0
    assert not any(SECRET in each for each in contents(storage))
    assert_right(storage, with_secrets)
    kept = open_lake(storage).arrow("events", ["payload"])["payload"].drop_null()
    assert kept.to_pylist() == [b"{}"] * 3


def _leave_a_stray(storage: Storage) -> None:
    """What a task leaves that Spark tries again."""
    files = storage.files("events")
    path = open_lake(storage).files("events")[0].path
    directory, _, name = path.rpartition("/")
    rows = pq.ParquetFile(files.open_input_file(path)).read()
    pq.write_table(rows, f"{directory}/{name[:11]}stray.parquet", filesystem=files)


@pytest.mark.parametrize("opened", ["before", "meanwhile"])
def test_an_erasure_beside_a_batch_loses_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    """The files that the batch has written are gone when it commits them: it makes them anew."""
    lake, more = tmp_path / "lake", tmp_path / "more"
    write_more(data, more)
    fill(data, lake, 600)
    eraser = Store(Storage(lake))
    original = Store._commit
    erased: list[int] = []

    def commit(self: Store, table: Any, *rest: Any) -> None:
        if table.name == "jobs" and not erased:
            erased.append(1)
            erase(eraser if opened == "before" else Store(Storage(lake)), 1)
        original(self, table, *rest)

    monkeypatch.setattr(Store, "_commit", commit)
    fill(more, lake)
    assert erased
    assert_right(lake, more)


def test_a_batch_beside_an_erasure_leaves_nothing_of_what_is_erased(
    with_secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read an open job before that is erased, and writes it after that."""
    lake, more = tmp_path / "lake", tmp_path / "more"
    write_more(with_secrets, more)
    fill(with_secrets, lake, columns=ALL_COLUMNS)
    rows = open_lake(lake).arrow("events").to_pylist()
    jobs = [row["job_id"] for row in rows if SECRET in (row["payload"] or b"")]

    def read(*given: Any) -> Any:
        found = read_files(*given)
        while jobs:
            erase(Store(Storage(lake)), jobs.pop())
        return found

    monkeypatch.setattr("taskyard.pipeline.lake.kernel.read_files", read)
    fill(more, lake, columns=ALL_COLUMNS)
    assert not jobs
    assert not any(SECRET in each for each in contents(Storage(lake)))
    assert_right(lake, more)


def test_a_step_that_finds_files_erased_is_made_again(tmp_path: Path) -> None:
    SmallLake(tmp_path).fill(jobs=[closed_job(1)])
    some, other = Store(Storage(tmp_path)), Store(Storage(tmp_path))
    tries = 0

    def work() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            erase(other, 1)
        return int(some.read("jobs").num_rows)

    assert (some.run_step(work), tries) == (1, 2)

    def fail() -> None:
        raise FileNotFoundError("not for another process")

    with pytest.raises(FileNotFoundError, match="not for another process"):
        some.run_step(fail)


def test_payloads_are_left_out_unless_they_are_wanted(with_secrets: Path, tmp_path: Path) -> None:
    fill(with_secrets, tmp_path)
    assert not any(SECRET in each for each in contents(Storage(tmp_path)))


# On the disk


def modes(lake: Path) -> dict[str, int]:
    """Of everything that others may do something with."""
    found = {str(path): path.lstat().st_mode & 0o777 for path in (lake, *lake.rglob("*"))}
    return {
        path: mode
        for path, mode in found.items()
        if mode != (0o700 if Path(path).is_dir() else 0o600)
    }


@pytest.fixture
def open_to_all() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def without_checkpoint(found: dict[str, int]) -> dict[str, int]:
    """Spark writes it, in a directory that nobody else can enter."""
    return {path: mode for path, mode in found.items() if "/_checkpoint/" not in path}


def test_a_lake_is_for_its_user_only(
    spark: SparkSession,
    with_secrets: Path,
    tmp_path: Path,
    open_to_all: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "_CHECKPOINT_INTERVAL", 2)
    lake = tmp_path / "lake"
    read_in(spark, with_secrets, lake, payloads=True, max_records=4)
    some = Store(Storage(lake))
    compact(some, many=2)
    erase(some, 1)
    maintain(some)
    rebuild(spark, some)
    assert any(lake.rglob("*.checkpoint*.parquet"))
    assert without_checkpoint(modes(lake)) == {}
    assert (lake / "_checkpoint").stat().st_mode & 0o777 == 0o700


def test_a_lake_that_was_open_is_closed_when_it_is_written_again(lake: Path) -> None:
    (lake / "report.html").write_text("made")
    outside = lake.parent / "outside"
    outside.write_text("another's")
    outside.chmod(0o644)
    (lake / "events" / "link").symlink_to(outside)
    for path in (lake, *lake.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o777 if path.is_dir() else 0o666)
    Store(Storage(lake))
    (lake / "events" / "link").unlink()
    assert modes(lake) == {}
    assert outside.stat().st_mode & 0o777 == 0o644


def test_what_is_not_of_the_lake_stays_as_it_is(tmp_path: Path, open_to_all: None) -> None:
    lake = tmp_path / "lake"
    lake.mkdir(0o755)
    (lake / "script").touch(0o755)
    Store(Storage(lake))
    assert modes(lake) == {str(lake): 0o755, str(lake / "script"): 0o755}
    other = tmp_path / "other" / "events" / "theirs.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"theirs")
    with pytest.raises(LakeError, match="no lake, but has something named events"):
        Store(Storage(tmp_path / "other"))
    with pytest.raises(LakeError, match="is a file"):
        Store(Storage(other))
    assert [path for path in (tmp_path / "other").rglob("*") if path.is_file()] == [other]


def test_tables_without_a_watermark_are_left_as_they_are(lake: Path) -> None:
    """Those of somebody else, or of a lake that has lost it."""
    shutil.rmtree(lake / "watermark")
    theirs = lake.parent / "theirs"
    for number in range(2):
        rows = pa.table({"number": [number], "date": ["2030-01-31"]})
        write_deltalake(theirs / "events", rows, mode="append", partition_by=["date"])
    for path in (lake, theirs):
        there = sorted(path.rglob("*"))
        with pytest.raises(LakeError, match="is no lake, but has a table named events"):
            Store(Storage(path))
        assert sorted(path.rglob("*")) == there


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is brought to the disk from now on, in order."""
    found: list[Path] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        fsync(fd)
        found.append(Path(f"/proc/self/fd/{fd}").readlink())

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_files_and_logs_are_on_the_disk_before_the_watermark(
    lake: Path, synced: list[Path]
) -> None:
    """Whatever a step writes is synced, and its directory after it, before its watermark is."""
    there = set(lake.rglob("*"))
    some = Store(Storage(lake))
    synced.clear()
    compact(some, many=2)
    mark = next(n for n, path in enumerate(synced) if path.is_relative_to(lake / "watermark"))
    last = [path for path in synced if path.parent == lake / "watermark" / "_delta_log"]
    new = [path for path in set(lake.rglob("*")) - there if path.is_file()]
    assert len(new) >= 2 * len(MERGED)
    for path in new:
        place = synced.index(path)
        assert path.parent in synced[place:]
        if not path.is_relative_to(lake / "watermark"):
            assert synced.index(path.parent, place) < mark
    assert synced.index(last[-1]) > mark


def test_so_is_what_a_killed_process_had_committed_and_the_lake_itself(
    tmp_path: Path, synced: list[Path]
) -> None:
    lake = tmp_path / "lakes" / "lake"
    Store(Storage(lake))
    assert {tmp_path, tmp_path / "lakes"} <= set(synced)
    synced.clear()
    Store(Storage(lake))
    assert {*lake.rglob("*.json"), *lake.rglob("_delta_log")} <= set(synced)


# Failures


_FAILED = pa.schema(
    [
        ("queue", pa.string()),
        ("name", pa.string()),
        ("error", pa.string()),
        ("reason", pa.string()),
        ("final", pa.bool_()),
        ("time", TIME),
        ("job_id", pa.int64()),
        ("seq", pa.int64()),
    ]
)


def test_errors_that_all_differ_do_not_make_groups_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "MAX_GROUPS", 3)
    began = datetime(2030, 1, 1, tzinfo=UTC)
    rows = [
        {
            "queue": "mail",
            "name": "send",
            "error": f"Error{'abcde'[seq % 5]}: no",
            "reason": None,
            "final": False,
            "time": began + timedelta(seconds=seq),
            "job_id": seq,
            "seq": seq,
        }
        for seq in range(20)
    ]
    table = FAILURES.schema.empty_table()
    for at in (0, 7, 14):
        table = failures.merge(
            table, failures.group(pa.Table.from_pylist(rows[at : at + 7], _FAILED))
        )
    counts = {row["error_class"]: row["count"] for row in table.to_pylist()}
    assert counts == {"Errora": 4, "Errorb": 4, "Errorc": 4, failures.OTHER_ERRORS: 8}
    (rest,) = [row for row in table.to_pylist() if row["error_class"] == failures.OTHER_ERRORS]
    assert (rest["first_seen"], rest["last_seen"]) == (rows[3]["time"], rows[19]["time"])
