"""The last frames as they were written, so that the payload of a recent push needs no lookup.

Most jobs are fetched soon after their push. A slice of the bytes that were written is one copy; the
cache, which has blocks, needs three steps and two copies for the same.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

_MAX_FRAMES: Final = 32
_MAX_BYTES: Final = 4 * 1_048_576
_BUDGET_SHARE: Final = 16


@mypyc_attr(acyclic=True)
class _FrameBody:
    __slots__ = ("at", "data", "end")

    def __init__(self, at: i64, data: bytes) -> None:
        self.at = at
        self.data = data
        self.end: i64 = at + len(data)


@mypyc_attr(acyclic=True)
class RecentFrames:
    __slots__ = ("_bodies", "_limit", "_size")

    def __init__(self, budget: i64) -> None:
        """`budget` is for all payloads; this takes a small part of it."""
        self._limit: i64 = min(budget // _BUDGET_SHARE, i64(_MAX_BYTES))
        self._bodies: list[_FrameBody] = []  # oldest first
        self._size: i64 = 0

    def add(self, at: i64, data: bytes) -> None:
        """The records of a frame, and the position of the first of them."""
        bodies = self._bodies
        bodies.append(_FrameBody(at, data))
        self._size += len(data)
        while len(bodies) > _MAX_FRAMES or self._size > self._limit:
            oldest = bodies.pop(0)
            self._size -= oldest.end - oldest.at

    def read(self, at: i64, size: i64) -> bytes | None:
        """The bytes there, or None if they are not in one of these frames."""
        bodies = self._bodies
        number: i64 = len(bodies) - 1
        while number >= 0:
            body = bodies[number]
            if at >= body.at:
                if at + size > body.end:
                    return None
                start = at - body.at
                return body.data[start : start + size]
            number -= 1
        return None
