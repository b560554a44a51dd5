"""Threads, processes and coroutines that run jobs."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.sockets import HANG_GUARD, POLL_INTERVAL
from support.waiting import wait_for

from taskyard.client.source import Job
from taskyard.worker.coroutines import AsyncPool
from taskyard.worker.pools import Pool, RunFailure, ThreadPool
from taskyard.worker.processes import ProcessPool


def job(text: str) -> Job:
    return Job(ref=text, queue="q", payload=text.encode())


class Riddle:
    """What can be sent, and not be received."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return int, ("no number",)


def run(one: Job) -> Any:
    """What a job does is its payload."""
    match one.payload.decode().split():
        case ["pid"]:
            return os.getpid()
        case ["kill", number]:
            os.kill(os.getpid(), int(number))
        case ["riddle"]:
            return Riddle()
        case ["exit", code]:
            os._exit(int(code))
        case ["leave"]:
            sys.exit("bye")
        case ["raise"]:
            raise ValueError("why")
        case ["unpicklable"]:
            return lambda: None
        case ["wait", path]:
            Path(path + ".begun").touch()
            while not Path(path).exists():
                time.sleep(POLL_INTERVAL)
        case ["signal"]:
            for one_of_them in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                os.kill(os.getpid(), one_of_them)
            return "alive"
    return one.payload


async def run_async(one: Job) -> Any:
    await asyncio.sleep(0)
    return run(one)


class Reports:
    """What a pool reports, in its order."""

    def __init__(self, pool: Pool[Any]) -> None:
        self.pool = pool
        self._all: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        pool.start(lambda one, outcome: self._all.put((one.ref, outcome)))

    def submit(self, text: str) -> Any:
        """Run a job, and give what came of it."""
        self.pool.submit(job(text))
        ref, outcome = self.next()
        assert ref == text
        return outcome

    def next(self) -> tuple[str, Any]:
        return self._all.get(timeout=HANG_GUARD)

    def is_empty(self) -> bool:
        return self._all.empty()


@pytest.fixture
def processes() -> Iterator[Reports]:
    reports = Reports(ProcessPool(run, 1))
    yield reports
    reports.pool.close()


POOLS: dict[str, Callable[[], Pool[Any]]] = {
    "threads": lambda: ThreadPool(run, 1),
    "coroutines": lambda: AsyncPool(run_async, 1),
    "processes": lambda: ProcessPool(run, 1),
}


@pytest.mark.parametrize("kind", POOLS)
def test_jobs_are_run_one_after_the_other(kind: str) -> None:
    reports = Reports(POOLS[kind]())
    for text in ("one", "two", "three"):
        reports.pool.submit(job(text))
    expected = [("one", b"one"), ("two", b"two"), ("three", b"three")]
    assert [reports.next() for _ in range(3)] == expected
    for text, end in (("raise", "ValueError: why\n"), ("leave", "SystemExit: bye\n")):
        outcome = reports.submit(text)
        assert isinstance(outcome, RunFailure)
        assert outcome.reason.endswith(end)
    assert reports.submit("more") == b"more"
    reports.pool.close()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_jobs_that_nobody_has_begun_with_can_be_withdrawn(kind: str, tmp_path: Path) -> None:
    reports = Reports(POOLS[kind]())
    path = tmp_path / "file"
    for text in (f"wait {path}", "one", "two"):
        reports.pool.submit(job(text))
    wait_for_file(tmp_path / "file.begun")
    assert [one.ref for one in reports.pool.withdraw()] == ["one", "two"]
    path.touch()
    assert reports.next()[0] == f"wait {path}"
    reports.pool.close()
    assert reports.is_empty()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_pool_that_is_killed_reports_nothing(kind: str, tmp_path: Path) -> None:
    others = set(threading.enumerate())
    reports = Reports(POOLS[kind]())
    path = tmp_path / "file"
    reports.pool.submit(job(f"wait {path}"))
    reports.pool.submit(job("one"))
    wait_for_file(tmp_path / "file.begun")
    reports.pool.kill()
    path.touch()
    for thread in set(threading.enumerate()) - others:
        thread.join(HANG_GUARD)
        assert not thread.is_alive()
    assert reports.is_empty()


def test_coroutines_are_cancelled_by_a_kill() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait(one: Job) -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    reports = Reports(AsyncPool(wait, 1))
    reports.pool.submit(job("one"))
    reports.pool.submit(job("two"))
    assert begun.wait(HANG_GUARD)
    reports.pool.kill()
    assert cancelled.wait(HANG_GUARD)
    assert reports.is_empty()


def test_coroutines_run_at_once_up_to_the_size() -> None:
    running: list[str] = []
    futures: list[asyncio.Future[None]] = []

    async def wait(one: Job) -> None:
        running.append(one.ref)
        futures.append(asyncio.get_running_loop().create_future())
        await futures[-1]

    reports = Reports(AsyncPool(wait, 2))
    for text in ("one", "two", "three"):
        reports.pool.submit(job(text))
    wait_for(lambda: len(futures) == 2)
    assert running == ["one", "two"]
    assert [one.ref for one in reports.pool.withdraw()] == ["three"]
    for future in futures:
        future.get_loop().call_soon_threadsafe(future.set_result, None)
    assert {reports.next()[0], reports.next()[0]} == {"one", "two"}
    reports.pool.close()


def test_jobs_run_in_another_process(processes: Reports) -> None:
    pid = processes.submit("pid")
    assert pid != os.getpid()
    assert processes.submit("pid") == pid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kill 9", "the process that ran it was ended by SIGKILL"),
        ("kill 40", "the process that ran it was ended by signal 40"),
        ("exit 3", "the process that ran it ended with exit code 3"),
        ("exit 0", "the process that ran it ended with exit code 0"),
    ],
)
def test_a_process_that_dies_is_replaced(processes: Reports, text: str, reason: str) -> None:
    pid = processes.submit("pid")
    assert processes.submit(text) == RunFailure(reason)
    assert processes.submit("pid") not in (pid, None)


def test_a_process_that_died_while_idle_costs_no_job(processes: Reports) -> None:
    pid = processes.submit("pid")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")
    assert processes.submit("pid") != pid


def test_an_outcome_that_cannot_be_sent_is_a_crash(processes: Reports) -> None:
    outcome = processes.submit("unpicklable")
    assert isinstance(outcome, RunFailure)
    assert outcome.reason.startswith("its outcome cannot be sent back")
    assert processes.submit("one") == b"one"


def test_an_outcome_that_cannot_be_received_is_a_crash(processes: Reports) -> None:
    outcome = processes.submit("riddle")
    assert isinstance(outcome, RunFailure)
    assert "no number" in outcome.reason
    assert processes.submit("pid") is not None


def test_signals_for_the_parent_do_not_end_a_process(processes: Reports) -> None:
    assert processes.submit("signal") == "alive"


def test_what_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be run in another process"):
        ProcessPool(lambda one: None, 1)


class Broken:
    """Can be pickled, and not be unpickled."""

    def __call__(self, one: Job) -> None:
        pass

    def __reduce__(self) -> tuple[Any, ...]:
        return (os._exit, (5,))


def test_processes_that_cannot_start_are_told_of() -> None:
    pool: ProcessPool[None] = ProcessPool(Broken(), 2)
    with pytest.raises(OSError, match="could not be started: it ended with exit code 5"):
        pool.start(lambda one, outcome: None)


class Fragile:
    """Cannot be had in a process while a certain file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, one: Job) -> Any:
        return run(one)

    def __reduce__(self) -> tuple[Any, ...]:
        return fragile, (self.path,)


def fragile(path: Path) -> Fragile:
    if path.exists():
        os._exit(5)
    return Fragile(path)


def test_a_job_for_which_no_process_can_be_started_is_not_begun(tmp_path: Path) -> None:
    reports = Reports(ProcessPool(Fragile(tmp_path / "broken"), 1))
    reports.submit("exit 1")
    (tmp_path / "broken").touch()
    outcome = reports.submit("pid")
    assert isinstance(outcome, RunFailure)
    assert not outcome.begun
    assert "could not be started" in outcome.reason
    (tmp_path / "broken").unlink()
    assert reports.submit("pid") != os.getpid()
    reports.pool.close()


def wait_for_file(path: Path) -> None:
    wait_for(path.exists)
