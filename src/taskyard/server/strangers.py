"""Closes connections whose clients do not log in, on a server with users.

Each client has `--login-timeout` to log in, counted from the start of its connection. When the
server is full, the oldest connection without a login makes room for a new one. One timer serves all
of them; that a client has logged in is found when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.broker.commit import Broker
from taskyard.broker.interfaces import Cancellable, Scheduler
from taskyard.broker.turns import AUTHENTICATED, AUTHENTICATING
from taskyard.server.net.connection import Connection

_MAX_EVICTION_CHECKS: Final = 64  # connections that are checked for one to close
_MAX_EVICTED: Final = 16  # that were sent away for others, and still have their descriptors


class LoginTimeouts:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        timeout_us: int | None,
        needs_login: Callable[[], bool],
    ) -> None:
        """`timeout_us`: None for ever; `needs_login`: whether a client without a login can do
        nothing.
        """
        self._broker = broker
        self._scheduler = scheduler
        self._timeout_us = timeout_us
        self._needs_login = needs_login
        self._waiting_since: dict[Connection, int] = {}  # in the order in which they connected
        self._evicted: set[Connection] = set()
        self._timer_handle: Cancellable | None = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle = None

    def add(self, one: Connection) -> None:
        """Start the login timeout of a connection that was accepted, or has finished its TLS
        handshake.
        """
        if self._stopped:
            return
        self._waiting_since.pop(one, None)
        self._waiting_since[one] = self._broker.clock.now()
        if self._timer_handle is None:
            self._schedule_check()

    def discard(self, one: Connection) -> None:
        """Forget a connection that was closed."""
        self._waiting_since.pop(one, None)
        self._evicted.discard(one)

    def evict_oldest(self) -> bool:
        """Close the oldest connection without a login at once; False if there is none."""
        if not self._needs_login() or len(self._evicted) >= _MAX_EVICTED:
            return False
        for _ in range(min(_MAX_EVICTION_CHECKS, len(self._waiting_since))):
            one = next(iter(self._waiting_since))
            del self._waiting_since[one]
            standing = one.login_state()
            if standing == AUTHENTICATING:
                self._waiting_since[one] = self._broker.clock.now()
            elif standing != AUTHENTICATED:
                self._broker.metrics.limit_counters.evicted_logins += 1
                self._evicted.add(one)
                one.close_unauthenticated(
                    "the server is full, and others want to log in", at_once=True
                )
                return True
        return False

    def _schedule_check(self) -> None:
        first = next(iter(self._waiting_since.values()), None)
        if first is not None and self._timeout_us is not None:
            self._timer_handle = self._scheduler.call_at(
                first + self._timeout_us, self._close_overdue
            )

    def _close_overdue(self) -> None:
        self._timer_handle = None
        assert self._timeout_us is not None
        now = self._broker.clock.now()
        needed = self._needs_login()
        for one in self._waiting_since_before(now - self._timeout_us):
            del self._waiting_since[one]
            standing = one.login_state() if needed else AUTHENTICATED
            if standing == AUTHENTICATING:  # with its login perhaps: it has the same time once more
                self._waiting_since[one] = now
            elif standing != AUTHENTICATED:
                self._broker.metrics.limit_counters.login_timeouts += 1
                one.close_unauthenticated("no login came in time")
        self._schedule_check()

    def _waiting_since_before(self, time: int) -> list[Connection]:
        found: list[Connection] = []
        for one, since in self._waiting_since.items():
            if since > time:
                break
            found.append(one)
        return found
