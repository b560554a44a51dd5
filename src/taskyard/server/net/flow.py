"""What all clients together hold in memory: commands that are not answered, replies not taken.

It is not counted byte by byte but measured, whenever so much has come and gone that it may have
reached the limit. Beyond it, whoever holds more than a small part is held back: nothing more is
read from such a client or carried out for it until it has taken its replies, or others have taken
theirs. Clients that hold little go on as before, and nothing is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Cancellable, Scheduler
from taskyard.server.net.connection import NO_LIMIT, Connection, OpenConnections

_STEPS: Final = 16  # of the limit, in which it is measured beyond it
_LEAST: Final = 4096  # bytes that a client may hold in any case
_AGAIN: Final = 20_000  # microseconds until the next look while memory is short
_SHARE: Final = 20  # and at least so many times as long as the look itself takes

Found = list[tuple[int, Connection]]  # what each connection holds


class Flow:
    def __init__(
        self,
        everyone: OpenConnections,
        broker: Broker,
        scheduler: Scheduler,
        limit: int,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._everyone = everyone
        self._broker = broker
        self._scheduler = scheduler
        self._limit = limit
        self._is_short = False  # the limit was reached, and it has not fallen much below it
        self._small = 0  # bytes that a client may hold meanwhile
        self._held_back: dict[Connection, None] = {}  # in the order in which it came to that
        self._stopwatch = stopwatch
        self._favourite: Connection | None = None
        self._alarm: Cancellable | None = None
        everyone.budget = limit
        everyone.on_spent = self._spent
        broker.held_limit = limit // 2
        broker.on_memory = self._taken
        broker.engine.waiting_limit = limit // 2

    def stop(self) -> None:
        """The server is about to end: everybody may be answered."""
        self._everyone.on_spent = None
        self._everyone.budget = NO_LIMIT
        self._broker.on_memory = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._release_all()

    def _spent(self, one: Connection) -> None:
        """So much has come and gone that there may be too much, or memory is short and something
        has come or gone. Nobody is resumed here: this may be in the middle of somebody's turn."""
        if self._is_short:
            if one is not self._favourite and _holds(one) > self._small:
                self._hold_back(one)
            if self._everyone.fresh < self._limit // _STEPS:
                return
        self._measure(False)

    def _taken(self, size: int) -> None:
        """Somebody holds that much more than has come: what it sent takes more memory than bytes,
        or it waits at many queues."""
        everyone = self._everyone
        everyone.fresh += size
        if everyone.fresh > (self._limit // _STEPS if self._is_short else everyone.budget):
            self._measure(False)

    def _look_again(self) -> None:
        self._alarm = None
        self._measure(True)

    def _measure(self, resumes: bool) -> None:
        began = self._stopwatch()
        found = [(_holds(one), one) for one in self._everyone.all()]
        # Those who wait can hand nothing back, so the others have at least the other half.
        waiting = min(self._broker.engine.waiting_size, self._limit // 2)
        total = self._broker.held + waiting + sum(held for held, _ in found)
        there = {one for _, one in found}
        self._held_back = {one: None for one in self._held_back if one in there}
        self._everyone.fresh = 0
        if total > self._limit:
            self._is_short = True
            self._small = max(_LEAST, self._limit // (4 * len(found)))
        elif resumes and total <= self._limit // 4 * 3:
            self._is_short = False
            self._release_all()
        if self._is_short:
            self._everyone.budget = -1
            self._choose(found, resumes)
            self._plan(self._stopwatch() - began)
        else:
            self._everyone.budget = max(self._limit - total, self._limit // _STEPS)
        strain = self._broker.metrics.strain
        strain.in_flight = total
        strain.held_back = len(self._held_back)

    def _plan(self, took: float) -> None:
        if self._alarm is None:
            pause = max(_AGAIN, round(took * 1_000_000) * _SHARE)
            when = self._broker.clock.now() + pause
            self._alarm = self._scheduler.call_at(when, self._look_again)

    def _choose(self, found: Found, resumes: bool) -> None:
        """Hold back those who hold much, and nobody else."""
        if resumes:
            self._favour(found)
        for held, one in found:
            if one is self._favourite:
                continue
            if held > self._small:
                self._hold_back(one)
            elif resumes and one in self._held_back:
                self._release(one)

    def _favour(self, found: Found) -> None:
        """One of those who hold much goes on in any case: if all were held back in the middle of
        large commands, none of these would ever come to its end."""
        able = [one for held, one in found if held > self._small and one.can_go_on()]
        favourite = self._favourite
        if favourite not in able:
            favourite = able[0] if able else None
        self._favourite = favourite
        if favourite is not None:
            self._release(favourite)

    def _hold_back(self, one: Connection) -> None:
        self._held_back[one] = None
        one.hold_back(True)

    def _release(self, one: Connection) -> None:
        self._held_back.pop(one, None)
        one.hold_back(False)

    def _release_all(self) -> None:
        self._favourite = None
        waiting = self._held_back
        self._held_back = {}
        for one in waiting:
            one.hold_back(False)


def _holds(one: Connection) -> int:
    return one.unanswered() + one.unsent()
