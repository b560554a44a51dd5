"""`python -m benchmarks.soak`: does the journal stay small, and is nothing lost on the way?"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks import readings, rig
from benchmarks.soak import report
from benchmarks.soak.cost import Cost, measure_cost
from benchmarks.soak.plan import PATTERNS, Sizes, make_plan
from benchmarks.soak.run import Result, Setting, say, soak

ALL: Final = (*PATTERNS, "cost")
COST_SHARE: Final = 0.3
"""Of the time of `mixed`."""
UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size(text: str) -> int:
    found = re.fullmatch(r"(\d+) ?(|KiB|MiB|GiB)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is no size, as 8MiB")
    return int(found[1]) * UNITS[found[2]]


def shape(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text} is not connections and depth, as 50x10")
    return int(found[1]), int(found[2])


def patterns(text: str) -> list[str]:
    words = text.split(",")
    for word in words:
        if word not in ALL:
            raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(ALL)}")
    return words


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument(
        "--pattern",
        type=patterns,
        default=["mixed"],
        metavar="WORD,...",
        help=f"of {', '.join(ALL)}",
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="of each pattern (300)")
    parser.add_argument(
        "--out", type=Path, default=rig.ROOT / "build" / "soak", help="(build/soak)"
    )
    parser.add_argument(
        "--kill", type=float, default=0.0, metavar="EVERY", help="kill -9 after so many seconds"
    )
    parser.add_argument("--segment-size", type=size, default="8MiB", help="of the server (8MiB)")
    parser.add_argument("--dead-bytes", type=size, default="8MiB", help="of the server (8MiB)")
    parser.add_argument(
        "--serve-arg",
        action="append",
        default=[],
        help="one more argument of the server: --serve-arg=--sync-mode --serve-arg=thread",
    )
    parser.add_argument(
        "--off-arg",
        action="append",
        default=[],
        help="an argument with which the server does not compact; the cost is measured against it",
    )
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="sync")
    parser.add_argument("--form", choices=("compiled", "interpreted"), default="compiled")
    parser.add_argument("--churn", type=shape, default="50x10", help="of the short jobs (50x10)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the jobs that are kept (1)")
    parser.add_argument("--delayed", type=int, default=300_000, help="jobs of 200 bytes (300000)")
    parser.add_argument("--backlog", type=int, default=50_000, help="jobs of 1 KiB (50000)")
    parser.add_argument("--burst", type=int, default=200_000, help="jobs of 1 KiB (200000)")
    parser.add_argument(
        "--parked", type=int, default=50_000, help="jobs of 1 KiB, for cost (50000)"
    )
    parser.add_argument("--no-cost", action="store_true", help="mixed without measuring the cost")
    parser.add_argument("--disk-limit", type=size, default="20GiB", help="give up beyond (20GiB)")
    return parser.parse_args()


def make_setting(arguments: argparse.Namespace) -> Setting:
    form: rig.Form = arguments.form
    if not rig.is_built(form):
        raise rig.BenchmarkError(f"the {form} form is not built in {rig.code_path(form)}")
    if arguments.kill and arguments.durability == "memory":
        raise rig.BenchmarkError("with durability memory nothing outlives a kill")
    options = ["--segment-size", str(arguments.segment_size)]
    options += ["--dead-bytes", str(arguments.dead_bytes), *arguments.serve_arg]
    connections, depth = arguments.churn
    return Setting(
        server=rig.Taskyard(form, arguments.durability, tuple(options)),
        generator=rig.compile_generator(rig.DEFAULT_DIRECTORY),
        directory=arguments.out,
        churn=rig.Load(connections, depth),
        dead_limit=arguments.dead_bytes,
        disk_limit=arguments.disk_limit,
        kill_every=arguments.kill,
    )


def run(arguments: argparse.Namespace, setting: Setting) -> tuple[list[Result], Cost | None]:
    scale: float = arguments.scale
    sizes = Sizes(
        delayed=round(arguments.delayed * scale),
        backlog=round(arguments.backlog * scale),
        burst=round(arguments.burst * scale),
    )
    words: list[str] = arguments.pattern
    # A server that is killed all the time has no throughput to compare.
    mixed_cost = "mixed" in words and not arguments.no_cost and not arguments.kill
    cost_share = COST_SHARE if mixed_cost and "cost" not in words else 0.0
    results: list[Result] = []
    for word in words:
        if word == "cost":
            continue
        seconds = arguments.seconds * (1 - cost_share if word == "mixed" else 1)
        results.append(soak(setting, word, make_plan(word, seconds, sizes)))
        if results[-1].problem:
            return results, None
    if not cost_share and "cost" not in words:
        return results, None
    cost_seconds = arguments.seconds * (cost_share or 1)
    parked = round(arguments.parked * scale)
    return results, measure_cost(setting, cost_seconds, parked, tuple(arguments.off_arg))


def write(
    arguments: argparse.Namespace,
    setting: Setting,
    facts: dict[str, object],
    results: Sequence[Result],
    cost: Cost | None,
) -> None:
    out: Path = arguments.out
    server = f"{setting.server.name}, durability {setting.server.durability}, "
    server += " ".join(setting.server.options)
    tables = report.summary(results, cost, arguments.segment_size)
    text = f"# Soak\n\n{readings.describe_machine(facts)}\n\n{server}\n\n{tables}\n"
    (out / "soak.md").write_text(text)
    for result in results:
        name = "soak.svg" if len(results) == 1 else f"soak-{result.pattern}.svg"
        (out / name).write_text(report.chart(result, f"Soak: {result.pattern}").svg())
    print(f"\n{text}")
    about = {"machine": facts, "server": asdict(setting.server)}
    patterns = [asdict(result) for result in results]
    costs = None if cost is None else cost.data()
    rig.write_results(out / "soak.json", {**about, "patterns": patterns, "cost": costs})


def main() -> int:
    arguments = read_arguments()
    try:
        setting = make_setting(arguments)
        facts = readings.machine(setting.directory)
        say(readings.describe_machine(facts))
        results, cost = run(arguments, setting)
    except rig.BenchmarkError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    write(arguments, setting, facts, results, cost)
    return 1 if any(result.problem for result in results) else 0


# The processes of the soak are spawned, and import this module under another name.
if __name__ == "__main__":
    sys.exit(main())
