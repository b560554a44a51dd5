"""Commands that took too long: the last ones, how many there were, and who wants to hear of them.

Times are those that are read anyway: at the start of a turn, before a write and after its sync. So
a command that is quick costs a comparison for all that came along with it. What is slow is a batch:
the first command that waited for something, and how many were answered together with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.metrics import Verb
from taskyard.broker.receiver import Receiver
from taskyard.engine.model.job import FOREVER

KEPT: Final = 128


class SlowCommand:
    """Durations are in microseconds, as is the time at which it was answered."""

    def __init__(self, id: i64, time: i64, receiver: Receiver, verb: Verb, number: i64) -> None:
        self.id = id
        self.time = time
        self.dialect = receiver.dialect
        self.connection = receiver.connection
        self.peer = receiver.address()
        self.command, self.queue = receiver.asked(verb)
        self.request = receiver.request_id(number)
        self.count: i64 = 1  # commands that were answered together, this one the first of them
        self.took: i64 = 0
        self.line: i64 = 0  # of that, until it was its turn
        self.work: i64 = 0  # in the engine, and whatever else kept the event loop
        self.disk: i64 = 0  # until what was written had been synced


class Slow:
    def __init__(self) -> None:
        self.limit: i64 = FOREVER  # microseconds from which on a command is slow
        self.count: i64 = 0  # all there were
        self.dialects: dict[str, int] = {}  # the same by dialect
        self._kept: deque[SlowCommand] = deque()
        self._listeners: list[Callable[[SlowCommand], None]] = []

    def is_on(self) -> bool:
        return self.limit < FOREVER

    def on_slow(self, call: Callable[[SlowCommand], None]) -> None:
        self._listeners.append(call)

    def last(self) -> list[SlowCommand]:
        """Those that are kept, the newest first."""
        return list(reversed(self._kept))

    def size(self) -> i64:
        return len(self._kept)

    def forget(self) -> None:
        self._kept.clear()

    def note(
        self,
        receiver: Receiver,
        verb: Verb,
        number: i64,
        count: i64,
        since: i64,
        waited: i64,
        disk: i64,
        now: i64,
    ) -> None:
        """These were answered `now`. Of the time since then they have waited so long for their
        turn, and so long for the disk."""
        slow = SlowCommand(self.count, now, receiver, verb, number)
        slow.count = count
        slow.took = now - since
        slow.line = waited
        slow.disk = disk
        slow.work = max(i64(0), slow.took - waited - disk)
        self.count += 1
        self.dialects[slow.dialect] = self.dialects.get(slow.dialect, 0) + 1
        if len(self._kept) >= KEPT:
            self._kept.popleft()
        self._kept.append(slow)
        for call in self._listeners:
            call(slow)
