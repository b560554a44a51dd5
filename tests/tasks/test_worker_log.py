"""What `taskyard work` logs of the tasks that it ran."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from tasks import yard
from tasks.workers import WorkerProcess
from toq.brokers import Running

import taskyard

KINDS = ("threads", "processes", "async")
RAISED = '    raise ValueError(f"attempt {found}")\n'

pytestmark = pytest.mark.usefixtures("app")


def log_of(server: Running, directory: Path, *options: str) -> str:
    with WorkerProcess(directory, server.url, "--burst", "--concurrency", "1", *options) as worker:
        assert worker.wait() == 0, worker.log()
        return worker.log()


@pytest.mark.parametrize("pool", KINDS)
def test_a_failed_task_is_logged_with_its_traceback(
    server: Running, tmp_path: Path, pool: str
) -> None:
    job = yard.fail_until.with_options(queue=f"log-{pool}", retry=0).push("failed", 9).id
    log = log_of(server, tmp_path, "--pool", pool, "--queues", f"log-{pool}")
    told = rf"ERROR fail_until \(job {job}\) failed after \d+\.\d{{3}} s: ValueError: attempt 1\n"
    found = re.search(told, log)
    assert found, log
    behind = log[found.end() :]
    assert RAISED in behind
    assert "in __call__" not in behind  # none of our own frames
    assert "in fail_until\n" in behind


def test_a_task_that_will_be_tried_again_is_a_warning(server: Running, tmp_path: Path) -> None:
    queue = "log-again"
    job = yard.fail_until.with_options(queue=queue, retry=1, backoff=60.0).push("again", 9).id
    log = log_of(server, tmp_path, "--queues", queue)
    assert f"WARNING fail_until (job {job}) failed after 0." in log
    assert " s and will be tried again: ValueError: attempt 1\nTraceback (most" in log
    assert RAISED in log


@pytest.mark.parametrize("pool", KINDS)
def test_a_task_that_succeeded_is_logged_with_its_duration(
    server: Running, tmp_path: Path, pool: str
) -> None:
    queue = f"log-done-{pool}"
    job = yard.double.with_options(queue=queue).push(2).id
    log = log_of(server, tmp_path, "--pool", pool, "--queues", queue)
    assert re.search(rf"INFO double \(job {job}\) succeeded in \d+\.\d{{3}} s\n", log), log


def test_only_what_is_severe_enough_is_logged(server: Running, tmp_path: Path) -> None:
    yard.double.with_options(queue="log-level").push(2)
    assert log_of(server, tmp_path, "--log-level", "warning", "--queues", "log-level") == ""


@pytest.mark.parametrize("pool", KINDS)
def test_a_log_of_json_has_the_job_in_fields(server: Running, tmp_path: Path, pool: str) -> None:
    queue = f"log-json-{pool}"
    handle = yard.fail_until.with_options(queue=queue, retry=0).push("json", 9)
    log = log_of(server, tmp_path, "--pool", pool, "--log-format", "json", "--queues", queue)
    lines = [json.loads(line) for line in log.splitlines()]
    [line] = [line for line in lines if line.get("job") == handle.id]
    seconds = line.pop("seconds")
    assert 0 < seconds < 600
    assert RAISED in line.pop("exception")
    assert line.pop("time").endswith("Z")
    assert line.pop("message").endswith(" s: ValueError: attempt 1")
    assert line == {
        "level": "error",
        "task": "fail_until",
        "job": handle.id,
        "uid": handle.uid,
        "queue": queue,
        "attempt": 1,
    }


def test_handlers_of_logging_get_exception_and_frames(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with taskyard.App(server.url, queue="log-handlers") as app:

        @app.task(retry=0)
        def fail() -> None:
            raise LookupError("nobody of that name")

        job = fail.push().id
        with caplog.at_level(logging.ERROR, "taskyard.worker"):
            assert app.worker(burst=True, concurrency=1).run()
    [record] = [one for one in caplog.records if "failed" in one.getMessage()]
    assert record.exc_info is not None
    kind, error, trace = record.exc_info
    assert kind is LookupError
    assert str(error) == "nobody of that name"
    assert trace is not None
    assert (trace.tb_frame.f_code.co_name, trace.tb_next) == ("fail", None)
    assert record.fields["job"] == job  # type: ignore[attr-defined]


def test_a_process_that_died_is_told_of_without_a_traceback(
    server: Running, tmp_path: Path
) -> None:
    queue = "log-died"
    job = yard.die.with_options(queue=queue, retry=0).push().id
    log = log_of(server, tmp_path, "--pool", "processes", "--queues", queue)
    told = rf"die \(job {job}\) failed after \d+\.\d{{3}} s: the process that ran it was ended by "
    assert re.search(told + "SIGKILL\n", log), log
    assert "Traceback" not in log


def test_an_app_that_configures_logging_keeps_its_handlers(server: Running, tmp_path: Path) -> None:
    (tmp_path / "own_logging.py").write_text(
        "import logging, taskyard\n"
        "logging.basicConfig(format='mine: %(message)s')\n"
        "app = taskyard.App(queue='log-own')\n"
        "@app.task\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
    )
    with taskyard.Client(server.url) as client:
        job = client.push("log-own", [1, 2], name="add").id
    options = ("--burst", "--concurrency", "1")
    with WorkerProcess(tmp_path, server.url, *options, app="own_logging:app", cwd=tmp_path) as one:
        assert one.wait() == 0, one.log()
        assert re.search(rf"mine: add \(job {job}\) succeeded in ", one.log()), one.log()
