"""Checks that jobs are delivered in the order in which they were pushed, as far as clients can know
it.

Of two of one queue and priority the order is known if the push of one was answered before the other
was asked for, or if one client asked for both. Those that come to one consumer for the first time
come in that order. One that comes behind a later one is a suspect: somebody who has not been
answered yet may have had it meanwhile. It is judged when all who asked before have been answered.
"""

from __future__ import annotations

from typing import NamedTuple

from support.drill.slip import FetchAttempt, HistoryViolation, JobHistory, require

Line = tuple[str, ...]
"""What those have in common whose order is looked at."""


class Seen(NamedTuple):
    slip: JobHistory
    take: FetchAttempt
    tick: int  # when it came


class Suspect(NamedTuple):
    slip: JobHistory
    before: JobHistory  # the one that should have come later
    consumer: str
    tick: int


class OrderChecker:
    def __init__(self) -> None:
        self._last: dict[Line, Seen] = {}  # those that were pushed last
        self._suspects: dict[str, Suspect] = {}  # by token
        self._lowest: dict[str, JobHistory] = {}  # drained, by queue

    def on_received(self, slip: JobHistory, take: FetchAttempt, queue: str, tick: int) -> None:
        """Before this delivery is counted."""
        suspect = self._suspects.get(slip.token)
        if suspect is not None and take.asked.tick < suspect.tick:
            del self._suspects[slip.token]  # this is who had it
        if not slip.seen and _keeps_order(slip, take, queue):
            later = self._pass(slip, take, queue, take.consumer, tick)
            if later is not None and slip.token not in self._suspects:
                self._suspects[slip.token] = Suspect(slip, later, take.consumer, tick)

    def on_drained(self, slip: JobHistory, take: FetchAttempt, queue: str, tick: int) -> None:
        """The same when nobody else takes anything, and all that was held has come back."""
        if not _keeps_order(slip, take, queue):
            return
        lowest = self._lowest.setdefault(queue, slip)
        require(
            slip.priority <= lowest.priority,
            f"out of order: {slip.token} of priority {slip.priority} came after {lowest.token}",
        )
        self._lowest[queue] = slip
        later = self._pass(slip, take, queue, "drain", tick)
        if later is not None:
            raise HistoryViolation(f"out of order: {slip.token} was drained after {later.token}")

    def check_suspects(self) -> None:
        """Nobody waits for an answer any more, or will get one."""
        for slip, before, consumer, tick in self._suspects.values():
            tally = slip.home.tally
            if tally.base == slip.home.base and tally.first_lost >= tick:
                raise HistoryViolation(
                    f"out of order: {slip.token} came to {consumer} after {before.token}"
                )
        self._suspects.clear()
        self._last.clear()

    def _pass(
        self, slip: JobHistory, take: FetchAttempt, queue: str, consumer: str, tick: int
    ) -> JobHistory | None:
        """Note it; gives one that came before it, and was pushed later."""
        found = None
        common = (queue, str(slip.priority), consumer)
        for line in (common, (*common, slip.maker)):
            last = self._last.get(line)
            if last is None or _is_before(last.slip, slip):
                self._last[line] = Seen(slip, take, tick)
            elif _is_before(slip, last.slip) and (
                last.take is take or last.tick <= take.asked.tick
            ):
                found = last.slip
            elif slip.asked.tick > last.slip.asked.tick:
                self._last[line] = Seen(slip, take, tick)
        return found


def _keeps_order(slip: JobHistory, take: FetchAttempt, queue: str) -> bool:
    return not take.last_first and queue == slip.queue and slip.keeps_place()


def _is_before(one: JobHistory, other: JobHistory) -> bool:
    """Whether one was pushed before the other for sure."""
    if one.maker == other.maker and one.asked.life == other.asked.life:
        return one.number < other.number
    return one.there <= other.asked.tick
