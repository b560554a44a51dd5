"""Where frames begin, roughly: enough to read a part of a segment without all that is before it."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.structures.weights import REGION_BYTES


@mypyc_attr(acyclic=True)
class FrameIndex:
    """For each region of positions, the first frame that reaches into it, if only with its end."""

    __slots__ = ("_last_region", "_starts")

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._last_region: i64 = -1  # region that the last frame ended in

    def add(self, start: i64, end: i64) -> None:
        """A frame stands from `start` to `end`; they are added in order."""
        zone = end // REGION_BYTES
        if zone == self._last_region:
            return
        self._last_region = zone
        first = start // REGION_BYTES
        while zone >= first and zone not in self._starts:
            self._starts[zone] = start
            zone -= 1

    def first_frame_start(self, zone: i64) -> i64:
        """Return where the first frame begins that reaches into this region; -1: none does."""
        return self._starts.get(zone, -1)

    def forget_before(self, position: i64) -> None:
        """Frames before that position are gone."""
        for zone in [zone for zone in self._starts if (zone + 1) * REGION_BYTES <= position]:
            del self._starts[zone]
