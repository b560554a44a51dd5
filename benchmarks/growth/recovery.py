"""How quickly a server is back after kill -9: of a log of pushes, and of one of whole cycles."""

import re
import signal
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import readings, rig
from benchmarks.growth.setting import Found, Setting, say

# A push, a lease and a finish are one record each.
RECORDS_PER_CYCLE: Final = 3
# What is finished would go before it could be recovered.
KEPT: Final = ("--compaction", "off")

Fill = Callable[[rig.RunningServer], object]


def measure_recovery(setting: Setting) -> Found:
    records = setting.part_of(0.1)
    cycles = max(records // RECORDS_PER_CYCLE, 1)
    generator, bulk = setting.generator, setting.bulk

    def push(server: rig.RunningServer) -> object:
        return generator.fill(server, bulk, records)

    def cycle(server: rig.RunningServer) -> object:
        return generator.cycles(server, bulk, cycles)

    return {
        "empty_seconds": empty_start(setting),
        "logs": [
            {"log": "pushes", "starts": restarts(setting, push, records)},
            {"log": "push + lease + finish", "starts": restarts(setting, cycle, 0)},
        ],
    }


def empty_start(setting: Setting) -> float:
    """Seconds that a start takes with nothing to recover."""
    taken: list[float] = []
    for _ in range(setting.rounds):
        with rig.scratch(setting.directory) as directory, setting.server().run(directory) as server:
            taken.append(server.started_in)
    return statistics.median(taken)


def restarts(setting: Setting, fill: Fill, waiting: int) -> list[Found]:
    server = setting.server(*KEPT)
    found = []
    with rig.scratch(setting.directory) as directory:
        with server.run(directory, end_with=signal.SIGKILL) as running:
            fill(running)
        for _ in range(setting.rounds):
            with server.run(directory, end_with=signal.SIGKILL) as running:
                found.append(started(running, directory / "log", waiting))
    return found


def started(server: rig.RunningServer, log: Path, jobs: int) -> Found:
    """What the server said of its last start; refused unless all jobs came back."""
    facts = recovery_facts(log.read_text())
    if int(facts["jobs"]) != jobs:
        raise rig.BenchmarkError(f"{facts['jobs']} of {jobs} jobs came back")
    records, seconds = int(facts["records"]), float(facts["seconds"])
    resident = readings.resident_bytes(server.pid)
    say(
        f"started again in {server.started_in:.1f} s, of that {seconds:.1f} s for {records:,} "
        f"records; {resident / 2**20:,.0f} MiB"
    )
    return {
        "jobs": jobs,
        "records": records,
        "recovery_seconds": seconds,
        "start_seconds": server.started_in,
        "resident_bytes": resident,
    }


def recovery_facts(log: str) -> dict[str, str]:
    """Of the last start: the log goes on."""
    lines = re.findall(r"journal recovered .*", log)
    if not lines:
        raise rig.BenchmarkError("the server's log does not say that the journal was recovered")
    return dict(re.findall(r"(\w+)=(\S+)", lines[-1]))
