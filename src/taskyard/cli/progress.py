"""How far something is that takes more than a second: on stderr, and only if that is a terminal."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from taskyard.cli.style import is_terminal
from taskyard.cli.text import cut

SHOW_AFTER_S: Final = 1.0  # seconds before anything is shown
_REDRAW_S: Final = 0.1
_BAR: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class ProgressBar:
    """A context: a thread of its own draws, so that the work need not think of it."""

    def __init__(
        self,
        label: str,
        total: int = 0,
        *,
        measure: Callable[[], int] | None = None,
        streaming: bool = False,
    ) -> None:
        """`total` 0: unknown. `measure` returns how much is done, if `done` is not set.
        `streaming`: lines are printed meanwhile, and it must not stand among them.
        """
        self.done = 0
        self.total = total
        self._label = label
        self._measure = measure
        self._shown = is_terminal(sys.stderr) and not (streaming and is_terminal(sys.stdout))
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        if self._shown:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(SHOW_AFTER_S)  # it may be asking a server that does not answer

    def step(self, _: object = None) -> None:
        self.done += 1

    def _run(self) -> None:
        if self._stop.wait(SHOW_AFTER_S):
            return
        turn = 0
        while not self._stop.wait(_REDRAW_S):
            self._measure_done()
            _write("\r" + cut(self._text(turn), _columns() - 1) + "\x1b[K")
            turn += 1
        _write("\r\x1b[K")

    def _measure_done(self) -> None:
        if self._measure is None:
            return
        # What is measured may be gone by now, or the server: the work itself will say so.
        with contextlib.suppress(Exception):
            self.done = self._measure()

    def _text(self, turn: int) -> str:
        spent = time.monotonic() - self._started
        if not self.total:
            done = f" {self.done:,}" if self.done else ""
            return f"{_SPINNER[turn % len(_SPINNER)]} {self._label}{done} ({spent:.0f} s)"
        share = min(1.0, self.done / self.total)
        left = f", {spent / share - spent:.0f} s left" if share > 0 else ""
        return (
            f"{self._label} {bar(share)} {share:4.0%} "
            f"{self.done:,} of {self.total:,}, {self.done / spent:,.0f}/s{left}"
        )


def bar(share: float, columns: int = _BAR) -> str:
    """A bar of so many columns of which this share is filled."""
    eighths = round(share * columns * 8)
    full, rest = divmod(eighths, 8)
    text = _EIGHTHS[8] * full + (_EIGHTHS[rest] if rest else "")
    return f"▕{text.ljust(columns)}▏"


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, UnicodeEncodeError):
        pass  # the terminal has gone, or knows no such characters


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
