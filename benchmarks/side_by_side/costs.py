"""What a job costs a server beside time: system calls, and memory while it waits."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from benchmarks import readings, rig
from benchmarks.peers import installing

Counter = Literal["perf", "strace"]
EVENT: Final = "raw_syscalls:sys_enter"
ATTACH_SECONDS: Final = 10.0
SETTLE_JOBS: Final = 5_000
"""Done before memory is looked at, so that buffers and caches are there already."""


def find_counter() -> tuple[Counter | None, str]:
    """What can count the system calls of a process here; or why nothing can."""
    if shutil.which("perf") is not None and perf_counts():
        return "perf", ""
    missing = installing.present_or_reason("strace", "strace")
    if missing is None and strace_counts():
        return "strace", ""
    return None, missing or "neither `perf` nor `strace` can count system calls here"


def perf_counts() -> bool:
    return _ends_well(["perf", "stat", "-e", EVENT, "--", "true"])


def strace_counts() -> bool:
    return _ends_well(["strace", "-c", "-o", os.devnull, "true"])


def _ends_well(command: list[str]) -> bool:
    run = subprocess.run(command, capture_output=True, timeout=60, check=False)
    return run.returncode == 0


def count_calls(
    counter: Counter, binary: Path, server: rig.RunningServer, load: rig.Load, jobs: int, log: Path
) -> int:
    """System calls of the server while it does so many jobs, connections included."""
    if counter == "strace":
        return traced(server.pid, log, lambda: rig.Generator(binary).cycles(server, load, jobs))
    under = ["perf", "stat", "-x", ",", "-o", str(log), "-e", EVENT, "-p", str(server.pid), "--"]
    rig.Generator(binary, under).cycles(server, load, jobs)
    return calls_of_perf(log.read_text())


def traced(pid: int, log: Path, work: Callable[[], object]) -> int:
    attached = log.with_suffix(".attached")
    command = ["strace", "-c", "-f", "-o", str(log), "-p", str(pid)]
    with attached.open("wb") as said:
        tracer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said)
    try:
        deadline = time.monotonic() + ATTACH_SECONDS
        while "attached" not in attached.read_text():
            if tracer.poll() is not None or time.monotonic() > deadline:
                raise rig.BenchmarkError(f"strace does not attach: {attached.read_text()}")
            time.sleep(0.01)
        work()
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(ATTACH_SECONDS)
    return calls_of_strace(log.read_text())


def calls_of_perf(text: str) -> int:
    for line in text.splitlines():
        if EVENT in line:
            count = line.split(",")[0]
            if count.isdigit():
                return int(count)
    raise rig.BenchmarkError(f"perf has not counted: {text.strip()}")


def calls_of_strace(text: str) -> int:
    """The last line is of all calls together: share, seconds, microseconds a call, calls."""
    found = re.search(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+).*\btotal$", text, re.MULTILINE)
    if found is None:
        raise rig.BenchmarkError(f"strace has not counted: {text.strip()}")
    return int(found[1])


def memory_gained(
    generator: rig.Generator, server: rig.RunningServer, payload: int, jobs: int
) -> int:
    """Resident bytes that a server has more with so many jobs waiting than without."""
    load = rig.Load(connections=50, depth=100, payload=payload)
    generator.cycles(server, load, SETTLE_JOBS)
    before = readings.resident_bytes(server.pid)
    generator.fill(server, load, jobs)
    return readings.resident_bytes(server.pid) - before
