"""Server processes that are forked from one which has imported everything.

`taskyard serve` takes a third of a second of a core to be loaded, and tests start hundreds. What is
forked is a process of its own with the same code, the same flags and the same signals, so it may be
killed and started again like any other. How a server is loaded is the matter of tests/server.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

PAUSE = 0.005  # seconds between two questions whether a process has ended


class WarmProcess:
    """`taskyard` with these arguments, to be used as a subprocess.Popen is."""

    def __init__(self, arguments: Sequence[str], log: Path, mode: str) -> None:
        request = {
            "arguments": list(arguments),
            "log": str(log.absolute()),
            "mode": mode,
            "directory": os.getcwd(),
            "environment": dict(os.environ),
        }
        self.pid: int = _nursery().ask(request)
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, or the negative number of a signal, when it has ended."""
        if self._code is None:
            self._code = _nursery().ask({"ended": self.pid})
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("taskyard", timeout or 0)
            time.sleep(PAUSE)
        return code

    def send_signal(self, number: int) -> None:
        # Its number is nobody else's: the parent keeps the dead until poll() has asked for them.
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Nursery:
    """The process that forks the others, from here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        atexit.register(self._close)

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def _close(self) -> None:
        """At its end it kills whom a test has left running."""
        if os.getpid() == self._owner:  # and no process that a test has forked
            self._process.communicate()


@cache
def _nursery() -> _Nursery:
    return _Nursery()


# What follows runs in the nursery.


def _load() -> None:
    """All that `taskyard serve` imports, also where it does so late."""
    import taskyard.cli.main
    import taskyard.cli.serve
    import taskyard.server.app  # noqa: F401


def _become(request: dict[str, Any]) -> int:
    from taskyard.cli.main import main

    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if request["mode"] == "a" else os.O_TRUNC)
    log = os.open(request["log"], flags, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    return main(request["arguments"])


def _start(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _become(request)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _nurse() -> None:
    _load()
    alive: set[int] = set()
    # Unbuffered: what a buffer held when a child is forked would be the child's too.
    for line in iter(lambda: _read_line(0), b""):
        request = json.loads(line)
        answer: int | None
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            alive.discard(pid)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = _start(request)
            alive.add(answer)
        os.write(1, json.dumps(answer).encode() + b"\n")
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _read_line(descriptor: int) -> bytes:
    """One request: nobody sends a second one before the answer to it."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(descriptor, 65_536)
        if not piece:
            return b""
        line += piece
    return line


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's, for pytest
    _nurse()
