"""Sends the frames of one Glovebox connection, each at the durability that it needs.

Answers carry labels, so one may overtake another; nothing overtakes the hello, nor the notices a
session is owed from before.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.aside import DeferredReplies
from taskyard.broker.broker import SYNC, WRITE, Broker
from taskyard.broker.outbox import ReplyQueue
from taskyard.broker.seams import Scheduler

# When a frame may be sent: at once, with the answers that keep the server's promise, when all up to
# its position has been written, or when it has been synced.
NOW: Final = 0
PROMISED: Final = 1
WRITTEN: Final = 2
SYNCED: Final = 3


class DurabilityOutput:
    def __init__(
        self, broker: Broker, scheduler: Scheduler, reply_queue: ReplyQueue, hello_position: i64
    ) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._reply_queue = reply_queue
        self._written = DeferredReplies(broker, reply_queue, broker.written_waiters)
        self._synced = DeferredReplies(broker, reply_queue, broker.synced_waiters)
        self._hello_position = hello_position
        self._owed_position: i64 = 0  # position that must be synced before what was sent behind it
        self._flush_scheduled = False

    def send_owed_notices(self, frames: list[bytes], position: i64) -> None:
        """Send first what is owed from before; all of it is durable by then."""
        broker = self._broker
        for frame in frames:
            self.send(frame, SYNCED, position)
        if broker.durability != SYNC and position > broker.journal.durable:
            self._owed_position = max(position, self._hello_position)

    def send(self, frame: bytes, level: i64, position: i64) -> None:
        broker = self._broker
        journal = broker.journal
        if self._owed_position > journal.durable:
            level = SYNCED
            position = max(position, self._owed_position)
        elif self._hello_position > broker.reply_position:
            if level == SYNCED and position > journal.durable and broker.durability != SYNC:
                position = max(position, self._hello_position)
            else:
                level = PROMISED
        durability = broker.durability
        if (
            level == PROMISED
            or (level == WRITTEN and durability == WRITE)
            or (level == SYNCED and durability == SYNC)
        ):
            self._reply_queue.send(frame, position)
        elif level == WRITTEN and position > journal.written:
            self._written.add(frame, position)
        elif level == SYNCED and position > journal.durable:
            self._synced.add(frame, position)
        else:
            self._reply_queue.send_unordered(frame)
        self.schedule_flush()

    def schedule_flush(self) -> None:
        """Make one write of all frames of the rest of this turn."""
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._scheduler.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        self._reply_queue.flush_output()
