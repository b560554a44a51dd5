"""Server, executor and driver killed at random points: every job arrives, and once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from support.process import ServerProcess

from taskyard.client.client import Client
from taskyard.client.errors import QueueNotFound

if TYPE_CHECKING:
    import pytest
    from spark.cluster import Cluster

JOBS: Final = 3000
_PUMP: Final = Path(__file__).with_name("pump.py")
_HANG_GUARD: Final = 300.0
_POLL_INTERVAL: Final = 0.02


def test_nothing_is_lost_and_nothing_doubled(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From queue to queue through a cluster. The uids are derived: nobody else would notice."""
    marks = sorted(random.sample(range(1, JOBS * 2 // 3), 3))
    with (
        ServerProcess(tmp_path) as server,
        Client("taskyard://{}:{}".format(*server.address("resp"))) as client,
    ):
        server.flags += ["--resp-port", str(server.address("resp")[1])]  # also when it is back
        client.push_many("in", [b"%d" % number for number in range(JOBS)])
        first = _Driver(cluster, client, tmp_path)
        try:
            first.wait_until_out(marks[0])
            server.kill()
            server.restart()
            first.wait_until_out(marks[1])
            _kill_executors(tmp_path_factory.getbasetemp())
            first.wait_until_out(marks[2])
        finally:
            first.kill()
        second = _Driver(cluster, client, tmp_path)
        try:
            second.wait()
        finally:
            second.kill()
        left = client.queue("in").counts
        assert (left.ready, left.leased) == (0, 0)
        taken = [job for _ in range(JOBS // 1000 + 1) for job in client.fetch("out", count=1000)]
        assert sorted(int(job.payload) for job in taken) == list(range(JOBS)), marks


class _Driver:
    """The program pump.py, with its JVM and the Python workers of that."""

    def __init__(self, cluster: Cluster, client: Client, directory: Path) -> None:
        self._client = client
        self._log = directory / "driver.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    _PUMP,
                    cluster.master,
                    str(client.address),
                    directory / "checkpoint",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": _python_path()},
                start_new_session=True,
            )

    def wait_until_out(self, jobs: int) -> None:
        deadline = time.monotonic() + _HANG_GUARD
        while self._out() < jobs:
            assert self._process.poll() is None, f"it has ended:\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"in vain:\n{self._log.read_text()}"
            time.sleep(_POLL_INTERVAL)

    def wait(self) -> None:
        assert self._process.wait(_HANG_GUARD) == 0, self._log.read_text()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _out(self) -> int:
        try:
            return self._client.queue("out").counts.ready
        except QueueNotFound:
            return 0


def _kill_executors(directory: Path) -> None:
    """Those of the cluster that has its files there."""
    killed = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_executor = b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes()
            if is_executor and (process / "cwd").readlink().is_relative_to(directory):
                os.kill(int(process.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue  # it has ended, or is not ours
    assert killed


def _python_path() -> str:
    """In full: an executor runs in a directory of its own."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(str(Path(part).absolute()) for part in parts if part)
