"""Blobs that are on disk only: read back off the loop, and ahead of those who read in order.

Only bookkeeping: what `next_read` gives is run in a thread and then handed to `done`, which says
whose bytes are complete. A block that several want is read once; reads that somebody waits for go
first, and only so many are out at a time.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from mmap import mmap
from typing import Final

from mypy_extensions import i64

from taskyard.journal.ahead import WINDOW, Stream, Streams
from taskyard.journal.cache import BLOCK, Cache, block_of
from taskyard.journal.disk import Disk, File
from taskyard.journal.segment import segment_name

MOST_READS: Final = 4  # at a time: each takes a thread
MOST_AHEAD: Final = 2  # of them for what nobody waits for yet
_RUN: Final = 4  # blocks that are read in one go

Then = Callable[[bytes | None], None]


class ColdRead:
    """Some blocks in a row, of one segment."""

    __slots__ = ("_base", "_directory", "ahead", "at", "blocks", "count", "end", "good", "wanted")

    def __init__(self, directory: Disk, base: i64, end: i64, at: i64, ahead: bool) -> None:
        self.at = at  # of the first block
        self.count: i64 = 1
        self.end = end  # of the segment
        self.blocks: list[mmap] = []  # to be filled
        self.good: i64 = 0  # how many of them were
        self.ahead = ahead  # when it was planned, nobody waited for it
        self.wanted = not ahead  # but now somebody does
        self._directory = directory
        self._base = base

    def goes_on_at(self, base: i64, at: i64) -> bool:
        """Whether the block at `at` is the next one of this segment, and may be read with it."""
        return base == self._base and at == self.at + self.count * BLOCK and self.count < _RUN

    def run(self) -> None:
        """May run in another thread."""
        # By its name: no file needs to stay open for this, and none is closed under a thread.
        file = self._directory.view(segment_name(self._base))
        try:
            for block in self.blocks:
                self._read(file, self.at + self.good * BLOCK, block)
                self.good += 1
        finally:
            file.close()

    def _read(self, file: File, at: i64, block: mmap) -> None:
        size = min(BLOCK, self.end - at)
        if file.read_into(at - self._base, memoryview(block)[:size]) < size:
            raise OSError(errno.EIO, f"{segment_name(self._base)} is shorter than it was")


class Load:
    """One who waits for bytes."""

    __slots__ = ("at", "data", "first", "missing", "over", "parts", "size", "then")

    def __init__(self, first: i64, at: i64, size: i64, then: Then) -> None:
        self.first = first  # where its first block begins
        self.at = at
        self.size = size
        self.then = then
        self.over = False
        self.data: bytes | None = None  # when it is over; None: the disk could not be read
        self.parts: list[bytes | None] = []  # one for each block; None: it must be read
        self.missing: i64 = 0  # how many of those

    def take(self, block_at: i64, block: mmap) -> None:
        """Take what it wants of this block."""
        start = max(self.at - block_at, i64(0))
        end = min(self.at + self.size - block_at, BLOCK)
        self.parts[(block_at - self.first) // BLOCK] = block[start:end]
        self.missing -= 1

    def is_complete(self) -> bool:
        """Whether nothing is missing any more; then it is over."""
        if self.missing:
            return False
        self.over = True
        self.data = b"".join([part for part in self.parts if part is not None])
        return True


class ColdReads:
    def __init__(self, directory: Disk, bases: list[int], cache: Cache) -> None:
        self.queued: i64 = 0  # reads that were not given out yet
        self._directory = directory
        self._bases = bases  # of all segments; the journal's own list, which it changes in place
        self._cache = cache
        self._streams = Streams()
        self._met_at: i64 = -1  # the block that was met last
        self._met_end: i64 = -1
        self._wanted: deque[ColdRead] = deque()
        self._ahead: deque[ColdRead] = deque()
        self._reads: dict[int, ColdRead] = {}  # given out or not, by each of their blocks
        self._loads: dict[int, list[Load]] = {}  # by each block they wait for
        self._out: i64 = 0
        self._ahead_out: i64 = 0
        self._ahead_blocks: i64 = 0  # that are on their way
        self._window: i64 = min(i64(WINDOW), max(i64(1), cache.budget // BLOCK // 4))

    # Asking

    def read(self, at: i64, size: i64) -> bytes | None:
        """The bytes there, or None if not all of them are in memory."""
        base = self._base_of(at)
        block_at = block_of(base, at)
        end = at + size
        if (block_at != self._met_at or end > self._met_end) and end <= self._cache.tail_at:
            self._meet(base, block_at, end)
        return self._cache.read(base, at, size)

    def load(self, at: i64, size: i64, then: Then) -> Load:
        """Have bytes read that are not in memory, and given back by `done`.

        If they are in memory after all, it is over at once.
        """
        base = self._base_of(at)
        end = self._end_of(base)
        if at + size > end:
            raise OSError(errno.EIO, f"there is nothing at position {at} of the journal")
        block_at = block_of(base, at)
        load = Load(block_at, at, size, then)
        if at < base:  # a job that is gone, and compaction has taken what was left of it
            load.over = True
            return load
        start = at - block_at
        while size > 0:
            taken = min(size, BLOCK - start)
            part = self._cache.piece(block_at, start, start + taken)
            load.parts.append(part)
            if part is None:
                load.missing += 1
                self._loads.setdefault(block_at, []).append(load)
                self._want(base, end, block_at)
            size -= taken
            block_at += BLOCK
            start = 0
        load.is_complete()
        return load

    def lowest(self) -> i64:
        """The first position that a read which is out or planned needs; -1: there is none."""
        return min(self._reads) if self._reads else -1

    # Reading

    def next_read(self) -> ColdRead | None:
        """What to read now; None if there is nothing, or enough is being read."""
        if self._out >= MOST_READS:
            return None
        if self._wanted:
            read = self._wanted.popleft()
        elif self._ahead and self._ahead_out < MOST_AHEAD:
            read = self._ahead.popleft()
        else:
            return None
        self.queued -= 1
        self._out += 1
        read.blocks = [self._cache.spare_block() for _ in range(read.count)]
        if read.ahead:
            self._ahead_out += 1
        return read

    def done(self, read: ColdRead) -> list[Load]:
        """`read` has been run, with or without success. Gives those who need not wait longer."""
        self._out -= 1
        if read.ahead:
            self._ahead_out -= 1
            self._ahead_blocks -= read.count
        over: list[Load] = []
        number: i64 = 0
        while number < read.count:
            block_at = read.at + number * BLOCK
            del self._reads[block_at]
            loads = self._loads.pop(block_at, None)
            block = read.blocks[number]
            if number < read.good:
                self._came(block_at, block, loads, over)
            else:
                self._cache.give_back(block)
                if loads is not None:
                    # Only a read that is for this block, and got so far, says that it is lost.
                    lost = not read.ahead and number == read.good
                    self._failed(block_at, read, loads, over, lost)
            number += 1
        return over

    def _came(self, block_at: i64, block: mmap, loads: list[Load] | None, over: list[Load]) -> None:
        if loads is None:
            self._cache.put_ahead(block_at, block, self._streams.steps)
            return
        for load in loads:
            if load.over:
                continue
            load.take(block_at, block)
            if load.is_complete():
                over.append(load)
        self._cache.put(block_at, block)

    def _failed(
        self, block_at: i64, read: ColdRead, loads: list[Load], over: list[Load], lost: bool
    ) -> None:
        waiting = [load for load in loads if not load.over]
        if lost:
            for load in waiting:
                load.over = True
            over.extend(waiting)
        elif waiting:
            self._loads[block_at] = waiting
            self._want(self._base_of(block_at), read.end, block_at)

    def _want(self, base: i64, end: i64, block_at: i64) -> None:
        """See to it that this block comes, and soon."""
        read = self._reads.get(block_at)
        if read is None:
            self._plan(self._wanted, base, end, block_at, False)
        elif not read.wanted:
            read.wanted = True
            if read in self._ahead:
                self._ahead.remove(read)
                self._wanted.append(read)

    def _plan(
        self, queue: deque[ColdRead], base: i64, end: i64, block_at: i64, ahead: bool
    ) -> None:
        last = queue[-1] if queue else None
        if last is not None and last.ahead == ahead and last.goes_on_at(base, block_at):
            last.count += 1
            last.end = end
            self._reads[block_at] = last
            return
        read = ColdRead(self._directory, base, end, block_at, ahead)
        self._reads[block_at] = read
        queue.append(read)
        self.queued += 1

    # Reading ahead

    def _meet(self, base: i64, block_at: i64, end: i64) -> None:
        """Another block is used than the last time, and the end of what is wanted is at `end`."""
        limit = self._end_of(base)
        first_end = min(block_at + BLOCK, limit)
        last_end = first_end
        if end > first_end:
            last_end = min(block_of(base, end - 1) + BLOCK, limit)
        self._met_at = block_at
        self._met_end = last_end
        stream = self._streams.met(block_at, first_end, last_end)
        window = min(stream.window(), self._window)
        if window:
            self._go_ahead(stream, last_end, window)

    def _go_ahead(self, stream: Stream, start: i64, window: i64) -> None:
        """Plan to read what this stream will want next, unless enough is on its way."""
        if stream.ahead - start > window // 2 * BLOCK:
            return
        at = max(stream.ahead, start)
        stop = min(start + window * BLOCK, self._cache.tail_at)  # what is behind is in memory
        while at < stop:
            base = self._base_of(at)
            end = self._end_of(base)
            if at not in self._reads and not self._cache.has(at):
                if not self._cache.has_room_ahead(self._ahead_blocks, self._streams.steps):
                    break
                self._plan(self._ahead, base, end, at, True)
                self._ahead_blocks += 1
            at = min(at + BLOCK, end)
        stream.ahead = at

    # Segments

    def _base_of(self, at: i64) -> i64:
        bases = self._bases
        base: i64 = bases[-1]
        if at >= base:
            return base
        return bases[bisect_right(bases, at) - 1]

    def _end_of(self, base: i64) -> i64:
        bases = self._bases
        if base == bases[-1]:
            return self._cache.tail_at + self._cache.tail_size
        return bases[bisect_right(bases, base)]
