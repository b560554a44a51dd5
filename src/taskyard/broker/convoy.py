"""Delays a commit briefly so that clients answered by the previous one can join it.

Those clients send their next command a moment later. On a disk that takes milliseconds for a flush,
a flush that starts before they return makes them wait for the rest of it and for all of the next:
two flushes for each reply. A delay of part of a flush brings that down to one.

Not every client returns at once. The delay expects only those that returned quickly the last time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.outbox import ReplyQueue
from taskyard.broker.seams import Cancellable, Scheduler

_MIN_FLUSH_TO_DELAY_US: Final = 1_000  # microseconds of a flush, beyond which it pays to wait
# Of four parts of a flush, how many are waited for at most. Two crowds wait for two flushes, one
# waits for one and until all are back: if that takes as long as a flush, it brings nothing.
_MAX_DELAY_QUARTERS: Final = 3
_MAX_DELAY_US: Final = 10_000  # microseconds: how soon clients are back does not depend on the disk
# flushes without a delay, once most clients did not return in time
_FLUSHES_WITHOUT_DELAY: Final = 32


class CommitDelay:
    def __init__(self, scheduler: Scheduler, start_commit: Callable[[], None]) -> None:
        self.max_delay_us: i64 = 0  # most microseconds of a delay; 0: the disk is quick
        self.is_active = False  # a commit is being delayed
        self.was_active = False  # or was, since the last flush
        self._scheduler = scheduler
        # clients that are back have waited long enough, or no other will return
        self._start_commit = start_commit
        self._last_flush_us: i64 = 0  # by the last flush
        self._flush_ended_at: i64 = 0  # when it was over
        self._missing: i64 = 0  # how many are not back
        self._expected: i64 = 0  # of how many
        self._skip_flushes: i64 = 0  # flushes without a delay
        self._timer_handle: Cancellable | None = None

    def on_flush_done(self, duration_us: i64, now: i64) -> None:
        """Record that a flush has ended after `duration_us`; its replies are about to be released.

        One slow flush is an exception: the disk counts as slow only after two in a row.
        """
        shorter = min(duration_us, self._last_flush_us)
        self._last_flush_us = duration_us
        self._flush_ended_at = now
        self.max_delay_us = 0
        if shorter > _MIN_FLUSH_TO_DELAY_US:
            self.max_delay_us = min(shorter * _MAX_DELAY_QUARTERS // 4, i64(_MAX_DELAY_US))
        self.was_active = False

    def on_replies_sent(self, queues: list[ReplyQueue]) -> None:
        """Start to wait for the clients whose replies were released."""
        if not self.max_delay_us:
            return
        if self._skip_flushes > 0:
            self._skip_flushes -= 1
            return
        awaited: i64 = 0
        for outbox in queues:
            if not outbox.awaits_commit and not outbox.is_detached():
                outbox.replied_at = self._flush_ended_at
                if outbox.returns_quickly:
                    awaited += 1
        self._missing = awaited
        self._expected = awaited
        if awaited:
            self.is_active = True
            self.was_active = True
            self._timer_handle = self._scheduler.call_after_us(self.max_delay_us, self._on_timeout)

    def on_client_back(self, replies: ReplyQueue, now: i64) -> bool:
        """Record that this client has a reply for the next commit. Return whether that commit may
        start.
        """
        since = replies.replied_at
        if since:
            self._stop_expecting(replies)
            replies.returns_quickly = now - since <= self.max_delay_us
        return not self.is_active or self._missing <= 0

    def on_client_gone(self, replies: ReplyQueue) -> None:
        """Stop waiting for this client: its connection is closed."""
        if replies.replied_at:
            self._stop_expecting(replies)
            if self.is_active and self._missing <= 0:
                self.cancel()
                self._start_commit()

    def _stop_expecting(self, replies: ReplyQueue) -> None:
        if replies.returns_quickly and replies.replied_at == self._flush_ended_at:
            self._missing -= 1
        replies.replied_at = 0

    def cancel(self) -> None:
        """Stop the delay: the next flush starts."""
        self.is_active = False
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None

    def _on_timeout(self) -> None:
        if self._missing * 2 > self._expected:
            self._skip_flushes = _FLUSHES_WITHOUT_DELAY
        self.cancel()
        self._start_commit()
