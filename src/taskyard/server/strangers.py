"""Closes connections whose clients do not log in, on a server with users.

Each client has `--login-timeout` to log in, counted from the start of its connection. When the
server is full, the oldest connection without a login makes room for a new one. One timer serves all
of them; a client that has logged in is recognized as known when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from taskyard.broker.broker import Broker
from taskyard.broker.receiver import BUSY, KNOWN
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.server.net.connection import Connection

_LOOKS: Final = 64  # connections that are looked at for one that may go
_GOING: Final = 16  # that were sent away for others, and still have their descriptors


class Strangers:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        patience: int | None,
        needs_login: Callable[[], bool],
    ) -> None:
        """`patience`: microseconds, None for ever; `needs_login`: whether a client without a login
        can do nothing."""
        self._broker = broker
        self._scheduler = scheduler
        self._patience = patience
        self._needs_login = needs_login
        self._since: dict[Connection, int] = {}  # in the order in which they came
        self._going: set[Connection] = set()
        self._alarm: Cancellable | None = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def add(self, one: Connection) -> None:
        """Start the time of a connection that was accepted, or has finished its TLS handshake."""
        if self._stopped:
            return
        self._since.pop(one, None)
        self._since[one] = self._broker.clock.now()
        if self._alarm is None:
            self._plan()

    def discard(self, one: Connection) -> None:
        """Forget a connection that was closed."""
        self._since.pop(one, None)
        self._going.discard(one)

    def make_room(self) -> bool:
        """Close the oldest connection without a login at once; False if there is none."""
        if not self._needs_login() or len(self._going) >= _GOING:
            return False
        for _ in range(min(_LOOKS, len(self._since))):
            one = next(iter(self._since))
            del self._since[one]
            standing = one.standing()
            if standing == BUSY:
                self._since[one] = self._broker.clock.now()
            elif standing != KNOWN:
                self._broker.metrics.strain.made_room += 1
                self._going.add(one)
                one.send_away("the server is full, and others want to log in", at_once=True)
                return True
        return False

    def _plan(self) -> None:
        first = next(iter(self._since.values()), None)
        if first is not None and self._patience is not None:
            self._alarm = self._scheduler.call_at(first + self._patience, self._look)

    def _look(self) -> None:
        self._alarm = None
        assert self._patience is not None
        now = self._broker.clock.now()
        needed = self._needs_login()
        for one in self._since_before(now - self._patience):
            del self._since[one]
            standing = one.standing() if needed else KNOWN
            if standing == BUSY:  # with its login perhaps: it has the same time once more
                self._since[one] = now
            elif standing != KNOWN:
                self._broker.metrics.strain.stalled_login += 1
                one.send_away("no login came in time")
        self._plan()

    def _since_before(self, time: int) -> list[Connection]:
        found: list[Connection] = []
        for one, since in self._since.items():
            if since > time:
                break
            found.append(one)
        return found
