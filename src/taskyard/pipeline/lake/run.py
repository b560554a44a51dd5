"""`taskyard lake run`: batch after batch, until all is in the lake, or for ever."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from taskyard.journal.errors import JournalPassed, LeftBehind
from taskyard.pipeline.lake.batch import Batches, minute_of
from taskyard.pipeline.lake.maintain import Maintenance
from taskyard.pipeline.lake.outage import PATIENCE, Outage
from taskyard.pipeline.lake.place import LOOKED_AT, check_same, start_of
from taskyard.pipeline.lake.spark_tasks import RecordsGone, Tasks
from taskyard.pipeline.lake.status import Report, Status
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.ranges import Journal, JournalView, plan
from taskyard.pipeline.web import ServerUnreachable

BATCH: Final = 3_000_000
BYTES: Final = 256 << 20  # of the journal in a batch, where payloads are kept: tasks hold them
TRIGGER: Final = 10.0
_IDLE: Final = 60.0  # seconds without a record, after which the last minute is shown
_GONE: Final = 3  # times in a row that a batch may find a segment gone that it should still have


@dataclass
class Options:
    follow: bool = False
    payloads: bool = False
    batch: int = BATCH
    trigger: float = TRIGGER
    retention_days: int | None = None
    patience: float = PATIENCE  # seconds for which a server may be away


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
        say: Callable[[str], None] = lambda line: None,
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
        self._outage = Outage(options.patience, say)
        self._is_checked = False  # whether this is the journal that the lake was made of
        self._gone = 0
        self._target: int | None = None  # the last record that is wanted
        self._idle_since = 0.0
        self._idle_seq = -1

    def run(self) -> bool:
        """Until all there was is in the lake; with `follow`, until it is stopped.

        `committed` is told of each record that is the next one by now, and whether it is known
        to be the last for the moment: a server may drop all before it. False: it was stopped
        before its end.
        """
        try:
            is_all = self._go()
        except BaseException as error:
            with contextlib.suppress(OSError):  # a full disk is not what went wrong first
                self._status.failed(str(error) or type(error).__name__)
            raise
        self._status.stopped()
        return is_all

    def _go(self) -> bool:
        while not self._stopped(0):
            try:
                if not self._look():
                    return True
                self._gone = 0
            except ServerUnreachable as error:
                pause = self._outage.met(error)
                self._is_checked = False  # who knows what it has when it is back
                self._status.waiting(str(error))
                self._store.drop_strays()
                self._stopped(pause)
            except (RecordsGone, LeftBehind, JournalPassed):
                # The next look says how many records are missing, if any are.
                self._gone += 1
                if self._gone > _GONE:
                    raise
        return self._options.follow

    def _look(self) -> bool:
        """A batch, if there are new records; False: that was all."""
        options = self._options
        before = 0 if self._is_checked else LOOKED_AT
        view = self._journal.view(max(self._next_seq() - before, 0))
        start = start_of(view, self._store.watermark)
        self._check(view)
        if self._target is None and not options.follow:
            self._target = view.durable_seq
        last = view.durable_seq if self._target is None else min(view.durable_seq, self._target)
        self._maintenance.look()
        if start > last:
            self._outage.over()
            self._idle(view.durable_seq)
            if options.follow:
                self._stopped(options.trigger)
            return options.follow
        began = time.monotonic()
        self._batch(view, start, last)
        self._outage.over()  # not before: tasks elsewhere may not reach it
        if options.follow and self._next_seq() > last:
            # A trickle of records would be made into one small batch after another.
            self._stopped(max(options.trigger - (time.monotonic() - began), 0))
        return True

    def _check(self, view: JournalView) -> None:
        if not self._is_checked:
            check_same(view, self._store.watermark)
            self._is_checked = True

    def _next_seq(self) -> int:
        return self._store.watermark.next_seq if self._store.watermark else 0

    def _batch(self, view: Any, start: int, last: int) -> None:
        began = time.monotonic()
        end = min(last, start + self._options.batch - 1)
        if self._options.payloads:
            end = last_within(view, start, end, BYTES)
        ranges = plan(view, start, end, self._tasks.parallelism)
        events = self._batches.run(ranges, view.timeline)
        self._store.sweep()
        self._status.batch(
            self._store.watermark, view.durable_seq, events, time.monotonic() - began
        )
        self._tell(end + 1 - start, max(last - end, 0))
        self._committed(end + 1, end >= last)  # last: the server may have gone meanwhile

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
