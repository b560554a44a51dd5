"""`taskyard work --spark` on a real cluster, whose executors and drivers are killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pipeline import worker_app
from pipeline.cluster import Cluster, Driver, executors
from pipeline.worker_app import app, marks
from support.waiting import SPARK_GUARD, wait_for
from tasks.workers import SOURCES
from toq.brokers import Running, TaskyardBroker

TESTS: Final = Path(__file__).parents[1]
COUNT: Final = 60


def start_driver(directory: Path, url: str, master: str) -> Driver:
    """Of the app in worker_app.py, until nothing is left to do."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((SOURCES, str(TESTS))),
        "TASKYARD_URL": url,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "taskyard", "work", "pipeline.worker_app:app", "--spark"]
    command += ["--ui"]
    command += ["--master", master, "--consumer", "killed", "--concurrency", "2", "--burst"]
    return Driver(directory, command, cwd=TESTS, env=environment)


def test_nothing_is_lost_when_executors_and_drivers_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("server", "driver", "marks"):
        (tmp_path / name).mkdir()
    place = tmp_path / "marks"
    (place / "closed").touch()

    def stuck() -> bool:
        """All that can run wait at the gate: two places with two tasks each."""
        return len({number for number in marks(place, "noted") if number[-1] in "49"}) == 4

    with Running(TaskyardBroker(tmp_path / "server")) as server:
        app.connect_to(server.url)
        handles = worker_app.note.starmap([(str(place), number) for number in range(COUNT)])

        def settled() -> set[int]:
            return {number for number, handle in enumerate(handles) if handle.is_done()}

        with start_driver(tmp_path / "driver", server.url, cluster.master) as driver:
            driver.wait_until(stuck)
            driver.wait_until(settled)
            before_kill, begun = settled(), len(marks(place, "noted"))
            # None of another driver any more.
            driver.wait_until(lambda: len(executors(cluster.directory)) == 1)
            cluster.kill_executors()
            driver.wait_until(lambda: len(marks(place, "noted")) >= begun + 4)
        # Their Python workers end a moment later, and would go on with what they have.
        wait_for(lambda: not executors(cluster.directory, ""), SPARK_GUARD)
        before_restart, done = len(marks(place, "noted")), settled()
        (place / "closed").unlink()
        with start_driver(tmp_path / "driver", server.url, cluster.master) as driver:
            assert driver.wait() == 0, driver.log()
            log = driver.log()
        assert [handle.result(wait=0) for handle in handles] == list(range(COUNT))
        assert app.client.consumers() == []
        app.close()

    ran = [int(number) for number in marks(place, "noted")]
    assert not before_kill & set(ran[begun:])
    assert not done & set(ran[before_restart:])
    assert "Spark's own page: http://" in log
    assert f"{COUNT - len(done)} done, 0 failed" in log
