"""Which tasks are slow or fail, by name: from the event stream, in bounded memory.

Events name jobs by id only. So a job's name is searched later, among leased and recently finished
jobs; one that cannot be found is left out, because the figures are samples anyway.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

MAX_NAMES: Final = 500
MAX_OPEN_JOBS: Final = 10_000  # leases whose end is waited for
MAX_UNNAMED: Final = 1_000
KINDS: Final = ("lease", "finish", "fail", "retry")


@dataclass(slots=True)
class NameFigures:
    name: str
    ended: int = 0
    timed: int = 0  # those whose lease was read as well
    seconds: float = 0.0
    slowest: float = 0.0
    failed: int = 0

    @property
    def mean(self) -> float:
        return self.seconds / self.timed if self.timed else 0.0

    @property
    def failure_rate(self) -> float:
        return self.failed / self.ended if self.ended else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ended": self.ended,
            "failed": self.failed,
            "mean_seconds": round(self.mean, 6),
            "slowest_seconds": round(self.slowest, 6),
        }


@dataclass(frozen=True, slots=True)
class EndedJob:
    id: int
    seconds: float | None  # None: its lease was not seen
    failed: bool


class NameStatistics:
    def __init__(self) -> None:
        self._figures: OrderedDict[str, NameFigures] = OrderedDict()
        self._since: OrderedDict[int, float] = OrderedDict()
        self._names: OrderedDict[int, str] = OrderedDict()
        self._unnamed: deque[EndedJob] = deque(maxlen=MAX_UNNAMED)

    def add_event(self, kind: str, data: Mapping[str, Any]) -> None:
        id = data.get("id")
        if not isinstance(id, int) or kind not in KINDS:
            return
        at = datetime.fromisoformat(data["time"]).timestamp()
        if kind == "lease":
            self._note_lease(id, at)
            return
        since = self._since.pop(id, None)
        seconds = None if since is None else max(0.0, at - since)
        self._add_ended(EndedJob(id, seconds, kind != "finish"))

    def set_name(self, id: int, name: str, since: float | None = None) -> None:
        """The name of a job, and since when it is leased, from elsewhere."""
        self._names[id] = name
        self._names.move_to_end(id)
        if len(self._names) > MAX_OPEN_JOBS:
            self._names.popitem(last=False)
        if since is not None and id not in self._since:
            self._note_lease(id, since)

    def unnamed(self) -> list[int]:
        """Return jobs that have ended, and whose names are needed."""
        return [ended.id for ended in self._unnamed]

    def count_named(self) -> None:
        """What has a name by now is counted; what is left has none to be found."""
        while self._unnamed:
            ended = self._unnamed.popleft()
            if ended.id in self._names:
                self._count(ended)

    def slowest(self, most: int) -> list[NameFigures]:
        timed = [figures for figures in self._figures.values() if figures.timed]
        return sorted(timed, key=lambda figures: -figures.mean)[:most]

    def most_failing(self, most: int) -> list[NameFigures]:
        failing = [figures for figures in self._figures.values() if figures.failed]
        return sorted(failing, key=lambda figures: (-figures.failed, figures.name))[:most]

    def _note_lease(self, id: int, at: float) -> None:
        self._since[id] = at
        self._since.move_to_end(id)
        if len(self._since) > MAX_OPEN_JOBS:
            self._since.popitem(last=False)

    def _add_ended(self, ended: EndedJob) -> None:
        if ended.id in self._names:
            self._count(ended)
        else:
            self._unnamed.append(ended)

    def _count(self, ended: EndedJob) -> None:
        name = self._names[ended.id]
        figures = self._figures.get(name)
        if figures is None:
            figures = self._figures[name] = NameFigures(name)
            if len(self._figures) > MAX_NAMES:
                self._figures.popitem(last=False)
        self._figures.move_to_end(name)
        figures.ended += 1
        figures.failed += ended.failed
        if ended.seconds is not None:
            figures.timed += 1
            figures.seconds += ended.seconds
            figures.slowest = max(figures.slowest, ended.seconds)
