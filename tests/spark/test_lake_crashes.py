"""A lake whose writer is killed at any point has every record once, in all tables."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from random import Random

import pytest
from spark import lake_runs
from spark.histories import write_history
from spark.lake_runs import assert_same, read_in
from spark.oracle import compute, read_records
from support.waiting import wait_for

from taskyard.pipeline.lake import log
from taskyard.pipeline.lake import store as stores
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.snapshot import last_watermark, open_lake
from taskyard.pipeline.lake.tables import TABLES

PROGRAM = Path(lake_runs.__file__ or "")
TRIES = 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history")
    write_history(path, Random(7), 500)
    return path


def _count_files(lake: Path) -> int:
    return sum(1 for _ in lake.rglob("*.parquet")) + sum(1 for _ in lake.rglob("*.json"))


def _has_ended_or_written(process: subprocess.Popen[bytes], lake: Path, files: int) -> bool:
    return process.poll() is not None or _count_files(lake) >= files


def _events_seen(lake: Path) -> list[tuple[int, int]]:
    rows = open_lake(lake).arrow("events", ["seq", "part"]).to_pylist()
    return sorted((row["seq"], row["part"]) for row in rows)


def _kill_at_random_points(data: Path, lake: Path, random: Random) -> int:
    """How often it was killed before it had read everything."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), str(data), str(lake), "200"]
    kills = 0
    for _ in range(6):
        known = _count_files(lake)
        more = random.randrange(1, 60)
        process = subprocess.Popen(command, env=environment)
        wait_for(partial(_has_ended_or_written, process, lake, known + more))
        if process.poll() is not None:
            assert process.returncode == 0
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    return kills


def test_killed_at_random_points_it_ends_with_every_record_once(data: Path, tmp_path: Path) -> None:
    random = Random(3)
    # Where this test stands still, a lake may come to its end before it is killed.
    tries = (tmp_path / f"lake-{number}" for number in range(TRIES))
    lake = next(lake for lake in tries if _kill_at_random_points(data, lake, random) >= 3)
    read_in(data, lake)
    want = [record.seq for record in read_records(data)]
    seen = _events_seen(lake)
    assert len(seen) == len(set(seen))
    assert sorted({seq for seq, _ in seen}) == want
    assert_same(lake, compute(read_records(data)))


class Cut(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("commits", range(len(TABLES) + 1))
def test_a_step_that_was_cut_off_between_commits_is_finished(
    data: Path, tmp_path: Path, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [commits]
    commit = stores.Store._commit_table

    def cut(self: stores.Store, name: str, step: int, change: stores.Change) -> None:
        if not left[0]:
            raise Cut
        left[0] -= 1
        commit(self, name, step, change)

    with monkeypatch.context() as patched:
        patched.setattr(stores.Store, "_commit_table", cut)
        with pytest.raises(Cut):
            read_in(data, tmp_path)
    assert last_watermark(tmp_path) is None
    read_in(data, tmp_path)
    assert_same(tmp_path, compute(read_records(data)))
    assert open_lake(tmp_path).watermark.batch == 1


def test_files_that_nobody_refers_to_are_removed(data: Path, tmp_path: Path) -> None:
    read_in(data, tmp_path, batch=250)
    stray = tmp_path / "jobs" / "date=2026-02-02" / "0000000099-ff.parquet"
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"half a file")
    stores.Store(tmp_path).close()
    assert not stray.exists()


def test_a_commit_that_was_lost_with_the_power_is_made_again(data: Path, tmp_path: Path) -> None:
    read_in(data, tmp_path)
    redo = max((tmp_path / "_work").glob("done-*.json"))
    redo.rename(tmp_path / "_work" / "redo.json")
    for name in ("attempts", "watermark"):
        newest = max((tmp_path / name / "_delta_log").glob("*.json"))
        newest.write_bytes(b"")
    read_in(data, tmp_path)
    assert_same(tmp_path, compute(read_records(data)))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    store = stores.Store(tmp_path)
    try:
        with pytest.raises(stores.LakeInUse, match=str(os.getpid())):
            stores.Store(tmp_path)
        assert stores.is_written(tmp_path)
    finally:
        store.close()
    assert not stores.is_written(tmp_path)


def test_the_redo_file_says_what_each_commit_is(data: Path, tmp_path: Path) -> None:
    read_in(data, tmp_path)
    (done,) = (tmp_path / "_work").glob("done-*.json")
    told = json.loads(done.read_text())
    assert told["step"] == 1
    assert {"events", "jobs", "attempts", "open_jobs"} <= told["tables"].keys()


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "events" / "theirs.parquet"
    theirs.parent.mkdir()
    theirs.write_bytes(b"theirs")
    with pytest.raises(LakeError, match="no lake, but has something named events"):
        stores.Store(tmp_path)
    assert theirs.read_bytes() == b"theirs"
    assert {path.name for path in tmp_path.iterdir()} == {"events", "lock"}
    with pytest.raises(LakeError, match="is a file"):
        stores.Store(theirs)


def test_checkpoints_of_the_log_may_be_lost_with_the_power(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "INTERVAL", 3)
    read_in(data, tmp_path, batch=250)
    logs = [path.parent for path in tmp_path.glob("*/_delta_log/_last_checkpoint")]
    assert {found.parent.name for found in logs} >= {"events", "watermark"}
    for found in logs:
        max(found.glob("*.checkpoint.parquet")).write_bytes(b"")
    read_in(data, tmp_path)
    assert_same(tmp_path, compute(read_records(data)))


def test_what_a_late_finish_replaces_stays_for_its_readers(data: Path, tmp_path: Path) -> None:
    """The step was cut off an hour ago: until it is made, readers are at the one before it."""
    read_in(data, tmp_path, batch=300)
    redo = max((tmp_path / "_work").glob("done-*.json"))
    told = json.loads(redo.read_text())
    told["at"] -= 3600
    (tmp_path / "_work" / "redo.json").write_text(json.dumps(told))
    redo.unlink()
    replaced = [
        tmp_path / name / file["path"]
        for name, change in told["tables"].items()
        for file in change["remove"]
    ]
    assert replaced
    store = stores.Store(tmp_path)
    store.sweep()
    store.close()
    assert all(path.exists() for path in replaced)
