"""System calls of a running server that fail, take long or kill it, as strace makes them do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from support.waiting import wait_for


class Injection:
    """A context: strace on a process and all its threads, from entering it to leaving it.

    Each of `faults` is one of strace's: "fdatasync:error=EIO:when=3+". The n-th call is counted
    from here on, for each thread by itself. `paths`: only calls on one of these files.
    """

    def __init__(self, pid: int, directory: Path, *faults: str, paths: Sequence[Path] = ()) -> None:
        self._pid = pid
        self._notes = directory / "strace.txt"
        self._said = directory / "strace.log"
        self._faults = faults
        self._paths = paths
        self._strace: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        assert shutil.which("strace"), "these tests need strace (Debian: apt-get install strace)"
        calls = ",".join(dict.fromkeys(fault.partition(":")[0] for fault in self._faults))
        command = ["strace", "-f", "-p", str(self._pid), "-o", str(self._notes)]
        command += ["-e", f"trace={calls}", "-e", "signal=none"]
        for fault in self._faults:
            command += ["-e", f"inject={fault}"]
        for path in self._paths:
            command += ["-P", str(path)]
        with self._said.open("wb") as log:
            self._strace = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL)
        wait_for(self._is_attached)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The process goes on undisturbed."""
        assert self._strace is not None
        self._strace.send_signal(signal.SIGINT)
        self._strace.wait()

    def count(self) -> int:
        """How many calls were interfered with so far."""
        notes = self._notes.read_text(errors="replace")
        return notes.count("(INJECTED)") + notes.count("(DELAYED)")

    def _is_attached(self) -> bool:
        assert self._strace is not None
        if self._strace.poll() is not None:
            said = self._said.read_text(errors="replace")
            assert "attached" in said, (
                f"these tests need strace to attach to a process of this user: {said}"
            )
            return True  # what it has done to the process was the end of it
        try:
            tasks = os.listdir(f"/proc/{self._pid}/task")
        except FileNotFoundError:
            return False  # the process has ended, and strace will
        return all(self._is_traced(task) for task in tasks)

    def _is_traced(self, task: str) -> bool:
        try:
            status = Path(f"/proc/{self._pid}/task/{task}/status").read_text()
        except FileNotFoundError:
            return True  # it has ended
        return "TracerPid:\t0\n" not in status
