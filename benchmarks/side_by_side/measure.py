"""The run: servers take turns, each measurement has a fresh one, and all is kept as it comes."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks import rig
from benchmarks.patience import Patience
from benchmarks.side_by_side import costs, slow_flush
from benchmarks.side_by_side.plan import SMALL, Block, Plan, cases_of, in_turns
from benchmarks.side_by_side.results import Case, Resident, Results, Round, Syscalls
from benchmarks.side_by_side.shapes import SHAPES
from benchmarks.side_by_side.subjects import Subject

FLUSH_DELAY_MS: Final = 2.0
COUNTED_SHAPES: Final = ("c50", "c50x100")
COUNTED_SECONDS: Final = 1.5
LONGEST_REASON: Final = 500
WHOLE_BATCHES: Final = 3
"""So many of every connection must end in a measurement of batches."""
FEWEST, MOST = 2_000, 200_000
"""Jobs for which system calls are counted; by how many a server can do in a while."""
PREFERRED: Final[tuple[rig.Durability, ...]] = ("write", "memory", "sync")
"""For memory: how it is flushed changes nothing, but a fill would take minutes."""


@dataclass(slots=True)
class Runner:
    plan: Plan
    subjects: Sequence[Subject]
    results: Results
    path: Path
    """Where the results are kept."""
    binary: Path
    began: float = field(default_factory=time.monotonic)
    counted: set[str] = field(default_factory=set)
    """Cases that are too slow for a window of time."""
    patience: Patience = field(init=False)

    def __post_init__(self) -> None:
        self.patience = Patience(self.plan.patience, self._say)

    def run(self) -> None:
        try:
            self._measure_rounds([block for block in self.plan.blocks if block.part != "offered"])
            self._measure_offered([block for block in self.plan.blocks if block.part == "offered"])
            if "syscalls" in self.plan.parts:
                self._count_syscalls()
            if "resident" in self.plan.parts:
                self._weigh()
            self.results.complete = True
        finally:
            self._save()

    def _measure_rounds(self, blocks: Sequence[Block], rate: float | None = None) -> None:
        """A round goes through all cases, so that a bad minute spoils one round of each."""
        cases = [(block, case) for block in blocks for case in cases_of(block, self.subjects)]
        self.results.cases += [case for _, case in cases]
        wanted = [block.rounds_of(case) for block, case in cases]
        total, count = sum(wanted), 0
        for number in range(max(wanted, default=0)):
            for block in blocks:
                mine = [case for its, case in cases if its is block]
                mine = [case for case in mine if number < block.rounds_of(case)]
                for case in in_turns(mine, number):
                    count += 1
                    with self._keeping_failures(f"[{count}/{total}] round {number + 1}", case):
                        taken = self._measure_undisturbed(block, case, number, rate)
                        case.rounds.append(taken)
                        self._say(
                            f"[{count}/{total}] round {number + 1} {named(case)}: "
                            f"{taken.jobs_per_s:,.0f} jobs/s"
                        )
            self._save()

    def _measure_undisturbed(
        self, block: Block, case: Case, number: int, rate: float | None
    ) -> Round:
        thrown_away = self.patience.thrown_away
        taken, stolen = self.patience.measure(
            named(case), lambda: self._measure(block, case, number, rate)
        )
        self.results.thrown_away += self.patience.thrown_away - thrown_away
        return replace(taken, stolen=stolen)

    def _measure(self, block: Block, case: Case, number: int, rate: float | None) -> Round:
        connections, depth = SHAPES[case.shape]
        load = rig.Load(connections=connections, depth=depth, payload=case.payload, rate=rate)
        enough = WHOLE_BATCHES * connections * depth
        taken = None
        if named(case) not in self.counted:
            with self._server(case) as running:
                taken = rig.Generator(self.binary).cycle(
                    running, load, seconds=block.seconds, warmup=self.plan.warmup
                )
        if taken is None or (taken.cycles < enough and depth > 1):
            # When all that is under way takes about as long as the window, it is chance how much
            # of it ends within. So many jobs are measured then instead of so many seconds.
            self.counted.add(named(case))
            with self._server(case) as running:
                taken = rig.Generator(self.binary).cycles(running, load, enough)
        cycle = taken.latency_us["cycle"]
        return Round(
            number=number,
            jobs_per_s=taken.cycles_per_s,
            p50_us=cycle.p50,
            p99_us=cycle.p99,
            p999_us=cycle.p999,
            server_us=taken.server_seconds * 1e6 / max(taken.pushed, 1),
            server_cores=taken.server_cores,
            generator_cores=taken.generator_cores,
        )

    @contextlib.contextmanager
    def _server(self, case: Case) -> Iterator[rig.RunningServer]:
        subject = next(each for each in self.subjects if each.key == case.subject)
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(rig.scratch(self.plan.directory))
            if case.part == "slow-flush":
                library = slow_flush.compile_library(rig.DEFAULT_DIRECTORY)
                stack.enter_context(slow_flush.flushes_delayed(library, FLUSH_DELAY_MS))
                self.results.flush_delay_ms = FLUSH_DELAY_MS
            yield stack.enter_context(subject.servers[case.durability].run(directory))

    def _measure_offered(self, blocks: Sequence[Block]) -> None:
        """The same number of jobs a second for all: what it is follows from the peaks."""
        if not blocks:
            return
        rate = self.plan.rate or half_the_lower_peak(self.results, blocks[0].payload)
        if rate is None:
            self._say("no rate is offered: that takes the peaks of masenko and redis-lists at c50")
            return
        self.results.offered_rate = rate
        self.results.rate_follows_peaks = self.plan.rate is None
        self._say(f"offering {rate:,.0f} jobs/s")
        self._measure_rounds(blocks, rate)

    def _count_syscalls(self) -> None:
        counter, self.results.syscalls_missing = costs.find_counter()
        if counter is None:
            return
        block = Block("peak", "sync", SMALL, COUNTED_SHAPES, rounds=1, seconds=COUNTED_SECONDS)
        for case in cases_of(block, self.subjects):
            with self._keeping_failures("system calls of", case):
                found = self._count(counter, case)
                self.results.syscalls.append(found)
                self._say(f"{named(case)}: {found.calls / found.jobs:.2f} system calls a job")
        self._save()

    def _count(self, counter: costs.Counter, case: Case) -> Syscalls:
        connections, depth = SHAPES[case.shape]
        load = rig.Load(connections=connections, depth=depth, payload=case.payload)
        peak = self.results.find("peak", case.subject, case.durability, case.shape, case.payload)
        jobs = FEWEST if peak is None else round(peak.rate * COUNTED_SECONDS)
        # Whole batches on every connection; a trace makes a server many times slower.
        whole = connections * depth
        jobs = min(max(jobs, FEWEST), MOST if counter == "perf" else 2 * FEWEST)
        jobs = max(jobs // whole, 1) * whole
        log = rig.DEFAULT_DIRECTORY / "syscalls"
        with self._server(case) as running:
            calls = costs.count_calls(counter, self.binary, running, load, jobs, log)
        return Syscalls(case.subject, case.durability, case.shape, jobs, calls, counter)

    def _weigh(self) -> None:
        jobs = self.plan.resident_jobs
        for subject in self.subjects:
            if subject.about.is_extra:
                continue
            durability = next(each for each in PREFERRED if each in subject.servers)
            case = Case("peak", subject.key, durability, "c50x100", SMALL)
            with self._keeping_failures("memory of", case):
                with self._server(case) as running:
                    generator = rig.Generator(self.binary)
                    gained = costs.memory_gained(generator, running, SMALL, jobs)
                self.results.resident.append(Resident(subject.key, durability, jobs, gained))
                self._say(f"{subject.key}: {gained / jobs:,.0f} bytes a waiting job")
        self._save()

    @contextlib.contextmanager
    def _keeping_failures(self, what: str, case: Case) -> Iterator[None]:
        """A server that fails is named on the page, and the others go on."""
        try:
            yield
        except (rig.BenchmarkError, OSError, subprocess.SubprocessError) as error:
            reason = " ".join(str(error).split())[:LONGEST_REASON]
            self.results.failures.append(f"{named(case)}: {reason}")
            self._say(f"{what} {named(case)} FAILED: {reason}")

    def _save(self) -> None:
        self.results.took_seconds = time.monotonic() - self.began
        self.results.load_average_at_end = os.getloadavg()[0]
        self.results.save(self.path)

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:5.0f} s  {text}", flush=True)


def named(case: Case) -> str:
    part = "" if case.part == "peak" else f" {case.part}"
    return f"{case.durability} {case.shape} {case.payload} B{part} {case.subject}"


def half_the_lower_peak(results: Results, payload: int) -> float | None:
    peaks = [
        results.find("peak", key, "sync", "c50", payload) for key in ("masenko", "redis-lists")
    ]
    rates = [case.rate for case in peaks if case is not None]
    return min(rates) / 2 if len(rates) == len(peaks) else None
