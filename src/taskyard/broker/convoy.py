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

from taskyard.broker.outbox import Outbox
from taskyard.broker.seams import Cancellable, Scheduler

_LONG: Final = 1_000  # microseconds of a flush, beyond which it pays to wait
# Of four parts of a flush, how many are waited for at most. Two crowds wait for two flushes, one
# waits for one and until all are back: if that takes as long as a flush, it brings nothing.
_PARTS: Final = 3
_MOST: Final = 10_000  # microseconds: how soon clients are back does not depend on the disk
_REST: Final = 32  # flushes for which nobody is waited for, once most of them did not come in time


class Convoy:
    def __init__(self, scheduler: Scheduler, late: Callable[[], None]) -> None:
        self.patience: i64 = 0  # microseconds that anybody is waited for; 0: the disk is quick
        self.is_open = False  # somebody is waited for
        self.was_open = False  # or was, since the last flush
        self._scheduler = scheduler
        self._late = late  # those who are back have waited long enough, or nobody else will come
        self._took: i64 = 0  # by the last flush
        self._let_go: i64 = 0  # when it was over
        self._awaited: i64 = 0  # how many are not back
        self._gone: i64 = 0  # of how many
        self._rest: i64 = 0  # flushes for which nobody is waited for
        self._alarm: Cancellable | None = None

    def flushed(self, took: i64, now: i64) -> None:
        """A flush is over, after so long, and replies are about to be let go.

        A disk that stood still for once is not slow: it has to be so twice in a row.
        """
        shorter = min(took, self._took)
        self._took = took
        self._let_go = now
        self.patience = 0
        if shorter > _LONG:
            self.patience = min(shorter * _PARTS // 4, i64(_MOST))
        self.was_open = False

    def answered(self, outboxes: list[Outbox]) -> None:
        """These waited for it; some of them wait for more, or for nothing any more."""
        if not self.patience:
            return
        if self._rest > 0:
            self._rest -= 1
            return
        awaited: i64 = 0
        for outbox in outboxes:
            if not outbox.listed and not outbox.is_lost():
                outbox.answered = self._let_go
                if outbox.is_prompt:
                    awaited += 1
        self._awaited = awaited
        self._gone = awaited
        if awaited:
            self.is_open = True
            self.was_open = True
            self._alarm = self._scheduler.call_within(self.patience, self._ring)

    def came(self, outbox: Outbox, now: i64) -> bool:
        """It has a reply that waits for the next flush; whether that may begin."""
        since = outbox.answered
        if since:
            self._forget(outbox)
            outbox.is_prompt = now - since <= self.patience
        return not self.is_open or self._awaited <= 0

    def left(self, outbox: Outbox) -> None:
        """It will not come back."""
        if outbox.answered:
            self._forget(outbox)
            if self.is_open and self._awaited <= 0:
                self.end()
                self._late()

    def _forget(self, outbox: Outbox) -> None:
        if outbox.is_prompt and outbox.answered == self._let_go:
            self._awaited -= 1
        outbox.answered = 0

    def end(self) -> None:
        """The next flush begins, for whatever reason."""
        self.is_open = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        if self._awaited * 2 > self._gone:
            self._rest = _REST
        self.end()
        self._late()
