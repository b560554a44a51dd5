"""LAKE/status.json: how the lake is, for whoever watches it from outside."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from taskyard.pipeline.lake.disk import load_json, save_json
from taskyard.pipeline.lake.snapshot import Watermark

STATUS: Final = "status.json"
Report = Callable[[dict[str, Any]], None]
_OFTEN: Final = 5.0  # seconds between two that say the same


class Status:
    def __init__(self, lake: Path, ui: str | None, report: Report = lambda told: None) -> None:
        """`report` hears the same as the file."""
        self._path = lake / STATUS
        self._report = report
        self._last = 0.0
        self._told: dict[str, Any] = {
            "pid": os.getpid(),
            "state": "starting",
            "batch": 0,
            "next_seq": 0,
            "last_time": None,
            "durable_seq": 0,
            "lag_records": 0,
            "events_per_second": None,
            "error": None,
            "updated_at": None,
            "ui": ui,
        }
        self._save()

    def batch(self, mark: Watermark | None, durable_seq: int, events: int, seconds: float) -> None:
        self._told["events_per_second"] = round(events / seconds, 1) if seconds else None
        self._mark("running", mark, durable_seq)
        self._save()

    def idle(self, mark: Watermark | None, durable_seq: int) -> None:
        is_news = self._told["state"] != "idle"
        self._mark("idle", mark, durable_seq)
        if is_news or time.monotonic() - self._last > _OFTEN:
            self._save()

    def waiting(self, error: str) -> None:
        self._told["state"] = "waiting"
        self._told["error"] = error
        self._save()

    def failed(self, error: str) -> None:
        self._told["state"] = "failed"
        self._told["error"] = error
        self._save()

    def stopped(self) -> None:
        self._told["state"] = "stopped"
        self._save()

    def _mark(self, state: str, mark: Watermark | None, durable_seq: int) -> None:
        self._told["state"] = state
        self._told["error"] = None
        self._told["durable_seq"] = durable_seq
        if mark is not None:
            self._told["batch"] = mark.batch
            self._told["next_seq"] = mark.next_seq
            self._told["last_time"] = mark.last_time.isoformat() if mark.last_time else None
            self._told["lag_records"] = max(0, durable_seq + 1 - mark.next_seq)

    def _save(self) -> None:
        self._last = time.monotonic()
        self._told["updated_at"] = datetime.now(UTC).isoformat()
        save_json(self._path, self._told, durable=False)
        self._report(self._told)


def read_status(lake: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = load_json(lake / STATUS)
    return found
