"""Journal bytes in memory, within a budget, so that payloads need not be read back.

RecentFrames has the last frames, BlockCache the blocks before them, and DiskReads reads what is in
neither. Nothing here knows of jobs: requests are for bytes at a position.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from mypy_extensions import i64, mypyc_attr

from taskyard.journal.disk import Disk, File
from taskyard.journal.format import segment_name

# Blocks

BLOCK_BYTES: Final = 256 * 1024
_SHIFT: Final = 18
_MIN_BLOCKS: Final = 4  # blocks
_IDLE_STEPS: Final = 16  # steps of others after which a sequential reader may have stopped


class BlockCache:
    """Blocks of the journal in memory.

    Blocks are aligned to the start of their segment. The tail block is filled as frames are
    written; older blocks stay until space is needed; the one that was used longest ago is dropped
    first. Blocks that were read ahead are kept apart until they are used: nothing drives them out
    before.

    The memory of a block is used again for others, so every read returns a copy. If blocks were
    freed and made anew, some of them by the threads that read, the process would hold about twice
    the budget.
    """

    __slots__ = (
        "_blocks",
        "_free",
        "_last_at",
        "_last_block",
        "_max_blocks",
        "_read_ahead",
        "budget",
        "tail",
        "tail_at",
        "tail_size",
    )

    def __init__(self, budget: i64) -> None:
        self._max_blocks: i64 = max(
            budget // BLOCK_BYTES, i64(_MIN_BLOCKS)
        )  # blocks, without the tail
        self.budget: i64 = self._max_blocks * BLOCK_BYTES
        # By position. The one that was used last is at the end.
        self._blocks: OrderedDict[int, mmap] = OrderedDict()
        # not used yet, oldest first
        self._read_ahead: OrderedDict[int, _ReadAheadBlock] = OrderedDict()
        self._free: list[mmap] = []
        self.tail = new_block()  # the block that is being filled
        self.tail_at: i64 = 0
        self.tail_size: i64 = 0
        self._last_block = self.tail  # the block that was used last, found without a lookup
        self._last_at: i64 = -1

    def held_bytes(self) -> i64:
        """Bytes of all blocks but the tail."""
        return (len(self._blocks) + len(self._read_ahead)) * BLOCK_BYTES

    def acquire_block(self) -> mmap:
        """Return a block to be filled and passed to `put_block` or `put_read_ahead`."""
        return self._free.pop() if self._free else new_block()

    def release_block(self, block: mmap) -> None:
        """Take back a block that was not needed."""
        self._free.append(block)

    # Writing

    def begin_segment(self, base: i64) -> None:
        """What is appended from now on is at `base`, the start of a segment."""
        if self.tail_size:
            self._store_tail()
        self.tail_at = base

    def append(self, data: bytes) -> None:
        size: i64 = len(data)
        if size < BLOCK_BYTES - self.tail_size:
            self.tail[self.tail_size : self.tail_size + size] = data
            self.tail_size += size
            return
        rest = memoryview(data)
        while rest:
            taken = min(i64(len(rest)), BLOCK_BYTES - self.tail_size)
            self.tail[self.tail_size : self.tail_size + taken] = rest[:taken]
            self.tail_size += taken
            rest = rest[taken:]
            if self.tail_size == BLOCK_BYTES:
                end = self.tail_at + BLOCK_BYTES
                self._store_tail()
                self.tail_at = end

    def _store_tail(self) -> None:
        self.put_block(self.tail_at, self.tail)
        self.tail = self.acquire_block()
        self.tail_size = 0

    # Keeping

    def put_block(self, at: i64, block: mmap) -> None:
        """Keep the block that begins at `at`, and let an older one go for it."""
        if at in self._blocks or at in self._read_ahead:
            self._free.append(block)
            return
        self._evict_if_full()
        self._blocks[at] = block

    def put_read_ahead(self, at: i64, block: mmap, steps: i64) -> None:
        """The same for one that was read ahead, when all readers had made so many steps."""
        if at in self._blocks or at in self._read_ahead:
            self._free.append(block)
            return
        self._evict_if_full()
        self._read_ahead[at] = _ReadAheadBlock(block, steps)

    def has_block(self, at: i64) -> bool:
        return at in self._blocks or at in self._read_ahead or at == self.tail_at

    def make_room_for_read_ahead(self, coming: i64, steps: i64) -> bool:
        """Whether one more block may be read ahead while `coming` are being read.

        Half of the budget is for that. Blocks of readers that have stopped make room, but not those
        of readers that continue: a block that is read twice need not be read ahead.
        """
        half = self._max_blocks // 2
        while self._read_ahead and len(self._read_ahead) + coming >= half:
            at, oldest = next(iter(self._read_ahead.items()))
            if steps - oldest.since <= 4 * half + _IDLE_STEPS:
                return False
            del self._read_ahead[at]
            self._free.append(oldest.block)
        return coming < half

    def _evict_if_full(self) -> None:
        if len(self._blocks) + len(self._read_ahead) < self._max_blocks:
            return
        if not self._blocks:
            self._free.append(self._read_ahead.popitem(last=False)[1].block)
            return
        at, block = self._blocks.popitem(last=False)
        self._free.append(block)
        if at == self._last_at:
            self._last_at = -1

    # Reading

    def forget_before(self, before: i64) -> None:
        """Drop the blocks before this position."""
        blocks = self._blocks
        for at in [at for at in blocks if at < before]:
            self._free.append(blocks.pop(at))
        ahead = self._read_ahead
        for at in [at for at in ahead if at < before]:
            self._free.append(ahead.pop(at).block)
        if self._last_at < before:
            self._last_at = -1

    def use_block(self, at: i64) -> mmap | None:
        """The block that begins at `at`, the tail not among them; it counts as used."""
        if at == self._last_at:
            return self._last_block
        block = self._blocks.get(at)
        if block is not None:
            self._blocks.move_to_end(at)
        else:
            ahead = self._read_ahead.pop(at, None)
            if ahead is None:
                return None
            block = ahead.block
            self._blocks[at] = block
        self._last_block = block
        self._last_at = at
        return block

    def read_from_block(self, block_at: i64, start: i64, end: i64) -> bytes | None:
        """Bytes `start` to `end` of one block, or None if it is not in memory."""
        if block_at == self.tail_at:
            return self.tail[start:end] if end <= self.tail_size else None
        block = self.use_block(block_at)
        return block[start:end] if block is not None else None

    def read(self, base: i64, at: i64, size: i64) -> bytes | None:
        """`size` bytes at `at` of the segment at `base`, or None if not all are in memory."""
        block_at = block_start(base, at)
        start = at - block_at
        if start + size <= BLOCK_BYTES:
            return self.read_from_block(block_at, start, start + size)
        parts: list[bytes] = []
        while size:
            taken = min(size, BLOCK_BYTES - start)
            part = self.read_from_block(block_at, start, start + taken)
            if part is None:
                return None
            parts.append(part)
            size -= taken
            block_at += BLOCK_BYTES
            start = 0
        return b"".join(parts)


@mypyc_attr(acyclic=True)
class _ReadAheadBlock:
    """A block that was read ahead, and when, in steps of all sequential readers."""

    __slots__ = ("block", "since")

    def __init__(self, block: mmap, since: i64) -> None:
        self.block = block
        self.since = since


def new_block() -> mmap:
    """Return memory for a block, whose pages are made as they are written to.

    A bytearray is cleared at once, on the loop: 64 pages, which may take a virtual machine 3 ms.
    And its slices are bytearrays, which have to be copied once more.
    """
    return mmap(-1, BLOCK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS)


def block_start(base: i64, at: i64) -> i64:
    """Where the block begins that holds position `at` of the segment at `base`."""
    return base + (((at - base) >> _SHIFT) << _SHIFT)


# Recent frames

_MAX_FRAMES: Final = 32
_MAX_BYTES: Final = 4 * 1_048_576
_BUDGET_SHARE: Final = 16


@mypyc_attr(acyclic=True)
class RecentFrames:
    """The last frames as they were written, so that the payload of a recent push needs no lookup.

    Most jobs are fetched soon after their push. A slice of the bytes that were written is one copy;
    the cache, which has blocks, needs three steps and two copies for the same.
    """

    __slots__ = ("_bodies", "_limit", "_size")

    def __init__(self, budget: i64) -> None:
        """`budget` is for all payloads; this takes a small part of it."""
        self._limit: i64 = min(budget // _BUDGET_SHARE, i64(_MAX_BYTES))
        self._bodies: list[_FrameBody] = []  # oldest first
        self._size: i64 = 0

    def add(self, at: i64, data: bytes) -> None:
        """The records of a frame, and the position of the first of them."""
        bodies = self._bodies
        bodies.append(_FrameBody(at, data))
        self._size += len(data)
        while len(bodies) > _MAX_FRAMES or self._size > self._limit:
            oldest = bodies.pop(0)
            self._size -= oldest.end - oldest.at

    def read(self, at: i64, size: i64) -> bytes | None:
        """The bytes there, or None if they are not in one of these frames."""
        bodies = self._bodies
        number: i64 = len(bodies) - 1
        while number >= 0:
            body = bodies[number]
            if at >= body.at:
                if at + size > body.end:
                    return None
                start = at - body.at
                return body.data[start : start + size]
            number -= 1
        return None


@mypyc_attr(acyclic=True)
class _FrameBody:
    __slots__ = ("at", "data", "end")

    def __init__(self, at: i64, data: bytes) -> None:
        self.at = at
        self.data = data
        self.end: i64 = at + len(data)


# Reads from disk

MAX_READS: Final = 4  # at a time: each takes a thread
MAX_READS_AHEAD: Final = 2  # of them for blocks without a request yet
_MAX_BLOCKS_PER_READ: Final = 4  # blocks that are read in one go

OnRead = Callable[[bytes | None], None]


class DiskReads:
    """Blobs that are on disk only: read off the loop, and ahead of sequential readers.

    Only bookkeeping: a thread runs what `next_read` returns, then `on_read_done` returns the
    requests that are complete. A block for several requests is read once; requested reads go before
    reads ahead, and only a few run at a time.
    """

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


# Sequential readers

MAX_WINDOW_BLOCKS: Final = 16  # blocks that are read ahead at most
_MAX_READERS: Final = 16  # places that are remembered
_MIN_STEPS: Final = 3  # from block to block: fewer happen by chance


class SequentialReaders:
    """Finds sequential readers of the journal, and how far to read ahead of them.

    A sequential reader is a series of requests that go from block to block. It is known by where
    its last block ends: the next one begins there, in the next segment too. Nothing here knows what
    is in memory.
    """

    __slots__ = ("_by_end", "steps")

    def __init__(self) -> None:
        self.steps: i64 = 0  # of all readers, as a measure of age
        # By the end of the last block each has used; the one that was met last is at the end.
        self._by_end: OrderedDict[int, SequentialReader] = OrderedDict()

    def on_block_used(self, start: i64, end: i64, last_end: i64) -> SequentialReader:
        """Note a read in the block from `start` to `end`.

        `last_end` is where the last block ends that the read reaches into. A large blob is one
        step, because its blocks say nothing of what is behind it.
        """
        streams = self._by_end
        stream = streams.pop(start, None)
        if stream is not None:
            stream.steps += 1
            self.steps += 1
        else:
            stream = streams.pop(end, None)
            if stream is None:
                stream = SequentialReader()
            elif last_end > end:
                stream.steps += 1
                self.steps += 1
        streams[last_end] = stream
        if len(streams) > _MAX_READERS:
            streams.popitem(last=False)
        return stream


@mypyc_attr(acyclic=True)
class SequentialReader:
    __slots__ = ("requested_end", "steps")

    def __init__(self) -> None:
        self.steps: i64 = 0  # how often it used the next block
        self.requested_end: i64 = 0  # position up to which its blocks were requested

    def window_blocks(self) -> i64:
        """How many blocks to have in advance: twice as many with each step, none at first."""
        over = self.steps - _MIN_STEPS
        if over < 0:
            return 0
        return min(MAX_WINDOW_BLOCKS, i64(2) << min(over, i64(8)))
