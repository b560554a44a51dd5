"""Removes segments that are not needed any more from the head of the journal, the oldest first.

One of them may become the next segment: its blocks are on disk already, so only its first page has
to be written.
"""

from __future__ import annotations

from mmap import mmap
from typing import Final

from mypy_extensions import i64

from taskyard.journal.disk import Disk, File
from taskyard.journal.segment import segment_name
from taskyard.journal.spare import (
    DRAFT,
    PAGE_BYTES,
    RECYCLED_MARK,
    SPARE,
    reason_of,
    remove_if_exists,
)

_FIRST_PAGE: Final = RECYCLED_MARK + bytes(PAGE_BYTES - len(RECYCLED_MARK))
# Each is a moment of the interpreter that the loop has to do without.
_CHUNK_BYTES: Final = 1_048_576


class RemoveSegments:
    """Run it in a thread, then give it to `Journal.on_segments_removed`."""

    __slots__ = ("_directory", "_recycle", "_size", "bases", "reason", "recycled", "removed_count")

    def __init__(self, directory: Disk, bases: list[int], recycle: bool, size: i64) -> None:
        self.bases = bases  # of the segments that are to go, in order
        self.removed_count: i64 = 0  # how many of them are not there any more
        self.recycled = False  # one of them is the prepared segment now
        self.reason = ""  # why not all of them could be removed
        self._directory = directory
        self._recycle = recycle
        self._size = size

    def run(self) -> None:
        """Remove each for good before the next one: a crash must not leave a gap."""
        try:
            self._directory.sync()  # an earlier removal may have failed before that
            for base in self.bases:
                self._remove_segment(segment_name(base))
        except OSError as error:
            self.reason = reason_of(error)
            if self._recycle:
                remove_if_exists(self._directory, DRAFT)

    def _remove_segment(self, name: str) -> None:
        directory = self._directory
        if self._recycle and not self.recycled and self._is_large_enough(name):
            remove_if_exists(directory, DRAFT)
            directory.rename(name, DRAFT)
            self.removed_count += 1
            directory.sync()
            self._make_next_segment()
            return
        directory.remove(name)
        self.removed_count += 1
        directory.sync()

    def _is_large_enough(self, name: str) -> bool:
        """A segment that was cut, or was a small one, is shorter than a segment must be."""
        file = self._directory.view(name)
        try:
            return file.size() >= self._size
        finally:
            file.close()

    def _make_next_segment(self) -> None:
        """Only now, under a name that recovery ignores, its header may be destroyed."""
        file: File = self._directory.open(DRAFT)
        try:
            file.write_at(0, [_FIRST_PAGE])
            if file.size() > self._size:
                file.truncate(self._size)
            file.sync()
            self._load_into_page_cache(file)
        finally:
            file.close()
        self._directory.rename(DRAFT, SPARE)
        self.recycled = True

    def _load_into_page_cache(self, file: File) -> None:
        """Read the file into the page cache: to write part of a page that is not there waits for a
        read.

        That would be the loop, and an old segment has only such pages. They are read into memory
        whose own pages are made by that: clearing it first would hold the interpreter's lock for as
        long.
        """
        with mmap(-1, _CHUNK_BYTES) as memory, memoryview(memory) as portion:
            at: i64 = 0
            while at < self._size:
                file.read_into(at, portion)
                at += _CHUNK_BYTES
