"""Whether several broker processes would pay: two servers that know nothing of each other to one.

Two servers with a data directory and a port each, and a load generator for each with half of the
connections: no design of several processes behind one set of ports could be quicker, since
these have nothing to agree on. The load generators run on the same cores, so that beside the plain
ratio their share is taken out: see `Figures`.
"""

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks import readings, rig

SHAPES: Final[dict[str, tuple[int, int]]] = {"c50": (50, 1), "c500": (500, 1), "c50x100": (50, 100)}
DURABILITIES: Final[tuple[rig.Durability, ...]] = ("sync", "memory")
WARMUP_SECONDS: Final = 0.5
LEAST_GAIN: Final = 1.6


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    servers: int
    generators: int


ONE: Final = Side("one", 1, 1)
# Were it the load generator that holds the server back, two of them would get more out of it.
ONE_FOR_TWO: Final = Side("one, two generators", 1, 2)
TWO: Final = Side("two", 2, 2)
SIDES: Final = (ONE, ONE_FOR_TWO, TWO)


@dataclass(frozen=True, slots=True)
class Run:
    """One side under one load, all its servers and generators together."""

    cycles_per_s: float
    server_cores: float
    loop_cores: float
    """Of the servers' main threads alone: one of them has one core at most."""
    generator_cores: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The median of each over the rounds, and what follows from them.

    A server's process has one loop, which runs on one core at a time. Were the generators on
    another machine, n processes on n cores could do n / (processor time of a cycle). That leaves
    out all waiting, for the disk above all, so it is more than there could be.
    """

    cycles_per_s: float
    server_cores: float
    loop_cores: float
    generator_cores: float

    @property
    def server_us(self) -> float:
        """Processor time of the servers for a cycle, all threads."""
        return self.server_cores / self.cycles_per_s * 1e6

    @property
    def loop_us(self) -> float:
        return self.loop_cores / self.cycles_per_s * 1e6


def figures(runs: Sequence[Run]) -> Figures:
    def median(name: str) -> float:
        return float(statistics.median(getattr(run, name) for run in runs))

    return Figures(
        median("cycles_per_s"),
        median("server_cores"),
        median("loop_cores"),
        median("generator_cores"),
    )


def gain(one: Figures, two: Figures) -> float:
    """As measured, with the generators on the same cores."""
    return two.cycles_per_s / one.cycles_per_s


def gain_by_cost(one: Figures, two: Figures, cores: int = 2) -> float:
    """The generators' share taken out of both: the processor time of a cycle alone counts.

    Above `cores` it shows how far off it is: cycles cannot really become cheaper by that.
    """
    return cores / two.server_us * one.loop_us


def gain_over_one(one: Figures, two: Figures, cores: int = 2) -> float:
    """The share taken out of two, which are to wait for nothing; one as it was, and it waits."""
    return cores / two.server_us * 1e6 / one.cycles_per_s


@dataclass(frozen=True, slots=True)
class Setting:
    form: rig.Form
    generator: rig.Generator
    directory: Path
    payload: int
    seconds: float


def measure(setting: Setting, durability: rig.Durability, shape: str, side: Side) -> Run:
    connections, depth = SHAPES[shape]
    load = rig.Load(connections // side.generators, depth, setting.payload)
    with contextlib.ExitStack() as stack:
        servers = []
        for _ in range(side.servers):
            directory = stack.enter_context(rig.scratch(setting.directory))
            taskyard = rig.Taskyard(setting.form, durability)
            servers.append(stack.enter_context(taskyard.run(directory)))
        pool = stack.enter_context(ThreadPoolExecutor(side.generators))
        before, began = spent(servers), time.monotonic()
        running = [
            pool.submit(
                setting.generator.cycle,
                servers[number % side.servers],
                load,
                seconds=setting.seconds,
                warmup=WARMUP_SECONDS,
            )
            for number in range(side.generators)
        ]
        found = [each.result() for each in running]
        elapsed, after = time.monotonic() - began, spent(servers)
    return Run(
        cycles_per_s=sum(each.cycles_per_s for each in found),
        server_cores=(after[0] - before[0]) / elapsed,
        loop_cores=(after[1] - before[1]) / elapsed,
        generator_cores=sum(each.generator_cores for each in found),
    )


def spent(servers: Sequence[rig.RunningServer]) -> tuple[float, float]:
    """Processor seconds of all servers so far: all their threads, and their loops alone."""
    total = sum(readings.cpu_seconds(server.pid) for server in servers)
    return total, sum(readings.loop_seconds(server.pid) for server in servers)


Case = tuple[rig.Durability, str, str]


def measure_all(
    setting: Setting, rounds: int, durabilities: Sequence[rig.Durability], shapes: Sequence[str]
) -> dict[Case, list[Run]]:
    found: dict[Case, list[Run]] = {}
    for _ in range(rounds):
        for durability in durabilities:
            for shape in shapes:
                for side in SIDES:
                    run = measure(setting, durability, shape, side)
                    found.setdefault((durability, shape, side.name), []).append(run)
                    print(
                        f"{durability}, {shape}, {side.name}: {run.cycles_per_s:,.0f} cycles/s, "
                        f"cores {run.server_cores:.2f} + {run.generator_cores:.2f}",
                        flush=True,
                    )
    return found


def table(found: dict[Case, list[Run]]) -> str:
    header = ["durability", "shape", "servers", "cycles/s", "least - most"]
    header += ["server cores", "of that loops", "generator cores", "server µs a cycle"]
    rows = []
    for (durability, shape, side), runs in found.items():
        median = figures(runs)
        rates = [run.cycles_per_s for run in runs]
        rows.append(
            [
                durability,
                shape,
                side,
                f"{median.cycles_per_s:,.0f}",
                f"{min(rates):,.0f} - {max(rates):,.0f}",
                f"{median.server_cores:.2f}",
                f"{median.loop_cores:.2f}",
                f"{median.generator_cores:.2f}",
                f"{median.server_us:.1f}",
            ]
        )
    return rig.markdown_table(header, rows)


def gains(found: dict[Case, list[Run]]) -> str:
    header = ["durability", "shape", "two to one", "to one with two generators"]
    header += ["generators' share taken out: by cost", "over one as it was"]
    rows = []
    for durability, shape in dict.fromkeys(case[:2] for case in found):
        one, other, two = (figures(found[durability, shape, side.name]) for side in SIDES)
        rows.append(
            [
                durability,
                shape,
                f"{gain(one, two):.2f}",
                f"{gain(other, two):.2f}",
                f"{gain_by_cost(one, two):.2f}",
                f"{gain_over_one(one, two):.2f}",
            ]
        )
    return rig.markdown_table(header, rows)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words = (*DURABILITIES, *SHAPES)
    parser.add_argument("--only", action="append", default=[], metavar="WORD,...", help=str(words))
    parser.add_argument("--rounds", type=int, default=3, help="of each case (3)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round (2)")
    parser.add_argument("--payload", type=int, default=200, help="bytes of each payload (200)")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument("--results", type=Path, default=rig.DEFAULT_DIRECTORY / "processes.json")
    return parser.parse_args()


def main() -> int:
    arguments = read_arguments()
    try:
        chosen, shapes = rig.choose_terms(arguments.only, [DURABILITIES, tuple(SHAPES)])
        durabilities = [each for each in DURABILITIES if each in chosen]
        setting = Setting(
            form=rig.choose_form(arguments.form),
            generator=rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY)),
            directory=arguments.dir,
            payload=arguments.payload,
            seconds=arguments.seconds,
        )
        facts = readings.machine(setting.directory)
        found = measure_all(setting, arguments.rounds, durabilities, shapes)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}")
    print(f"taskyard-{setting.form}\n\n{table(found)}\n\n{gains(found)}")
    print(f"\nThe bar is {LEAST_GAIN} with the generators' share taken out.")
    runs = {" ".join(case): [asdict(run) for run in runs] for case, runs in found.items()}
    rig.write_results(arguments.results, {"machine": facts, "form": setting.form, "runs": runs})
    return 0


if __name__ == "__main__":
    sys.exit(main())
