"""`taskyard work --spark` on a real cluster, whose executors and drivers are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from spark import crew_app
from spark.cluster import Cluster
from spark.crew_app import app, marks
from spark.patience import PATIENCE, wait_patiently
from support.child import Child
from tasks.workers import SOURCES
from toq.brokers import Running, TaskyardBroker

TESTS: Final = Path(__file__).parents[1]
COUNT: Final = 60
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class Driver(Child):
    """Of the app in crew_app.py, until nothing is left to do."""

    def __init__(self, directory: Path, url: str, master: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((SOURCES, str(TESTS))),
            "TASKYARD_URL": url,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [
            sys.executable,
            "-m",
            "taskyard",
            "work",
            "spark.crew_app:app",
            "--spark",
            "--ui",
        ]
        command += ["--master", master, "--consumer", "killed", "--concurrency", "2", "--burst"]
        super().__init__(directory, command, cwd=TESTS, env=environment)

    def wait_until(self, condition: Callable[[], object]) -> None:
        def so() -> object:
            assert self.is_running(), f"it has ended:\n{self.log()}"
            return condition()

        wait_patiently(so)

    def wait_for_its_end(self) -> int:
        return self._process.wait(PATIENCE)


def executors(directory: Path, kind: str = _EXECUTOR) -> list[int]:
    """Those with a directory that begins like this; of all kinds: with their Python workers."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
            place = os.readlink(entry / "cwd") if command and kind in command else ""
        except OSError:
            continue  # it has ended meanwhile, or is not ours
        if place.startswith(str(directory)):
            found.append(int(entry.name))
    return found


def test_nothing_is_lost_when_executors_and_drivers_are_killed(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("server", "driver", "marks"):
        (tmp_path / name).mkdir()
    place = tmp_path / "marks"
    (place / "closed").touch()

    def running() -> list[int]:
        return executors(tmp_path_factory.getbasetemp())

    def stuck() -> bool:
        """All that can run wait at the gate: two places with two tasks each."""
        return len({number for number in marks(place, "noted") if number[-1] in "49"}) == 4

    with Running(TaskyardBroker(tmp_path / "server")) as server:
        app.connect_to(server.url)
        handles = crew_app.note.starmap([(str(place), number) for number in range(COUNT)])

        def settled() -> set[int]:
            return {number for number, handle in enumerate(handles) if handle.is_done()}

        with Driver(tmp_path / "driver", server.url, cluster.master) as driver:
            driver.wait_until(stuck)
            driver.wait_until(settled)
            before_kill, begun = settled(), len(marks(place, "noted"))
            driver.wait_until(lambda: len(running()) == 1)  # none of another driver any more
            [executor] = running()
            os.kill(executor, signal.SIGKILL)
            driver.wait_until(lambda: len(marks(place, "noted")) >= begun + 4)
        # Their Python workers end a moment later, and would go on with what they have.
        wait_patiently(lambda: not executors(tmp_path_factory.getbasetemp() / "cluster", ""))
        before_restart, done = len(marks(place, "noted")), settled()
        (place / "closed").unlink()
        with Driver(tmp_path / "driver", server.url, cluster.master) as driver:
            assert driver.wait_for_its_end() == 0, driver.log()
            log = driver.log()
        assert [handle.result(wait=0) for handle in handles] == list(range(COUNT))
        assert app.client.consumers() == []
        app.close()

    ran = [int(number) for number in marks(place, "noted")]
    assert not before_kill & set(ran[begun:])
    assert not done & set(ran[before_restart:])
    assert "Spark's own page: http://" in log
    assert f"{COUNT - len(done)} done, 0 failed" in log
