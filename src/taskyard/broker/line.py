"""The line of connections that have more to say than fits into one turn.

A connection carries out a few commands, then it is the turn of the next one; after some time the
loop looks at its sockets, whoever is still in line. So one client that sends a thousand commands
at once, or a thousand clients that send one each, make nobody wait for all of them.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from mypy_extensions import i64

from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Clock, Scheduler

TURN: Final = 16  # commands of one connection
_ROUND: Final = 4_000  # microseconds


class Line:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: deque[Receiver] = deque()
        self._began: i64 = clock.now()  # of this round
        self._planned = False  # the next one

    def is_long(self, now: i64) -> bool:
        """Whether who comes now has to join the line.

        That is also so for the first one after a pause, since nobody says when a round begins:
        cheaper than to be told of each.
        """
        return bool(self._waiting) or now - self._began > _ROUND

    def waits(self) -> bool:
        """Whether commands have arrived that were not carried out."""
        return bool(self._waiting)

    def join(self, receiver: Receiver) -> None:
        receiver.in_line = True
        self._waiting.append(receiver)
        if not self._planned:
            self._planned = True
            self._scheduler.call_soon(self._go_round)

    def _go_round(self) -> None:
        self._began = self._clock.now()
        end = self._began + _ROUND
        waiting = self._waiting
        try:
            while waiting and self._clock.now() <= end:
                receiver = waiting.popleft()
                receiver.in_line = False
                receiver.take_turn()
        finally:
            if waiting:
                self._scheduler.call_soon(self._go_round)
            else:
                self._planned = False
