"""Looks after the journal between turns: compaction, retention, and disk space.

journal/compaction.py says what a pass of compaction does, and which segments readers keep; this
module decides when that happens, and runs off the loop what waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import i64

from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.broker.offloop import SegmentPreparation, SegmentRemoval
from taskyard.engine.model.job import FOREVER
from taskyard.journal.compaction import IDLE, BlobRead, Compactor, SegmentScanRead
from taskyard.journal.retention import RetentionLimits, plan_retention
from taskyard.journal.segments import PrepareSegment
from taskyard.journal.writer import RemoveSegments

if TYPE_CHECKING:
    from taskyard.broker.commit import Broker


# Compaction

_STEP_BYTES: Final = 131_072  # bytes of snapshots in one step
_MIN_STEP_BYTES: Final = 16_384  # below that it is not worth a turn
_IDLE_PAUSE_US: Final = 5_000  # microseconds between steps while nothing else happens


class CompactionScheduler:
    """Schedules compaction: a little between turns, as much as new records make necessary.

    Under load, each new byte adds to an allowance, so that compaction keeps up without taking more
    than its share. When the server is idle it continues by itself, in steps short enough that no
    client waits.
    """

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


def _error_text(error: BaseException | None) -> str:
    return "" if error is None else str(error) or repr(error)


# Retention of segments


class JournalRetention:
    """Removes segments that no replay needs: at once, unless a journal reader still needs them.

    The plan is made again when the replay start has moved, when a reader has, and when a lease or a
    segment's age ends.
    """

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


# Disk space

_RETRY_US: Final = 1_000_000  # microseconds between two checks whether the disk has space again


class DiskSpaceMonitor:
    """Prepares the next segment in time, removes old ones, and reports when space is short.

    All of that runs off the loop. While something waits for space, it is checked from time to time.
    """

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
