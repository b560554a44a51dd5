"""The command line of `taskyard work`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.listeners import KeptPort
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from tasks.workers import HERE, SOURCES, WorkerProcess
from toq.brokers import Running

import taskyard
from taskyard.cli.work import main


def work(*arguments: str, directory: Path = HERE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "taskyard", "work", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["yard"], "'yard' does not name an app: write MODULE:APP, such as tasks:app"),
        (["nowhere:app"], f"there is no module nowhere in {HERE}"),
        (["yard:nothing"], "yard has no nothing"),
        (["yard:mark"], "yard:mark is a function, not a taskyard.App"),
        (["broken:app"], "broken cannot be imported: NameError: name 'missing' is not defined"),
        (["wanting:app"], "wanting cannot be imported: No module named 'not_installed'"),
        (["yard:app", "--queues", "a:1,b"], "give all queues a weight, as in a:3,b:1, or none"),
        (["yard:app", "--queues", "a,a"], "queue a is named twice"),
        (["yard:app", "--queues", "a:0"], "the weight of a must be above 0"),
        (["yard:app", "--concurrency", "0"], "must be at least 1"),
        (["yard:app", "--pool", "fibres"], "invalid choice: 'fibres'"),
        (["yard:app", "--lease", "soon"], "'soon' is not a number of seconds above 0"),
        (["yard:app", "--master", "local"], "--master is for workers on Spark: add --spark"),
        (["yard:app", "--spark", "--lease", "9"], "--lease has no meaning with --spark"),
        (["yard:mark", "--spark"], "yard:mark is a function, not an App or a Consumer of toq"),
        (["yard:app", "--spark", "--url", "http://x"], "is not a URL like taskyard://"),
        (["yard:app", "--url", "http://x"], "is not a URL like taskyard://localhost:8002"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    directory = HERE
    if arguments[0] in ("broken:app", "wanting:app"):
        directory = tmp_path
        (tmp_path / "broken.py").write_text("app = missing\n")
        (tmp_path / "wanting.py").write_text("import not_installed\n")
    monkeypatch.chdir(directory)
    assert code_of(arguments) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.startswith("taskyard work: ")
    assert printed.count("\n") == 1


def code_of(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as end:
        return int(end.code or 0)


def test_the_exit_code_is_that_of_the_command() -> None:
    found = work("nowhere:app")
    assert found.returncode == 2
    assert found.stderr == f"taskyard work: there is no module nowhere in {HERE}.\n"


def test_it_says_what_it_runs(server: Running, tmp_path: Path) -> None:
    options = ("--burst", "--queues", "a:3,b:1", "--concurrency", "2")
    with WorkerProcess(tmp_path, server.url, *options) as worker:
        assert worker.wait() == 0
        assert "yard runs add, total, double," in worker.log()
        assert f" of a:3, b:1 in 2 threads (pid {worker.pid})" in worker.log()


def test_a_server_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    with KeptPort() as port:
        url = f"taskyard://127.0.0.1:{port.number}"
        with WorkerProcess(tmp_path, url) as worker:

            def has_told() -> bool:
                assert worker.is_running(), worker.log()
                return "cannot fetch jobs" in worker.log()

            wait_for(has_told)
            assert worker.is_running()


def test_a_worker_that_the_server_does_not_want_ends(server: Running, tmp_path: Path) -> None:
    url = server.url.replace("//", "//ann:secret@")
    with WorkerProcess(tmp_path, url, "--burst") as worker:
        assert worker.wait() == 4
        last = worker.log().splitlines()[-1]
        assert last.startswith("taskyard work: ")
        assert "taskyard://USER:PASSWORD@HOST" in last


def test_an_app_that_processes_cannot_import_is_told_of(tmp_path: Path, server: Running) -> None:
    (tmp_path / "hidden.py").write_text(
        "import multiprocessing, os, taskyard\n"
        "app = taskyard.App()\n"
        "if multiprocessing.current_process().name == 'taskyard-worker':\n"
        "    os._exit(7)\n"  # at once: who takes longer for it than a second is killed
    )
    options = ("--pool", "processes", "--concurrency", "1", "--url", server.url)
    found = work("hidden:app", *options, directory=tmp_path)
    assert found.returncode == 1
    assert "a worker process could not be started: it ended with exit code 7" in found.stderr


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_tasks_push_to_the_server_that_the_worker_was_told(
    tmp_path: Path, server: Running, pool: str
) -> None:
    nobody = "taskyard://127.0.0.1:1?patience=0"
    (tmp_path / "pushing.py").write_text(
        "import taskyard\n"
        f"app = taskyard.App({nobody!r}, queue='url-{pool}')\n"
        "@app.task\n"
        "def first() -> None:\n"
        "    second.push()\n"
        "@app.task\n"
        "def second() -> None:\n"
        "    open('done', 'w').close()\n"
    )
    with taskyard.Client(server.url) as client:
        client.push(f"url-{pool}", name="first")
    options = ("--pool", pool, "--concurrency", "1", "--burst", "--url", server.url)
    found = work("pushing:app", *options, directory=tmp_path)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "done").exists(), found.stderr


def test_a_worker_takes_from_the_server_of_the_client_it_was_given(server: Running) -> None:
    with taskyard.App(client=taskyard.Client(server.url), queue="given-client") as app:

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        handle = add.push(1, 2)
        assert app.worker(burst=True).run()
        assert handle.result(HANG_GUARD) == 3
