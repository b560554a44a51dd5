"""Where a flush is done: on the loop, or in the thread that is there for it.

On the loop everybody waits for it. That is quicker as long as nobody could be served meanwhile: to
hand it over and to hear of its end takes two wake-ups, and those whose commands it covers wait for
both. Who comes during a flush on the loop is served right after it, with all others who came.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.line import Line

_CROWD: Final = 200  # clients whose replies wait, beyond which there is always somebody to serve
_MUCH: Final = 262_144  # bytes whose flush is not as quick as it was measured with a few
# Microseconds after which a flush was slow, and how many after it are left to the thread: a disk
# that is busy with others may take a hundred times as long, several times in a row. More than a
# millisecond is nothing special: with 50 clients on the same cores one in 30 to 2,000 takes that.
_SLOW: Final = 2_000
_WARY: Final = 20


class FlushPlace:
    def __init__(self, line: Line, is_quick: bool, has_thread: bool) -> None:
        self._line = line
        self.is_quick = is_quick  # the disk, as measured at the start; or the user wants it so
        self._has_thread = has_thread  # one of its own, and the user leaves the choice to us
        self._crowd: i64 = 0  # how many waited, in the last few commits
        self._wary: i64 = 0  # flushes for which the disk is not trusted to be quick

    def choose_loop(self, waiting: i64, size: i64) -> bool:
        """For a commit of so many bytes, which the replies of so many clients wait for."""
        if not self.is_quick or not self._has_thread:
            return self.is_quick
        self.count(waiting)
        if self._wary > 0:
            self._wary -= 1
            return False
        return not self.is_crowded() and size <= _MUCH and not self._line.waits()

    def is_crowded(self) -> bool:
        return self._crowd > _CROWD

    def count(self, waiting: i64) -> None:
        """One commit alone does not tell: the first replies of a crowd bring the next commands of
        a few."""
        self._crowd = max(waiting, self._crowd - 1)

    def took(self, duration: i64) -> None:
        """So long was a flush on the loop. One in the thread ends when the loop hears of it, which
        tells nothing of the disk."""
        if duration > _SLOW:
            self._wary = _WARY
