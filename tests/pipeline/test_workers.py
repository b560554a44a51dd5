"""Workers on Spark: the outcomes of any worker, whatever becomes of jobs beside each other."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pytest
from pipeline import worker_app
from pipeline.connect import ConnectServer
from pipeline.worker_app import app, marks
from pyspark.sql import SparkSession
from support.waiting import SPARK_GUARD, wait_for
from toq.brokers import Running, TaskyardBroker

import taskyard.spark
from taskyard import Claimed, Client, Handle, TaskFailed, chain, group
from taskyard.cli.work import main
from taskyard.pipeline.spark.session import NoJava
from taskyard.pipeline.spark.workers import SparkWorkers
from taskyard.toq import Consumer, Producer
from taskyard.toq import Task as ToqTask


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(TaskyardBroker(tmp_path_factory.mktemp("server"))) as running:
        app.connect_to(running.url)
        yield running
        app.close()


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
        self._thread.join(SPARK_GUARD)


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
        worker_app.add.push(1, 2),
        worker_app.double.push(21),
        worker_app.fail_until.push(2),
        worker_app.fail_until.push(3),
        worker_app.give_up.push(),
        worker_app.leave.push(),
        worker_app.odd.push(),
        worker_app.tidy_up.push(),
        worker_app.add.handle(push("functions", b"[1, 2]", name="nobody_knows").uid),
        worker_app.add.handle(push("functions", b'["x"]', name="add").uid),
        chain(worker_app.add.s(1, 2), worker_app.double.s(), worker_app.add.s(10)).push(),
        (group(worker_app.double.s(value) for value in range(4)) | worker_app.total.s()).push(),
        *worker_app.multiply.starmap([(value, 0.5) for value in range(11, 16)]),
        *[worker_app.shout.push(word=word) for word in ("a", "")],
    ]


def all_outcomes(run: Callable[[], object]) -> list[str]:
    handles = push_all_kinds()
    while not all(handle.is_done() for handle in handles):
        run()  # a burst does not wait for retries and steps that come later
    return [outcome(handle) for handle in handles]


def test_the_same_app_has_the_same_outcomes_on_spark_and_off(
    any_spark: SparkSession, server: Running
) -> None:
    plain = all_outcomes(lambda: app.worker(burst=True).run())
    assert plain[:4] == ["gave 3", "gave 42", "gave 2", "ValueError: not yet"]
    assert plain[10:12] == ["gave 16", "gave 12"]
    assert [*plain[12:14], *plain[15:17]] == ["gave 5.5", "gave 6.0", "gave 7.0", "gave 7.5"]
    assert plain[14] == "AssertionError: unlucky"
    assert plain[18].endswith("RowFailed: no word")
    assert all_outcomes(lambda: SparkWorkers(any_spark, app, burst=True).run()) == plain


def test_a_task_that_ends_its_process_fails_alone(any_spark: SparkSession, server: Running) -> None:
    good = worker_app.add.starmap([(value, 1) for value in range(20)])
    bad = worker_app.die.push()
    more = worker_app.add.starmap([(value, 1) for value in range(20)])
    workers = SparkWorkers(any_spark, app, concurrency=1, burst=True)
    assert workers.run()
    assert [handle.result(wait=0) for handle in (*good, *more)] == [*range(1, 21)] * 2
    assert "ended with exit code 3" in outcome(bad)
    assert workers.progress.failed == 1


def test_each_task_of_spark_runs_as_many_functions_as_it_is_told(
    any_spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    (tmp_path / "closed").touch()
    handles = worker_app.count_beside.starmap([(str(tmp_path),)] * 40)
    with Beside(any_spark, concurrency=3) as beside:
        wait_for(lambda: len(marks(tmp_path, "steps")) >= 6, SPARK_GUARD)
        (tmp_path / "closed").unlink()
        wait_for(lambda: all(handle.is_done() for handle in handles), SPARK_GUARD)
    assert max(accumulate(int(step) for step in marks(tmp_path, "steps"))) == 6
    assert beside.workers.progress.done == 40


def test_progress_and_cancellation_are_as_with_any_worker(
    spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    with Beside(spark):
        held = worker_app.hold.push(str(tmp_path), "held")
        gone = worker_app.hold.push(str(tmp_path), "gone")
        wait_for(lambda: marks(tmp_path, "gone-runs") and marks(tmp_path, "held-runs"), SPARK_GUARD)
        wait_for(lambda: shown_progress(held) == (0.25, "a quarter"), SPARK_GUARD)
        assert gone.cancel()
        wait_for(lambda: marks(tmp_path, "gone-cancelled"), SPARK_GUARD)
        (tmp_path / "held-may-end").touch()
        assert held.result(wait=SPARK_GUARD) == "held"
    assert len(marks(tmp_path, "held-runs")) == 1


def test_a_stop_finishes_the_batch_and_leaves_no_consumer(
    any_spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    with Beside(any_spark) as beside:
        held = worker_app.hold.push(str(tmp_path), "held")
        wait_for(lambda: marks(tmp_path, "held-runs"), SPARK_GUARD)
        with pytest.raises(Claimed, match="another name"):
            SparkWorkers(any_spark, app).run()
        beside.workers.stop()
        (tmp_path / "held-may-end").touch()
    assert beside.finished
    assert held.result(wait=0) == "held"
    assert app.client.consumers() == []


def test_what_keeps_workers_from_starting_is_said_in_a_sentence(
    spark: SparkSession,
    server: Running,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["pipeline.worker_app:app", "--spark", "--consumer", "mine", "--burst"]
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    with Client(server.url, claims=["mine.2"]) as other:
        other.ping()
        assert main(command) == 2
    assert "has the consumer mine.2, and two would get the same jobs" in capsys.readouterr().err

    def session(*_: object, **__: object) -> None:
        raise NoJava

    monkeypatch.setattr(taskyard.spark, "session", session)
    assert main(command) == 1
    assert "taskyard work: Spark cannot be started: no Java 17" in capsys.readouterr().err


def test_an_end_at_once_gives_back_what_runs(
    any_spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    with Beside(any_spark) as beside:
        held = worker_app.hold.push(str(tmp_path), "held")
        wait_for(lambda: marks(tmp_path, "held-runs"), SPARK_GUARD)
        beside.workers.kill()
    assert beside.finished is False
    assert held.info().state == "ready"
    assert app.client.consumers() == []
    assert held.cancel()


def test_hooks_of_failures_run_on_the_executor(
    spark: SparkSession, server: Running, tmp_path: Path
) -> None:
    failed = worker_app.marked_failure.push(directory=str(tmp_path))
    assert SparkWorkers(spark, app, burst=True).run()
    assert outcome(failed) == f"ValueError: {tmp_path}"
    [process] = marks(tmp_path, "on_failure")
    assert int(process) != os.getpid()


TOQ_FUNCTIONS: Final = """
def add(task):
    return sum(task.arguments())

def fail(task):
    raise ValueError(*task.arguments())
"""


def test_workers_of_toq_get_tasks_and_give_results(
    any_spark: SparkSession, server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"toq_functions_{os.urandom(4).hex()}"  # that no executor has imported yet
    (tmp_path / f"{name}.py").write_text(TOQ_FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    functions = importlib.import_module(name)
    consumer = Consumer(server.url, "toq-queue")
    consumer.register("add", functions.add)
    consumer.register("fail", functions.fail)
    with Producer(server.url) as producer:
        good = producer.enqueue("toq-queue", ToqTask.of("add", 1, 2))
        bad = producer.enqueue("toq-queue", ToqTask.of("fail", 1, max_retries=0))
        workers = SparkWorkers(any_spark, consumer, burst=True)
        assert workers.run()
        assert producer.result(good).value() == 3
        assert "ValueError: 1" in producer.result(bad).message
    progress = workers.progress
    assert (progress.done, progress.failed, progress.retried) == (1, 1, 0)


def test_workers_that_have_nothing_to_do_keep_their_connect_session(
    connect: ConnectServer, server: Running
) -> None:
    with Beside(connect.session):
        begun = connect.last_access_ms()
        wait_for(lambda: connect.last_access_ms() > begun + 1, SPARK_GUARD)


def test_the_command_runs_tasks_over_spark_connect(
    connect: ConnectServer, server: Running, tmp_path: Path
) -> None:
    held = worker_app.add.push(1, 2)
    command = ["work", "pipeline.worker_app:app", "--spark", "--master", connect.url, "--burst"]
    ran = subprocess.run(
        [sys.executable, "-m", "taskyard", *command],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TASKYARD_URL": server.url},
        capture_output=True,
        text=True,
        timeout=SPARK_GUARD,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "as consumer spark-functions" in ran.stderr
    assert "1 done, 0 failed" in ran.stderr
    assert held.result(wait=0) == 3


def test_a_broker_that_is_killed_is_waited_for_and_nothing_settled_runs_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "closed").touch()
    broker = TaskyardBroker(tmp_path / "server")
    with Running(broker) as running:
        before = app.url
        app.connect_to(running.url)
        handles = worker_app.note.starmap([(str(tmp_path), number) for number in range(40)])
        with Beside(spark, consumer="survivor"):
            wait_for(lambda: len(marks(tmp_path, "noted")) > 10, SPARK_GUARD)
            wait_for(lambda: any(handle.is_done() for handle in handles), SPARK_GUARD)
            settled = [at for at, handle in enumerate(handles) if handle.is_done()]
            broker.kill()
            (tmp_path / "closed").unlink()
            broker.start()
            assert [handle.result(wait=SPARK_GUARD) for handle in handles] == list(range(40))
        app.connect_to(before)
    ran = [int(number) for number in marks(tmp_path, "noted")]
    assert all(ran.count(number) == 1 for number in settled)
