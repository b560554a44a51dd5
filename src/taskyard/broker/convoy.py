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
from taskyard.engine.job import FOREVER

_LONG: Final = 1_000  # microseconds of a flush, beyond which it pays to wait
_PART: Final = 2  # one of so many parts of a flush is waited for at most


class Convoy:
    def __init__(self, scheduler: Scheduler, go: Callable[[], None]) -> None:
        self.patience: i64 = 0  # microseconds that anybody is waited for; 0: the disk is quick
        self.is_open = False  # somebody is waited for
        self._scheduler = scheduler
        self._go = go  # not all are back, and those who are have waited long enough
        self._took: i64 = 0  # by the last flush
        self._let_go: i64 = 0  # when it was over
        self._awaited: i64 = 0  # how many are not back
        self._alarm: Cancellable | None = None

    def begin(self, took: i64, now: i64) -> None:
        """A flush is over, after so long. Nothing follows until it is known who was answered.

        A disk that stood still for once is not slow: it has to be so twice in a row.
        """
        self.end()
        shorter = min(took, self._took)
        self._took = took
        self._let_go = now
        self.patience = shorter // _PART if shorter > _LONG else 0
        self.is_open = self.patience > 0
        self._awaited = FOREVER

    def answered(self, outboxes: list[Outbox]) -> None:
        """These waited for it; some of them wait for more."""
        if not self.is_open:
            return
        self._awaited = 0
        for outbox in outboxes:
            if not outbox.listed:
                outbox.answered = self._let_go
                if outbox.is_prompt:
                    self._awaited += 1
        if self._awaited:
            self._alarm = self._scheduler.call_at(self._let_go + self.patience, self._ring)
        else:
            self.is_open = False

    def came(self, outbox: Outbox, now: i64) -> bool:
        """It has a reply that waits for the next flush; whether that may begin."""
        since = outbox.answered
        if since:
            outbox.answered = 0
            if outbox.is_prompt and since == self._let_go:
                self._awaited -= 1
            outbox.is_prompt = now - since <= self.patience
        return not self.is_open or self._awaited <= 0

    def end(self) -> None:
        """The next flush begins, for whatever reason."""
        self.is_open = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self.end()
        self._go()
