"""A program in a terminal of its own: what its screen shows, keys for it, and its size."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyte
from support.sockets import HANG_GUARD


class PtySession:
    """Entering the context starts the program."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        rows: int = 24,
        columns: int = 80,
    ) -> None:
        self._argv = list(argv)
        self._environment = {**environment, "TERM": "xterm-256color"}
        self._size = (rows, columns)
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()  # all that it has written
        self._ended = False
        self._code: int | None = None

    def __enter__(self) -> Self:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *self._size, 0, 0))
            os.execve(self._argv[0], self._argv, dict(self._environment))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def text(self) -> str:
        """What the screen shows."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, condition: str | Callable[[str], bool]) -> str:
        """Until the screen has this text, or this holds for it."""
        holds = condition if callable(condition) else lambda text: condition in text
        deadline = time.monotonic() + HANG_GUARD
        while not holds(self.text):
            assert time.monotonic() < deadline, f"in vain; the screen shows:\n{self.text}"
            assert self._pump() or holds(self.text), f"it has ended; the screen shows:\n{self.text}"
        return self.text

    def wait(self) -> int:
        """The exit code, when it has ended."""
        deadline = time.monotonic() + HANG_GUARD
        while self._pump():
            assert time.monotonic() < deadline, f"it goes on; the screen shows:\n{self.text}"
        _, status = os.waitpid(self._pid, 0)
        self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _pump(self) -> bool:
        """Takes what it has written, waiting a little for it; false at the end."""
        if self._ended:
            return False
        readable, _, _ = select.select([self._fd], [], [], 0.05)
        if not readable:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # how Linux says that the other side has gone
            data = b""
        self._ended = not data
        self.raw += data
        self._stream.feed(data)
        return not self._ended
