"""Wall time that never goes back."""

from __future__ import annotations

import time


class AnchoredClock:
    """Wall time read once and carried on by the monotonic clock.

    It resumes at or after the last record's time, so that records are in order of time whatever
    somebody does to the machine's clock in between.
    """

    def __init__(self, not_before: int = 0) -> None:
        self._anchor = max(time.time_ns() // 1000, not_before)
        self._started = time.monotonic_ns()

    def now(self) -> int:
        return self._anchor + (time.monotonic_ns() - self._started) // 1000
