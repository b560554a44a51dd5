"""What plots show: figures of the last five minutes, hour and day, in memory and lost at a restart.

Totals have all three. Queues have the hour, if they have a name of their own in the metrics.
Everything is in rings of single floats; NaN stands for what is not known.
"""

from __future__ import annotations

from array import array
from typing import Final

from taskyard.broker.interfaces import Scheduler
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.statistics import Histogram
from taskyard.protocols.http.monitoring.quantiles import quantiles
from taskyard.protocols.http.monitoring.watch import SECOND, StatsSample, StatsSampler

GAUGES: Final = ("ready", "leased", "dead")
RATES: Final = ("pushed", "finished", "failed")
TIME_SERIES: Final = ("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99")
SERIES: Final = GAUGES + RATES + TIME_SERIES
MAX_PROTOCOLS: Final = 16  # that requests are counted of, at most

SHAPES: Final = {300: (1, 300), 3_600: (10, 360), 86_400: (240, 360)}  # by span: step and steps
_QUEUE_SPAN: Final = 3_600
_QUEUES_PER_TURN: Final = 50  # queues in one turn: about a millisecond
MAX_QUEUES: Final = 1_000

_NAN: Final = float("nan")


class Ring:
    """The last so many steps of some series."""

    __slots__ = ("_columns", "_values", "last", "size", "step")

    def __init__(self, step: int, size: int, columns: int) -> None:
        self.step = step  # seconds
        self.size = size
        self.last = 0  # number of the newest step; 0: there is none
        self._columns = columns
        self._values = array("f", [_NAN]) * (size * columns)

    def step_of(self, at: int) -> int:
        return at // (self.step * SECOND)

    def append(self, number: int, values: list[float]) -> None:
        """These are the figures of all steps up to this one that have none yet."""
        first = max(self.last + 1, number - self.size + 1) if self.last else number
        for column, value in enumerate(values):
            start = column * self.size
            for each in range(first, number + 1):
                self._values[start + each % self.size] = value
        self.last = number

    def times(self, newest: int, count: int) -> list[int]:
        return [each * self.step for each in range(newest - count + 1, newest + 1)]

    def column(self, column: int, newest: int, count: int) -> list[float | None]:
        start = column * self.size
        known = range(self.last - self.size + 1, self.last + 1)
        values = self._values
        found: list[float | None] = []
        for each in range(newest - count + 1, newest + 1):
            value = values[start + each % self.size] if each in known else _NAN
            found.append(float(f"{value:.6g}") if value == value else None)
        return found


class SpanTotals:
    """Those of one span."""

    def __init__(self, step: int, size: int) -> None:
        self.ring = Ring(step, size, len(SERIES) + MAX_PROTOCOLS)
        self._last_sample: StatsSample | None = None

    def add_sample(self, sample: StatsSample, protocols: list[str]) -> None:
        number = self.ring.step_of(sample.at)
        if number <= self.ring.last:
            return
        before, self._last_sample = self._last_sample, sample
        tally = sample.tally
        values = [float(tally.ready), float(tally.leased), float(tally.dead)]
        if before is None:
            self.ring.append(number, values)
            return
        then = before.tally
        elapsed = (sample.at - before.at) / SECOND
        values += [
            _rate(tally.pushed, then.pushed, elapsed),
            _rate(tally.finished, then.finished, elapsed),
            _rate(tally.failed + tally.retried, then.failed + then.retried, elapsed),
            *_quantiles_between(tally.times.waits, then.times.waits.buckets),
            *_quantiles_between(tally.times.runs, then.times.runs.buckets),
        ]
        for protocol in protocols:
            count = sample.requests.get(protocol, 0)
            values.append(_rate(count, before.requests.get(protocol, 0), elapsed))
        self.ring.append(number, values)


class QueueHistory:
    """The hour of one queue."""

    __slots__ = ("_at", "_counts", "_runs", "_waits", "queue", "ring")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ring = Ring(*SHAPES[_QUEUE_SPAN], len(SERIES))
        self._at = 0
        self._counts: tuple[int, int, int] = (0, 0, 0)
        self._waits: list[int] = []
        self._runs: list[int] = []

    def add_sample(self, at: int) -> None:
        queue = self.queue
        number = self.ring.step_of(at)
        times = queue.times
        if number <= self.ring.last or times is None:
            return
        counts = (queue.pushed, queue.finished, queue.failed + queue.retried)
        waits, runs = times.waits, times.runs
        values = [float(queue.ready.size), float(queue.leased.size), float(queue.dead.size)]
        if self._at:
            elapsed = (at - self._at) / SECOND
            pairs = zip(counts, self._counts, strict=True)
            values += [_rate(now, then, elapsed) for now, then in pairs]
            values += _quantiles_between(waits, self._waits) + _quantiles_between(runs, self._runs)
        self.ring.append(number, values)
        self._at = at
        self._counts = counts
        self._waits = _copy_if_changed(waits, self._waits)
        self._runs = _copy_if_changed(runs, self._runs)


def _rate(now: int, then: int, elapsed: float) -> float:
    return (now - then) / elapsed


def _copy_if_changed(times: Histogram, last: list[int]) -> list[int]:
    buckets = times.buckets
    return last if last == buckets else list(buckets)


def _quantiles_between(times: Histogram, before: list[int]) -> list[float]:
    if times.buckets == before:
        return [_NAN, _NAN, _NAN]
    return quantiles(times, before, times.buckets) or [_NAN, _NAN, _NAN]


class History:
    def __init__(self, sampler: StatsSampler, scheduler: Scheduler) -> None:
        self.protocols: list[str] = []  # in the order of their columns
        self.totals = {span: SpanTotals(step, size) for span, (step, size) in SHAPES.items()}
        self._queues: dict[bytes, QueueHistory] = {}
        self._scheduler = scheduler
        self._queues_to_sample: list[Queue] = []  # not sampled yet
        self._sampled: dict[bytes, QueueHistory] = {}  # those that were, this time
        self._sampled_at = 0
        self._last_step = 0  # step of the last sample of queues
        sampler.subscribe(self.on_sample)

    def on_sample(self, sample: StatsSample) -> None:
        for protocol in sample.requests:
            if protocol not in self.protocols and len(self.protocols) < MAX_PROTOCOLS:
                self.protocols.append(protocol)
        for totals in self.totals.values():
            totals.add_sample(sample, self.protocols)
        number = sample.at // (SHAPES[_QUEUE_SPAN][0] * SECOND)
        if number > self._last_step and not self._queues_to_sample:
            self._last_step = number
            self._sampled_at = sample.at
            self._sampled = {}
            self._queues_to_sample = sample.tally.named_queues[:MAX_QUEUES]
            self._queues_to_sample.reverse()
            self._sample_some_queues()

    def queue_history(self, queue: Queue) -> QueueHistory | None:
        found = self._queues.get(queue.utf8)
        return found if found is not None and found.queue is queue else None

    def _sample_some_queues(self) -> None:
        for _ in range(min(_QUEUES_PER_TURN, len(self._queues_to_sample))):
            queue = self._queues_to_sample.pop()
            found = self.queue_history(queue)
            if found is None and (queue.activity_count() or not queue.is_empty()):
                found = QueueHistory(queue)
            if found is not None:
                found.add_sample(self._sampled_at)
                self._sampled[queue.utf8] = found
        if self._queues_to_sample:
            self._scheduler.call_soon(self._sample_some_queues)
        else:
            self._queues = self._sampled
