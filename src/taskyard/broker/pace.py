"""How many commands a second a connection may execute.

A connection that has used up its tokens waits for new ones: nothing is refused, and what it sends
meanwhile stays in its socket. One timer serves all connections that wait.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.receiver import ClientConnection
from taskyard.broker.seams import Clock, Scheduler

_RETRY_US: Final = 10_000  # microseconds between two checks of those that wait
_SECOND_US: Final = 1_000_000


class RateLimiter:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self.commands_per_second: i64 = 0  # commands a second; 0: no limit
        self.delay_count: i64 = 0  # how often a connection had to wait
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: list[ClientConnection] = []

    def resume_later(self, connection: ClientConnection) -> None:
        """Resume this connection when it may have new tokens."""
        if connection.rate_limited:
            return
        connection.rate_limited = True
        self.delay_count += 1
        if not self._waiting:
            self._scheduler.call_at(self._clock.now() + _RETRY_US, self._resume_waiting)
        self._waiting.append(connection)

    def _resume_waiting(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for receiver in waiting:
            receiver.rate_limited = False
            receiver.resume()


class TokenBucket:
    """The commands that one connection may still execute: at most those of one second."""

    def __init__(self) -> None:
        self._micro_tokens: i64 = 0  # millionths of a command
        self._refilled_at: i64 = 0

    def available(self, rate: i64, now: i64) -> i64:
        """Add the tokens of the time since the last call; return how many commands may run now."""
        passed = now - self._refilled_at
        self._refilled_at = now
        if passed >= _SECOND_US:
            self._micro_tokens = rate * _SECOND_US
        elif passed > 0:
            self._micro_tokens = min(self._micro_tokens + passed * rate, rate * _SECOND_US)
        return self._micro_tokens // _SECOND_US

    def consume(self, commands: i64) -> None:
        self._micro_tokens -= commands * _SECOND_US
