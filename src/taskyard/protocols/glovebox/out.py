"""What goes out on one connection of Glovebox, each frame when it is true enough.

Answers carry labels, so one may overtake another; nothing overtakes the greeting, nor what a
session is owed from before.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.broker.aside import Aside
from taskyard.broker.broker import SYNC, WRITE, Broker
from taskyard.broker.outbox import Outbox
from taskyard.broker.seams import Scheduler

# When a frame may go: at once, with the answers that keep the server's promise, when all up to its
# mark has been written, or when it has been synced.
NOW: Final = 0
PROMISED: Final = 1
WRITTEN: Final = 2
SYNCED: Final = 3


class Out:
    def __init__(
        self, broker: Broker, scheduler: Scheduler, outbox: Outbox, greeting_mark: i64
    ) -> None:
        self._broker = broker
        self._scheduler = scheduler
        self._outbox = outbox
        self._written = Aside(broker, outbox, broker.written)
        self._synced = Aside(broker, outbox, broker.synced)
        self._greeting_mark = greeting_mark
        self._backlog_mark: i64 = 0  # what was sent before the rest waits for that to be synced
        self._flush_planned = False

    def send_backlog(self, frames: list[bytes], mark: i64) -> None:
        """What is owed from before goes first, and all of it is durable by then."""
        broker = self._broker
        for frame in frames:
            self.send(frame, SYNCED, mark)
        if broker.durability != SYNC and mark > broker.journal.durable:
            self._backlog_mark = max(mark, self._greeting_mark)

    def send(self, frame: bytes, when: i64, mark: i64) -> None:
        broker = self._broker
        journal = broker.journal
        if self._backlog_mark > journal.durable:
            when = SYNCED
            mark = max(mark, self._backlog_mark)
        elif self._greeting_mark > broker.released:
            if when == SYNCED and mark > journal.durable and broker.durability != SYNC:
                mark = max(mark, self._greeting_mark)
            else:
                when = PROMISED
        durability = broker.durability
        if (
            when == PROMISED
            or (when == WRITTEN and durability == WRITE)
            or (when == SYNCED and durability == SYNC)
        ):
            self._outbox.send(frame, mark)
        elif when == WRITTEN and mark > journal.written:
            self._written.put(frame, mark)
        elif when == SYNCED and mark > journal.durable:
            self._synced.put(frame, mark)
        else:
            self._outbox.overtake(frame)
        self.plan_flush()

    def plan_flush(self) -> None:
        """One write for all that the rest of this turn brings."""
        if not self._flush_planned:
            self._flush_planned = True
            self._scheduler.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        self._outbox.flush()
