"""How many commands a second a connection may have carried out.

Whoever has used up its share waits until there is more of it: nothing is refused, and what it sends
meanwhile stays in its socket. One alarm for all who wait.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Clock, Scheduler

_TICK: Final = 10_000  # microseconds between two looks at those who wait
_SECOND: Final = 1_000_000


class Pacer:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self.rate: i64 = 0  # commands a second; 0: as many as come
        self.slowed: i64 = 0  # how often somebody had to wait
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: list[Receiver] = []

    def wait(self, receiver: Receiver) -> None:
        """Resume this one when it may have gained something."""
        if receiver.slowed:
            return
        receiver.slowed = True
        self.slowed += 1
        if not self._waiting:
            self._scheduler.call_at(self._clock.now() + _TICK, self._ring)
        self._waiting.append(receiver)

    def _ring(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for receiver in waiting:
            receiver.slowed = False
            receiver.resume()


class Share:
    """What one connection may still do: at most as much as a second brings."""

    def __init__(self) -> None:
        self._micro: i64 = 0  # millionths of a command
        self._since: i64 = 0

    def left(self, rate: i64, now: i64) -> i64:
        """Whole commands that it may have carried out now."""
        passed = now - self._since
        self._since = now
        if passed >= _SECOND:
            self._micro = rate * _SECOND
        elif passed > 0:
            self._micro = min(self._micro + passed * rate, rate * _SECOND)
        return self._micro // _SECOND

    def spend(self, commands: i64) -> None:
        self._micro -= commands * _SECOND
