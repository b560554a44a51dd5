"""A lake whose journal is not the same any more, has lost records, or says nothing for an hour."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from journal.building import Running
from spark.histories import HOUR, History, write_history
from spark.journals import dropped, written
from spark.lake_disturbed import READ, Disturbed, assert_up_to_its_mark, opened, read_one_batch
from spark.lake_process import next_seq
from spark.lake_runs import HereTasks, assert_same, read_in
from spark.oracle import Tables, compute, read_records

from taskyard.cli.main import main
from taskyard.engine.job import Policy
from taskyard.pipeline.lake import run as lake_run
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.run import Options, Run
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.ranges import open_journal


def _damage_the_end(data: Path) -> None:
    """In the last segment that is full."""
    segment = sorted((data / "journal").glob("*.seg"))[-2]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)


def test_after_a_repair_a_lake_goes_on_if_all_it_has_is_still_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, behind, ahead = tmp_path / "data", tmp_path / "behind", tmp_path / "ahead"
    data.mkdir()
    now = write_history(data, Random(3), 400)
    read_one_batch(data, behind, 300)
    read_in(data, ahead)
    _damage_the_end(data)
    assert main(["journal", "repair", "--data", str(data), "--yes"]) == 0
    write_history(data, Random(4), 100, now)
    read_in(data, behind)
    assert_up_to_its_mark(behind, data)
    capsys.readouterr()
    assert main(["lake", "run", "--data", str(data), "--lake", str(ahead)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    last = next_seq(ahead) - 1
    assert "the journal was repaired or restored, and records " in line
    assert f"to {last} of the lake are not in it any more; read it into another lake" in line


def test_another_journal_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, name in enumerate(("one", "other")):
        (tmp_path / name).mkdir()
        write_history(tmp_path / name, Random(number), 50 * (number + 1), now=(number + 1) * HOUR)
    lake = tmp_path / "lake"
    read_in(tmp_path / "one", lake)
    end = next_seq(lake)
    assert main(["lake", "run", "--data", str(tmp_path / "other"), "--lake", str(lake)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the lake has records up to {end - 1} of another journal than this one" in line
    assert next_seq(lake) == end


def _push(data: Path, count: int, now: int) -> None:
    history = History(data, Random(now), now)
    for _ in range(count):
        history.push("mail", "send", Policy())
        history.pass_time(1_000_000)
    history.close()


def test_a_backup_that_was_put_back_is_refused_if_the_lake_has_more(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    _push(data, 20, HOUR)
    read_in(data, tmp_path / "before")
    shutil.copytree(data, backup)
    _push(data, 20, 2 * HOUR)
    read_in(data, tmp_path / "after")
    shutil.rmtree(data)
    backup.rename(data)
    _push(data, 40, 3 * HOUR)
    read_in(data, tmp_path / "before")
    assert_up_to_its_mark(tmp_path / "before", data)
    with pytest.raises(LakeError, match="it was restored from a backup, or is another one"):
        read_in(data, tmp_path / "after")


def _drop_beyond(running: Running, seq: int) -> int:
    """Segments, until the first record that is left is behind this one; gives it."""
    while (first := dropped(running, 1)) <= seq:
        pass
    return first


def test_a_lake_that_was_left_behind_says_how_much_is_missing_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, lake, other = tmp_path / "data", tmp_path / "lake", tmp_path / "other"
    running = written(data, 60, segment_size=2000)
    read_one_batch(data, lake, 30)
    first = _drop_beyond(running, 60)
    running.journal.close()
    assert main(["lake", "run", "--data", str(data), "--lake", str(lake)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the journal begins at record {first} by now, the lake has all before 31" in line
    assert f"{first - 31} records are missing; what is there can be read into another" in line
    assert next_seq(lake) == 31
    read_in(data, other)
    assert next_seq(other) > first


def test_what_is_dropped_in_the_middle_of_a_batch_is_told_of_in_the_same_way(
    tmp_path: Path,
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    running = written(data, 60, segment_size=2000)

    tasks = Disturbed(f"batch 2: {READ}", lambda: _drop_beyond(running, 60))
    with pytest.raises(LakeError, match=r"the lake has all before 31: \d+ records are missing"):
        read_in(data, lake, tasks, batch=30)
    running.journal.close()
    assert next_seq(lake) == 31


class Clock:
    """Time that passes only while the lake waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()  # long after the history, whose minutes are all over


def test_after_a_quiet_hour_the_last_minute_is_there_and_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    history = History(data, Random(6))
    for number in range(40):
        history.push("mail", "send", Policy())
        history.pass_time((number % 3) * 20_000_000)
    history.close()
    clock = Clock()
    monkeypatch.setattr(lake_run, "time", clock)
    counts: list[int] = []

    def stopped(seconds: float) -> bool:
        clock.now += seconds
        if seconds:
            counts.append(_minutes(lake))
        return clock.now > 3600

    with opened(lake) as store:
        options = Options(follow=True, trigger=60)
        Run(HereTasks(), store, open_journal(str(data)), options, stopped=stopped).run()
        assert store.next_step == 3  # a batch, and the last minute: not one after the other
    assert counts[0] + 1 == counts[-1]
    assert len(set(counts)) == 2
    want = _with_a_later_event(data, tmp_path / "later")
    assert _minute_rows(lake) == [
        {name: row[name] for name in ("queue", "minute", "arrivals", "depth", "in_flight")}
        for row in want.queue_minutes
    ]
    history = History(data, Random(7), history.now + HOUR)  # and so they stay when more comes
    history.push("mail", "send", Policy())
    history.close()
    read_in(data, lake)
    assert_same(lake, compute(read_records(data)))


def _minutes(lake: Path) -> int:
    return int(open_lake(lake).arrow("queue_minutes", ["minute"]).num_rows)


def _minute_rows(lake: Path) -> list[dict[str, Any]]:
    names = ["queue", "minute", "arrivals", "depth", "in_flight"]
    rows: list[dict[str, Any]] = open_lake(lake).arrow("queue_minutes", names).to_pylist()
    return sorted(rows, key=lambda row: row["minute"])


def _with_a_later_event(data: Path, copy: Path) -> Tables:
    shutil.copytree(data, copy)
    History(copy, Random(1), 2_000_000_000_000_000).close()
    tables = compute(read_records(copy))
    tables.queue_minutes.sort(key=lambda row: row["minute"])
    return tables
