"""Replies that wait for another place of the journal than the rest of their connection does.

Most replies wait for what `--durability` promises. Some clients ask for something else: to hear
when a record is written although it is not synced, or when it is synced although nobody else waits
for that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker
    from taskyard.broker.outbox import Outbox


class Milestone:
    """How far the journal has come in one respect, and who waits for more."""

    def __init__(self) -> None:
        self._waiting: list[Aside] = []

    def add(self, aside: Aside) -> None:
        aside.listed = True
        self._waiting.append(aside)

    def waits(self) -> bool:
        return bool(self._waiting)

    def reached(self, mark: i64) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for aside in waiting:
                aside.listed = False
                aside.release(mark)
                if aside.waits() and not aside.listed:  # letting go may have led to more
                    self.add(aside)

    def abort(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for aside in waiting:
            aside.listed = False
            aside.abort()


class Aside:
    """Replies of one connection that wait for one milestone, in order."""

    def __init__(self, broker: Broker, outbox: Outbox, milestone: Milestone) -> None:
        self._broker = broker
        self._outbox = outbox
        self._milestone = milestone
        self._held: deque[tuple[int, bytes]] = deque()
        self.listed = False  # at its milestone

    def put(self, reply: bytes, mark: i64) -> None:
        if self._broker.failure:
            self._outbox.abort()  # that place will not be reached
        if self._outbox.aborted:
            return
        self._held.append((mark, reply))
        self._outbox.put_aside(len(reply))
        if not self.listed:
            self._milestone.add(self)
        self._broker.plan_commit()

    def waits(self) -> bool:
        return bool(self._held)

    def release(self, mark: i64) -> None:
        held = self._held
        if self._outbox.aborted:  # which counts none of these any more
            held.clear()
            return
        replies: list[bytes] = []
        while held and held[0][0] <= mark:
            replies.append(held.popleft()[1])
        if replies:
            self._outbox.take_back(replies)

    def abort(self) -> None:
        self._held.clear()
        self._outbox.abort()
