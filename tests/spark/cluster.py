"""A real standalone cluster of Spark: a master and a worker, each a process of its own."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark
from support.sockets import POLL_INTERVAL

from taskyard.pipeline.spark.java import java_home

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG
_PATIENCE: Final = 240.0  # seconds; a guard against a hang, on however busy a machine


class Cluster:
    """Entering the context starts it and waits until the worker is known to the master."""

    def __init__(self, directory: Path, cores: int = 2) -> None:
        self._directory = directory
        self._cores = cores
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": java_home(),
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self.master = ""

    def __enter__(self) -> Self:
        try:
            log = self._start("master", _MASTER, "--port", "0")
            self.master = self._said(log, r"Starting Spark master at (spark://\S+)")
            cores, memory = str(self._cores), "2g"
            log = self._start("worker", _WORKER, "-c", cores, "-m", memory, self.master)
            self._said(log, r"(Successfully registered) with master")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """The daemons, and the executors that they have started."""
        for daemon in self._daemons:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
        self._daemons.clear()

    def run(self, program: str, *arguments: str) -> str:
        """What a driver of its own prints: Python code that finds `spark` and `arguments`."""
        source = _DRIVER + program
        ran = subprocess.run(
            [sys.executable, "-c", source, self.master, *arguments],
            env={**self._environment, "SPARK_LOCAL_DIRS": str(self._directory / "local")},
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def _start(self, name: str, *command: str) -> Path:
        log = self._directory / f"{name}.log"
        spark_class = os.path.join(self._environment["SPARK_HOME"], "bin", "spark-class")
        kind, *rest = command
        flags = ["--host", "127.0.0.1", "--webui-port", "0", *rest]
        with log.open("wb") as file:
            self._daemons.append(
                subprocess.Popen(
                    [spark_class, kind, *flags],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 (no thread has a lock then)
                )
            )
        return log

    def _said(self, log: Path, pattern: str) -> str:
        """Wait until a daemon has said something; gives the part in parentheses."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            text = log.read_text(errors="replace")
            if found := re.search(pattern, text):
                return found[1]
            assert self._daemons[-1].poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(POLL_INTERVAL)


_DRIVER: Final = """
import sys
import taskyard.spark
spark = taskyard.spark.session(
    sys.argv[1],
    conf={"spark.executor.memory": "512m", "spark.driver.memory": "512m"},
    ui=False,
)
arguments = sys.argv[2:]
"""


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
