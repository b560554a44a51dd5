"""A thread beside the event loop that flushes files without the interpreter's lock.

It is written in C and exists if the compiled form was built; without it a thread of Python does the
same, which has to get the lock twice for each flush.
"""

from __future__ import annotations

import contextlib
from typing import Protocol


class Flusher(Protocol):
    def fileno(self) -> int:
        """Can be read when a flush is over."""

    def begin_flush(self, file: int, /) -> None:
        """Flush the file with this descriptor; one at a time."""

    def end_flush(self) -> int:
        """0 if the flush is done, else its errno; -1 if it is not over."""

    def last_flush_us(self) -> int:
        """Microseconds of the flush that was ended last."""

    def close(self) -> None:
        """Wait for the end of all."""


def make_flusher() -> Flusher | None:
    with contextlib.suppress(ImportError):
        from taskyard.journal._flusher import Flusher as Thread

        made: Flusher = Thread()
        return made
    return None
