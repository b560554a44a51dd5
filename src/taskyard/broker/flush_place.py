"""Where a flush is done: on the loop, or in the thread that is there for it.

On the loop everybody waits for it. That is quicker as long as nobody could be served meanwhile: to
hand it over and to hear of its end takes two wake-ups, and those whose commands it covers wait for
both. Who comes during a flush on the loop is served right after it, with all others who came.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.line import TurnQueue

_MANY_WAITERS: Final = (
    200  # clients whose replies wait, beyond which there is always somebody to serve
)
_LARGE_FLUSH_BYTES: Final = (
    262_144  # bytes whose flush is not as quick as it was measured with a few
)
# Microseconds after which a flush was slow, and how many after it are left to the thread: a disk
# that is busy with others may take a hundred times as long, several times in a row. More than a
# millisecond is nothing special: with 50 clients on the same cores one in 30 to 2,000 takes that.
_SLOW_FLUSH_US: Final = 2_000
_FLUSHES_TO_DISTRUST: Final = 20


class SyncPlacement:
    def __init__(self, turn_queue: TurnQueue, is_disk_fast: bool, has_thread: bool) -> None:
        self._turn_queue = turn_queue
        self.is_disk_fast = (
            is_disk_fast  # the disk, as measured at the start; or the user wants it so
        )
        self._has_thread = has_thread  # one of its own, and the user leaves the choice to us
        self._recent_waiters: i64 = 0  # how many waited, in the last few commits
        self._distrust_flushes: i64 = 0  # flushes for which the disk is not trusted to be quick

    def should_sync_inline(self, waiting: i64, size: i64) -> bool:
        """For a commit of so many bytes, which the replies of so many clients wait for."""
        if not self.is_disk_fast or not self._has_thread:
            return self.is_disk_fast
        self.record_waiters(waiting)
        if self._distrust_flushes > 0:
            self._distrust_flushes -= 1
            return False
        return (
            not self.has_many_waiters()
            and size <= _LARGE_FLUSH_BYTES
            and not self._turn_queue.has_waiting()
        )

    def has_many_waiters(self) -> bool:
        return self._recent_waiters > _MANY_WAITERS

    def record_waiters(self, waiting: i64) -> None:
        """One commit alone does not tell: the first replies of a crowd bring the next commands of
        a few."""
        self._recent_waiters = max(waiting, self._recent_waiters - 1)

    def record_duration(self, duration_us: i64) -> None:
        """So long was a flush on the loop. One in the thread ends when the loop hears of it, which
        tells nothing of the disk."""
        if duration_us > _SLOW_FLUSH_US:
            self._distrust_flushes = _FLUSHES_TO_DISTRUST
