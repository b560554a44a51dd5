"""A lake whose journal is not the same any more, has lost records, or is away for a while."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from random import Random

import pytest
from pipeline.gate import StoppingProxy
from pipeline.histories import HOUR, History, write_history
from pipeline.journals import dropped_beyond, written
from pipeline.lake_runs import assert_right, finish, read_in, read_one, run
from pipeline.servers import Server
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.waiting import SPARK_GUARD, wait_for

from taskyard.cli.main import main
from taskyard.engine.model.job import Policy
from taskyard.pipeline.lake import stream
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.stream import LakeFiller


def next_seq(lake: Path) -> int:
    return open_lake(lake).watermark.next_seq


def _damage_the_end(data: Path) -> None:
    """In the last segment that is full."""
    segment = sorted((data / "journal").glob("*.seg"))[-2]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)


def test_after_a_repair_a_lake_goes_on_if_all_it_has_is_still_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, behind, ahead = tmp_path / "data", tmp_path / "behind", tmp_path / "ahead"
    data.mkdir()
    now = write_history(data, Random(3), 400)
    read_one(spark, data, behind, 300)
    read_in(spark, data, ahead)
    last = next_seq(ahead) - 1
    _damage_the_end(data)
    assert main(["journal", "repair", "--data", str(data), "--yes"]) == 0
    write_history(data, Random(4), 100, now)
    read_in(spark, data, behind)
    assert_right(behind, data)
    with pytest.raises(LakeError, match="the journal was repaired or restored, and") as raised:
        read_in(spark, data, ahead)
    assert f"to {last} of the lake are not in it any more; read it into another lake" in str(
        raised.value
    )
    assert next_seq(ahead) == last + 1


def test_another_journal_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(("one", "other")):
        (tmp_path / name).mkdir()
        write_history(tmp_path / name, Random(number), 50 * (number + 1), now=(number + 1) * HOUR)
    lake = tmp_path / "lake"
    read_in(spark, tmp_path / "one", lake)
    end = next_seq(lake)
    said = f"the lake has records up to {end - 1} of another journal than this one"
    with pytest.raises(LakeError, match=said):
        read_in(spark, tmp_path / "other", lake)
    assert next_seq(lake) == end


def _push(data: Path, count: int, now: int) -> None:
    history = History(data, Random(now), now)
    for _ in range(count):
        history.push("mail", "send", Policy())
        history.pass_time(1_000_000)
    history.close()


def test_a_backup_that_was_put_back_is_refused_if_the_lake_has_more(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also by a query that was running before."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    data.mkdir()
    _push(data, 20, HOUR)
    read_in(spark, data, tmp_path / "before")
    shutil.copytree(data, backup)
    _push(data, 20, 2 * HOUR)
    running = read_in(spark, data, tmp_path / "after")
    shutil.rmtree(data)
    backup.rename(data)
    with pytest.raises(LakeError, match="the journal ends with record 21, and the lake has"):
        read_in(spark, data, tmp_path / "after")
    _push(data, 40, 3 * HOUR)
    read_in(spark, data, tmp_path / "before")
    assert_right(tmp_path / "before", data)
    with pytest.raises(LakeError, match="it was restored from a backup, or is another one"):
        read_in(spark, data, tmp_path / "after")
    with pytest.raises(LakeError, match="it was restored from a backup, or is another one"):
        run(spark, running)


def test_a_lake_that_was_left_behind_says_how_much_is_missing_and_what_to_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    data, lake, other = tmp_path / "data", tmp_path / "lake", tmp_path / "other"
    running = written(data, 60, segment_size=2000)
    read_one(spark, data, lake, 30)
    first = dropped_beyond(running, 60)
    running.journal.close()
    with pytest.raises(LakeError) as raised:
        read_in(spark, data, lake)
    said = f"the journal begins at record {first} by now, the lake has all before 31: "
    said += f"{first - 31} records are missing; what is there can be read into another lake"
    assert str(raised.value).startswith(said)
    assert next_seq(lake) == 31
    read_in(spark, data, other)
    assert_right(other, data)


# The server


def test_a_server_that_stays_away_ends_the_query_and_the_lake_goes_on_another_time(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    """It goes in the middle of what a task reads. See test_lake_cluster for one that comes back."""
    server.speak_all_dialects(34)
    lake = tmp_path / "lake"
    with StoppingProxy(lambda: server.address("http")) as gate:
        url = f"http://127.0.0.1:{gate.port}"
        first = LakeFiller(Storage(lake), url=url, patience=0.1, max_records=400)
        gate.stop_after(2000)
        query = first.start(spark, None)
        wait_for(lambda: gate.is_holding, SPARK_GUARD)
        server.kill()
        gate.hang_up()
        with pytest.raises(PySparkException, match="no answer from"):
            finish(first, query)
    server.restart()
    second = LakeFiller(Storage(lake), url=server.http_url())
    run(spark, second)
    assert second.reader == first.reader
    server.kill()
    assert_right(lake, server.data)


# Stopping


def test_a_query_is_stopped_behind_its_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    write_history(data, Random(1), 300)
    reached, go = threading.Event(), threading.Event()

    def slow(store: object, days: object) -> None:
        reached.set()
        assert go.wait(SPARK_GUARD)

    monkeypatch.setattr(stream, "maintain", slow)
    filler = LakeFiller(Storage(lake), data=str(data), max_records=100)
    query = filler.start(spark, "1 second")
    assert reached.wait(SPARK_GUARD)
    stopping = threading.Thread(target=filler.stop, args=(query,))
    stopping.start()
    go.set()
    stopping.join(SPARK_GUARD)
    assert not query.isActive
    assert filler.error is None
    assert next_seq(lake) in (101, 201)  # the next one may have begun before it was asked
    assert_right(lake, data)
