"""Where the time of a cycle goes: the real server under load, seen by perf.

    python -m benchmarks.profile --shape c1,c50 --protocol masenko

Gives for each shape the microseconds of a cycle by phase, the functions that take most, and what
was waited for. With a compiled form in build/compiled that one is profiled.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from benchmarks import readings, rig
from benchmarks.profile import recording, report
from benchmarks.profile.tally import add_up
from benchmarks.side_by_side.shapes import SHAPES


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--shape", default=",".join(SHAPES), help="of " + ",".join(SHAPES))
    dialects = [name for name in get_args(rig.Dialect) if name != "http"]
    parser.add_argument("--dialect", choices=dialects, default="masenko")
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="sync")
    parser.add_argument("--form", choices=("compiled", "interpreted"))
    parser.add_argument("--payload", type=int, default=200, help="bytes of each payload (200)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (4)")
    parser.add_argument("--warmup", type=float, default=1.0, help="seconds not counted (1)")
    parser.add_argument("--arg", action="append", default=[], help="an argument of the server")
    parser.add_argument("--top", type=int, default=25, help="how many functions are shown (25)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=rig.DEFAULT_DIRECTORY / "profile.json",
        help="the results file",
    )
    return parser.parse_args()


def asks(arguments: argparse.Namespace) -> list[recording.Ask]:
    shapes = rig.choose_terms([arguments.shape], [list(SHAPES)])[0]
    return [
        recording.Ask(
            dialect=arguments.dialect,
            shape=shape,
            durability=arguments.durability,
            form=rig.choose_form(arguments.form),
            payload=arguments.payload,
            seconds=arguments.seconds,
            warmup=arguments.warmup,
            options=tuple(arguments.arg),
        )
        for shape in shapes
    ]


def run(arguments: argparse.Namespace) -> None:
    recording.require_perf()
    wanted = asks(arguments)
    generator = rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY))
    facts = readings.machine(arguments.dir)
    print(f"{readings.describe_machine(facts)}\n", flush=True)
    results: list[dict[str, object]] = []
    for ask in wanted:
        taken = recording.record(ask, generator, arguments.dir)
        profile = add_up(taken, report.compiled_modules(ask.form))
        print(report.text(taken, profile, arguments.top), flush=True)
        results.append(
            {
                "case": asdict(ask),
                "flushed": taken.flushed,
                "cycles_per_s": taken.plain.cycles_per_s,
                "cycles_per_s_profiled": taken.profiled.cycles_per_s,
                "profile": asdict(profile),
            }
        )
    rig.write_results(arguments.results, {"machine": facts, "cases": results})


def main() -> int:
    try:
        run(read_arguments())
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
