"""A queue far deeper than memory: pushed, killed, started again, worked at, drained.

One server keeps all the jobs on disk and few of their payloads in memory. Beside each phase a
probe asks every millisecond for something that needs no disk: the longest answer, less the time
for which the server had no processor, is the longest pause of the event loop. At the end every
job must have come back once and in order.
"""

import argparse
import contextlib
import json
import re
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

# So that the file can be started by its path as well as with -m.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import readings, rig

FEW_JOBS = 10_000
IDLE_SECONDS = 5.0
PROBE_SECONDS = 30.0
GIB = 2**30

MOST_BYTES = 4 * GIB
LEAST_RECORDS_PER_S = 400_000.0
LEAST_RATIO = 0.8
MOST_PAUSE_MS = 20.0


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


@dataclass(slots=True)
class Results:
    jobs: int
    payload: int
    pauses: list[Pause] = field(default_factory=list)
    push_per_s: float = 0.0
    bytes_pushed: int = 0
    records: int = 0
    recovery_seconds: float = 0.0
    """As the server says: reading and applying the journal."""
    start_seconds: float = 0.0
    """From the start of the process until it accepts."""
    bytes_started: int = 0
    with_many: dict[str, list[float]] = field(default_factory=dict)
    with_few: dict[str, list[float]] = field(default_factory=dict)
    drain_per_s: float = 0.0
    drain_few_per_s: float = 0.0
    bytes_drained: int = 0
    peak_bytes: int = 0
    peak_bytes_started: int = 0

    def ratio(self, shape: str) -> float:
        return statistics.median(self.with_many[shape]) / statistics.median(self.with_few[shape])


SHAPES: dict[str, tuple[int, int]] = {"50": (50, 1), "50 x 20 deep": (50, 20)}


@dataclass(frozen=True, slots=True)
class Setting:
    server: rig.Taskyard
    generator: rig.Generator
    directory: Path
    jobs: int
    payload: int
    rounds: int
    seconds: float

    @property
    def bulk(self) -> rig.Load:
        """Enough at a time to fill a server quickly, little enough for each round of its loop."""
        return self.load("50 x 20 deep")

    def load(self, shape: str) -> rig.Load:
        connections, depth = SHAPES[shape]
        return rig.Load(connections=connections, depth=depth, payload=self.payload)


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def probed(
    setting: Setting, server: rig.RunningServer, phase: str, results: Results
) -> Iterator[None]:
    """Measures the pauses of the server's loop while the block runs."""
    waited = off_processor(server.pid)
    probe = setting.generator.probe(server)
    try:
        yield
    finally:
        probe.send_signal(signal.SIGTERM)
        output, errors = probe.communicate(timeout=PROBE_SECONDS)
    if probe.returncode != 0:
        raise rig.BenchmarkError(f"the probe failed: {errors.strip()}")
    result = json.loads(output)
    pause = Pause(
        phase,
        result["longest_own_us"] / 1000,
        result["longest_us"] / 1000,
        result["p999_us"] / 1000,
        result["p50_us"] / 1000,
        result["asked"],
        off_processor(server.pid) - waited,
    )
    results.pauses.append(pause)
    say(
        f"  loop: longest pause {pause.longest_ms:.1f} ms, answer {pause.answer_ms:.1f} ms, "
        f"{pause.off_processor_s:.2f} s without a processor"
    )


def off_processor(pid: int) -> float:
    """Seconds that the main thread of a process was ready to run and had to wait."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9


def measure(setting: Setting) -> Results:
    results = Results(setting.jobs, setting.payload)
    with (
        rig.scratch(setting.directory) as many,
        rig.scratch(setting.directory) as few,
        setting.server.run(few) as with_few,
    ):
        with probed(setting, with_few, "idle", results):
            time.sleep(IDLE_SECONDS)
        push(setting, many, results)
        with setting.server.run(many) as with_many:
            started(with_many, many / "log", results)
            setting.generator.fill(with_few, setting.bulk, min(FEW_JOBS, setting.jobs), serial=0)
            done = work(setting, with_many, with_few, results)
            drain(setting, with_many, with_few, done, results)
            results.peak_bytes_started = readings.peak_bytes(with_many.pid)
    return results


def push(setting: Setting, directory: Path, results: Results) -> None:
    with setting.server.run(directory, end_with=signal.SIGKILL) as server:
        say(f"pushing {setting.jobs:,} jobs of {setting.payload} bytes")
        with probed(setting, server, "push", results):
            filled = setting.generator.fill(server, setting.bulk, setting.jobs, serial=0)
        results.push_per_s = filled.cycles_per_s
        results.bytes_pushed = readings.resident_bytes(server.pid)
        results.peak_bytes = readings.peak_bytes(server.pid)
        say(f"  {filled.cycles_per_s:,.0f} a second, {results.bytes_pushed / GIB:.2f} GiB resident")


def started(server: rig.RunningServer, log: Path, results: Results) -> None:
    results.start_seconds = server.started_in
    results.bytes_started = readings.resident_bytes(server.pid)
    # Of the last start: the log goes on.
    line = re.findall(r"journal recovered .*", log.read_text())[-1]
    facts = dict(re.findall(r"(\w+)=(\S+)", line))
    results.records = int(facts["records"])
    results.recovery_seconds = float(facts["seconds"])
    if int(facts["jobs"]) != results.jobs:
        raise rig.BenchmarkError(f"{facts['jobs']} of {results.jobs} jobs came back")
    say(
        f"started again in {server.started_in:.1f} s, of that {results.recovery_seconds:.1f} s for "
        f"{results.records:,} records; {results.bytes_started / GIB:.2f} GiB resident"
    )


def work(
    setting: Setting, many: rig.RunningServer, few: rig.RunningServer, results: Results
) -> tuple[int, int]:
    """The same cycles at both depths, in turns. Gives how many jobs went through each."""
    done = [0, 0]
    for _ in range(setting.rounds):
        for shape in SHAPES:
            few_jobs = min(FEW_JOBS, setting.jobs)
            both = ((many, results.with_many, setting.jobs), (few, results.with_few, few_jobs))
            for at, (server, into, waiting) in enumerate(both):
                serial = waiting + done[at]
                say(f"cycles, {shape}, {waiting:,} waiting")
                with probed(setting, server, f"cycles {shape}, {waiting:,} waiting", results):
                    run = setting.generator.cycle(
                        server,
                        setting.load(shape),
                        seconds=setting.seconds,
                        warmup=0.5,
                        serial=serial,
                    )
                done[at] += run.pushed
                into.setdefault(shape, []).append(run.cycles_per_s)
                say(f"  {run.cycles_per_s:,.0f} a second")
    return done[0], done[1]


def drain(
    setting: Setting,
    many: rig.RunningServer,
    few: rig.RunningServer,
    done: tuple[int, int],
    results: Results,
) -> None:
    """Take and finish everything; the generator sees to it that nothing is missing or twice."""
    few_jobs = min(FEW_JOBS, setting.jobs)
    for server, waiting, gone in ((few, few_jobs, done[1]), (many, setting.jobs, done[0])):
        say(f"draining {waiting:,} jobs")
        with probed(setting, server, f"drain of {waiting:,}", results):
            run = setting.generator.drain(server, setting.bulk, expect=waiting, first_id=gone + 1)
        say(f"  {run.cycles_per_s:,.0f} a second")
        if server is many:
            results.drain_per_s = run.cycles_per_s
        else:
            results.drain_few_per_s = run.cycles_per_s
    results.bytes_drained = readings.resident_bytes(many.pid)


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def rows(results: Results) -> list[list[str]]:
    records_per_s = results.records / results.recovery_seconds
    peak = max(results.peak_bytes, results.peak_bytes_started)
    table = [
        ["jobs pushed a second", f"{results.push_per_s:,.0f}", "", ""],
        memory_row("resident memory after pushing", results.bytes_pushed, results),
        memory_row("resident memory after the restart", results.bytes_started, results),
        [
            "most resident memory at any time",
            f"{peak / GIB:.2f} GiB",
            f"{peak / results.jobs:,.0f} bytes a job",
            f"at most {MOST_BYTES / GIB:.0f} GiB: {verdict(peak <= MOST_BYTES)}",
        ],
        [
            f"recovery of {results.records:,} records",
            f"{records_per_s:,.0f} records/s",
            f"{results.recovery_seconds:.1f} s, {results.start_seconds:.1f} s until it accepts",
            f"at least {LEAST_RECORDS_PER_S:,.0f}: {verdict(records_per_s >= LEAST_RECORDS_PER_S)}",
        ],
    ]
    for shape in results.with_many:
        many, few = results.with_many[shape], results.with_few[shape]
        ratio = results.ratio(shape)
        table.append(
            [
                f"cycles/s with {results.jobs:,} to {FEW_JOBS:,} waiting, connections {shape}",
                f"{ratio:.2f}",
                f"{spread(many)} to {spread(few)}",
                f"at least {LEAST_RATIO}: {verdict(ratio >= LEAST_RATIO)}",
            ]
        )
    table.append(
        [
            "jobs taken and finished a second while draining",
            f"{results.drain_per_s:,.0f}",
            "each came once and in order",
            "",
        ]
    )
    return table + [pause_row(pause) for pause in longest_pauses(results.pauses)]


def spread(found: list[float]) -> str:
    return f"{statistics.median(found):,.0f} ({min(found):,.0f} - {max(found):,.0f})"


def memory_row(what: str, found: int, results: Results) -> list[str]:
    return [what, f"{found / GIB:.2f} GiB", f"{found / results.jobs:,.0f} bytes a job", ""]


def longest_pauses(pauses: list[Pause]) -> list[Pause]:
    """One for each phase: the round with the longest one."""
    found: dict[str, Pause] = {}
    for pause in pauses:
        known = found.get(pause.phase)
        if known is None or pause.longest_ms > known.longest_ms:
            found[pause.phase] = pause
    return list(found.values())


def pause_row(pause: Pause) -> list[str]:
    most = f"longest answer {pause.answer_ms:.1f} ms, p99.9 {pause.p999_ms:.1f}, median "
    most += f"{pause.p50_ms:.2f} of {pause.asked:,}"
    return [
        f"longest pause of the loop: {pause.phase}",
        f"{pause.longest_ms:.1f} ms",
        f"{most}; {pause.off_processor_s:.1f} s without a processor",
        f"at most {MOST_PAUSE_MS:.0f} ms: {verdict(pause.longest_ms <= MOST_PAUSE_MS)}",
    ]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000_000, help="waiting jobs (10000000)")
    parser.add_argument("--payload", type=int, default=1024, help="bytes of each payload (1024)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of cycles (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round (3)")
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="sync")
    parser.add_argument("--form", choices=("compiled", "interpreted"), default="compiled")
    parser.add_argument("--payload-memory", default="256MiB", help="the server's option (256MiB)")
    # A flush on the loop would be a pause of it, and hide those that are meant here.
    parser.add_argument("--sync-mode", default="thread", help="the server's option (thread)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument("--results", type=Path, default=rig.DEFAULT_DIRECTORY / "deep.json")
    return parser.parse_args()


def make_setting(arguments: argparse.Namespace) -> Setting:
    if not rig.is_built(arguments.form):
        where = rig.code_path(arguments.form).relative_to(rig.ROOT)
        raise rig.BenchmarkError(f"the {arguments.form} form is not built in {where}")
    options = ("--payload-memory", arguments.payload_memory, "--sync-mode", arguments.sync_mode)
    return Setting(
        server=rig.Taskyard(arguments.form, arguments.durability, options, first=True),
        generator=rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY)),
        directory=arguments.dir,
        jobs=arguments.jobs,
        payload=arguments.payload,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )


def main() -> int:
    arguments = read_arguments()
    try:
        setting = make_setting(arguments)
        facts = readings.machine(setting.directory)
        results = measure(setting)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}")
    print(f"{setting.server.name}, durability {setting.server.durability}\n")
    print(rig.markdown_table(["what", "figure", "detail", "bar"], rows(results)))
    about = {"machine": facts, "server": asdict(setting.server)}
    rig.write_results(arguments.results, {**about, **asdict(results)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
