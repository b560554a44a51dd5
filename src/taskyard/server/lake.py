"""The lake beside the server: its process, its progress, and its last error.

Everything here runs on the event loop, also what the process's own threads call.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.server.follower import JournalReaderLease
from taskyard.server.lake_process import LakeProcess, RestartPolicy
from taskyard.server.logs import fields, log
from taskyard.server.settings.config import Settings
from taskyard.shared.api_messages import LakeView
from taskyard.shared.duration import format_duration

READER_NAME: Final = "lake"
RESTART_POLICY = RestartPolicy()


class LakeStatus(msgspec.Struct, frozen=True):
    """What the process reports after each batch, as far as the server needs it."""

    next_seq: int = 0  # 0: it does not know yet
    state: str = "running"
    last_time: str | None = None
    events_per_second: float | None = None
    error: str | None = None
    ui: str | None = None


def lake_process_command(settings: Settings) -> list[str]:
    """What runs beside the server."""
    result = [sys.executable, "-m", "taskyard.cli.lake_child", "run", "--follow", "--json"]
    result += ["--data", str(settings.data), "--lake", settings.lake or ""]
    result += ["--master", settings.lake_master]
    result += ["--trigger", format_duration(settings.lake_trigger)]
    if settings.lake_retention is not None:
        result += ["--retention", str(settings.lake_retention)]
    if settings.lake_payloads:
        result.append("--payloads")
    if settings.lake_ui:
        result.append("--ui")
    return result


class LakeSupervisor:
    """Start, stop: in this order, once."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        call_on_loop: Callable[..., Any],
        command: Sequence[str],
    ) -> None:
        """`post` has something called on the loop, from any thread."""
        self._reader_lease = JournalReaderLease(READER_NAME, broker, scheduler)
        self._process = LakeProcess(command, self, call_on_loop, RESTART_POLICY)
        self._process_stopped = asyncio.Event()
        self._pid = 0  # 0: it does not run
        self._starts = 0
        self._state = "starting"
        self._error = ""
        self._progress: LakeStatus | None = None

    def start(self) -> None:
        self._reader_lease.start()
        self._process.start()

    async def stop(self) -> None:
        """Return when the process has ended; what it has reported until then is committed."""
        self._process.stop()
        await self._process_stopped.wait()
        self._process.join()
        self._reader_lease.stop()

    def view(self) -> LakeView:
        report = self._progress or LakeStatus()
        records, seconds = self._reader_lease.lag()
        return LakeView(
            running=bool(self._pid),
            pid=self._pid or None,
            restarts=max(0, self._starts - 1),
            state=self._state,
            next_seq=self._reader_lease.next_seq(),
            lag_records=records,
            lag_seconds=seconds,
            last_time=report.last_time,
            events_per_second=report.events_per_second if self._pid else None,
            error=self._error or None,
            ui=report.ui if self._pid else None,
        )

    # What the process does

    def on_start(self, pid: int) -> None:
        self._pid = pid
        self._starts += 1
        self._state = "starting"
        log.info("lake process started", extra=fields(pid=pid))

    def on_progress(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=LakeStatus)
        except msgspec.MsgspecError:
            self.on_log_line(line.decode(errors="replace"))
            return
        self._progress = report
        self._state = report.state
        self._error = report.error or ""
        if report.next_seq > 0:
            self._reader_lease.on_progress(report.next_seq)

    def on_log_line(self, line: str) -> None:
        log.info("lake: %s", line)

    def on_crash(self, reason: str, pause: float) -> None:
        told = fields(delay=f"{pause:g}s")
        log.warning("lake process restarting: %s", reason, extra=told)
        self._pid = 0
        self._state = "waiting"
        self._error = reason

    def on_end(self) -> None:
        self._pid = 0
        self._state = "stopped"
        self._error = ""
        self._process_stopped.set()
