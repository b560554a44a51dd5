"""The process that fills the lake: started, listened to, started again when it dies, and ended.

A thread of its own does all of that, since to start a process and to wait for one hold up whoever
does it. The thread knows nothing of the broker: what it hears, it tells a Listener.

The process has a session of its own, so that its descendants can be ended with it. Its standard
input never has anything to read, and ends with the server, however that ends: see
cli/lake_beside.py. Its standard output has lines of JSON, its standard error is for the log.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol

_LOOK: Final = 1.0  # seconds between two looks whether it still runs, if it says nothing
_END_LOOK: Final = 0.05  # and once it was told to end
_CHUNK: Final = 65_536
_LONGEST_LINE: Final = 65_536


class Listener(Protocol):
    """Called in the thread."""

    def started(self, pid: int) -> None: ...

    def reported(self, line: bytes) -> None: ...

    def said(self, line: str) -> None: ...

    def ended(self, why: str, pause: float) -> None:
        """It has died, and will be started again after the pause."""
        ...

    def over(self) -> None:
        """It has ended since it was told to."""
        ...


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

    def __init__(self, command: Sequence[str], listener: Listener, patience: Patience) -> None:
        self._command = list(command)
        self._listener = listener
        self._patience = patience
        self._stopping = threading.Event()
        self._hears, self._wakes = os.pipe()
        self._thread = threading.Thread(target=self._supervise, name="lake", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Tell it to end; `over` says when it has."""
        if not self._stopping.is_set():
            self._stopping.set()
            os.write(self._wakes, b"x")

    def join(self) -> None:
        self._thread.join()
        os.close(self._hears)
        os.close(self._wakes)

    def _supervise(self) -> None:
        try:
            self._run_until_stopped()
        finally:  # else a server that stops would wait for it in vain
            self._listener.over()

    def _run_until_stopped(self) -> None:
        pause = self._patience.first_pause
        while not self._stopping.is_set():
            began = time.monotonic()
            why = self._run_once()
            if self._stopping.is_set():
                break
            if time.monotonic() - began >= self._patience.healthy:
                pause = self._patience.first_pause
            self._listener.ended(why, pause)
            _readable([self._hears], pause)
            pause = min(2 * pause, self._patience.longest_pause)

    def _run_once(self) -> str:
        """Gives why it has ended."""
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            return f"it cannot be started: {error}"
        with process:
            self._listener.started(process.pid)
            last = _LastWords(self._listener.said)
            assert process.stdout is not None
            assert process.stderr is not None
            pipes = [
                _Pipe(process.stdout, self._listener.reported),
                _Pipe(process.stderr, last.hear),
            ]
            if not self._listen(process, pipes):
                _kill_all(process.pid)
            process.wait()
            _end_all(process.pid, self._patience.farewell)
            for pipe in pipes:
                pipe.drain()
        return _how(process.returncode) + (f": {last.words}" if last.words else "")

    def _listen(self, process: subprocess.Popen[bytes], pipes: list[_Pipe]) -> bool:
        """Until it has ended, by itself or since it was told to; False: it does not end."""
        deadline = 0.0
        while not _has_ended(process.pid):
            if self._stopping.is_set() and not deadline:
                process.terminate()
                deadline = time.monotonic() + self._patience.stop
            if deadline and time.monotonic() >= deadline:
                return False
            wanted = [pipe.number for pipe in pipes if pipe.is_open]
            if not self._stopping.is_set():
                wanted.append(self._hears)
            ready = _readable(wanted, _END_LOOK if deadline else _LOOK)
            for pipe in pipes:
                if pipe.number in ready:
                    pipe.read()
        return True


class _Pipe:
    """What the process writes, in lines. It may be that a descendant never closes it."""

    def __init__(self, file: IO[bytes], each: Callable[[bytes], None]) -> None:
        self.number = file.fileno()
        self.is_open = True
        self._each = each
        self._rest = b""
        os.set_blocking(self.number, False)

    def read(self) -> bool:
        """What is there now; False: nothing."""
        try:
            data = os.read(self.number, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.is_open = False
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._each(line)
        return True

    def drain(self) -> None:
        """It has ended: take what is left."""
        while self.is_open and self.read():
            pass
        if self._rest:
            self._each(self._rest)


class _LastWords:
    """Lines for people, and the last of them that says why: not one of a trace."""

    def __init__(self, said: Callable[[str], None]) -> None:
        self.words = ""
        self._said = said

    def hear(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self._said(text)
        if text and not text[0].isspace():
            self.words = text


def _readable(numbers: list[int], seconds: float) -> set[int]:
    """Not with select(), which knows no descriptors beyond 1023."""
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return {number for number, _ in poll.poll(seconds * 1000)}


def _has_ended(pid: int) -> bool:
    """Whether it has; it stays there to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end_all(pid: int, farewell: float) -> None:
    """Its descendants end when they see that it has; else they are made to."""
    deadline = time.monotonic() + farewell
    while _signal_all(pid, 0) and time.monotonic() < deadline:
        time.sleep(_END_LOOK)
    _kill_all(pid)


def _kill_all(pid: int) -> None:
    """The process and those of its descendants that have stayed in its group."""
    _signal_all(pid, signal.SIGKILL)


def _signal_all(pid: int, number: int) -> bool:
    """False: there is nobody any more."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _how(code: int) -> str:
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"
