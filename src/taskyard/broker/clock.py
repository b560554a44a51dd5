"""Wall time that never goes backwards."""

from __future__ import annotations

import time
from collections.abc import Callable

from mypy_extensions import i64

from taskyard.broker.seams import Clock


class AnchoredClock(Clock):
    """Wall time read once and continued by the monotonic clock.

    It resumes at or after the last record's time, so that records are in order of time whatever
    happens to the machine's clock in between.
    """

    def __init__(
        self,
        not_before: int = 0,
        wall: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """The two clocks of the machine give nanoseconds."""
        self._monotonic = monotonic
        self._wall_start_us: i64 = max(wall() // 1000, not_before)
        self._monotonic_start_ns: i64 = monotonic()

    def now(self) -> i64:
        elapsed: i64 = self._monotonic()
        return self._wall_start_us + (elapsed - self._monotonic_start_ns) // 1000
