"""When segments go that no replay needs: at once, unless a reader of the journal still wants them.

What is kept is worked out anew when the journal's base has moved, when a reader has, and at the
time when a lease or a segment's age ends; not in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.engine.model.job import FOREVER
from taskyard.journal.retention import Limits, judge

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker


class Retention:
    def __init__(self, broker: Broker, limits: Limits, scheduler: Scheduler) -> None:
        self.limits = limits
        self.judged: i64 = 0  # how often what is kept was worked out
        self._broker = broker
        self._scheduler = scheduler
        self._kept: i64 = 0  # the segments before it can go
        self._judged_base: i64 = -1  # what that was worked out from
        self._judged_change: i64 = -1
        self._overdue = False  # a lease or an age has ended since
        self._alarm: Cancellable | None = None
        self._alarm_at: i64 = FOREVER
        self._on_left_behind: list[Callable[[str, int], None]] = []

    def on_left_behind(self, call: Callable[[str, int], None]) -> None:
        """Hear which reader will miss how many records, though its lease lasts."""
        self._on_left_behind.append(call)

    def look(self) -> None:
        """Drop what can go; cheap while nothing has changed."""
        journal = self._broker.journal
        if journal.first >= journal.base:
            return
        changed = self._broker.engine.state.readers_changed
        if (
            self._overdue or journal.base != self._judged_base or changed != self._judged_change
        ) and changed <= journal.durable_seq:  # else a crash would take back why it could go
            self._judge(changed)
        if journal.first < self._kept:
            self._drop(self._kept)

    def give_up_one(self) -> None:
        """The disk is full: work goes before readers, and one segment is room to go on."""
        journal = self._broker.journal
        if journal.first < journal.base:
            self._drop(journal.next_base(journal.first))

    def _judge(self, changed: i64) -> None:
        self.judged += 1
        journal = self._broker.journal
        readers = self._broker.engine.state.readers
        verdict = judge(
            list(readers.values()), journal.retained(), self.limits, self._broker.clock.now()
        )
        self._kept = verdict.base
        self._judged_base = journal.base
        self._judged_change = changed
        self._overdue = False
        self._set_alarm(verdict.again)

    def _set_alarm(self, when: i64) -> None:
        if when == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = when
        if when < FOREVER:
            self._alarm = self._scheduler.call_at(when, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._alarm_at = FOREVER
        self._overdue = True
        self.look()

    def _drop(self, base: i64) -> None:
        if not self._broker.room.drop_before(base) or not self._on_left_behind:
            return
        now = self._broker.clock.now()
        for reader in self._broker.engine.state.readers.values():
            missed = self._broker.journal.missed(reader.next_seq)
            if missed and reader.lease_until > now:
                for call in self._on_left_behind:
                    call(reader.name, missed)
