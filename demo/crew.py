"""What all protocols of the demo have in common: threads that push and work, and what they count.

The load swings, so that plots have a shape; the numbers are random, but the same in each run.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

_SWING: Final = 20.0  # seconds from one busy time to the next


@dataclass(slots=True)
class Addresses:
    """Where the server listens, by protocol."""

    masenko: tuple[str, int]
    workq: tuple[str, int]
    resp: tuple[str, int]
    http: tuple[str, int]

    @property
    def web(self) -> str:
        return f"http://{self.http[0]}:{self.http[1]}"

    @property
    def url(self) -> str:
        return f"taskyard://{self.resp[0]}:{self.resp[1]}"


@dataclass
class Tally:
    """What the clients of a protocol have done: jobs pushed, done, and attempts that failed."""

    pushed: int = 0
    done: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, pushed: int = 0, done: int = 0, failed: int = 0) -> None:
        with self.lock:
            self.pushed += pushed
            self.done += done
            self.failed += failed


class Shift:
    """The time in which there is load; afterwards workers work off what is left."""

    def __init__(self) -> None:
        self.over = threading.Event()  # nobody pushes any more
        self.home = threading.Event()  # and workers go home
        self.trouble: list[str] = []

    def beats(self, rate: float, seed: int) -> Iterator[random.Random]:
        """So many times a second on average, sooner or later, until the shift is over."""
        dice = random.Random(seed)
        begun = time.monotonic()
        while True:
            tide = 1 + 0.7 * math.sin((time.monotonic() - begun) * math.tau / _SWING + seed)
            if self.over.wait(dice.expovariate(rate * tide)):
                return
            yield dice

    def start(self, *jobs: Callable[[], None]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._watched, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        return threads

    def _watched(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            self.trouble.append(f"{job.__qualname__}: {type(error).__name__}: {error}")
            self.over.set()


def work_for(dice: random.Random, typical: float) -> None:
    """Be busy: mostly for about as long as is typical, now and then for much longer."""
    time.sleep(min(dice.lognormvariate(math.log(typical), 0.6), 20 * typical))
