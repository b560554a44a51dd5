"""What a job may cost: the figures in costs.json, and how far from them is too far.

Counts, no seconds, so they are the same on every machine. Who makes the hot path dearer on purpose,
or cheaper, renews them with `python -m guard` and shows the difference in the same commit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

FILE: Final = Path(__file__).with_name("costs.json")
DEARER: Final = 1.15
CHEAPER: Final = 0.85
RENEW: Final = "PYTHONPATH=src:tests .venv/bin/python -m guard"
PYTHON: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"

Kind = Literal["calls", "syscalls", "bytes"]
NAMES: Final[dict[Kind, str]] = {
    "calls": "function calls",
    "syscalls": "system calls",
    "bytes": "bytes written",
}


# Notices go out as they become true, in as many writes as it happens: 1.07 to 1.65 were seen.
CHANCE = {"glovebox, pipelined": 1.5}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one job."""

    calls: float
    syscalls: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Costs:
    python: str
    """With which the calls were counted."""
    jobs: Mapping[str, Cost]
    """By the title of the workload."""

    def fault(self, title: str, kind: Kind, found: float) -> str:
        """What is wrong with that; "": nothing."""
        wanted: float = getattr(self.jobs[title], kind)
        ratio = found / wanted
        # Few system calls are also the work of chance: what comes together goes together.
        if kind == "syscalls" and ratio <= DEARER * CHANCE.get(title, 1.0):
            return ""
        if kind != "syscalls" and CHEAPER <= ratio <= DEARER:
            return ""
        change = "dearer" if ratio > 1 else "cheaper"
        text = (
            f"{title}: {found:.2f} {NAMES[kind]} a job instead of {wanted:.2f}, which is "
            f"{abs(ratio - 1):.0%} {change}. If that is meant to be so: {RENEW}"
        )
        if kind == "calls" and self.python != PYTHON:
            text += f". It was counted with Python {self.python}, and this is {PYTHON}"
        return text

    def write(self, path: Path = FILE) -> None:
        jobs = {title: asdict(cost) for title, cost in self.jobs.items()}
        path.write_text(json.dumps({"python": self.python, "jobs": jobs}, indent=2) + "\n")


def read_costs(path: Path = FILE) -> Costs:
    held = json.loads(path.read_text())
    jobs = {title: Cost(**cost) for title, cost in held["jobs"].items()}
    return Costs(held["python"], jobs)
