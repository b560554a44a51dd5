"""The model of `taskyard top`: figures of the last sample, rates since the one before, and
histories.

Nothing here draws, waits or talks to a server.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

HISTORY: Final = 60  # samples that a sparkline may show
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
SORTS: Final = ("ready", "leased", "done/s", "pushed/s", "failed/s", "dead", "name")


@dataclass(slots=True)
class ServerSample:
    """One sample of the server."""

    at: float  # monotonic seconds
    server: dict[str, Any]  # empty for users that may not see it
    queues: list[dict[str, Any]]
    leases: list[dict[str, Any]]
    all_leases: bool = True  # there are no more than these
    flush: float | None = None  # seconds that a flush took lately, on average
    no_names_reason: str = ""  # why there are no figures by name, if so


@dataclass(slots=True)
class QueueLine:
    name: str
    paused: bool = False
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    blocked: int = 0
    dead: int = 0
    waiting: int = 0
    pushed: int = 0
    done: int = 0
    failed: int = 0
    pushed_rate: float = 0.0
    done_rate: float = 0.0
    failed_rate: float = 0.0
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    seen_in_sample: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "paused": self.paused,
            "ready": self.ready,
            "leased": self.leased,
            "delayed": self.delayed,
            "blocked": self.blocked,
            "dead": self.dead,
            "waiting": self.waiting,
            "pushed_rate": round(self.pushed_rate, 3),
            "done_rate": round(self.done_rate, 3),
            "failed_rate": round(self.failed_rate, 3),
        }


class TopModel:
    def __init__(self) -> None:
        self.server: dict[str, Any] = {}
        self.leases: list[dict[str, Any]] = []
        self.all_leases = True
        self.commit_rate = 0.0
        self.record_rate = 0.0
        self.flush: float | None = None
        self.last_error = ""  # why the last sample failed
        self.no_names_reason = ""
        self.sample_count = 0
        self._queues: dict[str, QueueLine] = {}
        self._at = 0.0

    def update(self, look: ServerSample) -> None:
        elapsed = max(look.at - self._at, 0.001) if self.sample_count else 0.0
        self.sample_count += 1
        self._at = look.at
        for queue in look.queues:
            self._update_queue(queue, elapsed)
        for name in [
            line.name for line in self._queues.values() if line.seen_in_sample != self.sample_count
        ]:
            del self._queues[name]
        self._update_server(look.server, elapsed)
        self.leases = sorted(look.leases, key=lambda held: -held["lease"]["age"])
        self.all_leases = look.all_leases
        self.flush = look.flush
        self.no_names_reason = look.no_names_reason
        self.last_error = ""

    def queues(self, sort: str, text: str = "") -> list[QueueLine]:
        """Return those whose name has this text in it, in this order."""
        lines = [line for line in self._queues.values() if text in line.name]
        lines.sort(key=lambda line: line.name)
        if sort != "name":
            lines.sort(key=lambda line: _weight(line, sort), reverse=True)
        return lines

    def total(self, what: str) -> float:
        return float(sum(getattr(line, what) for line in self._queues.values()))

    def _update_queue(self, queue: dict[str, Any], elapsed: float) -> None:
        name = queue["name"]
        counts, counters = queue["counts"], queue["counters"]
        line = self._queues.get(name)
        known = line is not None
        if line is None:
            line = self._queues[name] = QueueLine(name)
        line.paused = queue["paused"]
        line.ready, line.leased = counts["ready"], counts["leased"]
        line.delayed, line.blocked = counts["delayed"], counts["blocked"]
        line.dead, line.waiting = counts["failed"], queue["waiting"]
        done = counters["finished"]
        failed = counters["failed"] + counters["retried"]
        if elapsed:
            # A queue that is new since the last sample has begun at zero.
            before = (line.pushed, line.done, line.failed) if known else (0, 0, 0)
            now = (counters["pushed"], done, failed)
            rates = [max(0, new - old) / elapsed for new, old in zip(now, before, strict=True)]
            line.pushed_rate, line.done_rate, line.failed_rate = rates
            line.history.append(line.done_rate)
        line.pushed, line.done, line.failed = counters["pushed"], done, failed
        line.seen_in_sample = self.sample_count

    def _update_server(self, server: dict[str, Any], elapsed: float) -> None:
        if elapsed and self.server and server:
            new, old = server["journal"], self.server["journal"]
            self.commit_rate = max(0, new["commits"] - old["commits"]) / elapsed
            self.record_rate = max(0, new["records"] - old["records"]) / elapsed
        self.server = server

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "server": self.server,
            "commit_rate": round(self.commit_rate, 3),
            "record_rate": round(self.record_rate, 3),
            "flush_seconds": self.flush,
            "queues": [line.as_json() for line in self.queues("name")],
            "leases": self.leases,
        }


def _weight(line: QueueLine, sort: str) -> float:
    weights = {
        "ready": line.ready,
        "leased": line.leased,
        "done/s": line.done_rate,
        "pushed/s": line.pushed_rate,
        "failed/s": line.failed_rate,
        "dead": line.dead,
    }
    return weights[sort]


def sparkline(history: deque[float], columns: int) -> str:
    """Return the last samples as blocks, as high as each is in relation to the highest of them."""
    some = list(history)[-columns:]
    most = max(some, default=0.0)
    if most <= 0:
        return ("▁" * len(some)).rjust(columns)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(value / most * top)] for value in some).rjust(columns)
