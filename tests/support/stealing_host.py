"""A host that takes as much of the processors as a test says, on a clock that a test sets."""

from types import SimpleNamespace

import pytest

from benchmarks import patience, readings


class Host:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.shares: list[float] = []  # of the measurements to come
        self._looks = 0
        monkeypatch.setattr(readings, "processors", self._look)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.pass_by)
        monkeypatch.setattr(patience, "time", clock)

    def steals(self, *shares: float) -> None:
        self.shares += shares

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def _look(self) -> readings.Processors:
        """Asked before and after each measurement."""
        self._looks += 1
        if self._looks % 2:
            return readings.Processors(0, 0)
        return readings.Processors(1000, round(self.shares.pop(0) * 1000))
