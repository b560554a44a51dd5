"""Journal bytes in memory, within a budget, so that payloads need not be read back.

Blocks are aligned to the start of their segment. The tail blocks are filled as frames are
written; older blocks stay until room is needed, the one that was used longest ago goes first.
Nothing here knows of jobs: what is asked for is bytes at a position.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mypy_extensions import i64

BLOCK: Final = 256 * 1024
_SHIFT: Final = 18
_LEAST: Final = 4 * BLOCK


class Cache:
    __slots__ = ("_blocks", "_last", "_last_at", "budget", "held", "tail", "tail_at", "tail_size")

    def __init__(self, budget: i64) -> None:
        self.budget: i64 = max(budget, _LEAST)
        self.held: i64 = 0  # bytes of the blocks, without the tail
        self._blocks: OrderedDict[int, bytes] = OrderedDict()  # by position, used last at the end
        self._last: bytes = b""  # the block that was used last, found without a look-up
        self._last_at: i64 = -1
        self.tail = bytearray(BLOCK)  # the block that is being filled
        self.tail_at: i64 = 0
        self.tail_size: i64 = 0

    def begin(self, base: i64) -> None:
        """What is appended from now on stands at `base`, the start of a segment."""
        if self.tail_size:
            self.put(self.tail_at, bytes(self.tail[: self.tail_size]))
        self.tail_at = base
        self.tail_size = 0

    def append(self, data: bytes) -> None:
        size: i64 = len(data)
        room = BLOCK - self.tail_size
        if size < room:
            self.tail[self.tail_size : self.tail_size + size] = data
            self.tail_size += size
            return
        self.tail[self.tail_size :] = data[:room]
        self._next_block()
        done = room
        while size - done >= BLOCK:
            self.put(self.tail_at, data[done : done + BLOCK])
            self.tail_at += BLOCK
            done += BLOCK
        self.tail_size = size - done
        self.tail[: self.tail_size] = data[done:]

    def _next_block(self) -> None:
        self.put(self.tail_at, bytes(self.tail))
        self.tail_at += BLOCK
        self.tail_size = 0

    def put(self, at: i64, block: bytes) -> None:
        """Keep a whole block that begins at `at`, and let older ones go for it."""
        blocks = self._blocks
        if at in blocks:
            return
        self.held += len(block)
        while self.held > self.budget:
            gone_at, gone = blocks.popitem(last=False)
            self.held -= len(gone)
            if gone_at == self._last_at:
                self._last_at = -1
                self._last = b""
        blocks[at] = block

    def block(self, at: i64) -> bytes | None:
        """The block that begins at `at`, the tail not among them; it counts as used."""
        if at == self._last_at:
            return self._last
        block = self._blocks.get(at)
        if block is not None:
            self._blocks.move_to_end(at)
            self._last = block
            self._last_at = at
        return block

    def piece(self, block_at: i64, start: i64, end: i64) -> bytes | None:
        """Bytes `start` to `end` of one block, or None if it is not in memory."""
        if block_at == self.tail_at:
            return bytes(self.tail[start:end]) if end <= self.tail_size else None
        block = self.block(block_at)
        return block[start:end] if block is not None else None

    def read(self, base: i64, at: i64, size: i64) -> bytes | None:
        """`size` bytes at `at` of the segment at `base`, or None if not all are in memory."""
        block_at = block_of(base, at)
        start = at - block_at
        if start + size <= BLOCK:
            return self.piece(block_at, start, start + size)
        parts: list[bytes] = []
        while size:
            taken = min(size, BLOCK - start)
            part = self.piece(block_at, start, start + taken)
            if part is None:
                return None
            parts.append(part)
            size -= taken
            block_at += BLOCK
            start = 0
        return b"".join(parts)


def block_of(base: i64, at: i64) -> i64:
    """Where the block begins that holds position `at` of the segment at `base`."""
    return base + (((at - base) >> _SHIFT) << _SHIFT)
