"""Finds sequential readers of the journal, and how far to read ahead of them.

A sequential reader is a series of requests that go from block to block. It is known by where its
last block ends: the next one begins there, in the next segment too. Nothing here knows what is in
memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mypy_extensions import i64, mypyc_attr

MAX_WINDOW_BLOCKS: Final = 16  # blocks that are read ahead at most
_MAX_READERS: Final = 16  # places that are remembered
_MIN_STEPS: Final = 3  # from block to block: fewer happen by chance


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


class SequentialReaders:
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
