"""Decides where a flush runs: on the event loop, or in the flush thread.

A flush on the loop blocks every client. That is faster as long as no client could be served
meanwhile: the thread costs two wake-ups, and the clients of that commit wait for both.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.line import TurnQueue

# clients with waiting replies, beyond which there is always one to serve
_MANY_WAITERS: Final = 200
# bytes whose flush is not as quick as it was measured with a few
_LARGE_FLUSH_BYTES: Final = 262_144
# Microseconds after which a flush was slow, and how many after it are left to the thread: a disk
# that is busy with others may take a hundred times as long, several times in a row. More than a
# millisecond is nothing special: with 50 clients on the same cores one in 30 to 2,000 takes that.
_SLOW_FLUSH_US: Final = 2_000
_FLUSHES_TO_DISTRUST: Final = 20


class SyncPlacement:
    def __init__(self, turn_queue: TurnQueue, is_disk_fast: bool, has_thread: bool) -> None:
        self._turn_queue = turn_queue
        # the disk, as measured at the start; or the user wants it so
        self.is_disk_fast = is_disk_fast
        self._has_thread = has_thread  # one of its own, and the user leaves the choice to us
        self._recent_waiters: i64 = 0  # how many waited, in the last few commits
        self._distrust_flushes: i64 = 0  # flushes for which the disk is not trusted to be quick

    def should_sync_inline(self, waiting: i64, size: i64) -> bool:
        """Whether to flush on the loop, for a commit of `size` bytes that `waiting` clients wait
        for.
        """
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
        """Record how many clients wait. One commit alone does not tell: the first replies of many
        clients bring the next commands of a few.
        """
        self._recent_waiters = max(waiting, self._recent_waiters - 1)

    def record_duration(self, duration_us: i64) -> None:
        """Record how long a flush on the loop took. One in the thread ends when the loop notices,
        which says nothing about the disk.
        """
        if duration_us > _SLOW_FLUSH_US:
            self._distrust_flushes = _FLUSHES_TO_DISTRUST
