"""A queue far deeper than memory: pushed in steps, killed, started again, worked at, drained.

The cycles are measured at each step too, for the plot. At the end every job must have come back
once and in order.
"""

import signal
from typing import Final

from benchmarks import readings, rig
from benchmarks.growth.recovery import started
from benchmarks.growth.setting import (
    SHAPES,
    WARMUP_SECONDS,
    Found,
    Setting,
    comparison,
    figures,
    in_turns,
    say,
)

FEW_JOBS: Final = 10_000
STEPS: Final = (0.001, 0.1, 0.25, 0.5, 0.75, 1.0)
STEP_SECONDS: Final = 1.0
# Until the memory for payloads has filled up again. On a virtual machine a page that was not used
# before can take longer than a cycle, and the few need no more pages than they have.
WARM_STEP_SECONDS: Final = 2.0
WARM_STEPS: Final = 15
WARM_SHAPE: Final = "50 x 100 deep"
STILL_BYTES: Final = 4 * 2**20


class Deep:
    """One server and what went through it, so that payloads are numbered without a gap."""

    def __init__(self, setting: Setting, server: rig.RunningServer, pushed: int = 0) -> None:
        self.server = server
        self.pushed = pushed
        self.waiting = pushed
        self._setting = setting

    @property
    def done(self) -> int:
        return self.pushed - self.waiting

    def fill_to(self, jobs: int) -> rig.Measurement:
        missing = jobs - self.waiting
        run = self._setting.generator.fill(
            self.server, self._setting.bulk, missing, serial=self.pushed
        )
        self.pushed += missing
        self.waiting = jobs
        return run

    def cycle(self, shape: str, seconds: float) -> rig.Measurement:
        run = self._setting.generator.cycle(
            self.server,
            self._setting.load(shape),
            seconds=seconds,
            warmup=WARMUP_SECONDS,
            serial=self.pushed,
        )
        self.pushed += run.pushed
        return run

    def drain(self) -> rig.Measurement:
        """The generator sees to it that nothing is missing or twice."""
        run = self._setting.generator.drain(
            self.server, self._setting.bulk, expect=self.waiting, first_id=self.done + 1
        )
        self.waiting = 0
        return run


def measure_waiting(setting: Setting) -> Found:
    few = min(FEW_JOBS, setting.jobs)
    with (
        rig.scratch(setting.directory) as much,
        rig.scratch(setting.directory) as little,
    ):
        with setting.server().run(much, end_with=signal.SIGKILL) as server:
            deep = Deep(setting, server)
            steps = [step(deep, setting.part_of(share)) for share in STEPS]
            peak = readings.peak_bytes(server.pid)
        with setting.server().run(much) as many, setting.server().run(little) as other:
            start = started(many, much / "log", setting.jobs)
            again = Deep(setting, many, deep.pushed)
            again.waiting = deep.waiting
            shallow = Deep(setting, other)
            shallow.fill_to(few)
            warmed = {"many": warm("many", again), "few": warm("few", shallow)}
            found = [compare(setting, shape, again, shallow) for shape in SHAPES]
            drain = again.drain()
            say(f"drained, {drain.cycles_per_s:,.0f} a second")
            peak_started = readings.peak_bytes(many.pid)
    return {
        "jobs": setting.jobs,
        "payload": setting.payload,
        "steps": steps,
        "warmed": {"step_seconds": WARM_STEP_SECONDS, **warmed},
        "comparisons": found,
        "start": start,
        "drain_per_s": drain.cycles_per_s,
        "peak_bytes": peak,
        "peak_bytes_started": peak_started,
    }


def step(deep: Deep, jobs: int) -> Found:
    filled = deep.fill_to(jobs)
    resident = readings.resident_bytes(deep.server.pid)
    cycled = {shape: figures(deep.cycle(shape, STEP_SECONDS)) for shape in SHAPES}
    rates = ", ".join(f"{each['cycles_per_s']:,.0f}" for each in cycled.values())
    say(
        f"waiting: {jobs:,} jobs, pushed {filled.cycles_per_s:,.0f} a second, "
        f"{resident / 2**20:,.0f} MiB, cycles/s {rates}"
    )
    return {
        "jobs": jobs,
        "push_per_s": filled.cycles_per_s,
        "resident_bytes": resident,
        "cycles": cycled,
    }


def warm(name: str, deep: Deep) -> list[float]:
    """Cycles/s of each step until the memory of the server stands still."""
    found: list[float] = []
    resident = 0
    while len(found) < WARM_STEPS:
        found.append(deep.cycle(WARM_SHAPE, WARM_STEP_SECONDS).cycles_per_s)
        before, resident = resident, readings.resident_bytes(deep.server.pid)
        say(f"  warming up, {name}: {found[-1]:,.0f} cycles/s, {resident / 2**20:,.0f} MiB")
        if abs(resident - before) < STILL_BYTES:
            break
    return found


def compare(setting: Setting, shape: str, deep: Deep, shallow: Deep) -> Found:
    seconds = setting.seconds
    sides = {
        f"{shape}, many": lambda: figures(deep.cycle(shape, seconds)),
        f"{shape}, few": lambda: figures(shallow.cycle(shape, seconds)),
    }
    found = in_turns(setting, sides)
    name = (
        f"cycles/s with {deep.waiting:,} jobs waiting to {shallow.waiting:,}, connections {shape}"
    )
    return comparison(name, *found.values())
