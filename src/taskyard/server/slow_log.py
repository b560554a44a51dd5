"""Log lines about slow commands, a few a second: a disk that stalls makes thousands of them at
once.
"""

from __future__ import annotations

from typing import Final

from taskyard.broker.seams import Cancellable, Clock, Scheduler
from taskyard.broker.slow import SlowCommand
from taskyard.server.logs import fields, log

_MAX_LINES_PER_SECOND: Final = 10  # lines in a second
_SECOND_US: Final = 1_000_000


class SlowCommandReporter:
    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._second_ends_at = 0  # the end of the second for which is counted
        self._line_count = 0
        self._suppressed = 0
        self._timer_handle: Cancellable | None = None

    def report(self, slow: SlowCommand) -> None:
        now = self._clock.now()
        if now >= self._second_ends_at:
            self._second_ends_at = now + _SECOND_US
            self._line_count = 0
        self._line_count += 1
        if self._line_count > _MAX_LINES_PER_SECOND:
            self._suppress()
            return
        queue = {"queue": slow.queue} if slow.queue else {}
        told = fields(
            connection=int(slow.connection_number),
            request=slow.request_id,
            dialect=slow.protocol_name,
            peer=slow.peer,
            command=slow.command,
            **queue,
            commands=int(slow.command_count),
            milliseconds=to_milliseconds(slow.duration_us),
            line_milliseconds=to_milliseconds(slow.queued_us),
            work_milliseconds=to_milliseconds(slow.processing_us),
            disk_milliseconds=to_milliseconds(slow.disk_us),
        )
        log.warning("slow command", extra=told)

    def stop(self) -> None:
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._report_suppressed()

    def _suppress(self) -> None:
        self._suppressed += 1
        if self._timer_handle is None:
            self._timer_handle = self._scheduler.call_at(
                self._second_ends_at, self._report_suppressed
            )

    def _report_suppressed(self) -> None:
        self._timer_handle = None
        left_out, self._suppressed = self._suppressed, 0
        log.warning("slow command log suppressed", extra=fields(count=left_out))


def to_milliseconds(microseconds: int) -> float:
    return round(microseconds / 1000, 1)
