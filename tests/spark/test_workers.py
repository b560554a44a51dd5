"""Workers on Spark: the outcomes of any worker, whatever becomes of jobs beside each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark import crew_app, toq_crew
from spark.crew_app import app, marks
from spark.kept import give_kept
from spark.patience import PATIENCE, wait_patiently
from toq.brokers import Running, TaskyardBroker

import taskyard.spark
from taskyard import Handle, TaskFailed, chain, group
from taskyard.cli.work import main
from taskyard.pipeline.spark.claim import Claimed, claim
from taskyard.pipeline.spark.java import NoJava
from taskyard.pipeline.spark.workers import SparkWorkers
from taskyard.toq import Producer
from taskyard.toq import Task as ToqTask


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(TaskyardBroker(tmp_path_factory.mktemp("server"))) as running:
        app.connect_to(running.url)
        yield running
        app.close()


@pytest.fixture
def run(spark: SparkSession, server: Running) -> Callable[[], None]:
    def burst() -> None:
        assert SparkWorkers(spark, app, burst=True).run()

    return burst


class Beside:
    """Workers in a thread, until the end of the block."""

    def __init__(self, spark: SparkSession, **options: Any) -> None:
        self.workers = SparkWorkers(spark, app, poll=0.05, **options)
        self.finished: bool | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.finished = self.workers.run()

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        (self.workers.stop if kind is None else self.workers.kill)()
        self._thread.join(PATIENCE)


def outcome(handle: Handle[Any]) -> str:
    """In one line, the same for the same end."""
    try:
        return f"gave {handle.result(wait=0)!r}"
    except TaskFailed as failed:
        return failed.error.partition("\n")[0]


def shown_progress(handle: Handle[Any]) -> tuple[float, str] | None:
    progress = handle.info().progress
    return None if progress is None else (progress.fraction, progress.message)


def push_all_kinds() -> list[Handle[Any]]:
    push = app.client.push
    return [
        crew_app.add.push(1, 2),
        crew_app.double.push(21),
        crew_app.fail_until.push(2),
        crew_app.fail_until.push(3),
        crew_app.give_up.push(),
        crew_app.leave.push(),
        crew_app.odd.push(),
        crew_app.tidy_up.push(),
        crew_app.add.handle(push("crew", b"[1, 2]", name="nobody_knows").uid),
        crew_app.add.handle(push("crew", b'["x"]', name="add").uid),
        chain(crew_app.add.s(1, 2), crew_app.double.s(), crew_app.add.s(10)).push(),
        (group(crew_app.double.s(value) for value in range(4)) | crew_app.total.s()).push(),
        *crew_app.multiply.starmap([(value, 0.5) for value in range(11, 16)]),
        *[crew_app.shout.push(word=word) for word in ("a", "")],
    ]


def all_outcomes(run: Callable[[], object]) -> list[str]:
    handles = push_all_kinds()
    while not all(handle.is_done() for handle in handles):
        run()  # a burst does not wait for retries and steps that come later
    return [outcome(handle) for handle in handles]


def test_the_same_app_has_the_same_outcomes_on_spark_and_off(run: Callable[[], None]) -> None:
    plain = all_outcomes(lambda: app.worker(burst=True).run())
    assert plain[:4] == ["gave 3", "gave 42", "gave 2", "ValueError: not yet"]
    assert plain[10:12] == ["gave 16", "gave 12"]
    assert [*plain[12:14], *plain[15:17]] == ["gave 5.5", "gave 6.0", "gave 7.0", "gave 7.5"]
    assert plain[14] == "AssertionError: unlucky"
    assert plain[18].endswith("RowFailed: no word")
    assert all_outcomes(run) == plain


def test_a_task_that_ends_its_process_fails_alone(spark: SparkSession, server: Running) -> None:
    good = crew_app.add.starmap([(value, 1) for value in range(20)])
    bad = crew_app.die.push()
    more = crew_app.add.starmap([(value, 1) for value in range(20)])
    assert SparkWorkers(spark, app, concurrency=1, burst=True).run()
    assert [handle.result(wait=0) for handle in (*good, *more)] == [*range(1, 21)] * 2
    assert "ended with exit code 3" in outcome(bad)


def test_progress_and_cancellation_are_as_with_any_worker(
    spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    with Beside(spark):
        held = crew_app.hold.push(str(tmp_path), "held")
        gone = crew_app.hold.push(str(tmp_path), "gone")
        wait_patiently(lambda: marks(tmp_path, "gone-runs") and marks(tmp_path, "held-runs"))
        wait_patiently(lambda: shown_progress(held) == (0.25, "a quarter"))
        assert gone.cancel()
        wait_patiently(lambda: marks(tmp_path, "gone-cancelled"))
        (tmp_path / "held-may-end").touch()
        assert held.result(wait=PATIENCE) == "held"
    assert len(marks(tmp_path, "held-runs")) == 1


def test_a_stop_finishes_the_batch_and_leaves_no_consumer(
    spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    with Beside(spark) as crew:
        held = crew_app.hold.push(str(tmp_path), "held")
        wait_patiently(lambda: marks(tmp_path, "held-runs"))
        with pytest.raises(Claimed, match="another name"):
            SparkWorkers(spark, app).run()
        crew.workers.stop()
        (tmp_path / "held-may-end").touch()
    assert crew.finished
    assert held.result(wait=0) == "held"
    assert app.client.consumers() == []


def test_what_keeps_workers_from_starting_is_said_in_a_sentence(
    spark: SparkSession,
    server: Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["spark.crew_app:app", "--spark", "--consumer", "mine", "--burst"]
    give_kept(monkeypatch, spark)
    with claim(app.client.address, "mine"):
        assert main(command) == 2
    assert "has the consumer mine, and would get the same jobs" in capsys.readouterr().err

    def session(*_: object, **__: object) -> None:
        raise NoJava

    monkeypatch.setattr(taskyard.spark, "session", session)
    assert main(command) == 1
    assert "taskyard work: Spark cannot be started: no Java 17" in capsys.readouterr().err


def test_an_end_at_once_gives_back_what_runs(
    spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    with Beside(spark) as crew:
        held = crew_app.hold.push(str(tmp_path), "held")
        wait_patiently(lambda: marks(tmp_path, "held-runs"))
        crew.workers.kill()
    assert crew.finished is False
    assert held.info().state == "ready"
    assert app.client.consumers() == []
    assert held.cancel()


def test_hooks_of_failures_run_on_the_executor(run: Callable[[], None], tmp_path: Path) -> None:
    failed = crew_app.marked_failure.push(directory=str(tmp_path))
    run()
    assert outcome(failed) == f"ValueError: {tmp_path}"
    [process] = marks(tmp_path, "on_failure")
    assert int(process) != os.getpid()


def test_workers_of_toq_get_tasks_and_give_results(spark: SparkSession, server: Running) -> None:
    consumer = toq_crew.consumer(server.url)
    with Producer(server.url) as producer:
        good = producer.enqueue("toq-crew", ToqTask.of("add", 1, 2))
        bad = producer.enqueue("toq-crew", ToqTask.of("fail", 1, max_retries=0))
        assert SparkWorkers(spark, consumer, burst=True).run()
        assert producer.result(good).value() == 3
        assert "ValueError: 1" in producer.result(bad).message


def test_a_broker_that_is_killed_is_waited_for_and_nothing_settled_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "closed").touch()
    broker = TaskyardBroker(tmp_path / "server")
    with Running(broker) as running:
        before = app.url
        app.connect_to(running.url)
        handles = crew_app.note.starmap([(str(tmp_path), number) for number in range(40)])
        with Beside(spark, consumer="survivor"):
            wait_patiently(lambda: len(marks(tmp_path, "noted")) > 10)
            wait_patiently(lambda: any(handle.is_done() for handle in handles))
            settled = [at for at, handle in enumerate(handles) if handle.is_done()]
            broker.kill()
            (tmp_path / "closed").unlink()
            broker.start()
            assert [handle.result(wait=PATIENCE) for handle in handles] == list(range(40))
        app.connect_to(before)
    ran = [int(number) for number in marks(tmp_path, "noted")]
    assert all(ran.count(number) == 1 for number in settled)
