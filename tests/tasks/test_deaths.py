"""Workers and servers that are stopped and killed in the middle: each task is run, none is lost."""

from __future__ import annotations

import contextlib
import itertools
import signal
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from tasks import yard
from tasks.workers import WorkerProcess, marks
from toq.brokers import Running, TaskyardBroker

from taskyard import TaskFailed, chain
from taskyard.tasks import Handle, Task

P = ParamSpec("P")
T = TypeVar("T")

COUNT = 300


pytestmark = pytest.mark.usefixtures("app")
_numbers = itertools.count(1)


@pytest.fixture
def queue() -> str:
    """Of one test, so that none sees what another has left."""
    return f"deaths-{next(_numbers)}"


# Of a worker that is not killed: shorter ones end when it, or the disk, stands still for a moment.
# They are longer than anybody here waits, so that what comes back was given back.
LEASE = ("--lease", "3600")
# Of a worker that is killed: a test ends them, and if one comes into being after that it ends soon.
ENDING = ("--lease", "30")


def start(directory: Path, server: Running, queue: str, *options: str) -> WorkerProcess:
    return WorkerProcess(directory, server.url, *LEASE, "--queues", queue, *options)


def on(queue: str, task: Task[P, T]) -> Task[P, T]:
    return task.with_options(queue=queue)


def test_a_stop_finishes_what_runs_and_gives_back_the_rest(
    server: Running, queue: str, tmp_path: Path
) -> None:
    with start(tmp_path, server, queue, "--concurrency", "1", "--prefetch", "5") as worker:
        held = on(queue, yard.hold).push("first")
        rest = on(queue, yard.add).starmap([(1, value) for value in range(4)])
        worker.wait_for_file("first-runs")
        wait_for(lambda: server.ask("LLEN", queue) == 0)
        worker.tell(signal.SIGTERM)
        wait_for(lambda: server.ask("LLEN", queue) == 4)
        (tmp_path / "first-may-end").touch()
        assert worker.wait() == 0
    assert held.result(HANG_GUARD) == "first"
    with start(tmp_path, server, queue, "--burst") as worker:
        assert worker.wait() == 0
    assert [handle.result(HANG_GUARD) for handle in rest] == [1, 2, 3, 4]


@pytest.mark.parametrize("pool", ["threads", "processes", "async"])
def test_a_second_signal_gives_back_what_runs(
    server: Running, queue: str, tmp_path: Path, pool: str
) -> None:
    task = on(queue, yard.hold_async if pool == "async" else yard.hold)
    with start(tmp_path, server, queue, "--pool", pool, "--concurrency", "1") as worker:
        handle = task.push("held")
        worker.wait_for_file("held-runs")
        worker.tell(signal.SIGINT)
        wait_for(lambda: "stopping" in worker.log())
        worker.tell(signal.SIGINT)
        assert worker.wait() == 130
    # It does not wait for long to have its last words answered.
    wait_for(lambda: server.ask("LLEN", queue) == 1)
    (tmp_path / "held-may-end").touch()
    with start(tmp_path, server, queue, "--burst") as worker:
        assert handle.result(HANG_GUARD) == "held"


@pytest.mark.parametrize("pool", ["threads", "processes", "async"])
def test_tasks_of_a_worker_that_was_killed_are_run_by_another(
    server: Running, queue: str, tmp_path: Path, pool: str
) -> None:
    handles = on(queue, yard.note).map(range(COUNT))
    held = on(queue, yard.hold_async if pool == "async" else yard.hold).push("held")
    last = chain(on(queue, yard.add).s(1, 2), on(queue, yard.double).s()).push()
    options = ("--pool", pool, "--concurrency", "2")
    with start(tmp_path, server, queue, *options, *ENDING) as worker:
        worker.wait_for_file("held-runs")
        worker.kill()
    server.broker.end_leases(queue)
    (tmp_path / "held-may-end").touch()
    with start(tmp_path, server, queue, *options) as worker:
        assert held.result(HANG_GUARD) == "held"
        for handle in handles:
            handle.result(HANG_GUARD)
        assert last.result(HANG_GUARD) == 6
    assert len(marks(tmp_path, "held-runs")) == 2
    assert set(map(int, marks(tmp_path, "noted"))) == set(range(COUNT))


def test_a_server_that_is_killed_loses_nothing(
    own_server: Running, queue: str, tmp_path: Path
) -> None:
    server = own_server
    yard.app.close()
    yard.app.url = server.url
    handles: list[Handle[Any]] = []
    for part in range(3):  # between them is one that runs while the server is killed
        handles += on(queue, yard.note).map(range(part * COUNT // 3, (part + 1) * COUNT // 3))
        handles.append(on(queue, yard.hold).push(f"held-{part}"))
    options = ("--concurrency", "2", "--prefetch", "2", "--lease", "0.5")
    with start(tmp_path, server, queue, *options) as worker:
        for part in range(3):
            worker.wait_for_file(f"held-{part}-runs")
            server.broker.kill()
            assert not marks(tmp_path, f"held-{part}-ended")
            server.broker.start()
            (tmp_path / f"held-{part}-may-end").touch()
        late = on(queue, yard.add).push(1, 2)
        for handle in handles:
            with contextlib.suppress(LookupError):  # its end is on disk, and nobody kept it
                handle.result(HANG_GUARD)
        assert late.result(HANG_GUARD) == 3
        assert worker.is_running()
    assert set(map(int, marks(tmp_path, "noted"))) == set(range(COUNT))


def test_tasks_are_run_once_when_nobody_dies(server: Running, queue: str, tmp_path: Path) -> None:
    options = ("--concurrency", "2")
    with start(tmp_path, server, queue, *options), start(tmp_path, server, queue, *options):
        for handle in on(queue, yard.note).map(range(COUNT)):
            handle.result(HANG_GUARD)
    assert sorted(map(int, marks(tmp_path, "noted"))) == list(range(COUNT))


def test_a_poison_pill_does_not_take_a_pool_of_processes_down(
    server: Running, queue: str, tmp_path: Path
) -> None:
    with start(tmp_path, server, queue, "--pool", "processes", "--concurrency", "1") as worker:
        pill = on(queue, yard.die).push()
        with pytest.raises(TaskFailed, match="the process that ran it was ended by SIGKILL"):
            pill.result(HANG_GUARD)
        assert on(queue, yard.add).push(1, 2).result(HANG_GUARD) == 3
        assert worker.is_running()
    assert len(set(marks(tmp_path, "died"))) == 2
    assert pill.info().state == "failed"


def test_a_poison_pill_that_kills_the_worker_ends_among_the_dead_letters(
    queue: str, tmp_path: Path
) -> None:
    directory = tmp_path / "impatient"
    directory.mkdir()
    broker = TaskyardBroker(directory)
    broker._server.flags += ["--max-losses", "2"]
    with Running(broker) as server:
        yard.app.close()
        yard.app.url = server.url
        pill = on(queue, yard.die).push()
        for _ in range(2):
            with start(tmp_path, server, queue, *ENDING) as worker:
                assert worker.wait() == -signal.SIGKILL
            server.broker.end_leases(queue)
        with start(tmp_path, server, queue):
            with pytest.raises(TaskFailed, match="poison pill"):
                pill.result(HANG_GUARD)
            assert on(queue, yard.add).push(1, 2).result(HANG_GUARD) == 3


def test_processes_end_with_the_worker_that_was_killed(
    server: Running, queue: str, tmp_path: Path
) -> None:
    with start(tmp_path, server, queue, "--pool", "processes", "--concurrency", "1") as worker:
        orphan = on(queue, yard.hold).push("orphan")
        worker.wait_for_file("orphan-runs")
        child = int(marks(tmp_path, "orphan-runs")[0])
        assert child != worker.pid
        worker.kill()
    assert orphan.cancel()

    def gone() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    wait_for(gone)
