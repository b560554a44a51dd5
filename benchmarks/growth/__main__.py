"""Growth, measured: every bar that Taskyard is held to when there is much of everything.

`python -m benchmarks.growth`. Each part keeps its figures in a file of its own, so that parts can
be run one by one; the page is made of all that are there.
"""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import patience, readings, rig
from benchmarks.growth import report
from benchmarks.growth.compaction import measure_compaction
from benchmarks.growth.crowds import measure_connections, measure_delayed, measure_queues
from benchmarks.growth.memory import measure_memory
from benchmarks.growth.others import Others
from benchmarks.growth.pauses import measure_pauses
from benchmarks.growth.recovery import measure_recovery
from benchmarks.growth.setting import Found, Setting, say
from benchmarks.growth.waiting import measure_waiting

PUBLISHED: Final = rig.ROOT / "docs" / "performance"
MEASURES: Final[dict[str, Callable[[Setting], Found]]] = {
    "waiting": measure_waiting,
    "delayed": measure_delayed,
    "queues": measure_queues,
    "connections": measure_connections,
    "memory": measure_memory,
    "recovery": measure_recovery,
    "compaction": measure_compaction,
    "pauses": measure_pauses,
}
PARTS: Final = tuple(MEASURES)
ROUNDS: Final = 5
TURNS: Final = 12


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="PART,...", help=str(PARTS))
    parser.add_argument("--report", action="store_true", help="measure nothing, make the page")
    parser.add_argument(
        "--jobs",
        type=int,
        default=10_000_000,
        help="of the deepest queue (10000000); everything else shrinks with it",
    )
    parser.add_argument("--payload", type=int, default=200, help="bytes of each payload (200)")
    parser.add_argument("--rounds", type=int, help="(12 of two servers in turns, else 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round (2)")
    patience.add_argument(parser)
    parser.add_argument("--durability", choices=("sync", "write"), default="sync")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument(
        "--serve-arg", action="append", default=[], help="one more argument of the servers"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=rig.DEFAULT_DIRECTORY / "growth",
        help="where the servers keep their data",
    )
    parser.add_argument(
        "--out", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the results go (build/bench)"
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="write the page and the plot of the documentation too",
    )
    return parser.parse_args()


def make_setting(arguments: argparse.Namespace) -> Setting:
    if (arguments.rounds is not None and arguments.rounds < 1) or arguments.jobs < 1:
        raise rig.BenchmarkError("--rounds and --jobs are at least 1")
    return Setting(
        form=rig.choose_form(arguments.form),
        durability=arguments.durability,
        generator=rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY)),
        directory=arguments.dir,
        jobs=arguments.jobs,
        payload=arguments.payload,
        rounds=arguments.rounds or ROUNDS,
        turns=arguments.rounds or TURNS,
        seconds=arguments.seconds,
        options=tuple(arguments.serve_arg),
        patience=patience.Patience(patience.seconds_of(arguments), say),
    )


def measure(arguments: argparse.Namespace, parts: list[str]) -> None:
    setting = make_setting(arguments)
    for part in parts:
        facts = readings.machine(setting.directory)
        say(f"{part}, load average {facts['load_average']:.1f}")
        before, kept = setting.patience.thrown_away, len(setting.patience.kept)
        began, others, given = time.monotonic(), Others(), readings.processors()
        found = MEASURES[part](setting)
        cores = others.cores()
        stolen = readings.processors().stolen_since(given)
        say(f"others took {cores:.2f} cores meanwhile, the host {stolen:.1%}")
        told = {
            "machine": facts,
            "form": setting.form,
            "durability": setting.durability,
            "payload": setting.payload,
            "command": " ".join(["python -m benchmarks.growth", *sys.argv[1:]]),
            "took_seconds": time.monotonic() - began,
            "others_cores": cores,
            "stolen": setting.patience.kept[kept:] or [stolen],
            "thrown_away": setting.patience.thrown_away - before,
            **found,
        }
        rig.write_results(file_of(arguments.out, part), told)


def file_of(out: Path, part: str) -> Path:
    return out / f"growth-{part}.json"


def write_page(out: Path, *directories: Path) -> None:
    found = {
        part: json.loads(file_of(out, part).read_text())
        for part in PARTS
        if file_of(out, part).exists()
    }
    if not found:
        raise rig.BenchmarkError(f"there are no results in {out}")
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "growth.md").write_text(report.page(found, "growth.svg"))
        (directory / "growth.svg").write_text(report.plot(found))
        say(f"page and plot: {directory}/growth.md, growth.svg")
    say("\n" + report.bars(found))


def main() -> int:
    arguments = read_arguments()
    # Servers that were started are to end with this.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        [parts] = rig.choose_terms(arguments.only, [PARTS])
        if not arguments.report:
            measure(arguments, parts)
        write_page(arguments.out, arguments.out, *([PUBLISHED] if arguments.publish else []))
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


# The probes of the soak are spawned, and import this module under another name.
if __name__ == "__main__":
    sys.exit(main())
