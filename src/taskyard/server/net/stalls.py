"""Finds clients that make no progress, by checking all connections a few times within the timeout.

No connection has a timer of its own: ten thousand idle ones cost a few milliseconds for each check.
A client may be idle between two commands for any time.
"""

from __future__ import annotations

from typing import Final

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.server.net.connection import (
    NOT_STALLED,
    STALLED_INPUT,
    Connection,
    ConnectionRegistry,
)

_CHECKS_PER_TIMEOUT: Final = 4  # in the time after which a client is disconnected
_MAX_INTERVAL_US: Final = 15_000_000  # microseconds between two walks
_CONNECTIONS_PER_STEP: Final = 1000  # connections, before it is the turn of others


class StallDetector:
    def __init__(
        self, registry: ConnectionRegistry, broker: Broker, scheduler: Scheduler, timeout_us: int
    ) -> None:
        self._registry = registry
        self._broker = broker
        self._scheduler = scheduler
        self._timeout_us = timeout_us
        self._to_check: list[Connection] = []
        self._timer_handle: Cancellable | None = None
        self._stopped = False

    def start(self) -> None:
        pause = min(max(self._timeout_us // _CHECKS_PER_TIMEOUT, 1), _MAX_INTERVAL_US)
        when = self._broker.clock.now() + pause
        self._timer_handle = self._scheduler.call_at(when, self._start_check)

    def stop(self) -> None:
        self._stopped = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()

    def _start_check(self) -> None:
        self._to_check = self._registry.all()
        self._check_some()

    def _check_some(self) -> None:
        if self._stopped:
            return
        now = self._broker.clock.now()
        portion = self._to_check[-_CONNECTIONS_PER_STEP:]
        del self._to_check[-_CONNECTIONS_PER_STEP:]
        for one in portion:
            verdict = one.check_progress(now, self._timeout_us)
            if verdict != NOT_STALLED:
                self._close_stalled(one, verdict)
        if self._to_check:
            self._scheduler.call_soon(self._check_some)
        else:
            self.start()

    def _close_stalled(self, one: Connection, stall: int) -> None:
        strain = self._broker.metrics.limit_counters
        if stall == STALLED_INPUT:
            strain.input_timeouts += 1
        else:
            strain.output_timeouts += 1
        one.close_stalled(stall)
