"""A real standalone cluster of Spark: a master and a worker, each a process of its own."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyspark
from support.child import Child
from support.sockets import POLL_INTERVAL
from support.waiting import SPARK_GUARD, wait_for

from taskyard.pipeline.spark.session import java_home

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_DRIVER: Final = """
import sys
import taskyard.spark
memory = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
spark = taskyard.spark.session(sys.argv[1], conf=memory, ui=False)
arguments = sys.argv[2:]
"""


class Driver(Child):
    """A program that runs on Spark until it is done. Its JVM ends with it."""

    def wait_until(self, condition: Callable[[], object], pause: float = POLL_INTERVAL) -> None:
        def is_so() -> object:
            assert self.is_running(), f"it has ended:\n{self.log()}"
            return condition()

        wait_for(is_so, SPARK_GUARD, pause)

    def wait(self) -> int:
        return self._process.wait(SPARK_GUARD)


class Cluster:
    """It is there when the worker is known to the master, and until it is closed."""

    def __init__(self, directory: Path, cores: int = 2) -> None:
        self.directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": java_home(),
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        try:
            said = r"Starting Spark master at (spark://\S+)"
            self.master = self._start("master", said, _MASTER, "--port", "0")
            flags = ("-c", str(cores), "-m", "2g", self.master)
            self._start("worker", r"(Successfully registered) with master", _WORKER, *flags)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill the daemons, and the executors that they have started."""
        for daemon in self._daemons:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        self._daemons.clear()

    def driver(self, directory: Path, program: str, *arguments: str) -> Driver:
        """Python code that finds `spark` and `arguments`."""
        command = [sys.executable, "-c", _DRIVER + program, self.master, *arguments]
        return Driver(directory, command, env=self._environment)

    def kill_executors(self) -> None:
        running = executors(self.directory)
        assert running
        for pid in running:
            os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, said: str, kind: str, *flags: str) -> str:
        """Wait until the daemon has said something; gives the part in parentheses."""
        log = self.directory / f"{name}.log"
        spark_class = os.path.join(self._environment["SPARK_HOME"], "bin", "spark-class")
        with log.open("wb") as file:
            daemon = subprocess.Popen(
                [spark_class, kind, "--host", "127.0.0.1", "--webui-port", "0", *flags],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread has a lock then)
            )
        self._daemons.append(daemon)

        def found() -> re.Match[str] | None:
            text = log.read_text(errors="replace")
            assert daemon.poll() is None, text
            return re.search(said, text)

        wait_for(found, SPARK_GUARD)
        match = found()
        assert match is not None
        return match[1]


def executors(directory: Path, kind: str = _EXECUTOR) -> list[int]:
    """Those of clusters that have their files there; of any kind: their Python workers, too."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
            if command and kind in command and (entry / "cwd").readlink().is_relative_to(directory):
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended meanwhile, or is not ours
    return found


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
