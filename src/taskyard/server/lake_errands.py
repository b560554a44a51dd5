"""What the server does with the lake on request: look up a job, write a report.

Each runs in a process of its own, so that the server itself needs no Arrow. Everything here is on
the event loop.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from taskyard.protocols.http.api.lake import LakeLookup
from taskyard.protocols.http.api.views import moment
from taskyard.server.errand import OneShotProcess, ProcessResult
from taskyard.server.logs import fields, log
from taskyard.shared.api_messages import LakeReportView, LakeView
from taskyard.shared.exit_codes import NOTHING

REPORT_FILE: Final = "report.html"
LOOKUP_SECONDS: Final = 60.0  # seconds for one job
REPORT_SECONDS: Final = 3600.0  # and for a report
MAX_QUEUED_LOOKUPS: Final = 20  # lookups

OnLookup = Callable[[LakeLookup], None]


class LakeRequests:
    def __init__(self, lake: str, report: Path, call_on_loop: Callable[..., Any]) -> None:
        """`post` has something called on the loop, from any thread."""
        self.report_path: Final = report
        self._lake = lake
        # The command writes it into a lake on this machine by itself.
        self._output_options = ("--out", str(report)) if "://" in lake else ()
        self._call_on_loop = call_on_loop
        self._queued_lookups: deque[tuple[str, OnLookup]] = deque()
        self._lookup: OneShotProcess | None = None
        self._report_process: OneShotProcess | None = None
        self._report_error = ""  # of the last report that was to be written
        self._stopping = False

    def lake_command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "taskyard.cli.lake_child", *words, "--lake", self._lake]

    def look_up(self, which: str, done: OnLookup) -> bool:
        """One at a time; False: too many wait already."""
        if len(self._queued_lookups) >= MAX_QUEUED_LOOKUPS or self._stopping:
            return False
        self._queued_lookups.append((which, done))
        self._start_next_lookup()
        return True

    def make_report(self) -> None:
        """Run one at a time: a request while a report is being written gets that one."""
        if self._report_process is not None or self._stopping:
            return
        self._report_error = ""
        command = self.lake_command("report", *self._output_options)
        self._report_process = OneShotProcess(
            command, REPORT_SECONDS, self._call_on_loop, self._on_report_done
        )
        self._report_process.start()
        log.info("lake report started", extra=fields(file=str(self.report_path)))

    def add_report_status(self, view: LakeView) -> LakeView:
        """With what is known of the report."""
        view.making = self._report_process is not None
        view.report_error = self._report_error or None
        try:
            found = self.report_path.stat()
        except OSError:
            return view
        made = moment(found.st_mtime_ns // 1000)
        view.report = LakeReportView(made_at=made, bytes=found.st_size)
        return view

    def stop(self) -> None:
        """Kill the processes that run."""
        self._stopping = True
        self._queued_lookups.clear()
        for errand in (self._lookup, self._report_process):
            if errand is not None:
                errand.terminate()
                errand.join()

    def _start_next_lookup(self) -> None:
        if self._lookup is not None or not self._queued_lookups:
            return
        which, done = self._queued_lookups.popleft()

        def has_looked(ended: ProcessResult) -> None:
            self._lookup = None
            self._start_next_lookup()
            done(_lookup_result(ended))

        command = self.lake_command("job", "--json", which)
        self._lookup = OneShotProcess(command, LOOKUP_SECONDS, self._call_on_loop, has_looked)
        self._lookup.start()

    def _on_report_done(self, ended: ProcessResult) -> None:
        self._report_process = None
        if ended.code == 0:
            log.info("lake report written", extra=fields(file=str(self.report_path)))
            return
        self._report_error = _failure_reason(ended, "report")
        log.warning("lake report failed: %s", self._report_error)


def _lookup_result(ended: ProcessResult) -> LakeLookup:
    if ended.code == 0:
        return LakeLookup(found=ended.output)
    if ended.code == NOTHING:
        return LakeLookup()
    why = _failure_reason(ended, "job")
    log.warning("lake job lookup failed: %s", why)
    return LakeLookup(error=why)


def _failure_reason(ended: ProcessResult, command: str) -> str:
    words = ended.message.removeprefix(f"taskyard lake {command}: ")
    return words or f"it ended with code {ended.code}"
