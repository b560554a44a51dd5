"""A host that takes as much of the processors as a test says, on a clock that a test sets."""

from types import SimpleNamespace

import pytest

from benchmarks import patience, readings


class Host:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self._shares: list[float] = []
        self._looks = 0
        monkeypatch.setattr(readings, "processors", self._look)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.pass_by)
        monkeypatch.setattr(patience, "time", clock)

    def steals(self, *shares: float) -> None:
        """Of each measurement in turn."""
        self._shares += shares

    @property
    def shares_left(self) -> list[float]:
        return self._shares

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def _look(self) -> readings.Processors:
        """Asked before and after each measurement."""
        self._looks += 1
        if self._looks % 2:
            return readings.Processors(0, 0)
        return readings.Processors(1000, round(self._shares.pop(0) * 1000))
