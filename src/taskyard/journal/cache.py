"""Journal bytes in memory, within a budget, so that payloads need not be read back.

Blocks are aligned to the start of their segment. The tail block is filled as frames are written;
older blocks stay until space is needed; the one that was used longest ago is dropped first. Blocks
that were read ahead are kept apart until they are used: nothing drives them out before. Nothing
here knows of jobs: requests are for bytes at a position.
"""

from __future__ import annotations

from collections import OrderedDict
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

from mypy_extensions import i64, mypyc_attr

BLOCK_BYTES: Final = 256 * 1024
_SHIFT: Final = 18
_MIN_BLOCKS: Final = 4  # blocks
_IDLE_STEPS: Final = 16  # steps of others after which a sequential reader may have stopped


@mypyc_attr(acyclic=True)
class _ReadAheadBlock:
    """A block that was read ahead, and when, in steps of all sequential readers."""

    __slots__ = ("block", "since")

    def __init__(self, block: mmap, since: i64) -> None:
        self.block = block
        self.since = since


class BlockCache:
    """Blocks of the journal in memory.

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


def new_block() -> mmap:
    """Return memory for a block, whose pages are made as they are written to.

    A bytearray is cleared at once, on the loop: 64 pages, which may take a virtual machine 3 ms.
    And its slices are bytearrays, which have to be copied once more.
    """
    return mmap(-1, BLOCK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS)


def block_start(base: i64, at: i64) -> i64:
    """Where the block begins that holds position `at` of the segment at `base`."""
    return base + (((at - base) >> _SHIFT) << _SHIFT)
