"""Enforces `--memory-limit` over unanswered commands and unsent replies of all connections.

It does not count each byte: it measures whenever enough bytes have been received or sent to reach
the limit. Beyond the limit, connections that hold more than a small share are paused: the server
neither reads from them nor executes their commands until they, or others, have taken their replies.
Small holders continue, and nothing is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.server.net.connection import NO_LIMIT, Connection, ConnectionRegistry

_CHECKS_PER_LIMIT: Final = 16  # of the limit, in which it is measured beyond it
_MIN_HOLDING_BYTES: Final = 4096  # bytes that a client may hold in any case
_RECHECK_US: Final = 20_000  # microseconds until the next check while memory is short
_PAUSE_PER_CHECK: Final = 20  # and at least so many times as long as the check itself takes

Holdings = list[tuple[int, Connection]]  # what each connection holds


class MemoryLimiter:
    def __init__(
        self,
        registry: ConnectionRegistry,
        broker: Broker,
        scheduler: Scheduler,
        limit_bytes: int,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._registry = registry
        self._broker = broker
        self._scheduler = scheduler
        self._limit_bytes = limit_bytes
        self._is_limiting = False  # the limit was reached, and it has not fallen much below it
        self._small_holding = 0  # bytes that a client may hold meanwhile
        self._paused: dict[Connection, None] = {}  # in the order in which they were paused
        self._stopwatch = stopwatch
        self._exempt: Connection | None = None
        self._timer_handle: Cancellable | None = None
        registry.check_after_bytes = limit_bytes
        registry.on_check_due = self._on_budget_used
        broker.pending_reply_limit = limit_bytes // 2
        broker.on_memory_used = self._on_memory_used
        broker.engine.waiter_bytes_limit = limit_bytes // 2

    def stop(self) -> None:
        """Resume every connection: the server is about to stop."""
        self._registry.on_check_due = None
        self._registry.check_after_bytes = NO_LIMIT
        self._broker.on_memory_used = None
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None
        self._resume_all()

    def _on_budget_used(self, connection: Connection) -> None:
        """Pause this connection if it holds much, and measure again when enough bytes have passed.
        Resumes nobody: this may run within a turn.
        """
        if self._is_limiting:
            if connection is not self._exempt and _held_bytes(connection) > self._small_holding:
                self._pause(connection)
            if self._registry.bytes_since_check < self._limit_bytes // _CHECKS_PER_LIMIT:
                return
        self._measure_holdings(False)

    def _on_memory_used(self, size: int) -> None:
        """Count memory that a client uses beyond what it has sent."""
        everyone = self._registry
        everyone.bytes_since_check += size
        if everyone.bytes_since_check > (
            self._limit_bytes // _CHECKS_PER_LIMIT
            if self._is_limiting
            else everyone.check_after_bytes
        ):
            self._measure_holdings(False)

    def _recheck(self) -> None:
        self._timer_handle = None
        self._measure_holdings(True)

    def _measure_holdings(self, resumes: bool) -> None:
        began = self._stopwatch()
        found = [(_held_bytes(one), one) for one in self._registry.all()]
        # Waiting fetches can free nothing, so the others have at least the other half.
        waiting = min(self._broker.engine.waiter_bytes, self._limit_bytes // 2)
        total = self._broker.pending_reply_bytes + waiting + sum(held for held, _ in found)
        there = {one for _, one in found}
        self._paused = {one: None for one in self._paused if one in there}
        self._registry.bytes_since_check = 0
        if total > self._limit_bytes:
            self._is_limiting = True
            self._small_holding = max(_MIN_HOLDING_BYTES, self._limit_bytes // (4 * len(found)))
        elif resumes and total <= self._limit_bytes // 4 * 3:
            self._is_limiting = False
            self._resume_all()
        if self._is_limiting:
            self._registry.check_after_bytes = -1
            self._update_paused(found, resumes)
            self._schedule_recheck(self._stopwatch() - began)
        else:
            self._registry.check_after_bytes = max(
                self._limit_bytes - total, self._limit_bytes // _CHECKS_PER_LIMIT
            )
        strain = self._broker.metrics.limit_counters
        strain.in_flight_bytes = total
        strain.paused_connections = len(self._paused)

    def _schedule_recheck(self, took: float) -> None:
        if self._timer_handle is None:
            pause = max(_RECHECK_US, round(took * 1_000_000) * _PAUSE_PER_CHECK)
            when = self._broker.clock.now() + pause
            self._timer_handle = self._scheduler.call_at(when, self._recheck)

    def _update_paused(self, holdings: Holdings, resumes: bool) -> None:
        """Pause the connections that hold much, and no others."""
        if resumes:
            self._exempt_one(holdings)
        for held, one in holdings:
            if one is self._exempt:
                continue
            if held > self._small_holding:
                self._pause(one)
            elif resumes and one in self._paused:
                self._resume(one)

    def _exempt_one(self, holdings: Holdings) -> None:
        """Exempt one large holder: if all were paused in the middle of large commands, none of
        these would ever complete.
        """
        able = [
            one for held, one in holdings if held > self._small_holding and one.can_make_progress()
        ]
        favourite = self._exempt
        if favourite not in able:
            favourite = able[0] if able else None
        self._exempt = favourite
        if favourite is not None:
            self._resume(favourite)

    def _pause(self, one: Connection) -> None:
        self._paused[one] = None
        one.pause_for_memory(True)

    def _resume(self, one: Connection) -> None:
        self._paused.pop(one, None)
        one.pause_for_memory(False)

    def _resume_all(self) -> None:
        self._exempt = None
        waiting = self._paused
        self._paused = {}
        for one in waiting:
            one.pause_for_memory(False)


def _held_bytes(one: Connection) -> int:
    return one.unanswered_bytes() + one.unsent_bytes()
