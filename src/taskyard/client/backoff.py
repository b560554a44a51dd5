"""How long to wait before the next try when a server is away."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` to `most` seconds.

    Each is cut by up to a half at random, so that the clients of a restarted server do not all
    connect at the same moment.
    """

    first: float = 0.05
    most: float = 5.0

    def delays(self) -> Iterator[float]:
        delay = self.first
        while True:
            yield delay * (0.5 + os.urandom(1)[0] / 512)
            delay = min(delay * 2, self.most)
