"""The process that fills the lake: started, read, started again when it dies, and ended.

A thread of its own does all of that, because starting a process and waiting for one block the
caller. The process has a session of its own, so that its descendants can be ended with it. Its
standard input never has anything to read, and ends with the server, however that ends: see
cli/lake_child.py. Its standard output has lines of JSON, its standard error is for the log.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

from taskyard.server.errand import signal_group

_POLL_SECONDS: Final = 0.05  # seconds between two looks whether descendants are gone
_MAX_LINE_BYTES: Final = 65_536


class LakeProcessListener(Protocol):
    """What the process has done: called where `post` of the process has it called."""

    def on_start(self, pid: int) -> None: ...
    def on_progress(self, line: bytes) -> None: ...
    def on_log_line(self, line: str) -> None: ...
    def on_crash(self, reason: str, pause: float) -> None: ...
    def on_end(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """In seconds."""

    first_pause: float = 1.0  # before it is started again; doubled each time
    max_pause: float = 300.0
    healthy_after: float = 60.0  # how long it must have run for the pauses to begin anew
    stop_timeout: float = 10.0  # from the request to end to the kill
    # for what its descendants then do, such as to remove their files
    group_exit_timeout: float = 3.0


class LakeProcess:
    """Start, stop, join: in this order, once."""

    def __init__(
        self,
        command: Sequence[str],
        listener: LakeProcessListener,
        call_on_loop: Callable[..., Any],
        policy: RestartPolicy,
    ) -> None:
        """`post` has something called elsewhere, from any thread."""
        self._command = list(command)
        self._listener = listener
        self._call_on_loop = call_on_loop
        self._policy = policy
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # so that what is about to be started is ended as well
        self._process: subprocess.Popen[bytes] | None = None
        self._last_log_line = ""
        self._thread = threading.Thread(target=self._supervise, name="lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it, and do not start it again; the listener is notified of its end."""
        with self._lock:
            if self._process is not None and not self._stopping.is_set():
                self._process.terminate()
                timer = threading.Timer(self._policy.stop_timeout, _kill_group_of, [self._process])
                timer.daemon = True
                timer.start()
            self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _supervise(self) -> None:
        try:
            self._run_until_stopped()
        finally:  # else a server that stops would wait for it in vain
            self._call_on_loop(self._listener.on_end)

    def _run_until_stopped(self) -> None:
        pause = self._policy.first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            why = self._run_once()
            if self._stopping.is_set():
                break
            if time.monotonic() - began >= self._policy.healthy_after:
                pause = self._policy.first_pause
            self._call_on_loop(self._listener.on_crash, why, pause)
            self._stopping.wait(pause)
            pause = min(2 * pause, self._policy.max_pause)

    def _run_once(self) -> str:
        """Give the reason why it has ended."""
        self._last_log_line = ""
        try:
            process = self._start_process()
        except OSError as error:
            return f"it cannot be started: {error}"
        if process is None:
            return "the server stops"
        ears = [
            _read_lines(process.stdout, self._on_stdout_line),
            _read_lines(process.stderr, self._on_stderr_line),
        ]
        process.wait()
        _wait_for_group(process.pid, self._policy.group_exit_timeout)
        for ear in ears:  # one that has left the group may keep a pipe open
            ear.join(self._policy.group_exit_timeout)
        assert process.stdin is not None
        process.stdin.close()
        return _describe_exit(process.returncode) + (
            f": {self._last_log_line}" if self._last_log_line else ""
        )

    def _start_process(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopping.is_set():
                return None
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self._call_on_loop(self._listener.on_start, process.pid)
        return process

    def _on_stdout_line(self, line: bytes) -> None:
        self._call_on_loop(self._listener.on_progress, line)

    def _on_stderr_line(self, line: bytes) -> None:
        """What is for people; the last line that is none of a trace says why it has ended."""
        text = line.decode(errors="replace").rstrip()
        if text:
            self._call_on_loop(self._listener.on_log_line, text)
        if text and not text[0].isspace():
            self._last_log_line = text


def _read_lines(pipe: IO[bytes] | None, each: Callable[[bytes], None]) -> threading.Thread:
    """Read all lines of a pipe in a thread, up to its end."""
    assert pipe is not None

    def hear() -> None:
        with pipe:
            while line := pipe.readline(_MAX_LINE_BYTES):
                each(line.rstrip(b"\n"))

    thread = threading.Thread(target=hear, name="lake pipe", daemon=True)
    thread.start()
    return thread


def _wait_for_group(pid: int, timeout: float) -> None:
    """Its descendants end when they see that it has; else they are made to."""
    deadline = time.monotonic() + timeout
    while signal_group(pid, 0) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    signal_group(pid, signal.SIGKILL)


def _kill_group_of(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        signal_group(process.pid, signal.SIGKILL)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
