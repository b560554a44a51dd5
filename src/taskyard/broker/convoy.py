"""Whether the next flush waits for those whom the last one has answered.

They send their next command a moment later. On a disk that takes milliseconds for a flush, one that
begins before that lets them wait for the rest of it and for all of the one after: two flushes for
each reply, as two crowds in turns. To wait for them for a part of what a flush takes makes one of
the two, and each reply waits for one.

Not everybody comes back at once: some have work to do, some are done. Who is waited for is who was
prompt the last time.
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
_FLUSHES_WITHOUT_DELAY: Final = (
    32  # flushes for which nobody is waited for, once most of them did not come in time
)


class CommitDelay:
    def __init__(self, scheduler: Scheduler, start_commit: Callable[[], None]) -> None:
        self.max_delay_us: i64 = 0  # microseconds that anybody is waited for; 0: the disk is quick
        self.is_active = False  # somebody is waited for
        self.was_active = False  # or was, since the last flush
        self._scheduler = scheduler
        self._start_commit = (
            start_commit  # those who are back have waited long enough, or nobody else will come
        )
        self._last_flush_us: i64 = 0  # by the last flush
        self._flush_ended_at: i64 = 0  # when it was over
        self._missing: i64 = 0  # how many are not back
        self._expected: i64 = 0  # of how many
        self._skip_flushes: i64 = 0  # flushes for which nobody is waited for
        self._timer_handle: Cancellable | None = None

    def on_flush_done(self, duration_us: i64, now: i64) -> None:
        """A flush is over, after so long, and replies are about to be let go.

        A disk that stood still for once is not slow: it has to be so twice in a row.
        """
        shorter = min(duration_us, self._last_flush_us)
        self._last_flush_us = duration_us
        self._flush_ended_at = now
        self.max_delay_us = 0
        if shorter > _MIN_FLUSH_TO_DELAY_US:
            self.max_delay_us = min(shorter * _MAX_DELAY_QUARTERS // 4, i64(_MAX_DELAY_US))
        self.was_active = False

    def on_replies_sent(self, queues: list[ReplyQueue]) -> None:
        """These waited for it; some of them wait for more, or for nothing any more."""
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
        """It has a reply that waits for the next flush; whether that may begin."""
        since = replies.replied_at
        if since:
            self._stop_expecting(replies)
            replies.returns_quickly = now - since <= self.max_delay_us
        return not self.is_active or self._missing <= 0

    def on_client_gone(self, replies: ReplyQueue) -> None:
        """It will not come back."""
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
        """The next flush begins, for whatever reason."""
        self.is_active = False
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None

    def _on_timeout(self) -> None:
        if self._missing * 2 > self._expected:
            self._skip_flushes = _FLUSHES_WITHOUT_DELAY
        self.cancel()
        self._start_commit()
