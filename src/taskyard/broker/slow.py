"""Slow commands: the most recent ones, their number, and listeners for them.

It uses times that are read anyway: at the start of a turn, before a write and after its sync. So a
fast command costs one comparison for all that were answered with it. What is slow is a group: the
first command that waited, and how many were answered together with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.broker.metrics import CommandStats
from taskyard.broker.receiver import ClientConnection
from taskyard.engine.model.job import FOREVER

MAX_KEPT: Final = 128


class SlowCommand:
    """Durations are in microseconds, as is the time at which it was answered."""

    def __init__(
        self, id: i64, time: i64, connection: ClientConnection, command: CommandStats, number: i64
    ) -> None:
        self.id = id
        self.time = time
        self.protocol_name = connection.protocol_name
        self.connection_number = connection.connection_number
        self.peer = connection.address()
        self.command, self.queue = connection.describe_command(command)
        self.request_id = connection.request_id(number)
        # commands that were answered together, this one the first of them
        self.command_count: i64 = 1
        self.duration_us: i64 = 0
        self.queued_us: i64 = 0  # of that, until it was its turn
        self.processing_us: i64 = 0  # in the engine, and whatever else kept the event loop
        self.disk_us: i64 = 0  # until what was written had been synced


class SlowCommandLog:
    def __init__(self) -> None:
        self.threshold_us: i64 = FOREVER  # microseconds from which on a command is slow
        self.count: i64 = 0  # all there were
        self.count_by_protocol: dict[str, int] = {}  # the same by protocol
        self._recent: deque[SlowCommand] = deque()
        self._listeners: list[Callable[[SlowCommand], None]] = []

    def is_enabled(self) -> bool:
        return self.threshold_us < FOREVER

    def on_slow(self, call: Callable[[SlowCommand], None]) -> None:
        self._listeners.append(call)

    def newest_first(self) -> list[SlowCommand]:
        """Those that are kept, the newest first."""
        return list(reversed(self._recent))

    def kept_count(self) -> i64:
        return len(self._recent)

    def clear(self) -> None:
        self._recent.clear()

    def record(
        self,
        connection: ClientConnection,
        command: CommandStats,
        number: i64,
        count: i64,
        since: i64,
        queued_us: i64,
        disk_us: i64,
        now: i64,
    ) -> None:
        """Record commands that were answered `now`: how long they waited for their turn, and how
        long for the disk.
        """
        slow = SlowCommand(self.count, now, connection, command, number)
        slow.command_count = count
        slow.duration_us = now - since
        slow.queued_us = queued_us
        slow.disk_us = disk_us
        slow.processing_us = max(i64(0), slow.duration_us - queued_us - disk_us)
        self.count += 1
        self.count_by_protocol[slow.protocol_name] = (
            self.count_by_protocol.get(slow.protocol_name, 0) + 1
        )
        if len(self._recent) >= MAX_KEPT:
            self._recent.popleft()
        self._recent.append(slow)
        for call in self._listeners:
            call(slow)
