"""The command: measure what was asked for, keep it as JSON, and make the page of it."""

import argparse
import re
import signal
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks import readings, rig
from benchmarks.side_by_side import plots, report
from benchmarks.side_by_side.measure import Runner
from benchmarks.side_by_side.plan import Plan, cases_of, make_plan, read_arguments
from benchmarks.side_by_side.results import Results, load
from benchmarks.side_by_side.subjects import Subject, find_subjects, taskyard_version

PUBLISHED: Final = rig.ROOT / "docs" / "performance"
PAGE: Final = "side-by-side.md"
RESULTS: Final = "side-by-side.json"


def main() -> int:
    arguments = read_arguments()
    # Servers that were started are to end with this, and what was measured is to be kept.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if arguments.report is not None:
            write_page(load(arguments.report), targets(arguments, is_whole=False))
            return 0
        plan = make_plan(arguments)
        results = measure(arguments, plan)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        kept = arguments.out / RESULTS
        print(f"interrupted; --report {kept} makes a page of what there is", file=sys.stderr)
        return 130
    write_page(results, targets(arguments, plan.is_whole))
    return 1 if results.failures else 0


def measure(arguments: argparse.Namespace, plan: Plan) -> Results:
    form = rig.choose_form(arguments.form)
    subjects, missing = find_subjects(plan.subjects, form)
    for key, reason in missing.items():
        print(f"going on without {key}: {reason}", flush=True)
    if not subjects:
        raise rig.BenchmarkError("none of the servers asked for can be run")
    binary = rig.compile_generator(rig.DEFAULT_DIRECTORY)
    path = arguments.out / RESULTS
    if arguments.again is not None:
        results = load(arguments.again)
        again = [case for block in plan.blocks for case in cases_of(block, subjects)]
        results.forget(plan.parts, again)
        results.again = command_line(sys.argv[1:])
        return run(plan, subjects, results, path, binary)
    results = Results(
        machine=readings.machine(plan.directory),
        taskyard=taskyard_version(form),
        command=command_line(sys.argv[1:]),
        seconds=plan.blocks[0].seconds if plan.blocks else 0.0,
        warmup=plan.warmup,
        subjects=[subject.facts() for subject in subjects],
        missing=missing,
    )
    return run(plan, subjects, results, path, binary)


def run(plan: Plan, subjects: list[Subject], results: Results, path: Path, binary: Path) -> Results:
    print(f"results: {path}, also if this is interrupted", flush=True)
    began = time.monotonic() - results.took_seconds
    Runner(plan, subjects, results, path, binary, began).run()
    return results


def command_line(words: list[str]) -> str:
    """As it can be given elsewhere, without the places of this machine."""
    text = re.sub(r"--(dir|out)[ =]\S+ ?|--publish ?", "", " ".join(words)).strip()
    return "make bench" + (f' ARGS="{text}"' if text else "")


def targets(arguments: argparse.Namespace, is_whole: bool) -> list[Path]:
    """The documentation's page is only written by a run that left nothing out, or when told to."""
    return [arguments.out, *([PUBLISHED] if is_whole or arguments.publish else [])]


def write_page(results: Results, directories: list[Path]) -> None:
    drawn = plots.plots(results)
    page = report.page(results, drawn)
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / PAGE).write_text(page)
        for name, svg in drawn.items():
            (directory / name).write_text(svg)
        print(f"page and plots: {directory / PAGE}", flush=True)
    print(f"\n{report.bars_table(results)}", flush=True)
