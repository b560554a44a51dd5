"""A process that does one thing within a time limit, and is never left behind.

A thread of its own waits for it, since starting a process and waiting for one block the caller. The
process has a session of its own, so that its descendants can be killed with it, and a standard
input that ends with the server: see cli/lake_child.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

KILL_WAIT_SECONDS: Final = 5.0  # seconds for what was ended to be gone
MAX_MESSAGE_CHARS: Final = 500  # characters of what it says at last


@dataclass(frozen=True, slots=True)
class ProcessResult:
    code: int  # less than 0: it was ended
    output: bytes
    message: str  # the last line of its output, for people


class OneShotProcess:
    """Start, and terminate if need be: in this order, once."""

    def __init__(
        self,
        command: Sequence[str],
        timeout_seconds: float,
        call_on_loop: Callable[..., Any],
        on_done: Callable[[ProcessResult], None],
    ) -> None:
        """`call_on_loop` calls a function on the loop, from any thread; so `on_done` is called
        there.
        """
        self._command = list(command)
        self._timeout_seconds = timeout_seconds
        self._call_on_loop = call_on_loop
        self._on_done = on_done
        self._lock = threading.Lock()  # so that what is about to be started is ended as well
        self._process: subprocess.Popen[bytes] | None = None
        self._terminated = False
        self._thread = threading.Thread(target=self._run, name="errand", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def terminate(self) -> None:
        """Kill the process; `on_done` is called all the same."""
        with self._lock:
            self._terminated = True
            if self._process is not None:
                signal_group(self._process.pid, signal.SIGKILL)

    def join(self) -> None:
        self._thread.join(KILL_WAIT_SECONDS)

    def _run(self) -> None:
        try:
            ended = self._run_process()
        except OSError as error:
            ended = ProcessResult(-1, b"", f"it cannot be started: {error}")
        # The loop may have been closed meanwhile, and then the result is not needed.
        with contextlib.suppress(RuntimeError):
            self._call_on_loop(self._on_done, ended)

    def _run_process(self) -> ProcessResult:
        watched, kept = os.pipe()
        try:
            process = self._start_process(watched)
        finally:
            os.close(watched)
        try:
            if process is None:
                return ProcessResult(-1, b"", "the server stops")
            with process:
                out, said, in_time = self._wait_for_process(process)
        finally:
            os.close(kept)
        words = (
            _last_line(said)
            if in_time
            else f"it took longer than {self._timeout_seconds:g} seconds"
        )
        return ProcessResult(process.returncode if in_time else -1, out, words)

    def _start_process(self, stdin: int) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._terminated:
                return None
            self._process = subprocess.Popen(
                self._command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            return self._process

    def _wait_for_process(self, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, bool]:
        try:
            out, said = process.communicate(timeout=self._timeout_seconds)
            in_time = True
        except subprocess.TimeoutExpired:
            signal_group(process.pid, signal.SIGKILL)
            out, said = process.communicate()
            in_time = False
        with self._lock:
            self._process = None
        signal_group(process.pid, signal.SIGKILL)  # what it has left behind
        return out, said, in_time


def _last_line(stderr: bytes) -> str:
    """Not one of a trace."""
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    words = next((line for line in reversed(lines) if not line[0].isspace()), "")
    return words[:MAX_MESSAGE_CHARS]


def signal_group(pid: int, number: int) -> bool:
    """Signal a process and those of its descendants that are in its group; False: nobody is."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
