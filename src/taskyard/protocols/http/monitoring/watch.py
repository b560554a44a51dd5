"""A look at everything once a second, shared by all who want figures: the live page and plots.

All queues are gone through a portion at a time between the turns of others. With very many queues
a look takes longer than a second, and more so while nobody watches: then it is only for the plots,
and must cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.tally import Tally

SECOND: Final = 1_000_000
PORTION: Final = 500  # queues in one turn
_PACE_WATCHED: Final = 5_000  # microseconds between two portions
_PACE_ALONE: Final = 50_000
_SOONEST: Final = SECOND // 4  # after a look comes one for who has just come
_CLOSEST: Final = SECOND // 2  # looks that are closer than this make no rates


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look has found; counters go on growing as long as the server runs."""

    at: int
    tally: Tally
    requests: dict[str, int]  # by dialect
    commits: int
    written: int  # bytes of the journal, as far as it goes
    flushes: list[int]  # buckets of the histogram
    lag: list[int] = field(default_factory=list)  # the same of the loop's lag


class Watcher(Protocol):
    """Who wants to see each queue as well."""

    def begin(self) -> None: ...

    def portion(self, queues: list[Queue], now: int) -> None: ...

    def end(self, sample: Sample) -> None: ...


class Watch:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        requests: Callable[[], dict[str, int]] = dict,
        portion: int = PORTION,
    ) -> None:
        """`requests`: how many there were, of dialects that the metrics do not count."""
        self._broker = broker
        self._scheduler = scheduler
        self._requests = requests
        self._takers: list[Callable[[Sample], None]] = []
        self._alarm: Cancellable | None = None
        self._watcher: Watcher | None = None
        self._look = 0  # number of the one under way, or of the last
        self._under_way = False
        self._queues: list[Queue] = []
        self._at = 0
        self._tally = Tally(broker.engine.measures)
        self._most = portion
        self._portion = portion
        self._hurried = False  # another look is wanted as soon as may be
        self.last: Sample | None = None
        self.before: Sample | None = None  # what to compare the last one with

    def each(self, take: Callable[[Sample], None]) -> None:
        """Call this at the end of each look."""
        self._takers.append(take)

    def start(self) -> None:
        self._arm()

    def stop(self) -> None:
        self._look += 1
        self._under_way = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def attend(self, watcher: Watcher | None) -> None:
        """Somebody watches from now on, or nobody any more."""
        was = self._watcher
        self._watcher = watcher
        if watcher is not None and was is None:
            self._begin()  # what is under way goes slowly, and has not begun for this one
        elif watcher is None:
            self.divide(1)

    def divide(self, by: int) -> None:
        """The watcher has so many times the work with each queue."""
        self._portion = max(self._most // by, 1)

    def hurry(self) -> None:
        """Somebody has come who would like to see something soon."""
        if not self._hurried:
            self._hurried = True
            if not self._under_way:
                self._plan_hurry()

    def _plan_hurry(self) -> None:
        last = self.last
        now = self._broker.clock.now()
        when = now if last is None else max(now, last.at + _SOONEST)
        self._scheduler.call_at(when, self._be_quick)

    def _be_quick(self) -> None:
        if self._hurried and not self._under_way and self._watcher is not None:
            self._begin()

    def _arm(self) -> None:
        """For the next whole second, so that looks and the steps of plots go together."""
        when = (self._broker.clock.now() // SECOND + 1) * SECOND
        self._alarm = self._scheduler.call_at(when, self._ring)

    def _ring(self) -> None:
        self._arm()
        if not self._under_way:
            self._begin()

    def _begin(self) -> None:
        self._look += 1
        self._under_way = True
        self._hurried = False
        engine = self._broker.engine
        # At the same time: a queue that is deleted from now on is still in the list.
        self._tally = Tally(engine.measures)
        self._queues = list(engine.state.queues.values())
        self._at = 0
        if self._watcher is not None:
            self._watcher.begin()
        self._go_on(self._look)

    def _go_on(self, look: int) -> None:
        if look != self._look:
            return  # another one has begun meanwhile
        start = self._at
        end = min(start + self._portion, len(self._queues))
        self._at = end
        self._tally.add(self._queues, start, end)
        now = self._broker.clock.now()
        watcher = self._watcher
        if watcher is not None:
            watcher.portion(self._queues[start:end], now)
        if end == len(self._queues):
            self._end(now)
            return
        pace = _PACE_ALONE if watcher is None else _PACE_WATCHED
        self._scheduler.call_at(now + pace, partial(self._go_on, look))

    def _end(self, now: int) -> None:
        self._under_way = False
        self._queues = []
        sample = self._sample(now)
        last = self.last
        if last is None or now - last.at >= _CLOSEST:
            self.before = last
        self.last = sample
        for take in self._takers:
            take(sample)
        sample.tally.named = []  # queues may go, samples stay for a while
        if self._watcher is not None:
            self._watcher.end(sample)
        if self._hurried:
            self._plan_hurry()

    def _sample(self, now: int) -> Sample:
        broker = self._broker
        metrics = broker.metrics
        return Sample(
            at=now,
            tally=self._tally,
            requests={
                **{
                    traffic.dialect: sum([int(verb.count) for verb in traffic.verbs])
                    for traffic in metrics.dialects
                },
                **self._requests(),
            },
            commits=broker.commits,
            written=broker.journal.end,
            flushes=list(metrics.flushes.buckets),
            lag=list(metrics.loop_lag.buckets),
        )
