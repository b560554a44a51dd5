"""The line of connections that have more to say than fits into one turn.

A connection carries out a few commands, then it is the turn of the next one; after some time the
loop looks at its sockets, whoever is still in line. So one client that sends a thousand commands
at once, or a thousand clients that send one each, make nobody wait for all of them. Who comes with
little overtakes those who have much, so that it need not wait for a turn of each of them.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Clock, Post, Scheduler
from taskyard.broker.slow import Slow
from taskyard.engine.structures.fifo import Fifo

TURN: Final = 16  # commands of one connection
_ROUND: Final = 2_500  # microseconds
_LITTLE: Final = 1024  # bytes of commands that are done before what takes many turns


class Line:
    def __init__(self, clock: Clock, scheduler: Scheduler, slow: Slow) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._slow = slow
        self.now: i64 = 0  # when the turn began that goes on
        self.is_fresh = False  # it begins now: nothing was done since the clock was read
        self._entered: i64 = 0  # about when those came who come now
        self.turn: Receiver | None = None  # who has it and came from the line
        self.waited: i64 = 0  # and how long it was there
        self.commit_follows = False  # which will look at the clock before long
        # The turn of which it is not known yet how long it took.
        self._last: Receiver | None = None
        self._last_since: i64 = 0
        self._last_waited: i64 = 0
        self._last_commands: i64 = 0  # carried out before it
        self._last_goes_on = False  # with a command of an earlier turn
        self._count: i64 = 0  # of those in line
        self._waiting: Fifo[Receiver] = Fifo()
        self._quick: Fifo[Receiver] = Fifo()  # those who have come with little
        self._ahead: i64 = 1  # of these, before the next of the others
        self.post: Post | None = None
        self._marked = False  # who goes ahead of the others in this round has still to be answered
        self._began: i64 = 0  # when this round began
        self._open = False  # it is this round still
        self._planned = False  # the next one, for those in line

    def is_long(self, now: i64, receiver: Receiver) -> bool:
        """Whether who comes now has to join the line; if not, its turn begins."""
        if self._last is not None:
            self.settle(now)
        self.now = now
        if self.waits():
            return True
        if not self._open:
            self._begin(now)
        elif now - self._began > _ROUND:
            return True
        self._watch(receiver, now, 0)
        return False

    def waits(self) -> bool:
        """Whether commands have arrived that were not carried out."""
        return self._count > 0

    def come(self, receiver: Receiver, size: i64) -> None:
        """With so many bytes of commands; in line from now on."""
        if size <= _LITTLE:
            self._enter(receiver, self._quick)
        else:
            self._enter(receiver, self._waiting)

    def join(self, receiver: Receiver) -> None:
        """For another turn, behind all who are there."""
        self._enter(receiver, self._waiting)

    def _enter(self, receiver: Receiver, line: Fifo[Receiver]) -> None:
        receiver.in_line = True
        if not self._planned:
            self._planned = True
            self._entered = self._clock.now()
            self._scheduler.call_soon(self._go_round)
        receiver.joined = self._entered
        self._count += 1
        line.add(receiver)

    # How long turns take: known at the next time at which the clock is read, and no sooner

    def _watch(self, receiver: Receiver, now: i64, waited: i64) -> None:
        since = receiver.since
        self._last = receiver
        self._last_goes_on = since != 0
        if not since:
            since = now - waited
        self._last_since = since
        self._last_waited = waited
        self._last_commands = receiver.commands

    def look(self) -> None:
        """The loop may be idle from now on, so the turn before that is over."""
        if self._last is not None and self._slow.is_on():
            self.settle(self._clock.now())

    def settle(self, now: i64) -> None:
        """Whatever turn there was is over."""
        last = self._last
        if last is not None:
            self._last = None
            if now - self._last_since > self._slow.limit:
                self._tell(last, now)

    def _tell(self, last: Receiver, now: i64) -> None:
        count = last.commands - self._last_commands
        if last.since or last.replies_wait() or (not count and not self._last_goes_on):
            return  # it is not answered yet, or nothing was asked
        number = self._last_commands + 1 if count else last.commands
        waited = self._last_waited
        self._slow.note(last, last.verb, number, max(count, 1), self._last_since, waited, 0, now)

    def _begin(self, now: i64) -> None:
        self._began = now
        self._open = True
        self._scheduler.call_soon(self._end)

    def _end(self) -> None:
        """The loop has been at its sockets."""
        self._open = False
        if not self.commit_follows:
            self.look()

    def _go_round(self) -> None:
        now: i64 = self._clock.now()
        self.settle(now)
        self._begin(now)
        end = now + _ROUND
        self._mark()
        try:
            while self.waits() and now <= end:
                if self._hurries():
                    now = self._clock.now()
                receiver = self._next()
                receiver.in_line = False
                self.turn = receiver
                self.waited = now - receiver.joined
                self._watch(receiver, now, self.waited)
                self.now = now
                self._entered = now
                self.is_fresh = True
                receiver.take_turn()
                now = self._clock.now()
                self.settle(now)
        finally:
            self.turn = None
            self.is_fresh = False
            self._entered = now
            if self.waits():
                self._scheduler.call_soon(self._go_round)
            else:
                self._planned = False

    def _next(self) -> Receiver:
        """Who has come with little overtakes the others; but these have no fewer turns for it than
        if all stood in one line."""
        self._count -= 1
        if self._is_quick_next():
            self._ahead -= 1
            return self._quick.take()
        self._ahead = max(i64(1), len(self._quick) // len(self._waiting))
        return self._waiting.take()

    def _is_quick_next(self) -> bool:
        return not self._quick.is_empty() and (self._ahead > 0 or self._waiting.is_empty())

    def _hurries(self) -> bool:
        """Answer who went ahead, before the first of those with much; to send takes time."""
        if not self._marked or self.post is None or self._is_quick_next():
            return False
        self._marked = False
        self.post.hurry()
        return True

    def _mark(self) -> None:
        self._marked = False
        if self.post is not None and not (self._quick.is_empty() or self._waiting.is_empty()):
            self._marked = True
            self.post.mark()
