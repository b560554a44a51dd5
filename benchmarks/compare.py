"""Two builds of Taskyard side by side: the cycles a second of one as a ratio to the other.

    python benchmarks/compare.py --a ../before --b . --bar 0.97

Each tree is a checkout whose compiled form is in build/compiled (`make compiled`). The two take
turns, and which of them begins changes from round to round. The ratio is that of each round,
since the two halves of a round lie next to each other in time; its median and spread are given.
With --instructions it is not time that is compared but what valgrind counts.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

# So that the file can be started by its path as well as with -m.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import readings, rig
from benchmarks.side_by_side.shapes import SHAPES

HELP_SECONDS: Final = 30.0
FEW, MANY = 5_000, 25_000
"""Cycles of the two runs under valgrind, which is some fifty times slower."""
COUNTING: Final = (
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
)
DRIVERS: Final[tuple[rig.Dialect, ...]] = (
    "masenko",
    "workq",
    "lists",
    "pqueue",
    "jobs",
    "jobs-batch",
)


@dataclass(frozen=True, slots=True)
class Tree:
    """A checkout of Taskyard, and what can be run of it."""

    letter: str
    code: Path
    revision: str
    listeners: tuple[rig.Listener, ...]
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """All the rounds of both trees in one shape."""

    shape: str
    a: list[rig.Measurement] = field(default_factory=list)
    b: list[rig.Measurement] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Of each round, b to a."""
        pairs = zip(self.a, self.b, strict=True)
        return [b.cycles_per_s / a.cycles_per_s for a, b in pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def ratio_of_medians(self) -> float:
        return rate(self.b) / rate(self.a)

    @property
    def ratio_of_costs(self) -> float:
        """Processor time of the server for a cycle, b to a: what else runs hardly touches it."""
        return cost(self.b) / cost(self.a)


def rate(rounds: Sequence[rig.Measurement]) -> float:
    return statistics.median(taken.cycles_per_s for taken in rounds)


def cost(rounds: Sequence[rig.Measurement]) -> float:
    """Microseconds of the server's processor time for a cycle."""
    return statistics.median(taken.server_cores / taken.cycles_per_s * 1e6 for taken in rounds)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--a", type=Path, required=True, metavar="TREE", help="the one before")
    parser.add_argument("--b", type=Path, required=True, metavar="TREE", help="the one after")
    parser.add_argument("--a-arg", action="append", default=[], help="an argument of that server")
    parser.add_argument("--b-arg", action="append", default=[], help="an argument of that server")
    parser.add_argument("--form", choices=("compiled", "interpreted"), default="compiled")
    parser.add_argument("--dialect", choices=DRIVERS, default="masenko")
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="sync")
    parser.add_argument("--shape", default="c50,c50x100", help="of " + ",".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=10, help="of each shape, an even number (10)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (2)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds not counted (0.5)")
    parser.add_argument("--payload", type=int, default=200, help="bytes of each payload (200)")
    parser.add_argument(
        "--instructions", action="store_true", help="count with valgrind, on a busy machine"
    )
    parser.add_argument("--bar", type=float, help="the least ratio that is good enough")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=rig.DEFAULT_DIRECTORY / "compare.json",
        help="the results file",
    )
    return parser.parse_args()


def open_tree(letter: str, path: Path, form: rig.Form, options: Sequence[str]) -> Tree:
    code = path.resolve() / rig.code_path(form).relative_to(rig.ROOT)
    if not rig.holds(code, form):
        raise rig.BenchmarkError(f"the {form} form of {path} is not built in {code}")
    asked = subprocess.run(
        [sys.executable, "-m", "taskyard", "serve", "--help"],
        capture_output=True,
        text=True,
        timeout=HELP_SECONDS,
        env={**os.environ, "PYTHONPATH": str(code)},
        cwd=path,
        check=False,
    )
    if asked.returncode != 0:
        raise rig.BenchmarkError(f"the server of {path} does not start: {asked.stderr.strip()}")
    # An older tree does not know every listener of this one.
    listeners = tuple(name for name in rig.LISTENERS if f"--{name}-port" in asked.stdout)
    return Tree(letter, code, revision(path), listeners, tuple(options))


def check_dialect(trees: Sequence[Tree], dialect: rig.Dialect) -> None:
    for tree in trees:
        if rig.LISTENER_OF[dialect] not in tree.listeners:
            raise rig.BenchmarkError(f"the server of {tree.letter} does not speak {dialect}")


def revision(path: Path) -> str:
    command = ["git", "-C", str(path), "describe", "--always", "--dirty", "--abbrev=10"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return run.stdout.strip() or "unknown"


def measure(
    trees: tuple[Tree, Tree], arguments: argparse.Namespace, generator: rig.Generator
) -> list[Case]:
    if arguments.rounds < 2 or arguments.rounds % 2:
        raise rig.BenchmarkError("--rounds: each tree goes first in half of them, so make it even")
    shapes = rig.choose_terms([arguments.shape], [list(SHAPES)])[0]
    cases = [Case(shape) for shape in shapes]
    began = time.monotonic()
    for number in range(arguments.rounds):
        for case in cases:
            # Who comes second finds the machine as the first has left it; so they swap.
            for tree in trees if number % 2 == 0 else trees[::-1]:
                taken = measure_once(tree, case.shape, arguments, generator)
                (case.a if tree.letter == "a" else case.b).append(taken)
            print(
                f"[{time.monotonic() - began:.0f} s] round {number + 1} {case.shape}: "
                f"a {case.a[-1].cycles_per_s:,.0f}, b {case.b[-1].cycles_per_s:,.0f} cycles/s, "
                f"ratio {case.ratios[-1]:.3f}",
                flush=True,
            )
    return cases


def measure_once(
    tree: Tree, shape: str, arguments: argparse.Namespace, generator: rig.Generator
) -> rig.Measurement:
    connections, depth = SHAPES[shape]
    load = rig.Load(connections=connections, depth=depth, payload=arguments.payload)
    server = server_of(tree, arguments)
    with rig.scratch(arguments.dir) as directory, server.run(directory) as running:
        return generator.cycle(running, load, seconds=arguments.seconds, warmup=arguments.warmup)


def server_of(
    tree: Tree,
    arguments: argparse.Namespace,
    *,
    under: tuple[str, ...] = (),
    options: tuple[str, ...] = (),
) -> rig.Taskyard:
    return rig.Taskyard(
        arguments.form,
        arguments.durability,
        options=options + tree.options,
        dialect=arguments.dialect,
        code=tree.code,
        listeners=tree.listeners,
        under=under,
    )


def count_instructions(
    trees: tuple[Tree, Tree], arguments: argparse.Namespace, generator: rig.Generator
) -> dict[str, tuple[float, float]]:
    """For each shape the instructions of a cycle, of a and of b."""
    if shutil.which("valgrind") is None:
        raise rig.BenchmarkError("--instructions needs valgrind, and it was not found")
    shapes = rig.choose_terms([arguments.shape], [list(SHAPES)])[0]
    found: dict[str, tuple[float, float]] = {}
    for shape in shapes:
        a, b = (count_of_cycle(tree, shape, arguments, generator) for tree in trees)
        found[shape] = a, b
        print(f"{shape}: a {a:,.0f}, b {b:,.0f} instructions, ratio {b / a:.3f}", flush=True)
    return found


def count_of_cycle(
    tree: Tree, shape: str, arguments: argparse.Namespace, generator: rig.Generator
) -> float:
    """Two runs of different length: the difference has neither the start nor the end in it."""
    few, many = (count_of_run(tree, shape, n, arguments, generator) for n in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def count_of_run(
    tree: Tree, shape: str, cycles: int, arguments: argparse.Namespace, generator: rig.Generator
) -> int:
    connections, depth = SHAPES[shape]
    load = rig.Load(connections=connections, depth=depth, payload=arguments.payload)
    # Else each would choose by a flush time that valgrind has distorted, and not both the same.
    server = server_of(tree, arguments, under=COUNTING, options=("--sync-mode", "inline"))
    with rig.scratch(arguments.dir) as directory:
        with server.run(directory) as running:
            generator.cycles(running, load, cycles)
        log = (directory / "log").read_text(errors="replace")
    counted = re.search(r"I +refs: +([\d,]+)", log)
    if counted is None:
        raise rig.BenchmarkError(f"valgrind has counted nothing:\n{log[-2000:]}")
    return int(counted[1].replace(",", ""))


def table(cases: Sequence[Case]) -> str:
    header = ["connections", "a, cycles/s", "b, cycles/s", "ratio of medians"]
    header += ["ratio of each round", "least - most", "a, server µs", "b, server µs", "ratio"]
    rows = []
    for case in cases:
        connections, depth = SHAPES[case.shape]
        rows.append(
            [
                f"{connections}" if depth == 1 else f"{connections} x {depth} deep",
                f"{rate(case.a):,.0f}",
                f"{rate(case.b):,.0f}",
                f"{case.ratio_of_medians:.3f}",
                f"{case.ratio:.3f}",
                f"{min(case.ratios):.3f} - {max(case.ratios):.3f}",
                f"{cost(case.a):.2f}",
                f"{cost(case.b):.2f}",
                f"{case.ratio_of_costs:.3f}",
            ]
        )
    return rig.markdown_table(header, rows)


def verdicts(cases: Sequence[Case], bar: float | None) -> list[str]:
    if bar is None:
        return []
    return [
        f"bar {case.shape}: {case.ratio_of_medians:.3f}, at least {bar:.3f} wanted: "
        + ("reached" if case.ratio_of_medians >= bar else "MISSED")
        for case in cases
    ]


def report_instructions(
    trees: tuple[Tree, Tree],
    arguments: argparse.Namespace,
    counted: dict[str, tuple[float, float]],
) -> int:
    print()
    for tree in trees:
        print(" ".join([f"{tree.letter}: {tree.revision}", *tree.options]))
    print(f"{arguments.form}, {arguments.dialect}, {arguments.durability}\n")
    header = ["shape", "a, instructions a cycle", "b, instructions a cycle", "ratio"]
    rows = [[name, f"{a:,.0f}", f"{b:,.0f}", f"{b / a:.3f}"] for name, (a, b) in counted.items()]
    print(rig.markdown_table(header, rows))
    return 0


def main() -> int:
    arguments = read_arguments()
    try:
        trees = (
            open_tree("a", arguments.a, arguments.form, arguments.a_arg),
            open_tree("b", arguments.b, arguments.form, arguments.b_arg),
        )
        check_dialect(trees, arguments.dialect)
        generator = rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY))
        if arguments.instructions:
            counted = count_instructions(trees, arguments, generator)
            return report_instructions(trees, arguments, counted)
        facts = readings.machine(arguments.dir)
        cases = measure(trees, arguments, generator)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}, {os.getloadavg()[0]:.1f} at the end")
    for tree in trees:
        print(" ".join([f"{tree.letter}: {tree.revision}", *tree.options]))
    print(f"{arguments.form}, {arguments.dialect}, {arguments.durability}; ", end="")
    print(f"{arguments.payload}-byte payloads; ", end="")
    print(f"{arguments.rounds} rounds of {arguments.seconds:g} s\n\n{table(cases)}\n")
    for line in verdicts(cases, arguments.bar):
        print(line)
    results: dict[str, object] = {
        "machine": facts,
        "trees": {tree.letter: tree.revision for tree in trees},
        "form": arguments.form,
        "dialect": arguments.dialect,
        "durability": arguments.durability,
        "cases": [
            {
                **asdict(case),
                "ratio_of_medians": case.ratio_of_medians,
                "ratio": case.ratio,
                "ratio_of_costs": case.ratio_of_costs,
            }
            for case in cases
        ],
    }
    rig.write_results(arguments.results, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
