"""Takes one server, through as many lives as it is given, along the phases of a plan."""

import contextlib
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import rig
from benchmarks.soak import crew, driver
from benchmarks.soak.dialect import MASENKO
from benchmarks.soak.plan import SHORT, Phase
from benchmarks.soak.sampling import INTERVAL, Disk, Sample, Sampler, Spread, spread

CHURN_SECONDS_OVER: Final = 30.0
"""What the load generator may take to finish what it has begun."""


@dataclass(frozen=True, slots=True)
class Setting:
    server: rig.Taskyard
    generator: Path
    directory: Path
    churn: rig.Load
    dead_limit: int
    disk_limit: int
    kill_every: float = 0.0


@dataclass(frozen=True, slots=True)
class PhaseResult:
    name: str
    began: float
    ended: float
    judged: bool
    cycle_ms: Spread | None
    loop_ms: Spread | None
    late_ms: Spread | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """A start on the data of a server that was killed."""

    at: float
    seconds: float
    disk: Disk  # as the killed one left it
    live_jobs: int


@dataclass(slots=True)
class Result:
    pattern: str
    first_start: float = 0.0  # on an empty directory
    samples: list[Sample] = field(default_factory=list)
    phases: list[PhaseResult] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    pushed: int = 0
    finished: int = 0
    problem: str = ""


def say(text: str) -> None:
    print(text, flush=True)


class DiskFull(rig.BenchmarkError):
    """The journal has outgrown what it was given."""


class Churn:
    """The load generator, for the time of a phase."""

    def __init__(self, setting: Setting, port: int, seconds: float) -> None:
        command = [str(setting.generator), "cycle", "--driver=masenko", f"--host={rig.HOST}"]
        command += [f"--port={port}", f"--seconds={seconds}", *setting.churn.arguments()]
        # It prints a line at its end, so the pipe cannot fill up.
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._deadline = time.monotonic() + seconds + CHURN_SECONDS_OVER

    def is_running(self) -> bool:
        code = self._process.poll()
        if code is None and time.monotonic() > self._deadline:
            raise rig.BenchmarkError("the load generator does not end")
        if code:
            output, _ = self._process.communicate()
            raise rig.BenchmarkError(output.decode(errors="replace").strip())
        return code is None

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Soak:
    """One pattern on one data directory."""

    def __init__(
        self,
        setting: Setting,
        pattern: str,
        plan: list[Phase],
        load: crew.Driver,
        probes: crew.Probes,
    ) -> None:
        self.result = Result(pattern)
        self._setting = setting
        self._plan = iter(plan)
        self._load = load
        self._probes = probes
        self._began = time.monotonic()
        self._phase: Phase | None = None
        self._phase_began = 0.0
        self._readings: dict[str, list[float]] = {}
        self._churn: Churn | None = None
        self._port = 0
        self._next_sample = 0.0
        self._kill_at = float("inf")

    def run(self, directory: Path) -> None:
        journal = directory / "data" / "journal"
        end_with = signal.SIGKILL if self._setting.kill_every else signal.SIGTERM
        try:
            while True:
                with self._setting.server.run(directory, end_with=end_with) as server:
                    is_over = self._live(server, journal)
                if is_over:
                    return
                self._load.tell(driver.Crashed())
        finally:
            if self._churn is not None:
                self._churn.close()

    def _live(self, server: rig.RunningServer, journal: Path) -> bool:
        """One life of the server; false when it is to end by being killed."""
        self._meet(server, journal)
        if self._phase is None:
            self._next_phase()
        sampler = Sampler(server, journal, self._probes, MASENKO)
        self._next_sample = time.monotonic() + INTERVAL
        if self._setting.kill_every:
            self._kill_at = time.monotonic() + self._setting.kill_every
        with contextlib.closing(sampler):
            while True:
                now = time.monotonic()
                if now < min(self._next_sample, self._kill_at):
                    time.sleep(min(self._next_sample, self._kill_at) - now)
                if time.monotonic() >= self._kill_at:
                    if self._may_kill():
                        self._probes.listen(None)
                        return False
                    self._kill_at += self._setting.kill_every
                elif self._sample(sampler):
                    return True

    def _meet(self, server: rig.RunningServer, journal: Path) -> None:
        is_first = not self.result.samples
        self._port = server.port
        self._tell(driver.Connect(server.port, recovered=not is_first))
        self._probes.listen(server.port)
        if is_first:
            self.result.first_start = server.started_in
            return
        last = self.result.samples[-1]
        self.result.recoveries.append(
            Recovery(self._now(), server.started_in, last.disk, last.live_jobs)
        )
        say(
            f"{self._now():7.1f} s  killed and back in {server.started_in:.2f} s with "
            f"{last.disk.apparent / 2**20:,.0f} MiB and {last.live_jobs:,} jobs"
        )

    def _may_kill(self) -> bool:
        """In the end all is taken out and counted, and at first nothing is there to lose."""
        return self._phase is not None and self._phase.name not in ("idle", "clear")

    def _sample(self, sampler: Sampler) -> bool:
        """One look, and on to the next phase if it is time. True at the end of the plan."""
        assert self._phase is not None
        self._next_sample = max(self._next_sample + INTERVAL, time.monotonic())
        tally = self._tell(driver.Report())
        sample = sampler.sample(self._now(), self._phase.name, tally, self._setting.churn.payload)
        self.result.samples.append(sample)
        self.result.pushed, self.result.finished = tally.pushed, tally.finished
        for kind, readings in sampler.readings.items():
            if readings.problem:
                raise rig.BenchmarkError(f"the {kind} probe: {readings.problem}")
            self._readings.setdefault(kind, []).extend(readings.taken)
        self._readings.setdefault("late", []).extend(sampler.readings["loop"].late)
        if sample.disk.apparent > self._setting.disk_limit:
            raise DiskFull(f"the journal has {sample.disk.apparent:,} bytes, beyond --disk-limit")
        if not self._is_phase_over(tally):
            return False
        self._end_phase(sample)
        return not self._next_phase()

    def _is_phase_over(self, tally: driver.Tally) -> bool:
        assert self._phase is not None
        if self._churn is not None and self._churn.is_running():
            return False
        if self._now() - self._phase_began >= self._phase.seconds:
            return True
        return bool(self._phase.until) and self._phase.until not in tally.running

    def _end_phase(self, sample: Sample) -> None:
        assert self._phase is not None
        if self._churn is not None:
            self._churn.close()
            self._churn = None
        if self._phase.until == "clear":
            self._tell(driver.CheckTaken())
        taken = {kind: spread(self._readings.get(kind, ())) for kind in ("cycle", "loop", "late")}
        self.result.phases.append(
            PhaseResult(
                self._phase.name,
                self._phase_began,
                self._now(),
                self._phase.judged,
                taken["cycle"],
                taken["loop"],
                taken["late"],
            )
        )
        self._readings = {}
        say(
            f"{self._now():7.1f} s  {self.result.pattern}: {self._phase.name}: "
            f"{sample.disk.apparent / 2**20:,.1f} MiB in {sample.disk.segments} segments, "
            f"{sample.live_bytes / 2**20:,.1f} MiB live in {sample.live_jobs:,} jobs"
        )

    def _next_phase(self) -> bool:
        self._phase = next(self._plan, None)
        if self._phase is None:
            return False
        self._phase_began = self._now()
        works = self._phase.works
        if self._phase.churn and self._setting.kill_every:
            # The load generator gives up with its server, and keeps no ledger.
            works = (*works, SHORT)
        elif self._phase.churn:
            self._churn = Churn(self._setting, self._port, self._phase.seconds)
        self._tell(driver.SetWorks(works))
        return True

    def _tell(self, message: driver.Message) -> driver.Tally:
        tally = self._load.tell(message)
        if tally.disconnected:
            raise rig.BenchmarkError("the server has closed the driver's connections")
        return tally

    def _now(self) -> float:
        return time.monotonic() - self._began


def soak(setting: Setting, pattern: str, plan: list[Phase]) -> Result:
    """What was seen; with a problem, until it came up, and then the data is kept."""
    with (
        rig.scratch(setting.directory) as directory,
        crew.load_driver(setting.dead_limit) as load,
        crew.probes() as probes,
    ):
        run = Soak(setting, pattern, plan, load, probes)
        try:
            run.run(directory)
        except DiskFull as error:
            run.result.problem = str(error)
        except (rig.BenchmarkError, OSError) as error:
            log = rig.tail(directory / "log")
            kept = directory.rename(directory.with_name(f"failed-{directory.name}"))
            run.result.problem = f"{error}\nThe data is kept in {kept}. The server's log:\n{log}"
        return run.result
