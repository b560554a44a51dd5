"""Disk space: prepares the next segment in time, removes old ones, and reports when space is short.

All of that runs off the loop. While something waits for space, it is checked from time to time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.offloop import SegmentPreparation, SegmentRemoval
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.journal.drop import RemoveSegments
from taskyard.journal.spare import PrepareSegment

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker

_RETRY_US: Final = 1_000_000  # microseconds between two checks whether the disk has space again


class DiskSpaceMonitor:
    def __init__(self, broker: Broker, scheduler: Scheduler) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._on_refusal_change: list[Callable[[str], None]] = []
        self._reported_refusal = ""  # why pushes are refused, as last reported
        self._timer_handle: Cancellable | None = None

    def on_refusal_change(self, call: Callable[[str], None]) -> None:
        """Call back with the reason when pushes start to be refused, and with "" when they are
        accepted again.
        """
        self._on_refusal_change.append(call)

    def remove_segments_before(self, base: i64) -> bool:
        """Have the journal remove segments before `base`, off the loop; False if there are none."""
        work = self._broker.journal.remove_segments_before(base)
        if work is None:
            return False
        SegmentRemoval(self, work).start(self._scheduler)
        return True

    def on_segments_dropped(self, work: RemoveSegments) -> None:
        try:
            self._broker.journal.on_segments_removed(work)
        except OSError as error:
            self._broker.fail(error)
            return
        self._space_changed()

    def on_segment_ready(self, work: PrepareSegment) -> None:
        try:
            self._broker.journal.on_segment_prepared(work)
        except OSError as error:
            self._broker.fail(error)
            return
        if work.done:
            self._space_changed()
        else:
            self._broker.retention.drop_oldest()
            self.check()

    def check(self) -> None:
        """Prepare the next segment in time, and report whether pushes are accepted."""
        journal = self._broker.journal
        spare = journal.prepare_next_segment()
        if spare is not None:
            SegmentPreparation(self, spare).start(self._scheduler)
        refusing = journal.space.push_refusal
        if refusing:
            self.retry_later()
        if bool(refusing) != bool(self._reported_refusal):
            for call in self._on_refusal_change:
                call(refusing)
        self._reported_refusal = refusing

    def retry_later(self) -> None:
        """Check the disk again later: something waits for space."""
        broker = self._broker
        if self._timer_handle is None and not broker.failure:
            self._timer_handle = self._scheduler.call_at(
                broker.clock.now() + _RETRY_US, self._retry
            )

    def _retry(self) -> None:
        self._timer_handle = None
        if not self._broker.failure:
            self._broker.journal.retry_preparation()
            self._space_changed()

    def _space_changed(self) -> None:
        """There may be more space than before: continue with what waited for it."""
        self.check()
        broker = self._broker
        if broker.engine.journal_space.postponed_work:
            broker.engine.resume_postponed(broker.begin_turn())
            broker.end_turn()
