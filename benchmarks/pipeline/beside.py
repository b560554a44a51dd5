"""What the lake costs the server beside it: processor time a job, at one and the same rate.

A fresh sync-durable server for each turn, with `--lake` and without, in turns. The load generator
begins a fixed number of jobs a second, fewer than the server could do: at full load the two sides
would not have the same work. Only the server's own process is counted; what the lake takes is told
beside it, and how often the server gave up the processor, which shows how much it does at a time.
"""

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import rig
from benchmarks.readings import cpu_seconds, session_cpu
from taskyard.pipeline.lake.snapshot import last_watermark
from taskyard.pipeline.lake.storage import Storage

FULL: Final = 0.0  # in place of a rate: as many jobs as can be done
RATES: Final = (2000.0, 6000.0, FULL)
WITHOUT: Final = "without"
WITH: Final = "with"
_SPARK_START: Final = 300.0  # seconds that a lake's process may take until it has its first batch
_WARM_UP: Final = 1000  # jobs


@dataclass(frozen=True)
class Plan:
    form: rig.Form
    rate: float  # jobs that begin in a second, or FULL
    seconds: float
    connections: int = 50
    payload: int = 200

    @property
    def load(self) -> rig.Load:
        return rig.Load(self.connections, payload=self.payload, rate=self.rate or None)


def measure(plan: Plan) -> dict[str, Any]:
    """One turn of each; who is first is left to chance."""
    kinds = [WITHOUT, WITH]
    random.shuffle(kinds)
    found = {kind: _one(plan, kind) for kind in kinds}
    ratio = found[WITH]["cpu_us"] / found[WITHOUT]["cpu_us"]
    return {**found, "ratio": ratio}


def _one(plan: Plan, kind: str) -> dict[str, Any]:
    generator = rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY))
    with rig.scratch(rig.DEFAULT_DIRECTORY) as directory:
        lake = directory / "lake"
        options = ("--lake", str(lake)) if kind == WITH else ()
        with rig.Taskyard(plan.form, "sync", options).run(directory) as server:
            generator.cycles(server, plan.load, _WARM_UP)
            if kind == WITH:
                wait_for_lake(lake)
            return _load(plan, generator, server, lake if kind == WITH else None)


def _load(
    plan: Plan, generator: rig.Generator, server: rig.RunningServer, lake: Path | None
) -> dict[str, Any]:
    before = last_watermark(Storage(lake)) if lake else None
    session = lake_session(server.pid) if lake else None
    cpu, began = cpu_seconds(server.pid), time.monotonic()
    lake_cpu = session_cpu(session) if session else 0.0
    waits = voluntary_switches(server.pid)
    measured = generator.cycle(server, plan.load, seconds=plan.seconds, warmup=1.0)
    cpu = cpu_seconds(server.pid) - cpu
    lake_cpu = (session_cpu(session) if session else 0.0) - lake_cpu
    waits = voluntary_switches(server.pid) - waits
    elapsed = time.monotonic() - began
    after = last_watermark(Storage(lake)) if lake else None
    return {
        "cpu_us": cpu / measured.pushed * 1e6,
        "jobs_per_second": measured.cycles_per_s,
        "cycle_p50_us": measured.latency_us["cycle"].p50,
        "cycle_p99_us": measured.latency_us["cycle"].p99,
        "waits_per_job": waits / measured.pushed,
        "lake_cores": lake_cpu / elapsed,
        "records_read": after.next_seq - before.next_seq if after and before else 0,
        "batches": after.batch - before.batch if after and before else 0,
    }


def voluntary_switches(pid: int) -> int:
    """How often a process's threads had nothing to do, and waited."""
    total = 0
    for status_file in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status_file.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


def lake_session(server: int) -> int:
    """The session of the process that a server has its lake made by: it has no other child."""
    of_threads = Path(f"/proc/{server}/task").glob("*/children")
    [child] = [child for path in of_threads for child in path.read_text().split()]
    return os.getsid(int(child))


def wait_for_lake(lake: Path) -> None:
    """Until it follows: what Spark's start costs is not what is measured."""
    limit = time.monotonic() + _SPARK_START
    while last_watermark(Storage(lake)) is None:
        if time.monotonic() > limit:
            raise rig.BenchmarkError("the lake does not come to its first batch")
        time.sleep(0.2)
