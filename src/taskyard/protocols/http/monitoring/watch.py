"""Samples statistics of all queues once a second for the live stream and the history plots.

It goes through all queues in chunks between the turns of connections. With very many queues
a sample takes longer than a second, and more so without an observer: then it is only for the plots,
and must cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.statistics import QueueTotals

SECOND: Final = 1_000_000
CHUNK_QUEUES: Final = 500  # queues in one turn
_CHUNK_PAUSE_OBSERVED_US: Final = 5_000  # microseconds between two chunks
_CHUNK_PAUSE_IDLE_US: Final = 50_000
# earliest next sample, for a client that has just connected
_MIN_SAMPLE_PAUSE_US: Final = SECOND // 4
_MIN_RATE_INTERVAL_US: Final = SECOND // 2  # samples that are closer than this make no rates


@dataclass(frozen=True, slots=True)
class StatsSample:
    """Result of one sample; counters grow as long as the server runs."""

    at: int
    tally: QueueTotals
    requests: dict[str, int]  # by protocol
    commits: int
    written: int  # bytes of the journal so far
    flushes: list[int]  # buckets of the histogram
    lag: list[int] = field(default_factory=list)  # the same of the loop's lag


class StatsObserver(Protocol):
    """Sees each queue of a sample."""

    def on_sample_start(self) -> None: ...

    def on_queues(self, queues: list[Queue], now: int) -> None: ...

    def on_sample_end(self, sample: StatsSample) -> None: ...


class StatsSampler:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        requests: Callable[[], dict[str, int]] = dict,
        chunk_queues: int = CHUNK_QUEUES,
    ) -> None:
        """`requests`: how many there were, of protocols that the metrics do not count."""
        self._broker = broker
        self._scheduler = scheduler
        self._requests = requests
        self._subscribers: list[Callable[[StatsSample], None]] = []
        self._timer: Cancellable | None = None
        self._observer: StatsObserver | None = None
        self._sample_number = 0  # number of the current one, or of the last
        self._under_way = False
        self._queues: list[Queue] = []
        self._next_index = 0
        self._tally = QueueTotals(broker.engine.statistics)
        self._max_chunk = chunk_queues
        self._chunk = chunk_queues
        self._wanted_soon = False  # another sample is wanted as soon as possible
        self.last: StatsSample | None = None
        self.before: StatsSample | None = None  # what to compare the last one with

    def subscribe(self, on_sample: Callable[[StatsSample], None]) -> None:
        """Call this with each sample."""
        self._subscribers.append(on_sample)

    def start(self) -> None:
        self._schedule_next()

    def stop(self) -> None:
        self._sample_number += 1
        self._under_way = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def set_observer(self, observer: StatsObserver | None) -> None:
        """Set who sees each queue of a sample, or None."""
        was = self._observer
        self._observer = observer
        if observer is not None and was is None:
            self._start_sample()  # the current one is slow, and has not begun for this observer
        elif observer is None:
            self.set_chunk_divisor(1)

    def set_chunk_divisor(self, by: int) -> None:
        """Make chunks smaller by this factor: the observer has that many times the work for each
        queue.
        """
        self._chunk = max(self._max_chunk // by, 1)

    def sample_soon(self) -> None:
        """Take the next sample early, for a client that has just connected."""
        if not self._wanted_soon:
            self._wanted_soon = True
            if not self._under_way:
                self._schedule_soon()

    def _schedule_soon(self) -> None:
        last = self.last
        now = self._broker.clock.now()
        when = now if last is None else max(now, last.at + _MIN_SAMPLE_PAUSE_US)
        self._scheduler.call_at(when, self._sample_if_wanted)

    def _sample_if_wanted(self) -> None:
        if self._wanted_soon and not self._under_way and self._observer is not None:
            self._start_sample()

    def _schedule_next(self) -> None:
        """Schedule the next sample at a whole second, so that samples match the steps of plots."""
        when = (self._broker.clock.now() // SECOND + 1) * SECOND
        self._timer = self._scheduler.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule_next()
        if not self._under_way:
            self._start_sample()

    def _start_sample(self) -> None:
        self._sample_number += 1
        self._under_way = True
        self._wanted_soon = False
        engine = self._broker.engine
        # At the same time: a queue that is deleted from now on is still in the list.
        self._tally = QueueTotals(engine.statistics)
        self._queues = list(engine.state.queues.values())
        self._next_index = 0
        if self._observer is not None:
            self._observer.on_sample_start()
        self._sample_chunk(self._sample_number)

    def _sample_chunk(self, number: int) -> None:
        if number != self._sample_number:
            return  # another sample has begun meanwhile
        start = self._next_index
        end = min(start + self._chunk, len(self._queues))
        self._next_index = end
        self._tally.add(self._queues, start, end)
        now = self._broker.clock.now()
        watcher = self._observer
        if watcher is not None:
            watcher.on_queues(self._queues[start:end], now)
        if end == len(self._queues):
            self._finish_sample(now)
            return
        pace = _CHUNK_PAUSE_IDLE_US if watcher is None else _CHUNK_PAUSE_OBSERVED_US
        self._scheduler.call_at(now + pace, partial(self._sample_chunk, number))

    def _finish_sample(self, now: int) -> None:
        self._under_way = False
        self._queues = []
        sample = self._make_sample(now)
        last = self.last
        if last is None or now - last.at >= _MIN_RATE_INTERVAL_US:
            self.before = last
        self.last = sample
        for on_sample in self._subscribers:
            on_sample(sample)
        sample.tally.named_queues = []  # queues may go, samples stay for a while
        if self._observer is not None:
            self._observer.on_sample_end(sample)
        if self._wanted_soon:
            self._schedule_soon()

    def _make_sample(self, now: int) -> StatsSample:
        broker = self._broker
        metrics = broker.metrics
        return StatsSample(
            at=now,
            tally=self._tally,
            requests={
                **{
                    traffic.protocol_name: sum([int(verb.count) for verb in traffic.commands])
                    for traffic in metrics.protocols
                },
                **self._requests(),
            },
            commits=broker.commits,
            written=broker.journal.end,
            flushes=list(metrics.flush_durations.buckets),
            lag=list(metrics.loop_lag.buckets),
        )
