"""What a million waiting jobs cost Taskyard: throughput, memory, and the time to come back.

Three parts, each on fresh data directories: `memory` (resident bytes per waiting job),
`recovery` (a restart after kill -9, of a log of pushes and of one of whole cycles), and
`throughput` (the same cycles with many and with few jobs waiting, in turns).
"""

import argparse
import json
import signal
import socket
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# So that the file can be started by its path as well as with -m.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import readings, rig

PARTS = ("memory", "recovery", "throughput")
FEW_JOBS = 1000
SHAPES: dict[str, tuple[int, int]] = {"50": (50, 1), "50 x 100 deep": (50, 100)}
# A push, a lease and a finish are one record each.
RECORDS_PER_CYCLE = 3

MOST_BYTES_PER_JOB = 600.0
LEAST_RECORDS_PER_S = 200_000.0
LEAST_RATIO = 0.9


@dataclass(frozen=True, slots=True)
class Memory:
    jobs: int
    payload: int
    bytes_before: int
    bytes_full: int

    @property
    def bytes_per_job(self) -> float:
        return (self.bytes_full - self.bytes_before) / self.jobs


@dataclass(frozen=True, slots=True)
class Recovery:
    log: str
    records: int
    jobs_waiting: int
    seconds: list[float]
    """From the start of the process to the ports file, one a round."""
    empty_seconds: float
    """The same on an empty directory."""

    @property
    def records_per_s(self) -> float:
        return self.records / statistics.median(self.seconds)

    @property
    def records_per_s_without_start(self) -> float:
        return self.records / max(statistics.median(self.seconds) - self.empty_seconds, 0.001)


@dataclass(frozen=True, slots=True)
class Throughput:
    shape: str
    many: int
    few: int
    with_many: list[float]
    with_few: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.with_many) / statistics.median(self.with_few)


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
        """The load that fills a server quickest."""
        return rig.Load(connections=50, depth=100, payload=self.payload)


def say(text: str) -> None:
    print(text, flush=True)


def jobs_ready(server: rig.RunningServer) -> int:
    """What INFO says is waiting, so that no figure is taken of a server that lost its jobs."""
    with socket.create_connection((rig.HOST, server.port), timeout=30.0) as connection:
        connection.sendall(b"INFO {}\n")
        reply = connection.makefile("rb").readline()
    if not reply.startswith(b"OK "):
        raise rig.BenchmarkError(f"INFO was answered with {reply!r}")
    return sum(queue["ready"] for queue in json.loads(reply[3:])["queues"])


def expect_ready(server: rig.RunningServer, jobs: int) -> None:
    ready = jobs_ready(server)
    if ready != jobs:
        raise rig.BenchmarkError(f"{ready} jobs are waiting, and there should be {jobs}")


def measure_memory(setting: Setting) -> Memory:
    with rig.scratch(setting.directory) as directory, setting.server.run(directory) as server:
        # What the first jobs bring into memory once is not the price of a waiting job.
        setting.generator.cycles(server, setting.bulk, 10_000)
        before = readings.resident_bytes(server.pid)
        filled = setting.generator.fill(server, setting.bulk, setting.jobs)
        say(f"memory: pushed {setting.jobs:,} jobs, {filled.cycles_per_s:,.0f} a second")
        expect_ready(server, setting.jobs)
        return Memory(setting.jobs, setting.payload, before, readings.resident_bytes(server.pid))


def measure_recovery(setting: Setting) -> list[Recovery]:
    empty = empty_start(setting)
    cycles = max(setting.jobs // RECORDS_PER_CYCLE, 1)
    with rig.scratch(setting.directory) as directory:
        with setting.server.run(directory, end_with=signal.SIGKILL) as server:
            setting.generator.fill(server, setting.bulk, setting.jobs)
        pushes = restarts(setting, directory, "pushes", setting.jobs, setting.jobs, empty)
    with rig.scratch(setting.directory) as directory:
        with setting.server.run(directory, end_with=signal.SIGKILL) as server:
            setting.generator.cycles(server, setting.bulk, cycles)
        records = cycles * RECORDS_PER_CYCLE
        mixed = restarts(setting, directory, "push + lease + finish", records, 0, empty)
    return [pushes, mixed]


def empty_start(setting: Setting) -> float:
    taken: list[float] = []
    for _ in range(setting.rounds):
        with rig.scratch(setting.directory) as directory, setting.server.run(directory) as server:
            taken.append(server.started_in)
    return statistics.median(taken)


def restarts(
    setting: Setting, directory: Path, log: str, records: int, waiting: int, empty: float
) -> Recovery:
    taken: list[float] = []
    for _ in range(setting.rounds):
        with setting.server.run(directory, end_with=signal.SIGKILL) as server:
            taken.append(server.started_in)
            expect_ready(server, waiting)
        say(f"recovery: {records:,} records ({log}) in {taken[-1]:.2f} s")
    return Recovery(log, records, waiting, taken, empty)


def measure_throughput(setting: Setting) -> list[Throughput]:
    few = min(FEW_JOBS, setting.jobs)
    found = [Throughput(shape, setting.jobs, few, [], []) for shape in SHAPES]
    # Both servers run all the time, since filling one takes far longer than a round; the one
    # whose turn it is not is idle.
    with (
        rig.scratch(setting.directory) as many_directory,
        rig.scratch(setting.directory) as few_directory,
        setting.server.run(many_directory) as with_many,
        setting.server.run(few_directory) as with_few,
    ):
        setting.generator.fill(with_many, setting.bulk, setting.jobs)
        setting.generator.fill(with_few, setting.bulk, few)
        for _ in range(setting.rounds):
            for case in found:
                case.with_many.append(cycles_per_s(setting, with_many, case.shape))
                case.with_few.append(cycles_per_s(setting, with_few, case.shape))
                say(
                    f"throughput: {case.shape}: {case.with_many[-1]:,.0f} cycles/s with "
                    f"{case.many:,} waiting, {case.with_few[-1]:,.0f} with {case.few:,}"
                )
        expect_ready(with_many, setting.jobs)
        expect_ready(with_few, few)
    return found


def cycles_per_s(setting: Setting, server: rig.RunningServer, shape: str) -> float:
    connections, depth = SHAPES[shape]
    load = rig.Load(connections=connections, depth=depth, payload=setting.payload)
    run = setting.generator.cycle(server, load, seconds=setting.seconds, warmup=0.5)
    return run.cycles_per_s


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def memory_row(memory: Memory) -> list[str]:
    return [
        f"resident memory a waiting job, {memory.jobs:,} jobs of {memory.payload} bytes",
        f"{memory.bytes_per_job:,.0f} bytes",
        f"{memory.bytes_before / 2**20:,.0f} MiB before, {memory.bytes_full / 2**20:,.0f} full",
        f"at most {MOST_BYTES_PER_JOB:,.0f}: {verdict(memory.bytes_per_job <= MOST_BYTES_PER_JOB)}",
    ]


def recovery_row(recovery: Recovery) -> list[str]:
    seconds = statistics.median(recovery.seconds)
    reached = recovery.records_per_s >= LEAST_RECORDS_PER_S
    return [
        f"recovery of {recovery.records:,} records ({recovery.log})",
        f"{recovery.records_per_s:,.0f} records/s",
        (
            f"{seconds:.2f} s to the ports file, {recovery.empty_seconds:.2f} s on an empty "
            f"directory, {recovery.records_per_s_without_start:,.0f} records/s without that"
        ),
        f"at least {LEAST_RECORDS_PER_S:,.0f}: {verdict(reached)}",
    ]


def throughput_row(throughput: Throughput) -> list[str]:
    many, few = throughput.with_many, throughput.with_few
    return [
        (
            f"cycles/s with {throughput.many:,} waiting to those with {throughput.few:,}, "
            f"connections {throughput.shape}"
        ),
        f"{throughput.ratio:.2f}",
        (
            f"{statistics.median(many):,.0f} ({min(many):,.0f} - {max(many):,.0f}) to "
            f"{statistics.median(few):,.0f} ({min(few):,.0f} - {max(few):,.0f})"
        ),
        f"at least {LEAST_RATIO}: {verdict(throughput.ratio >= LEAST_RATIO)}",
    ]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="PART,...", help=str(PARTS))
    parser.add_argument("--jobs", type=int, default=1_000_000, help="waiting jobs (1000000)")
    parser.add_argument("--payload", type=int, default=200, help="bytes of each payload (200)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds and restarts (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round (3)")
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="sync")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument("--payload-memory", default="1GiB", help="the server's option (1GiB)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument("--results", type=Path, default=rig.DEFAULT_DIRECTORY / "depth.json")
    return parser.parse_args()


def make_setting(arguments: argparse.Namespace) -> Setting:
    options = ("--payload-memory", arguments.payload_memory)
    return Setting(
        server=rig.Taskyard(rig.choose_form(arguments.form), arguments.durability, options),
        generator=rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY)),
        directory=arguments.dir,
        jobs=arguments.jobs,
        payload=arguments.payload,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
    )


def measure(setting: Setting, parts: Sequence[str]) -> tuple[list[list[str]], dict[str, object]]:
    """The rows of the table, and the same as data."""
    rows: list[list[str]] = []
    data: dict[str, object] = {}
    if "memory" in parts:
        memory = measure_memory(setting)
        rows.append(memory_row(memory))
        data["memory"] = {**asdict(memory), "bytes_per_job": memory.bytes_per_job}
    if "recovery" in parts:
        recoveries = measure_recovery(setting)
        rows += map(recovery_row, recoveries)
        data["recovery"] = [
            {**asdict(each), "records_per_s": each.records_per_s} for each in recoveries
        ]
    if "throughput" in parts:
        throughputs = measure_throughput(setting)
        rows += map(throughput_row, throughputs)
        data["throughput"] = [{**asdict(each), "ratio": each.ratio} for each in throughputs]
    return rows, data


def main() -> int:
    arguments = read_arguments()
    try:
        [parts] = rig.choose_terms(arguments.only, [PARTS])
        if "recovery" in parts and arguments.durability == "memory":
            raise rig.BenchmarkError("with durability memory there is nothing to recover")
        setting = make_setting(arguments)
        facts = readings.machine(setting.directory)
        rows, data = measure(setting, parts)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}")
    print(f"{setting.server.name}, durability {setting.server.durability}\n")
    print(rig.markdown_table(["what", "figure", "detail", "bar"], rows))
    about = {"machine": facts, "server": asdict(setting.server)}
    rig.write_results(arguments.results, {**about, **data})
    return 0


if __name__ == "__main__":
    sys.exit(main())
