"""The lake beside the server: its process, how far that has come, and what is wrong with it.

All here is on the event loop, also what the process's own threads have called.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.server.follower import Follower
from taskyard.server.lake_process import LakeProcess, Patience
from taskyard.server.logs import fields, log
from taskyard.server.settings.config import Settings
from taskyard.shared.api_messages import LakeView
from taskyard.shared.duration import format_duration

READER: Final = "lake"
PATIENCE = Patience()


class Report(msgspec.Struct, frozen=True):
    """What the process says after each batch, as far as it is wanted here."""

    next_seq: int = 0  # 0: it does not know yet
    state: str = "running"
    last_time: str | None = None
    events_per_second: float | None = None
    error: str | None = None
    ui: str | None = None


def command(settings: Settings) -> list[str]:
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


class Lake:
    """Start, stop: in this order, once."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        post: Callable[..., Any],
        command: Sequence[str],
    ) -> None:
        """`post` has something called on the loop, from any thread."""
        self._follower = Follower(READER, broker, scheduler)
        self._process = LakeProcess(command, self, post, PATIENCE)
        self._over = asyncio.Event()
        self._pid = 0  # 0: it does not run
        self._starts = 0
        self._state = "starting"
        self._error = ""
        self._report: Report | None = None

    def start(self) -> None:
        self._follower.start()
        self._process.start()

    async def stop(self) -> None:
        """Come back when it has ended; what it has reported until then is committed."""
        self._process.stop()
        await self._over.wait()
        self._process.join()
        self._follower.stop()

    def view(self) -> LakeView:
        report = self._report or Report()
        records, seconds = self._follower.lag()
        return LakeView(
            running=bool(self._pid),
            pid=self._pid or None,
            restarts=max(0, self._starts - 1),
            state=self._state,
            next_seq=self._follower.next_seq(),
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
        log.info("the lake's process was started", extra=fields(pid=pid))

    def on_report(self, line: bytes) -> None:
        try:
            report = msgspec.json.decode(line, type=Report)
        except msgspec.MsgspecError:
            self.on_words(line.decode(errors="replace"))
            return
        self._report = report
        self._state = report.state
        self._error = report.error or ""
        if report.next_seq > 0:
            self._follower.reached(report.next_seq)

    def on_words(self, line: str) -> None:
        log.info("lake: %s", line)

    def on_death(self, why: str, pause: float) -> None:
        told = fields(pause=f"{pause:g}s")
        log.warning("the lake's process is started again after a pause: %s", why, extra=told)
        self._pid = 0
        self._state = "waiting"
        self._error = why

    def on_end(self) -> None:
        self._pid = 0
        self._state = "stopped"
        self._error = ""
        self._over.set()
