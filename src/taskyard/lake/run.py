"""`taskyard lake run`: batch after batch, until all is in the lake, or for ever."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from taskyard.lake.batch import Batches, minute_of
from taskyard.lake.errors import LakeError
from taskyard.lake.maintain import Maintenance
from taskyard.lake.spark_tasks import Tasks
from taskyard.lake.status import Report, Status
from taskyard.lake.store import Store
from taskyard.spark.ranges import Journal, JournalView, plan
from taskyard.spark.web import ServerUnreachable

BATCH: Final = 3_000_000
BYTES: Final = 256 << 20  # of the journal in a batch, where payloads are kept: tasks hold them
TRIGGER: Final = 10.0
_IDLE: Final = 60.0  # seconds without a record, after which the last minute is shown


@dataclass
class Options:
    follow: bool = False
    payloads: bool = False
    batch: int = BATCH
    trigger: float = TRIGGER
    retention_days: int | None = None


class Run:
    """Reads a journal into a lake. `stopped` waits so many seconds or until it is told to stop."""

    def __init__(
        self,
        tasks: Tasks,
        store: Store,
        journal: Journal,
        options: Options,
        *,
        committed: Callable[[int, bool], None] = lambda next_seq, last: None,
        stopped: Callable[[float], bool],
        tell: Callable[[int, int], None] = lambda done, total: None,
        report: Report = lambda told: None,
    ) -> None:
        self._tasks = tasks
        self._store = store
        self._journal = journal
        self._options = options
        self._committed = committed
        self._stopped = stopped
        self._tell = tell
        self._batches = Batches(tasks, store, options.payloads)
        self._maintenance = Maintenance(tasks, store, options.retention_days)
        self._status = Status(store.path, tasks.ui, report)
        self._target: int | None = None  # the last record that is wanted
        self._idle_since = 0.0
        self._idle_seq = -1

    def run(self) -> None:
        """Until all there was is in the lake; with `follow`, until it is stopped.

        `committed` is told of each record that is the next one by now, and whether it is known
        to be the last for the moment: a server may drop all before it.
        """
        try:
            self._go()
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk is not what went wrong first
                self._status.failed(str(error) or type(error).__name__)
            raise
        self._status.stopped()

    def _go(self) -> None:
        while not self._stopped(0):
            try:
                goes_on = self._look()
            except Exception as error:
                if not self._options.follow or not _is_unreachable(error):
                    raise
                self._status.waiting("the server does not answer")
                self._store.drop_strays()
                goes_on = not self._stopped(self._options.trigger)
            if not goes_on:
                return

    def _look(self) -> bool:
        """A batch, if there are new records; False: that was all."""
        options = self._options
        view = self._journal.view(self._next_seq())
        start = self._start(view)
        if self._target is None and not options.follow:
            self._target = view.durable_seq
        last = view.durable_seq if self._target is None else min(view.durable_seq, self._target)
        self._maintenance.look()
        if start > last:
            self._idle(view.durable_seq)
            return options.follow and not self._stopped(options.trigger)
        began = time.monotonic()
        self._batch(view, start, last)
        if options.follow and self._next_seq() > last:
            # A trickle of records would be made into one small batch after another.
            self._stopped(max(options.trigger - (time.monotonic() - began), 0))
        return True

    def _next_seq(self) -> int:
        return self._store.watermark.next_seq if self._store.watermark else 0

    def _start(self, view: Any) -> int:
        """The first record of the next batch; LakeError if it cannot be had."""
        mark = self._store.watermark
        if mark is None or not mark.next_seq:
            return int(view.first_seq)
        view.check_timeline(mark.timeline, mark.next_seq)
        if mark.next_seq < view.first_seq:
            missing = view.first_seq - mark.next_seq
            raise LakeError(
                f"the journal begins at record {view.first_seq} by now, the lake has all before "
                f"{mark.next_seq}: {missing} records are missing; what is there can be read into "
                "another lake"
            )
        return mark.next_seq

    def _batch(self, view: Any, start: int, last: int) -> None:
        began = time.monotonic()
        end = min(last, start + self._options.batch - 1)
        if self._options.payloads:
            end = last_within(view, start, end, BYTES)
        ranges = plan(view, start, end, self._tasks.parallelism)
        events = self._batches.run(ranges, view.timeline)
        self._committed(end + 1, end >= last)
        self._store.sweep()
        self._status.batch(
            self._store.watermark, view.durable_seq, events, time.monotonic() - began
        )
        self._tell(end + 1 - start, max(last - end, 0))

    def _idle(self, durable_seq: int) -> None:
        """A minute that is over by the clock is shown, though the journal does not say so yet."""
        self._status.idle(self._store.watermark, durable_seq)
        if not self._options.follow:
            return
        now = time.monotonic()
        if durable_seq != self._idle_seq:
            self._idle_seq, self._idle_since = durable_seq, now
        over = (minute_of(self._store.watermark) + 1) * 60
        if now - self._idle_since >= _IDLE and time.time() >= over:
            self._batches.show_last_minute()


def _is_unreachable(error: Exception) -> bool:
    """Also where a task of Spark met it, of which there is only the text."""
    return isinstance(error, ServerUnreachable) or ServerUnreachable.__name__ in str(error)


def last_within(view: JournalView, start: int, last: int, size: int) -> int:
    """Up to where records from `start` on take about so many bytes; one at least."""
    left = float(size)
    for segment in view.segments:
        first = max(segment.first_seq, start)
        if first > min(segment.last_seq, last):
            continue
        each = segment.bytes / (segment.last_seq - segment.first_seq + 1)
        if (segment.last_seq - first + 1) * each > left:
            return min(last, max(start, first + int(left / each) - 1))
        left -= (segment.last_seq - first + 1) * each
    return last
