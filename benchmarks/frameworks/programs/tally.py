"""What the task of every framework runs: it counts, and notes when the first and last run began.

The worker's process keeps this in memory; only the last run writes it down, for the benchmark to
read. So a run costs the same everywhere, and nothing but a count.
"""

import itertools
import json
import os
import time
from pathlib import Path

# Environment variables: how many runs there will be, where the tally goes, the broker's process.
TASKS = "TALLY_TASKS"
FILE = "TALLY_FILE"
BROKER = "TALLY_BROKER"

_expected = int(os.environ.get(TASKS, "0"))
_numbers = itertools.count(1)
_began: dict[str, float] = {}


def run() -> None:
    number = next(_numbers)
    if number == 1:
        _began.update(read_here())
    if number == _expected:
        write(_began, read_here())


async def run_async() -> None:
    run()


def read_here() -> dict[str, float]:
    return reading(os.getpid(), int(os.environ[BROKER]))


def reading(worker: int, broker: int) -> dict[str, float]:
    """The time, and the processor time that these two processes have taken so far."""
    return {"at": time.monotonic(), "worker_cpu": cpu(worker), "broker_cpu": cpu(broker)}


def cpu(pid: int) -> float:
    # The name in the second field may hold spaces; what follows its parenthesis does not.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write(began: dict[str, float], ended: dict[str, float]) -> None:
    path = Path(os.environ[FILE])
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"pid": os.getpid(), "began": began, "ended": ended}))
    draft.replace(path)
