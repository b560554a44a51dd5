"""The two measurements as the tests and the renewal want them: what a job costs now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from guard.outside import Server
from guard.workloads import PAYLOAD, Dialect, Shape, Workload
from support.sockets import HANG_GUARD

ROOT: Final = Path(__file__).resolve().parents[2]
ATTEMPTS: Final = 6
WARM: Final = 2  # rounds
LEAST_JOBS: Final = 30


def count_calls(*flags: str) -> dict[str, float]:
    """Function calls of a job, by the title of the workload; see inside.py."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}/tests", "PYTHONHASHSEED": "0"}
    environment["TASKYARD_FORM"] = "interpreted"
    run = subprocess.run(
        [sys.executable, "-m", "guard.inside", *flags],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, float] = json.loads(run.stdout)
    return found


def count_outside(
    server: Server,
    dialect: Dialect,
    shape: Shape,
    enough: Callable[[float, float], bool],
    payload: int = PAYLOAD,
) -> tuple[float, float]:
    """System calls and bytes written of a job: the least of some attempts, or the first `enough`.

    What is in the way on a busy machine, a timer that rings between two commands or a reply that
    is a moment late, only ever adds to them.
    """
    workload = Workload(server, dialect, shape, payload)
    workload.run(WARM)
    rounds = -(-LEAST_JOBS // shape.jobs)
    calls, written = float("inf"), float("inf")
    for _ in range(ATTEMPTS):
        with server.counted() as counts:
            jobs = workload.run(rounds)
        calls = min(calls, counts.calls / jobs)
        written = min(written, counts.bytes / jobs)
        if enough(calls, written):
            break
    return calls, written
