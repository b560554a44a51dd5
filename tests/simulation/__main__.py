"""`python -m simulation --seeds 0..1000`: run these seeds, print which fail, and the sum of all."""

from __future__ import annotations

import argparse
import sys
import time

from simulation.run import Outcome
from simulation.simulate import Total, simulate_many, simulate_points

SHOWN = 80  # events of a trace


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(100), metavar="A..B")
    parser.add_argument("--processes", type=int, default=0, help="as many as there are cores")
    parser.add_argument(
        "--points", action="store_true", help="a power cut at every point of a short run instead"
    )
    parser.add_argument("--trace", action="store_true", help="the last events of what fails")
    parser.add_argument("--digest", action="store_true", help="of each run")
    asked = parser.parse_args()
    began = time.monotonic()
    total = Total()
    outcomes = (
        simulate_points(asked.processes)
        if asked.points
        else simulate_many(asked.seeds, asked.processes)
    )
    for outcome in outcomes:
        total.add(outcome)
        if outcome.failure:
            _tell(outcome, asked.trace)
        if asked.digest:
            _say(f"{outcome.seed} {outcome.digest}")
    for line in total.lines():
        _say(line)
    _say(f"took         {time.monotonic() - began:.0f} s")
    return 1 if total.failed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def _tell(outcome: Outcome, trace: bool) -> None:
    _say(f"seed {outcome.seed} FAILED: {outcome.failure[:600]}")
    _say(f"  python -m simulation --seeds {outcome.seed} --trace --processes 1")
    if trace:
        for line in outcome.trace[-SHOWN:]:
            _say(f"  {line}")


if __name__ == "__main__":
    raise SystemExit(main())
