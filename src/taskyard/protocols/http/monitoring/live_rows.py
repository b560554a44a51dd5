"""Queues in a live sample: how each has changed since the one before, and which of them to show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.access.principal import INSPECT, Principal
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.facade import Engine
from taskyard.engine.structures.measures import Histogram, QueueTimes
from taskyard.protocols.http.api.queues import counters_of, counts_of, rate_opens_at
from taskyard.protocols.http.monitoring import live_messages as messages
from taskyard.protocols.http.monitoring.live_head import spread
from taskyard.protocols.http.monitoring.quantiles import quantiles

# microseconds; samples that are closer than this make no rates
_MIN_RATE_INTERVAL_US: Final = 500_000


class QueueRow:
    """One queue, while there are listeners."""

    __slots__ = (
        "at",
        "dead",
        "done",
        "done_rate",
        "failed",
        "failed_rate",
        "leased",
        "name",
        "pushed",
        "pushed_rate",
        "queue",
        "ready",
        "runs",
        "runs_before",
        "waits",
        "waits_before",
    )

    def __init__(self, queue: Queue, at: int) -> None:
        """`at`: time of the last sample without this queue; 0: not known."""
        self.queue = queue
        self.name = queue.name
        self.at = at
        self.ready = self.leased = self.dead = 0
        self.pushed = self.done = self.failed = 0
        self.pushed_rate = self.done_rate = self.failed_rate = -1.0  # not known yet
        self.waits: list[int] | None = None  # buckets, of a queue that has its own
        self.waits_before: list[int] | None = None
        self.runs: list[int] | None = None
        self.runs_before: list[int] | None = None

    def update(self, now: int, rest: QueueTimes) -> None:
        queue = self.queue
        self.ready = queue.ready.size
        self.leased = queue.leased.size
        self.dead = queue.dead.size
        if now - self.at < _MIN_RATE_INTERVAL_US:
            return
        pushed: int = queue.pushed
        done: int = queue.finished
        failed: int = queue.failed + queue.retried
        if self.at:
            elapsed = (now - self.at) / 1_000_000
            self.pushed_rate = (pushed - self.pushed) / elapsed
            self.done_rate = (done - self.done) / elapsed
            self.failed_rate = (failed - self.failed) / elapsed
        self.pushed, self.done, self.failed = pushed, done, failed
        self.at = now
        times = queue.times
        if times is not None and times is not rest:
            self.waits_before, self.waits = self.waits, _copy(times.waits, self.waits)
            self.runs_before, self.runs = self.runs, _copy(times.runs, self.runs)


def _copy(times: Histogram, last: list[int] | None) -> list[int]:
    """Its buckets now; the last copy if that is the same, as it is for most queues."""
    buckets = times.buckets
    return last if last is not None and last == buckets else list(buckets)


Order = Callable[[QueueRow], tuple[float, str]]

# Most first; queues that have the same are in order of their names.
ORDERS: Final[dict[str, Order]] = {
    "ready": lambda row: (-row.ready, row.name),
    "leased": lambda row: (-row.leased, row.name),
    "done_rate": lambda row: (-row.done_rate, row.name),
    "pushed_rate": lambda row: (-row.pushed_rate, row.name),
    "failed_rate": lambda row: (-row.failed_rate, row.name),
    "dead": lambda row: (-row.dead, row.name),
    "name": lambda row: (0, row.name),
}


class Ranking:
    """The page of queues in one order, collected while all queues go by."""

    def __init__(
        self, sort: str, offset: int, limit: int, match: str, principal: Principal | None
    ) -> None:
        """`principal`: None if it may see all of them."""
        self._order = ORDERS[sort]
        self._offset = offset
        self._limit = limit
        self._match = match.casefold()
        self._principal = principal
        self._best: list[QueueRow] = []
        self._total = 0
        self._previous: list[QueueRow] = []  # those of the sample before
        self.is_complete = False  # False for a ranking that was added in the middle of a sample

    def start(self) -> None:
        self.is_complete = True
        self._best = []
        self._total = 0

    def add_rows(self, rows: list[QueueRow]) -> None:
        if not self.is_complete:
            return
        principal = self._principal
        if self._match:
            rows = [row for row in rows if self._match in row.name.casefold()]
        if principal is not None:
            rows = [row for row in rows if principal.may(INSPECT, row.name)]
        self._total += len(rows)
        best = self._best + rows
        best.sort(key=self._order)
        del best[self._offset + self._limit :]
        self._best = best

    def view(self, engine: Engine, now: int) -> messages.LiveQueues:
        queues = engine.state.queues
        best = self._best[self._offset :]
        last, self._previous = self._previous, best
        return messages.LiveQueues(
            total=self._total,
            shown=[row_view(engine, row, now) for row in best],
            gone=[row.name for row in last if row.queue.utf8 not in queues],
        )


def row_view(engine: Engine, row: QueueRow, now: int) -> messages.LiveRow:
    queue = row.queue
    waiters = engine.waiters.get(queue.utf8)
    return messages.LiveRow(
        name=row.name,
        paused=queue.settings.paused,
        draining=queue.settings.draining,
        ready=queue.ready.size,
        delayed=queue.delayed.size,
        leased=queue.leased.size,
        blocked=queue.blocked.size,
        dead=queue.dead.size,
        limited=queue.limited.size,
        waiting=len(waiters) if waiters is not None else 0,
        pushed_rate=_round_rate(row.pushed_rate),
        done_rate=_round_rate(row.done_rate),
        failed_rate=_round_rate(row.failed_rate),
        wait_p95=_p95(engine, row.waits_before, row.waits),
        run_p95=_p95(engine, row.runs_before, row.runs),
        oldest_age=_oldest_age(queue, now),
    )


def queue_row_view(engine: Engine, row: QueueRow, now: int) -> messages.LiveQueue:
    """The same with more to it."""
    queue = row.queue
    shape = engine.statistics.shared_times
    shown = row_view(engine, row, now)
    return messages.LiveQueue(
        **{name: getattr(shown, name) for name in shown.__struct_fields__},
        counts=counts_of(queue),
        counters=counters_of(queue),
        waiting_bytes=queue.unfinished_bytes,
        dead_bytes=queue.dead_bytes,
        opens_at=rate_opens_at(queue, now),
        wait=_spread(shape.waits, row.waits_before, row.waits),
        run=_spread(shape.runs, row.runs_before, row.runs),
    )


def _spread(
    shape: Histogram, before: list[int] | None, now: list[int] | None
) -> messages.Spread | None:
    return None if before is None or now is None else spread(shape, before, now)


def _p95(engine: Engine, before: list[int] | None, now: list[int] | None) -> float | None:
    if before is None or now is None or before is now:
        return None
    found = quantiles(
        engine.statistics.shared_times.waits, before, now, (0.95,)
    )  # all have the same shape
    return found[0] if found else None


def _round_rate(rate: float) -> float | None:
    return None if rate < 0 else round(rate, 3)


def _oldest_age(queue: Queue, now: int) -> float | None:
    job = queue.ready.first()
    if job is None:
        return None
    return max(0, now - (job.ready_at or job.pushed_at)) / 1_000_000
