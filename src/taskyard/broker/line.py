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
        self._began: i64 = 0  # when this round began
        self._open = False  # it is this round still
        self._planned = False  # the next one, for those in line

    def is_long(self, now: i64) -> bool:
        """Whether who comes now has to join the line."""
        if self._waiting:
            return True
        if self._open:
            return now - self._began > _ROUND
        self._begin(now)
        return False

    def waits(self) -> bool:
        """Whether commands have arrived that were not carried out."""
        return bool(self._waiting)

    def join(self, receiver: Receiver) -> None:
        receiver.in_line = True
        self._waiting.append(receiver)
        if not self._planned:
            self._planned = True
            self._scheduler.call_soon(self._go_round)

    def _begin(self, now: i64) -> None:
        self._began = now
        self._open = True
        self._scheduler.call_soon(self._end)

    def _end(self) -> None:
        """The loop has been at its sockets."""
        self._open = False

    def _go_round(self) -> None:
        now: i64 = self._clock.now()
        self._begin(now)
        end = now + _ROUND
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
