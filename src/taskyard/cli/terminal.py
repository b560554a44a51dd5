"""A terminal that a program has to itself: keys as they are typed, and a screen without flicker."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import sys
import termios
import tty
from types import FrameType, TracebackType
from typing import Final, Self

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"  # other screen, no cursor, no wrapping
_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_BEGIN: Final = "\x1b[?2026h"  # terminals that support this show all changes together
_END: Final = "\x1b[?2026l"
_KEYS: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "interrupt",
}


class Terminal:
    """A context. What was there before is there again behind it, also after a signal."""

    def __init__(self) -> None:
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._lines: list[str] = []
        self._size = (0, 0)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._before = termios.tcgetattr(self._in)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)

    def __enter__(self) -> Self:
        self._enter()
        self._old_handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGWINCH, self._resized),
                (signal.SIGTSTP, self._suspend),
                (signal.SIGTERM, self._terminate),
                (signal.SIGHUP, self._terminate),
            )
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._leave()
        os.close(self._wake_read)
        os.close(self._wake_write)

    # What happens

    def wake(self) -> None:
        """From any thread: let `keys` return."""
        with contextlib.suppress(OSError):  # it is awake already, or over
            os.write(self._wake_write, b"w")

    def keys(self, wait: float | None) -> list[str]:
        """Those that were typed; [] after so many seconds, or when something else is to do."""
        readable, _, _ = select.select([self._in, self._wake_read], [], [], wait)
        if self._wake_read in readable:
            os.read(self._wake_read, 4096)
        if self._in not in readable:
            return []
        data = os.read(self._in, 1024)
        if not data:
            return ["interrupt"]  # the terminal has gone
        return _split(self._decode(data))

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    # Drawing

    def show(self, lines: list[str]) -> None:
        """Only what has changed since the last time is written."""
        size = self.size()
        parts = []
        if size != self._size:
            parts.append("\x1b[2J")
            self._lines = []
            self._size = size
        for row, line in enumerate(lines):
            if row >= len(self._lines) or self._lines[row] != line:
                parts.append(f"\x1b[{row + 1};1H{line}\x1b[0m\x1b[K")
        self._lines = list(lines)
        if parts:
            self._write(_BEGIN + "".join(parts) + _END)

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._out, data) :]

    def _enter(self) -> None:
        tty.setcbreak(self._in)
        self._size = (0, 0)
        self._write(_ENTER)

    def _leave(self) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    # Signals

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self.wake()

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()  # when it continues
        self.wake()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt


def _split(text: str) -> list[str]:
    """Keys of what a terminal sends: single characters, and sequences that begin with Esc."""
    keys: list[str] = []
    while text:
        length = next((size for size in (4, 3) if text[:size] in _KEYS), 1)
        if length == 1 and text[0] == "\x1b" and len(text) > 1:
            return keys  # a sequence that means nothing here
        keys.append(_KEYS.get(text[:length], text[:length]))
        text = text[length:]
    return keys
