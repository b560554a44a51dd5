"""How old the first record is that a journal reader has not read, known without reading it.

From time to time the last durable record is sampled. The first sample that covers a record says
when it was written, as exactly as samples are taken.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# samples; beyond it every other one is dropped, and there are half as many from then
_MAX_SAMPLES: Final = 4096
_MIN_SPACING_US: Final = 1_000_000  # microseconds between two of them


class LagTracker:
    """Times are in microseconds."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._seqs: list[int] = []
        self._spacing_us = 0

    def add_sample(self, time: int, durable_seq: int) -> None:
        if self._seqs and (
            durable_seq <= self._seqs[-1] or time < self._times[-1] + self._spacing_us
        ):
            return
        self._times.append(time)
        self._seqs.append(durable_seq)
        if len(self._seqs) > _MAX_SAMPLES:
            del self._times[1::2]
            del self._seqs[1::2]
            self._spacing_us = max(2 * self._spacing_us, _MIN_SPACING_US)

    def drop_samples_before(self, next_seq: int) -> None:
        """Drop samples that are not needed any more; the last one stays."""
        passed = min(bisect_left(self._seqs, next_seq), len(self._seqs) - 1)
        if passed > 0:
            del self._times[:passed]
            del self._seqs[:passed]
        if len(self._seqs) < _MAX_SAMPLES // 4:
            self._spacing_us = 0

    def age_us(self, next_seq: int, durable_seq: int, now: int) -> int:
        """Since when record `next_seq` is there; 0 if it is not."""
        if next_seq > durable_seq:
            return 0
        index = bisect_left(self._seqs, next_seq)
        if index == len(self._seqs):  # it is newer than the last sample
            return 0
        return max(0, now - self._times[index])
