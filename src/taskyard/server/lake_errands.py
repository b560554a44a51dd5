"""What the server has done with the lake on request: a job looked up, a report written.

Each is done by a process of its own, so that the server itself needs no Arrow. All
here is on the event loop.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from taskyard.cli.failure import NOTHING
from taskyard.protocols.http.api.lake import Looked
from taskyard.protocols.http.api.views import moment
from taskyard.server.errand import Ended, Errand
from taskyard.server.logs import fields, log
from taskyard.shared.api_messages import LakeReportView, LakeView

REPORT: Final = "report.html"
LOOK: Final = 60.0  # seconds for one job
MAKE: Final = 3600.0  # and for a report
MOST_WAITING: Final = 20  # lookups

Done = Callable[[Looked], None]


class LakeErrands:
    def __init__(self, lake: str, report: Path, post: Callable[..., Any]) -> None:
        """`post` has something called on the loop, from any thread."""
        self.report_path: Final = report
        self._lake = lake
        # The command writes it into a lake on this machine by itself.
        self._out = ("--out", str(report)) if "://" in lake else ()
        self._post = post
        self._line: deque[tuple[str, Done]] = deque()
        self._looking: Errand | None = None
        self._making: Errand | None = None
        self._error = ""  # of the last report that was to be written
        self._stopping = False

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "taskyard.cli.lake_child", *words, "--lake", self._lake]

    def look_up(self, which: str, done: Done) -> bool:
        """One at a time; False: too many wait already."""
        if len(self._line) >= MOST_WAITING or self._stopping:
            return False
        self._line.append((which, done))
        self._look_on()
        return True

    def make_report(self) -> None:
        """One at a time: whoever asks while it is being written gets that one."""
        if self._making is not None or self._stopping:
            return
        self._error = ""
        command = self.command("report", *self._out)
        self._making = Errand(command, MAKE, self._post, self._has_made)
        self._making.start()
        log.info("a report is being written", extra=fields(file=str(self.report_path)))

    def complete(self, view: LakeView) -> LakeView:
        """With what is known of the report."""
        view.making = self._making is not None
        view.report_error = self._error or None
        try:
            found = self.report_path.stat()
        except OSError:
            return view
        made = moment(found.st_mtime_ns // 1000)
        view.report = LakeReportView(made_at=made, bytes=found.st_size)
        return view

    def stop(self) -> None:
        """What is going on comes to nothing."""
        self._stopping = True
        self._line.clear()
        for errand in (self._looking, self._making):
            if errand is not None:
                errand.end()
                errand.join()

    def _look_on(self) -> None:
        if self._looking is not None or not self._line:
            return
        which, done = self._line.popleft()

        def has_looked(ended: Ended) -> None:
            self._looking = None
            self._look_on()
            done(_outcome(ended))

        command = self.command("job", "--json", which)
        self._looking = Errand(command, LOOK, self._post, has_looked)
        self._looking.start()

    def _has_made(self, ended: Ended) -> None:
        self._making = None
        if ended.code == 0:
            log.info("the report was written", extra=fields(file=str(self.report_path)))
            return
        self._error = _why(ended, "report")
        log.warning("the report could not be written: %s", self._error)


def _outcome(ended: Ended) -> Looked:
    if ended.code == 0:
        return Looked(found=ended.out)
    if ended.code == NOTHING:
        return Looked()
    why = _why(ended, "job")
    log.warning("a job could not be looked up in the lake: %s", why)
    return Looked(error=why)


def _why(ended: Ended, command: str) -> str:
    words = ended.words.removeprefix(f"taskyard lake {command}: ")
    return words or f"it ended with code {ended.code}"
