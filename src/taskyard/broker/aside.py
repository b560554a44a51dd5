"""Replies that wait for a different durability level than the connection's default.

Most replies wait for what `--durability` promises. Some clients ask for a reply when a record is
written although it is not synced, or when it is synced although no other reply waits for that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64

if TYPE_CHECKING:
    from taskyard.broker.broker import Broker
    from taskyard.broker.outbox import ReplyQueue


class DurabilityWaiters:
    """Replies waiting until the journal has been written (or synced) up to a position."""

    def __init__(self) -> None:
        self._waiting: list[DeferredReplies] = []

    def add(self, replies: DeferredReplies) -> None:
        replies.awaits_position = True
        self._waiting.append(replies)

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def release_up_to(self, position: i64) -> None:
        waiting = self._waiting
        if waiting:
            self._waiting = []
            for aside in waiting:
                aside.awaits_position = False
                aside.release_up_to(position)
                if (
                    aside.has_waiting() and not aside.awaits_position
                ):  # letting go may have led to more
                    self.add(aside)

    def abort(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for aside in waiting:
            aside.awaits_position = False
            aside.abort()


class DeferredReplies:
    """Replies of one connection that wait for one durability level, in order."""

    def __init__(self, broker: Broker, reply_queue: ReplyQueue, waiters: DurabilityWaiters) -> None:
        self._broker = broker
        self._reply_queue = reply_queue
        self._waiters = waiters
        self._waiting: deque[tuple[int, bytes]] = deque()
        self.awaits_position = False  # at its milestone

    def add(self, reply: bytes, position: i64) -> None:
        if self._broker.failure:
            self._reply_queue.abort()  # that place will not be reached
        if self._reply_queue.aborted:
            return
        self._waiting.append((position, reply))
        self._reply_queue.add_deferred(len(reply))
        if not self.awaits_position:
            self._waiters.add(self)
        self._broker.schedule_commit()

    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def release_up_to(self, position: i64) -> None:
        held = self._waiting
        if self._reply_queue.aborted:  # which counts none of these any more
            held.clear()
            return
        replies: list[bytes] = []
        while held and held[0][0] <= position:
            replies.append(held.popleft()[1])
        if replies:
            self._reply_queue.send_deferred(replies)

    def abort(self) -> None:
        self._waiting.clear()
        self._reply_queue.abort()
