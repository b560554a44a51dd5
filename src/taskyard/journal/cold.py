"""Blobs that are on disk only: read off the loop, and ahead of sequential readers.

Only bookkeeping: a thread runs what `next_read` returns, then `on_read_done` returns the requests
that are complete. A block for several requests is read once; requested reads go before reads ahead,
and only a few run at a time.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from mmap import mmap
from typing import Final

from mypy_extensions import i64

from taskyard.journal.ahead import MAX_WINDOW_BLOCKS, SequentialReader, SequentialReaders
from taskyard.journal.cache import BLOCK_BYTES, BlockCache, block_start
from taskyard.journal.disk import Disk, File
from taskyard.journal.segment import segment_name

MAX_READS: Final = 4  # at a time: each takes a thread
MAX_READS_AHEAD: Final = 2  # of them for blocks without a request yet
_MAX_BLOCKS_PER_READ: Final = 4  # blocks that are read in one go

OnRead = Callable[[bytes | None], None]


class DiskRead:
    """Some blocks in a row, of one segment."""

    __slots__ = (
        "_base",
        "_directory",
        "ahead",
        "at",
        "blocks",
        "count",
        "end",
        "read_count",
        "wanted",
    )

    def __init__(self, directory: Disk, base: i64, end: i64, at: i64, ahead: bool) -> None:
        self.at = at  # of the first block
        self.count: i64 = 1
        self.end = end  # of the segment
        self.blocks: list[mmap] = []  # to be filled
        self.read_count: i64 = 0  # how many of them were
        self.ahead = ahead  # when it was planned, there was no request for it
        self.wanted = not ahead  # but now there is
        self._directory = directory
        self._base = base

    def may_append(self, base: i64, at: i64) -> bool:
        """Whether the block at `at` is the next one of this segment, and may be read with it."""
        return (
            base == self._base
            and at == self.at + self.count * BLOCK_BYTES
            and self.count < _MAX_BLOCKS_PER_READ
        )

    def run(self) -> None:
        """May run in another thread."""
        # By its name: no file needs to stay open for this, and none is closed under a thread.
        file = self._directory.view(segment_name(self._base))
        try:
            for block in self.blocks:
                self._read(file, self.at + self.read_count * BLOCK_BYTES, block)
                self.read_count += 1
        finally:
            file.close()

    def _read(self, file: File, at: i64, block: mmap) -> None:
        size = min(BLOCK_BYTES, self.end - at)
        if file.read_into(at - self._base, memoryview(block)[:size]) < size:
            raise OSError(errno.EIO, f"{segment_name(self._base)} is shorter than it was")


class ReadRequest:
    """A request that waits for bytes."""

    __slots__ = ("at", "data", "first", "is_done", "missing", "on_done", "parts", "size")

    def __init__(self, first: i64, at: i64, size: i64, on_done: OnRead) -> None:
        self.first = first  # where its first block begins
        self.at = at
        self.size = size
        self.on_done = on_done
        self.is_done = False
        self.data: bytes | None = None  # when it is over; None: the disk could not be read
        self.parts: list[bytes | None] = []  # one for each block; None: it must be read
        self.missing: i64 = 0  # how many of those

    def copy_from(self, block_at: i64, block: mmap) -> None:
        """Copy what it needs of this block."""
        start = max(self.at - block_at, i64(0))
        end = min(self.at + self.size - block_at, BLOCK_BYTES)
        self.parts[(block_at - self.first) // BLOCK_BYTES] = block[start:end]
        self.missing -= 1

    def finish_if_complete(self) -> bool:
        """Whether nothing is missing any more; then it is over."""
        if self.missing:
            return False
        self.is_done = True
        self.data = b"".join([part for part in self.parts if part is not None])
        return True


class DiskReads:
    def __init__(self, directory: Disk, bases: list[int], cache: BlockCache) -> None:
        self.queued: i64 = 0  # reads that were not given out yet
        self._directory = directory
        self._bases = bases  # of all segments; the journal's own list, which it changes in place
        self._cache = cache
        self._sequential_readers = SequentialReaders()
        self._last_used_block: i64 = -1  # the block that was met last
        self._last_used_end: i64 = -1
        self._wanted_reads: deque[DiskRead] = deque()
        self._reads_ahead: deque[DiskRead] = deque()
        self._reads_by_block: dict[int, DiskRead] = {}  # given out or not, by each of their blocks
        self._requests_by_block: dict[int, list[ReadRequest]] = {}  # by each block they wait for
        self._reads_out: i64 = 0
        self._reads_ahead_out: i64 = 0
        self._ahead_blocks: i64 = 0  # that are being read
        self._window: i64 = min(
            i64(MAX_WINDOW_BLOCKS), max(i64(1), cache.budget // BLOCK_BYTES // 4)
        )

    # Asking

    def read(self, at: i64, size: i64) -> bytes | None:
        """The bytes there, or None if not all of them are in memory."""
        base = self._base_of(at)
        block_at = block_start(base, at)
        end = at + size
        if (
            block_at != self._last_used_block or end > self._last_used_end
        ) and end <= self._cache.tail_at:
            self._on_block_used(base, block_at, end)
        return self._cache.read(base, at, size)

    def request_read(self, at: i64, size: i64, then: OnRead) -> ReadRequest:
        """Read bytes that are not in memory; `on_read_done` returns the request then.

        If they are in memory after all, it is complete at once.
        """
        base = self._base_of(at)
        end = self._end_of(base)
        if at + size > end:
            raise OSError(errno.EIO, f"there is nothing at position {at} of the journal")
        block_at = block_start(base, at)
        load = ReadRequest(block_at, at, size, then)
        if at < base:  # a job that is gone, and compaction has taken what was left of it
            load.is_done = True
            return load
        start = at - block_at
        while size > 0:
            taken = min(size, BLOCK_BYTES - start)
            part = self._cache.read_from_block(block_at, start, start + taken)
            load.parts.append(part)
            if part is None:
                load.missing += 1
                self._requests_by_block.setdefault(block_at, []).append(load)
                self._want_block(base, end, block_at)
            size -= taken
            block_at += BLOCK_BYTES
            start = 0
        load.finish_if_complete()
        return load

    def lowest_needed_position(self) -> i64:
        """Return the first position that a running or planned read needs; -1: there is none."""
        return min(self._reads_by_block) if self._reads_by_block else -1

    # Reading

    def next_read(self) -> DiskRead | None:
        """Return the next read to run; None if there is none, or enough are running."""
        if self._reads_out >= MAX_READS:
            return None
        if self._wanted_reads:
            read = self._wanted_reads.popleft()
        elif self._reads_ahead and self._reads_ahead_out < MAX_READS_AHEAD:
            read = self._reads_ahead.popleft()
        else:
            return None
        self.queued -= 1
        self._reads_out += 1
        read.blocks = [self._cache.acquire_block() for _ in range(read.count)]
        if read.ahead:
            self._reads_ahead_out += 1
        return read

    def on_read_done(self, read: DiskRead) -> list[ReadRequest]:
        """Handle a read that has run, with or without success; return the complete requests."""
        self._reads_out -= 1
        if read.ahead:
            self._reads_ahead_out -= 1
            self._ahead_blocks -= read.count
        over: list[ReadRequest] = []
        number: i64 = 0
        while number < read.count:
            block_at = read.at + number * BLOCK_BYTES
            del self._reads_by_block[block_at]
            loads = self._requests_by_block.pop(block_at, None)
            block = read.blocks[number]
            if number < read.read_count:
                self._on_block_read(block_at, block, loads, over)
            else:
                self._cache.release_block(block)
                if loads is not None:
                    # Only a read that is for this block, and got so far, says that it is lost.
                    lost = not read.ahead and number == read.read_count
                    self._on_block_failed(block_at, read, loads, over, lost)
            number += 1
        return over

    def _on_block_read(
        self, block_at: i64, block: mmap, loads: list[ReadRequest] | None, over: list[ReadRequest]
    ) -> None:
        if loads is None:
            self._cache.put_read_ahead(block_at, block, self._sequential_readers.steps)
            return
        for load in loads:
            if load.is_done:
                continue
            load.copy_from(block_at, block)
            if load.finish_if_complete():
                over.append(load)
        self._cache.put_block(block_at, block)

    def _on_block_failed(
        self,
        block_at: i64,
        read: DiskRead,
        loads: list[ReadRequest],
        over: list[ReadRequest],
        lost: bool,
    ) -> None:
        waiting = [load for load in loads if not load.is_done]
        if lost:
            for load in waiting:
                load.is_done = True
            over.extend(waiting)
        elif waiting:
            self._requests_by_block[block_at] = waiting
            self._want_block(self._base_of(block_at), read.end, block_at)

    def _want_block(self, base: i64, end: i64, block_at: i64) -> None:
        """Plan a requested read of this block, unless one is planned already."""
        read = self._reads_by_block.get(block_at)
        if read is None:
            self._plan_read(self._wanted_reads, base, end, block_at, False)
        elif not read.wanted:
            read.wanted = True
            if read in self._reads_ahead:
                self._reads_ahead.remove(read)
                self._wanted_reads.append(read)

    def _plan_read(
        self, queue: deque[DiskRead], base: i64, end: i64, block_at: i64, ahead: bool
    ) -> None:
        last = queue[-1] if queue else None
        if last is not None and last.ahead == ahead and last.may_append(base, block_at):
            last.count += 1
            last.end = end
            self._reads_by_block[block_at] = last
            return
        read = DiskRead(self._directory, base, end, block_at, ahead)
        self._reads_by_block[block_at] = read
        queue.append(read)
        self.queued += 1

    # Reading ahead

    def _on_block_used(self, base: i64, block_at: i64, end: i64) -> None:
        """Another block than the last time is used, and the requested bytes end at `end`."""
        limit = self._end_of(base)
        first_end = min(block_at + BLOCK_BYTES, limit)
        last_end = first_end
        if end > first_end:
            last_end = min(block_start(base, end - 1) + BLOCK_BYTES, limit)
        self._last_used_block = block_at
        self._last_used_end = last_end
        stream = self._sequential_readers.on_block_used(block_at, first_end, last_end)
        window = min(stream.window_blocks(), self._window)
        if window:
            self._plan_read_ahead(stream, last_end, window)

    def _plan_read_ahead(self, stream: SequentialReader, start: i64, window: i64) -> None:
        """Plan to read what this reader will need next, unless enough is being read."""
        if stream.requested_end - start > window // 2 * BLOCK_BYTES:
            return
        at = max(stream.requested_end, start)
        stop = min(start + window * BLOCK_BYTES, self._cache.tail_at)  # what is behind is in memory
        while at < stop:
            base = self._base_of(at)
            end = self._end_of(base)
            if at not in self._reads_by_block and not self._cache.has_block(at):
                if not self._cache.make_room_for_read_ahead(
                    self._ahead_blocks, self._sequential_readers.steps
                ):
                    break
                self._plan_read(self._reads_ahead, base, end, at, True)
                self._ahead_blocks += 1
            at = min(at + BLOCK_BYTES, end)
        stream.requested_end = at

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
