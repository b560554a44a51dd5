"""Who reads the journal in order, and how much further.

A stream is a reader that has gone from block to block. It shows by where its last block ends: the
next one begins there, in the next segment too. Nothing here knows what is in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mypy_extensions import i64, mypyc_attr

WINDOW: Final = 16  # blocks that are read ahead at most
_STREAMS: Final = 16  # places that are remembered
_STEPS: Final = 3  # from block to block: fewer happen by chance


@mypyc_attr(acyclic=True)
class Stream:
    __slots__ = ("ahead", "steps")

    def __init__(self) -> None:
        self.steps: i64 = 0  # how often it went on to the next block
        self.ahead: i64 = 0  # position up to which its blocks were asked for

    def window(self) -> i64:
        """How many blocks to have in advance: twice as many with each step, none at first."""
        over = self.steps - _STEPS
        if over < 0:
            return 0
        return min(WINDOW, i64(2) << min(over, i64(8)))


class Streams:
    __slots__ = ("_by_end", "steps")

    def __init__(self) -> None:
        self.steps: i64 = 0  # of all streams, as a measure of age
        # By the end of the last block each has used; the one that was met last is at the end.
        self._by_end: OrderedDict[int, Stream] = OrderedDict()

    def met(self, start: i64, end: i64, last_end: i64) -> Stream:
        """Something was read that begins in the block from `start` to `end`.

        `last_end` is where the last block ends that it reaches into. A large blob is one step,
        since its blocks say nothing of what comes behind it.
        """
        streams = self._by_end
        stream = streams.pop(start, None)
        if stream is not None:
            stream.steps += 1
            self.steps += 1
        else:
            stream = streams.pop(end, None)
            if stream is None:
                stream = Stream()
            elif last_end > end:
                stream.steps += 1
                self.steps += 1
        streams[last_end] = stream
        if len(streams) > _STREAMS:
            streams.popitem(last=False)
        return stream
