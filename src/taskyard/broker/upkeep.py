"""Schedules compaction: a little between turns, as much as new records make necessary.

Under load, each new byte adds to an allowance, so that compaction keeps up without taking more than
its share. When the server is idle it continues by itself, in steps short enough that no client
waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.journal.compaction import IDLE, Compactor
from taskyard.journal.head_read import BlobRead, SegmentScanRead

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker

_STEP_BYTES: Final = 131_072  # bytes of snapshots in one step
_MIN_STEP_BYTES: Final = 16_384  # below that it is not worth a turn
_IDLE_PAUSE_US: Final = 5_000  # microseconds between steps while nothing else happens


class CompactionScheduler:
    def __init__(self, broker: Broker, compactor: Compactor, scheduler: Scheduler) -> None:
        self.compactor = compactor
        self._broker = broker
        self._scheduler = scheduler
        self._allowance_bytes: i64 = 0
        self._seen_position: i64 = broker.journal.end
        # bytes of what was seen next that compaction has written itself
        self._snapshot_bytes: i64 = 0
        self._step_scheduled = False
        self._timer_handle: Cancellable | None = None
        self._idle = True  # nothing new was written since the timer was set
        self._on_damage: list[Callable[[str], None]] = []

    def on_damage(self, call: Callable[[str], None]) -> None:
        self._on_damage.append(call)

    def on_commit(self) -> None:
        """Add to the allowance for new bytes, and start a pass when it is due."""
        compactor = self.compactor
        journal = self._broker.journal
        end = journal.end
        new = end - self._seen_position - self._snapshot_bytes
        self._seen_position = end
        self._snapshot_bytes = 0
        if compactor.phase == IDLE:
            if not compactor.is_due():
                return
            compactor.begin_pass()
            self._allowance_bytes = _STEP_BYTES
        elif new > 0:
            self._idle = False
            self._allowance_bytes = min(
                self._allowance_bytes + new * compactor.pace_percent() // 100, 8 * i64(_STEP_BYTES)
            )
        if self._allowance_bytes >= _MIN_STEP_BYTES or compactor.is_checkpoint_durable():
            self._schedule_step()
        if self._timer_handle is None:
            self._start_idle_timer()

    def _schedule_step(self) -> None:
        if not self._step_scheduled:
            self._step_scheduled = True
            self._scheduler.call_soon(self._compact_step)

    def _start_idle_timer(self) -> None:
        self._idle = True
        when = self._broker.clock.now() + _IDLE_PAUSE_US
        self._timer_handle = self._scheduler.call_at(when, self._on_idle_timer)

    def _on_idle_timer(self) -> None:
        self._timer_handle = None
        if self._broker.failure or self.compactor.phase == IDLE:
            return
        if self._idle:
            self._allowance_bytes = max(self._allowance_bytes, i64(_STEP_BYTES))
            self._schedule_step()
        self._start_idle_timer()

    def _compact_step(self) -> None:
        self._step_scheduled = False
        broker = self._broker
        if broker.failure:
            return
        compactor = self.compactor
        if compactor.is_checkpoint_durable():
            self._drop_segments()
            return
        log = broker.engine.records
        before = log.size()
        spent = compactor.run_step(broker.clock.now(), min(self._allowance_bytes, i64(_STEP_BYTES)))
        self._allowance_bytes -= spent
        self._snapshot_bytes += log.size() - before
        read = compactor.next_segment_read()
        if read is not None:
            _SegmentReadTask(self, read).start(self._scheduler)
        late = compactor.next_blob_read()
        if late is not None:
            _BlobReadTask(self, late).start(self._scheduler)
        broker.end_turn()
        if spent and compactor.can_step() and self._allowance_bytes >= _MIN_STEP_BYTES:
            self._schedule_step()

    def _drop_segments(self) -> None:
        """Remove the segments before the new replay start, which is durable."""
        self.compactor.finish_pass()
        self._broker.retention.apply()
        self.on_commit()  # the next pass may be due already

    def on_segment_read(self, read: SegmentScanRead, error: BaseException | None) -> None:
        self.compactor.on_segment_read(read, _error_text(error))
        self._after_read()

    def on_blobs_read(self, read: BlobRead, error: BaseException | None) -> None:
        self.compactor.on_blobs_read(read, _error_text(error))
        self._after_read()

    def _after_read(self) -> None:
        damage = self.compactor.damage
        if damage:
            for call in self._on_damage:
                call(damage)
        elif self._allowance_bytes >= _MIN_STEP_BYTES:
            self._schedule_step()


def _error_text(error: BaseException | None) -> str:
    return "" if error is None else str(error) or repr(error)


class _SegmentReadTask:
    def __init__(self, upkeep: CompactionScheduler, read: SegmentScanRead) -> None:
        self._compaction = upkeep
        self._read = read

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._read.run, self._on_done)

    def _on_done(self, error: BaseException | None) -> None:
        self._compaction.on_segment_read(self._read, error)


class _BlobReadTask:
    def __init__(self, upkeep: CompactionScheduler, read: BlobRead) -> None:
        self._compaction = upkeep
        self._read = read

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._read.run, self._on_done)

    def _on_done(self, error: BaseException | None) -> None:
        self._compaction.on_blobs_read(self._read, error)
