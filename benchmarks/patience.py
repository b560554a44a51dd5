"""Measurements that are made again while the host of a virtual machine gives much of it to others.

Whatever was measured and however it came out: then all is measured on the same machine, and not
some of it in the machine's worse minutes.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from benchmarks import readings, rig

MOST_STOLEN: Final = 0.1
"""Of the processor time that was asked for; with more, it is measured again."""
BREATH: Final = 3.0
"""Seconds before that."""
DEFAULT_MINUTES: Final = 15.0

Taken = TypeVar("Taken")


@dataclass(slots=True)
class Patience:
    """For how long that may go on, in all measurements of a run together."""

    seconds: float
    say: Callable[[str], None]
    waited: float = 0.0
    """Seconds spent on measurements that were thrown away."""
    thrown_away: int = 0
    kept: list[float] = field(default_factory=list)
    """What was stolen of each measurement that was not."""

    def measure(
        self,
        name: str,
        take: Callable[[], Taken],
        before_again: Callable[[], object] = lambda: None,
    ) -> tuple[Taken, float]:
        """The first undisturbed one, or the least disturbed, and what was stolen of it."""
        tries: list[tuple[Taken, float]] = []
        while True:
            began, before = time.monotonic(), readings.processors()
            taken = take()
            stolen = readings.processors().stolen_since(before)
            tries.append((taken, stolen))
            if stolen <= MOST_STOLEN or self.waited >= self.seconds:
                best = min(tries, key=lambda each: each[1])
                self.kept.append(best[1])
                return best
            self.thrown_away += 1
            self.say(f"{stolen:.0%} was stolen: again {name}")
            time.sleep(BREATH)
            before_again()
            self.waited += time.monotonic() - began


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--patience",
        type=float,
        default=DEFAULT_MINUTES,
        metavar="MINUTES",
        help="that may go by with measuring again what the machine's neighbours disturbed "
        f"({DEFAULT_MINUTES:g})",
    )


def seconds_of(arguments: argparse.Namespace) -> float:
    minutes: float = arguments.patience
    if minutes < 0:
        raise rig.BenchmarkError(f"--patience must not be less than 0, not {minutes:g}")
    return minutes * 60
