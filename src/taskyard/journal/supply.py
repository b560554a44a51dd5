"""Where the file of the next segment comes from: made in advance, left over, or made at once."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.journal.disk import Disk
from taskyard.journal.spare import (
    AT_ONCE,
    DRAFT,
    SPARE,
    USED,
    SpareWork,
    begins_used,
    remove_if_there,
)

_SMALL: Final = 4 * 1_048_576  # a segment that has to be made at once; the next is made in advance


class Supply:
    """`ready`: the next segment needs nothing more of the disk."""

    __slots__ = (
        "_directory",
        "_in_advance",
        "_preallocate",
        "_size",
        "_work",
        "failed",
        "ready",
        "source",
    )

    def __init__(self, directory: Disk, size: i64, preallocate: str, in_advance: bool) -> None:
        self._directory = directory
        self._size = size
        self._preallocate = preallocate
        self._in_advance = in_advance
        self._work: SpareWork | None = None  # that is out
        remove_if_there(directory, DRAFT)
        remove_if_there(directory, AT_ONCE)
        self.ready = find_spare(directory, size)
        self.failed = False  # the last work; it is not tried again while this is set
        self.source = ""  # the file that the next segment is to be made of

    def is_wanting(self) -> bool:
        """Whether there is no spare, and none on its way."""
        return not self.ready and self._work is None

    def work(self) -> SpareWork | None:
        if self._work is not None or self.failed:
            return None
        self._work = SpareWork(self._directory, self._size, self._preallocate)
        return self._work

    def worked(self, work: SpareWork) -> None:
        self._work = None
        self.ready = work.done
        self.failed = not work.done

    def next_size(self) -> i64:
        """Of the next segment, if it were made now."""
        if self.ready or not self._in_advance:
            return self._size
        return min(self._size, _SMALL)

    def prepare(self, least: i64) -> i64:
        """Have a file for a segment now; gives its size, which is not below `least` (0: fixed)."""
        if self.ready:
            self.source = SPARE
            return self._size
        self.source = AT_ONCE
        size = self.next_size()
        while True:
            try:
                make_at_once(self._directory, size)
            except OSError:
                if not least or size <= least:
                    raise
                size = max(size // 4, least)
            else:
                return size

    def is_used(self) -> bool:
        """Whether frames of an earlier segment may stand in that file."""
        if self.source != SPARE:
            return False
        file = self._directory.view(SPARE)
        try:
            return begins_used(file.read_at(0, len(USED)))
        finally:
            file.close()

    def taken(self) -> None:
        """That file is a segment now, or of no use."""
        remove_if_there(self._directory, self.source)
        self.ready = False
        self.failed = False


def find_spare(directory: Disk, size: i64) -> bool:
    """Whether an earlier run has left a spare of this size; another one is of no use."""
    if SPARE not in directory.names():
        return False
    file = directory.view(SPARE)
    fits = file.size() == size
    file.close()
    if not fits:
        directory.remove(SPARE)
    return fits


def make_at_once(directory: Disk, size: i64) -> None:
    """A file `AT_ONCE` that a segment can be written into. On failure nothing of it is left.

    The loop waits for it, so its room is only reserved: zeros would take some 15 ms.
    """
    remove_if_there(directory, AT_ONCE)
    file = directory.create(AT_ONCE, 0)
    try:
        file.allocate(size)
    except OSError:
        directory.remove(AT_ONCE)
        raise
    finally:
        file.close()
