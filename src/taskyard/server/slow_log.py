"""Lines about slow commands, a few a second: a disk that stalls makes thousands of them at once."""

from __future__ import annotations

from typing import Final

from taskyard.broker.seams import Cancellable, Clock, Scheduler
from taskyard.broker.slow import SlowCommand
from taskyard.server.logs import fields, log

_MOST: Final = 10  # lines in a second
_SECOND: Final = 1_000_000


class SlowLog:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._until = 0  # the end of the second for which is counted
        self._lines = 0
        self._left_out = 0
        self._alarm: Cancellable | None = None

    def tell(self, slow: SlowCommand) -> None:
        now = self._clock.now()
        if now >= self._until:
            self._until = now + _SECOND
            self._lines = 0
        self._lines += 1
        if self._lines > _MOST:
            self._leave_out()
            return
        queue = {"queue": slow.queue} if slow.queue else {}
        told = fields(
            connection=int(slow.connection),
            request=slow.request,
            dialect=slow.dialect,
            peer=slow.peer,
            command=slow.command,
            **queue,
            commands=int(slow.count),
            milliseconds=milliseconds(slow.took),
            line_milliseconds=milliseconds(slow.line),
            work_milliseconds=milliseconds(slow.work),
            disk_milliseconds=milliseconds(slow.disk),
        )
        log.warning("a command was slow", extra=told)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._tell_left_out()

    def _leave_out(self) -> None:
        self._left_out += 1
        if self._alarm is None:
            self._alarm = self._scheduler.call_at(self._until, self._tell_left_out)

    def _tell_left_out(self) -> None:
        self._alarm = None
        left_out, self._left_out = self._left_out, 0
        log.warning("more commands were slow than the log has lines", extra=fields(count=left_out))


def milliseconds(microseconds: int) -> float:
    return round(microseconds / 1000, 1)
