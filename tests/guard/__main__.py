"""Renews costs.json: PYTHONPATH=src:tests python -m guard"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from guard.budget import FILE, PYTHON, Cost, Costs, read_costs
from guard.measure import count_calls, count_outside
from guard.outside import Server
from guard.workloads import DIALECTS, SHAPES, title


def measure() -> Costs:
    calls = count_calls()
    jobs: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory() as directory, Server(Path(directory)) as server:
        for make in DIALECTS:
            for shape in SHAPES:
                name = title(make(), shape)
                made, written = count_outside(server, make(), shape, lambda *_: False)
                jobs[name] = Cost(round(calls[name], 2), round(made, 2), round(written, 1))
    return Costs(PYTHON, jobs)


def main() -> int:
    before = read_costs().jobs if FILE.exists() else {}
    found = measure()
    found.write()
    for name, cost in found.jobs.items():
        old = before.get(name)
        change = "" if old == cost or old is None else f", before that {old}"
        sys.stdout.write(f"{name}: {cost}{change}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
