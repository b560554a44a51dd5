"""Work of the broker that runs off the loop, and the callbacks for its end.

Each of these keeps what the work was for; the scheduler calls a method of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import i64

from taskyard.broker.interfaces import Scheduler
from taskyard.journal.cache import DiskRead, ReadRequest
from taskyard.journal.flush import SyncPoint
from taskyard.journal.segments import PrepareSegment
from taskyard.journal.writer import RemoveSegments

if TYPE_CHECKING:
    from taskyard.broker.commit import Broker
    from taskyard.broker.upkeep import DiskSpaceMonitor


class SegmentPreparation:
    """The next segment of the journal, made off the loop."""

    def __init__(self, disk_space: DiskSpaceMonitor, work: PrepareSegment) -> None:
        self._disk_space = disk_space
        self._work = work

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._work.run, self._on_done)

    def _on_done(self, error: BaseException | None) -> None:
        self._disk_space.on_segment_ready(self._work)


class SegmentRemoval:
    """Segments of the journal that are removed off the loop."""

    def __init__(self, disk_space: DiskSpaceMonitor, work: RemoveSegments) -> None:
        self._disk_space = disk_space
        self._work = work

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._work.run, self._on_done)

    def _on_done(self, error: BaseException | None) -> None:
        self._disk_space.on_segments_dropped(self._work)


class ThreadSync:
    """One fdatasync off the loop. It measures its duration itself, because the loop is notified of
    its end only when it has time.
    """

    def __init__(self, broker: Broker, point: SyncPoint) -> None:
        self._broker = broker
        self._point = point
        self._started_at = broker.flush_started_at
        self._ended_at: i64 = 0

    def start(self, scheduler: Scheduler) -> None:
        file = self._point.only_descriptor()
        if file < 0 or not scheduler.flush_file(file, self._on_flushed):
            scheduler.run_blocking(self._sync, self._on_done)

    def _on_flushed(self, error_number: int, duration_us: int) -> None:
        try:
            self._point.on_flushed(error_number)
        except OSError as error:
            self._broker.on_sync_done(self._point, error, duration_us)
        else:
            self._broker.on_sync_done(self._point, None, duration_us)

    def _sync(self) -> None:
        self._point.run()
        self._ended_at = self._broker.clock.now()

    def _on_done(self, error: BaseException | None) -> None:
        self._broker.on_sync_done(self._point, error, self._ended_at - self._started_at)


class CachedRead:
    """Bytes that were in memory when they were to be read; they are given later all the same."""

    def __init__(self, broker: Broker, request: ReadRequest) -> None:
        self._broker = broker
        self._request = request

    def complete(self) -> None:
        self._broker.complete_read(self._request)


class BackgroundRead:
    """One read of bytes on disk off the loop."""

    def __init__(self, broker: Broker, read: DiskRead) -> None:
        self._broker = broker
        self._read = read

    def start(self, scheduler: Scheduler) -> None:
        scheduler.run_blocking(self._read.run, self._on_done)

    def _on_done(self, error: BaseException | None) -> None:
        self._broker.on_read_done(self._read)  # what is missing in it says that it has failed
