"""Clients that do not get on: found by a walk over all connections, a few times in their patience.

No timer of its own for any connection: ten thousand that are idle cost a few milliseconds each
time, and nothing in between. Who is idle between two commands may stay so for ever.
"""

from __future__ import annotations

from typing import Final

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.server.net.connection import FINE, STALLED_INPUT, Connection, OpenConnections

_WALKS: Final = 4  # in the time after which a client is let go
_LONGEST: Final = 15_000_000  # microseconds between two walks
_AT_ONCE: Final = 1000  # connections, before it is the turn of others


class Stalls:
    def __init__(
        self, everyone: OpenConnections, broker: Broker, scheduler: Scheduler, patience: int
    ) -> None:
        self._everyone = everyone
        self._broker = broker
        self._scheduler = scheduler
        self._patience = patience
        self._walk: list[Connection] = []
        self._alarm: Cancellable | None = None
        self._stopped = False

    def start(self) -> None:
        pause = min(max(self._patience // _WALKS, 1), _LONGEST)
        when = self._broker.clock.now() + pause
        self._alarm = self._scheduler.call_at(when, self._begin)

    def stop(self) -> None:
        self._stopped = True
        if self._alarm is not None:
            self._alarm.cancel()

    def _begin(self) -> None:
        self._walk = self._everyone.all()
        self._go_on()

    def _go_on(self) -> None:
        if self._stopped:
            return
        now = self._broker.clock.now()
        portion = self._walk[-_AT_ONCE:]
        del self._walk[-_AT_ONCE:]
        for one in portion:
            verdict = one.verdict(now, self._patience)
            if verdict != FINE:
                self._let_go(one, verdict)
        if self._walk:
            self._scheduler.call_soon(self._go_on)
        else:
            self.start()

    def _let_go(self, one: Connection, verdict: int) -> None:
        strain = self._broker.metrics.strain
        if verdict == STALLED_INPUT:
            strain.stalled_input += 1
        else:
            strain.stalled_output += 1
        one.let_go(verdict)
