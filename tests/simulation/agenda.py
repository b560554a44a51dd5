"""Events in simulated time: their order, and a digest of everything that was exchanged."""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable

Call = Callable[[], None]

SECOND = 1_000_000
REMEMBERED = 400  # events that a trace shows


class EventQueue:
    """Times are in microseconds since the beginning."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Call]] = []
        self._number = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._trace: deque[tuple[int, str, bytes]] = deque(maxlen=REMEMBERED)

    def at(self, when: int, call: Call) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(when, self.now), self._number, call))

    def after(self, microseconds: int, call: Call) -> None:
        self.at(self.now + microseconds, call)

    def step(self, until: int) -> bool:
        """The next event up to that time; False if there is none, and then it is that time."""
        events = self._events
        if not events or events[0][0] > until:
            self.now = max(self.now, until)
            return False
        when, _, call = heapq.heappop(events)
        self.now = when
        call()
        return True

    def run(self, until: int) -> None:
        while self.step(until):
            pass

    # What was seen

    def record(self, what: str, data: bytes = b"") -> None:
        """Part of what two runs of a seed must have in common."""
        self._digest.update(b"%d %b %d " % (self.now, what.encode(), len(data)))
        self._digest.update(data)
        self._trace.append((self.now, what, data))

    def digest(self) -> str:
        return self._digest.hexdigest()

    def trace(self) -> list[str]:
        return [
            f"{when / SECOND:12.6f} {what} {_shown(data)}".rstrip()
            for when, what, data in self._trace
        ]


def _shown(data: bytes) -> str:
    if not data:
        return ""
    text = repr(data[:160])[1:]
    return text if len(data) <= 160 else f"{text} and {len(data) - 160} bytes more"
