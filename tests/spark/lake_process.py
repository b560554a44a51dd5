"""`taskyard lake run` as a process that is watched, told and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from support.waiting import SPARK_GUARD

from taskyard.pipeline.lake.snapshot import last_watermark
from taskyard.pipeline.lake.storage import Storage

_POLL_INTERVAL: Final = 0.1  # seconds: to look at a lake takes some of the processor from it


class LakeProcess:
    """Its end is that of the JVM it has started, too."""

    def __init__(self, log: Path, lake: Path, *flags: str) -> None:
        self.lake = lake
        self._log = log
        command = [sys.executable, "-m", "taskyard", "lake", "run", "--lake", str(lake), "--ui"]
        command += flags
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + SPARK_GUARD
        while not condition():
            assert self._process.poll() is None, f"it has ended:\n{self.text()}"
            assert time.monotonic() < deadline, f"in vain:\n{self.text()}"
            time.sleep(_POLL_INTERVAL)

    def wait_for_record(self, seq: int) -> None:
        self.wait_for(lambda: next_seq(self.lake) > seq)

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self._process.wait(SPARK_GUARD)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def next_seq(lake: Path) -> int:
    mark = last_watermark(Storage(lake))
    return 0 if mark is None else mark.next_seq
