"""How long a task waits before it is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Countdown:
    """`first` seconds before the first retry, `factor` times as long before each further one.

    `most` is the upper bound. `jitter` is the share of it all by which a pause may be shorter or
    longer, at random: tasks that failed together do not come back together.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not (0 <= self.first <= self.most < float("inf")):
            raise ValueError("a countdown needs 0 <= first <= most, and an end")
        if not (1 <= self.factor < float("inf")):
            raise ValueError("a countdown needs a factor of 1 or more")
        if not (0 <= self.jitter <= 1):
            raise ValueError("a countdown needs a jitter from 0 to 1")

    def delay(self, retry: int) -> float:
        """The seconds before this retry, counted from 1."""
        try:
            pause = self.first * self.factor ** (retry - 1)
        except OverflowError:
            pause = self.most
        pause = min(pause, self.most)
        return min(pause * random.uniform(1 - self.jitter, 1 + self.jitter), self.most)
