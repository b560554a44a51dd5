"""Where the next segment's file comes from: prepared in advance, left over, or made at once."""

from __future__ import annotations

import contextlib
from typing import Final

from mypy_extensions import i64

from taskyard.journal.disk import Disk, File

SPARE: Final = "spare"  # ready to become a segment
DRAFT: Final = "spare.new"  # being made, off the loop
AT_ONCE: Final = "spare.now"  # made when it is needed, on the loop

PREALLOCATE_ZERO: Final = "zero"  # write all of it, so that syncs are quick
PREALLOCATE_RESERVE: Final = "reserve"  # only reserve the space

# How a file begins that was a segment before; the rest of its first page is zeros then. So what
# is left of its earlier header and first frame cannot be taken for those of its next use.
RECYCLED_MARK: Final = b"RECYCLED"
PAGE_BYTES: Final = 4096

_CHUNK_BYTES: Final = 1_048_576
_ZEROS: Final = bytes(_CHUNK_BYTES)

# a segment that has to be made at once; the next is made in advance
_SMALL_SEGMENT_BYTES: Final = 4 * 1_048_576


class SegmentAllocator:
    """Gives out the file of the next segment. `ready`: it needs nothing more of the disk."""

    __slots__ = (
        "_directory",
        "_preallocate",
        "_preparation",
        "_prepares_ahead",
        "_size",
        "failed",
        "ready",
        "source",
    )

    def __init__(self, directory: Disk, size: i64, preallocate: str, in_advance: bool) -> None:
        self._directory = directory
        self._size = size
        self._preallocate = preallocate
        self._prepares_ahead = in_advance
        self._preparation: PrepareSegment | None = None  # that is out
        remove_if_exists(directory, DRAFT)
        remove_if_exists(directory, AT_ONCE)
        self.ready = find_prepared_segment(directory, size)
        self.failed = False  # the last work; it is not tried again while this is set
        self.source = ""  # the file that the next segment is to be made of

    def needs_preparation(self) -> bool:
        """Whether no segment is prepared, and none is being prepared."""
        return not self.ready and self._preparation is None

    def start_preparation(self) -> PrepareSegment | None:
        if self._preparation is not None or self.failed:
            return None
        self._preparation = PrepareSegment(self._directory, self._size, self._preallocate)
        return self._preparation

    def on_done(self, work: PrepareSegment) -> None:
        self._preparation = None
        self.ready = work.done
        self.failed = not work.done

    def next_size(self) -> i64:
        """Of the next segment, if it were made now."""
        if self.ready or not self._prepares_ahead:
            return self._size
        return min(self._size, _SMALL_SEGMENT_BYTES)

    def allocate(self, least: i64) -> i64:
        """Have a file for a segment now; gives its size, which is not below `least` (0: fixed)."""
        if self.ready:
            self.source = SPARE
            return self._size
        self.source = AT_ONCE
        size = self.next_size()
        while True:
            try:
                create_at_once(self._directory, size)
            except OSError:
                if not least or size <= least:
                    raise
                size = max(size // 4, least)
            else:
                return size

    def is_recycled(self) -> bool:
        """Whether frames of an earlier segment may stand in that file."""
        if self.source != SPARE:
            return False
        file = self._directory.view(SPARE)
        try:
            return is_recycled_file(file.read_at(0, len(RECYCLED_MARK)))
        finally:
            file.close()

    def discard_source(self) -> None:
        """That file is a segment now, or of no use."""
        remove_if_exists(self._directory, self.source)
        self.ready = False
        self.failed = False


class PrepareSegment:
    """Makes a file that a segment can be written into, in advance.

    Overwriting blocks that are on disk already is quicker to sync than filling reserved space (half
    to three quarters of the time on ext4), and making the file takes no time when the segment is
    needed. The work runs off the loop, in small chunks, so that syncs in between need not wait for
    all.
    """

    __slots__ = ("_directory", "_preallocate", "_size", "done", "reason")

    def __init__(self, directory: Disk, size: i64, preallocate: str = PREALLOCATE_ZERO) -> None:
        self._directory = directory
        self._size = size
        self._preallocate = preallocate
        self.done = False
        self.reason = ""  # why it could not be done

    def run(self) -> None:
        """May run in another thread. A failure is none of the journal: it does without."""
        try:
            self._make()
        except OSError as error:
            self.reason = reason_of(error)
            remove_if_exists(self._directory, DRAFT)
        else:
            self.done = True

    def _make(self) -> None:
        directory = self._directory
        if DRAFT in directory.names():
            directory.remove(DRAFT)
        file = directory.create(DRAFT, 0)
        try:
            # All of the space first: if it is not there, nothing need be written to find out.
            file.allocate(self._size)
            if self._preallocate == PREALLOCATE_ZERO:
                self._fill_with_zeros(file)
            else:
                file.sync()
        finally:
            file.close()
        directory.rename(DRAFT, SPARE)

    def _fill_with_zeros(self, file: File) -> None:
        at: i64 = 0
        while at < self._size:
            portion = min(_CHUNK_BYTES, self._size - at)
            file.write_at(at, [_ZEROS if portion == _CHUNK_BYTES else _ZEROS[:portion]])
            file.sync()
            at += portion


def find_prepared_segment(directory: Disk, size: i64) -> bool:
    """Whether an earlier run has left a prepared segment of this size; others are of no use."""
    if SPARE not in directory.names():
        return False
    file = directory.view(SPARE)
    fits = file.size() == size
    file.close()
    if not fits:
        directory.remove(SPARE)
    return fits


def create_at_once(directory: Disk, size: i64) -> None:
    """Create a file `AT_ONCE` that a segment can be written into; on failure nothing of it is left.

    The loop waits for it, so its space is only reserved: zeros would take some 15 ms.
    """
    remove_if_exists(directory, AT_ONCE)
    file = directory.create(AT_ONCE, 0)
    try:
        file.allocate(size)
    except OSError:
        directory.remove(AT_ONCE)
        raise
    finally:
        file.close()


def is_recycled_file(data: bytes) -> bool:
    return data[: len(RECYCLED_MARK)] == RECYCLED_MARK


def remove_if_exists(directory: Disk, name: str) -> None:
    """Leftovers are not worth a failure."""
    with contextlib.suppress(OSError):
        if name in directory.names():
            directory.remove(name)


def reason_of(error: OSError) -> str:
    return error.strerror or str(error)
