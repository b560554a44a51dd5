"""The process that fills the lake: started, listened to, started again when it dies, and ended.

A thread of its own does all of that, since to start a process and to wait for one hold up whoever
does it. The process has a session of its own, so that its descendants can be ended with it. Its
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

_LOOK: Final = 0.05  # seconds between two looks whether descendants are gone
_LONGEST_LINE: Final = 65_536


class Listener(Protocol):
    """What the process has done: called where `post` of the process has it called."""

    def on_start(self, pid: int) -> None: ...
    def on_report(self, line: bytes) -> None: ...
    def on_words(self, line: str) -> None: ...
    def on_death(self, why: str, pause: float) -> None: ...
    def on_end(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Patience:
    """In seconds."""

    first_pause: float = 1.0  # before it is started again; doubled each time
    longest_pause: float = 300.0
    healthy: float = 60.0  # how long it must have run for the pauses to begin anew
    stop: float = 10.0  # from being told to end to being made to
    farewell: float = 3.0  # for what its descendants then do, such as to remove their files


class LakeProcess:
    """Start, stop, join: in this order, once."""

    def __init__(
        self,
        command: Sequence[str],
        listener: Listener,
        post: Callable[..., Any],
        patience: Patience,
    ) -> None:
        """`post` has something called elsewhere, from any thread."""
        self._command = list(command)
        self._listener = listener
        self._post = post
        self._patience = patience
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # so that what is about to be started is ended as well
        self._process: subprocess.Popen[bytes] | None = None
        self._last_words = ""
        self._thread = threading.Thread(target=self._supervise, name="lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end, and not to be started again; the listener hears of its end."""
        with self._lock:
            if self._process is not None and not self._stopping.is_set():
                self._process.terminate()
                timer = threading.Timer(self._patience.stop, _kill, [self._process])
                timer.daemon = True
                timer.start()
            self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _supervise(self) -> None:
        try:
            self._run_until_stopped()
        finally:  # else a server that stops would wait for it in vain
            self._post(self._listener.on_end)

    def _run_until_stopped(self) -> None:
        pause = self._patience.first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            why = self._run_once()
            if self._stopping.is_set():
                break
            if time.monotonic() - began >= self._patience.healthy:
                pause = self._patience.first_pause
            self._post(self._listener.on_death, why, pause)
            self._stopping.wait(pause)
            pause = min(2 * pause, self._patience.longest_pause)

    def _run_once(self) -> str:
        """Give the reason why it has ended."""
        self._last_words = ""
        try:
            process = self._begin()
        except OSError as error:
            return f"it cannot be started: {error}"
        if process is None:
            return "the server stops"
        ears = [_listen(process.stdout, self._hear_report), _listen(process.stderr, self._hear)]
        process.wait()
        _end_all(process.pid, self._patience.farewell)
        for ear in ears:  # one that has left the group may keep a pipe open
            ear.join(self._patience.farewell)
        assert process.stdin is not None
        process.stdin.close()
        return _how(process.returncode) + (f": {self._last_words}" if self._last_words else "")

    def _begin(self) -> subprocess.Popen[bytes] | None:
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
        self._post(self._listener.on_start, process.pid)
        return process

    def _hear_report(self, line: bytes) -> None:
        self._post(self._listener.on_report, line)

    def _hear(self, line: bytes) -> None:
        """What is for people; the last line that is none of a trace says why it has ended."""
        text = line.decode(errors="replace").rstrip()
        if text:
            self._post(self._listener.on_words, text)
        if text and not text[0].isspace():
            self._last_words = text


def _listen(pipe: IO[bytes] | None, each: Callable[[bytes], None]) -> threading.Thread:
    """Hear all lines of a pipe in a thread, up to its end."""
    assert pipe is not None

    def hear() -> None:
        with pipe:
            while line := pipe.readline(_LONGEST_LINE):
                each(line.rstrip(b"\n"))

    thread = threading.Thread(target=hear, name="lake pipe", daemon=True)
    thread.start()
    return thread


def _end_all(pid: int, farewell: float) -> None:
    """Its descendants end when they see that it has; else they are made to."""
    deadline = time.monotonic() + farewell
    while signal_group(pid, 0) and time.monotonic() < deadline:
        time.sleep(_LOOK)
    signal_group(pid, signal.SIGKILL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        signal_group(process.pid, signal.SIGKILL)


def _how(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
