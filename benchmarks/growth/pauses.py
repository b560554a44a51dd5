"""How long the event loop of a server is ever busy with one thing, through the life of its jobs.

A probe asks every millisecond for something that needs no disk: the longest answer, less the time
for which the server had no processor, is the longest pause of the loop. See loadgen_probe.c.
"""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import rig
from benchmarks.growth.setting import SHAPES, Found, Setting, say
from benchmarks.growth.waiting import Deep

IDLE_SECONDS: Final = 3.0
PROBE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Pause:
    """How long the loop of a server let the probe wait during one phase."""

    phase: str
    longest_ms: float
    """Without what the loop waited for a processor."""
    answer_ms: float
    """The longest answer as it was."""
    p999_ms: float
    p50_ms: float
    asked: int
    off_processor_s: float
    """How long the loop could have run in all, but had no processor."""
    idle_ms: float
    """The longest of a server that had nothing to do meanwhile."""


class Probing:
    """Probes phase after phase, and keeps what was found.

    An idle server is probed beside: what it shows is the machine's doing, not that of the load.
    """

    def __init__(self, setting: Setting, witness: rig.RunningServer) -> None:
        self.found: list[Found] = []
        self._setting = setting
        self._witness = witness

    def watch(
        self,
        phase: str,
        server: rig.RunningServer,
        work: Callable[[], object],
        before_again: Callable[[], object] = lambda: None,
    ) -> None:
        pause, stolen = self._setting.patience.measure(
            phase, lambda: self._probe(phase, server, work), before_again
        )
        self.found.append({**asdict(pause), "stolen": stolen})

    def _probe(self, phase: str, server: rig.RunningServer, work: Callable[[], object]) -> Pause:
        waited = off_processor(server.pid)
        probes = [self._setting.generator.probe(each) for each in (server, self._witness)]
        try:
            work()
        finally:
            for probe in probes:
                probe.send_signal(signal.SIGTERM)
            ended = [probe.communicate(timeout=PROBE_SECONDS) for probe in probes]
        for probe, (_, errors) in zip(probes, ended, strict=True):
            if probe.returncode != 0:
                raise rig.BenchmarkError(f"the probe failed: {errors.strip()}")
        told, beside = (json.loads(output) for output, _ in ended)
        pause = Pause(
            phase,
            told["longest_own_us"] / 1000,
            told["longest_us"] / 1000,
            told["p999_us"] / 1000,
            told["p50_us"] / 1000,
            told["asked"],
            off_processor(server.pid) - waited,
            beside["longest_own_us"] / 1000,
        )
        say(
            f"  {phase}: longest pause {pause.longest_ms:.1f} ms, of an idle server "
            f"{pause.idle_ms:.1f} ms, {pause.off_processor_s:.2f} s without a processor"
        )
        return pause


def off_processor(pid: int) -> float:
    """Seconds that the main thread of a process was ready to run and had to wait."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


def measure_pauses(setting: Setting) -> Found:
    """Pushed, killed, started again, worked at and drained, at a tenth of the jobs."""
    jobs = setting.part_of(0.1)
    # A flush on the loop would be a pause of it, and hide those that are meant here.
    server = setting.server("--sync-mode", "thread", first=True)
    with (
        rig.scratch(setting.directory) as directory,
        rig.scratch(setting.directory) as beside,
        server.run(beside) as witness,
    ):
        probing = Probing(setting, witness)
        with server.run(directory, end_with=signal.SIGKILL) as running:
            deep = Deep(setting, running)
            probing.watch("idle", running, lambda: time.sleep(IDLE_SECONDS))
            probing.watch("push", running, lambda: deep.fill_to(jobs), deep.drain)
        with server.run(directory) as running:
            again = Deep(setting, running, deep.pushed)
            again.waiting = jobs
            for _ in range(setting.rounds):
                for shape in SHAPES:
                    work = partial(again.cycle, shape, setting.seconds)
                    probing.watch(f"cycles, connections {shape}", running, work)
            probing.watch("drain", running, again.drain, lambda: again.fill_to(jobs))
    return {"jobs": jobs, "pauses": probing.found}
