"""When segments that no replay needs are removed: at once, unless a journal reader still needs
them.

The plan is made again when the replay start has moved, when a reader has, and when a lease or a
segment's age ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.engine.model.job import FOREVER
from taskyard.journal.retention import RetentionLimits, plan_retention

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker


class JournalRetention:
    def __init__(self, broker: Broker, limits: RetentionLimits, scheduler: Scheduler) -> None:
        self.limits = limits
        self.plan_count: i64 = 0  # how often what is kept was worked out
        self._broker = broker
        self._scheduler = scheduler
        self._keep_from: i64 = 0  # the segments before it can go
        self._planned_base: i64 = -1  # what that was worked out from
        self._planned_change: i64 = -1
        self._plan_expired = False  # a lease or an age has ended since
        self._timer_handle: Cancellable | None = None
        self._timer_due_at: i64 = FOREVER
        self._on_reader_lost_records: list[Callable[[str, int], None]] = []

    def on_reader_lost_records(self, call: Callable[[str, int], None]) -> None:
        """Call back with the name of a reader that lost records during its lease, and how many."""
        self._on_reader_lost_records.append(call)

    def apply(self) -> None:
        """Remove segments that are not needed; cheap while nothing has changed."""
        journal = self._broker.journal
        if journal.first_base >= journal.replay_start:
            return
        changed = self._broker.engine.state.readers_changed_seq
        if (
            self._plan_expired
            or journal.replay_start != self._planned_base
            or changed != self._planned_change
        ) and changed <= journal.durable_seq:  # else a crash would take back why it could go
            self._make_plan(changed)
        if journal.first_base < self._keep_from:
            self._drop_before(self._keep_from)

    def drop_oldest(self) -> None:
        """Remove the oldest segment although readers need it: the disk is full."""
        journal = self._broker.journal
        if journal.first_base < journal.replay_start:
            self._drop_before(journal.next_base(journal.first_base))

    def _make_plan(self, readers_changed: i64) -> None:
        self.plan_count += 1
        journal = self._broker.journal
        readers = self._broker.engine.state.readers
        verdict = plan_retention(
            list(readers.values()),
            journal.retained_segments(),
            self.limits,
            self._broker.clock.now(),
        )
        self._keep_from = verdict.first_kept
        self._planned_base = journal.replay_start
        self._planned_change = readers_changed
        self._plan_expired = False
        self._set_timer(verdict.recheck_at)

    def _set_timer(self, when: i64) -> None:
        if when == self._timer_due_at:
            return
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None
        self._timer_due_at = when
        if when < FOREVER:
            self._timer_handle = self._scheduler.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_handle = None
        self._timer_due_at = FOREVER
        self._plan_expired = True
        self.apply()

    def _drop_before(self, base: i64) -> None:
        if (
            not self._broker.disk_space.remove_segments_before(base)
            or not self._on_reader_lost_records
        ):
            return
        now = self._broker.clock.now()
        for reader in self._broker.engine.state.readers.values():
            missed = self._broker.journal.missed_records(reader.next_seq)
            if missed and reader.lease_until > now:
                for call in self._on_reader_lost_records:
                    call(reader.name, missed)
