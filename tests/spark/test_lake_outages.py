"""What a lake does when its server goes or it is told to stop, and what is said of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.histories import write_history
from spark.lake_disturbed import (
    MAKE,
    READ,
    Disturbed,
    assert_up_to_its_mark,
    opened,
    read_one_batch,
)
from spark.lake_load import Load
from spark.lake_process import next_seq
from spark.lake_runs import HereTasks, read_in
from support.effort import LONG
from support.process import ServerProcess
from support.waiting import wait_for

import taskyard.spark
from taskyard.cli.main import main
from taskyard.journal.errors import JournalCorrupt, JournalError, JournalPassed, LeftBehind
from taskyard.pipeline import web as webs
from taskyard.pipeline.lake import spark_tasks
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.look import describe
from taskyard.pipeline.lake.reader import drop_shared, reader_name
from taskyard.pipeline.lake.run import Options, Run
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.spark_tasks import RecordsGone, Trouble, attempt
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.views import create_views
from taskyard.pipeline.ranges import open_journal
from taskyard.pipeline.web import RegisteredReader, ServerUnreachable, Web


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as running:
        running.flags += ["--http-port", str(running.address("http")[1])]  # also when it is back
        yield running


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webs, "_PAUSES", (0.001,))


def _url(server: ServerProcess) -> str:
    host, port = server.address("http")
    return f"http://{host}:{port}"


def _busy(server: ServerProcess, records: int) -> None:
    """Until so many more are in its journal, whichever of the clients gets on."""
    journal = open_journal(_url(server))
    enough = journal.view().durable_seq + records
    with Load(server, pause=0):
        wait_for(lambda: journal.view().durable_seq >= enough)


# The server

_PLACES = [(by, f"batch 2: {doc}") for by in ("url", "path") for doc in (READ, MAKE)]


@pytest.mark.parametrize(("by", "doc"), _PLACES if LONG else _PLACES[::3])
def test_a_lake_goes_on_when_the_server_that_was_killed_is_back(
    server: ServerProcess, tmp_path: Path, by: str, doc: str
) -> None:
    _busy(server, 400)
    source = _url(server) if by == "url" else str(server.data)
    lines: list[str] = []
    states: list[str] = []

    def stopped(seconds: float) -> bool:
        if not server.is_running() and (by == "path" or states[-1] == "waiting"):
            server.restart()
            _busy(server, 150)
        return states[-1] == "idle"

    lake, first = tmp_path / "lake", 250
    with opened(lake) as store:
        is_all = Run(
            Disturbed(doc, server.kill),
            store,
            open_journal(source),
            Options(follow=True, batch=first, trigger=0.001),
            stopped=stopped,
            report=lambda told: states.append(told["state"]),
            say=lines.append,
        ).run()
    assert is_all
    if by == "path":
        assert lines == []
    else:
        waiting, again = lines
        assert waiting.startswith(f"no answer from {source}: ")
        assert waiting.endswith("; waiting for it, for up to 600 s")
        assert again.startswith("the server answers again, after ")
        assert "waiting" in states
    server.kill()
    assert next_seq(lake) > first * 2
    assert_up_to_its_mark(lake, server.data)


def test_a_lake_gives_up_on_a_server_that_stays_away_and_goes_on_another_time(
    server: ServerProcess, tmp_path: Path
) -> None:
    _busy(server, 150)
    journal, lake = open_journal(_url(server)), tmp_path / "lake"

    def run(tasks: HereTasks, **options: Any) -> None:
        with opened(lake) as store:
            Run(tasks, store, journal, Options(**options), stopped=_wait).run()

    with pytest.raises(ServerUnreachable, match="has waited for 0 s, and goes on where it is"):
        run(Disturbed(f"batch 2: {MAKE}", server.kill), batch=100, patience=0.01)
    told = describe(lake)
    assert told["state"] == "failed"
    assert "no answer from" in told["error"]
    server.restart()
    run(HereTasks())
    server.kill()
    assert_up_to_its_mark(lake, server.data)


def _wait(seconds: float) -> bool:
    time.sleep(min(seconds, 0.01))
    return False


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ServerUnreachable("no answer"), ServerUnreachable),
        (LeftBehind(5, 9), RecordsGone),
        (JournalPassed("x.seg"), RecordsGone),
        (JournalCorrupt("x.seg", 1, 2, "no"), JournalError),
    ],
)
def test_what_keeps_a_task_from_reading_is_no_error_of_spark(
    raised: Exception, kind: type[Exception]
) -> None:
    def work(_: int) -> int:
        raise raised

    found = attempt(work, 1)
    assert isinstance(found, Trouble)
    assert type(found.error()) is kind
    assert str(found.error()) == str(raised)


def test_a_stop_before_the_end_is_told_from_the_end(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_history(data, Random(1), 200)
    lake = tmp_path / "lake"
    assert not read_one_batch(data, lake, 100)
    assert next_seq(lake) == 101
    assert_up_to_its_mark(lake, data)


class NoSession:
    def stop(self) -> None:
        pass


@pytest.mark.parametrize(("flags", "code"), [((), 143), (("--follow",), 0)])
def test_a_signal_in_the_middle_of_a_batch_ends_it_behind_that(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    code: int,
) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    write_history(data, Random(1), 200)
    tasks = Disturbed(f"batch 2: {READ}", lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(taskyard.spark, "session", lambda master, name, ui: NoSession())
    monkeypatch.setattr(taskyard.spark, "announce", lambda spark: None)
    monkeypatch.setattr(spark_tasks, "SparkTasks", lambda spark: tasks)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        arguments = ["--data", str(data), "--lake", str(lake), "--batch", "100", *flags]
        assert main(["lake", "run", *arguments]) == code
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ("stopped before the end" in capsys.readouterr().err) == bool(code)
    assert next_seq(lake) == 201
    assert describe(lake)["state"] == "stopped"
    assert_up_to_its_mark(lake, data)


# Names, and what is said


def test_each_lake_has_a_reader_of_its_own(server: ServerProcess, tmp_path: Path) -> None:
    names = []
    for name in ("one", "other", "one"):
        with opened(tmp_path / name) as store:
            names.append(reader_name(store))
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("lake-")
    web = Web(_url(server))
    for name in ("lake", "audit"):
        RegisteredReader(web, name, 3600).register(1)
    drop_shared(web, 0)  # it is ahead of this lake: of another one
    assert _readers(web) == ["audit", "lake"]
    drop_shared(web, 5)
    assert _readers(web) == ["audit"]
    web.close()


def _readers(web: Web) -> list[str]:
    return [reader["name"] for reader in web.call("GET", "/api/v1/readers")["readers"]]


def test_the_reader_of_the_lake_that_a_server_keeps_itself_stays() -> None:
    class Keeper:
        def call(self, method: str, path: str, body: object = None) -> Any:
            assert method == "GET"
            return {"readers": [{"name": "lake", "next_seq": 1}]}

    drop_shared(Keeper(), 5)  # type: ignore[arg-type]


def test_a_lake_that_is_rebuilt_is_said_to_be(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    write_history(data, Random(1), 50)
    read_in(data, lake)
    store = Store(lake, "rebuilding")
    try:
        told = describe(lake)
        assert (told["state"], told["pid"]) == ("rebuilding", os.getpid())
        with pytest.raises(LakeError, match=r"is writing to the lake in .* \(rebuilding\)"):
            Store(lake)
    finally:
        store.close()
    assert (describe(lake)["state"], describe(lake)["pid"]) == ("stopped", None)


def test_the_watermark_can_be_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    data, lake = tmp_path / "data", tmp_path / "lake"
    data.mkdir()
    write_history(data, Random(1), 100)
    read_in(data, lake, batch=100)
    found = open_lake(lake)
    read_in(data, lake)
    create_views(spark, found)
    rows = spark.sql("select batch, next_seq from watermark order by step").collect()
    assert [row["batch"] for row in rows] == list(range(1, found.watermark.batch + 1))
    assert rows[-1]["next_seq"] == found.watermark.next_seq
