"""No-op tasks a second of `taskyard work` beside task frameworks on Redis.

`python -m benchmarks.frameworks`. One worker process each, at its fastest settings, with tasks that
were pushed before it started; they take turns within each round.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks import readings, redis_peer, rig
from benchmarks.frameworks import environment, report
from benchmarks.frameworks.measure import Setting, measure
from benchmarks.frameworks.report import Case
from benchmarks.frameworks.subjects import ALL, DEFAULT, Subject

PUBLISHED: Final = rig.ROOT / "docs" / "performance"
FEWEST: Final = 1000


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000, help="of each worker (20000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each worker (3)")
    names = ", ".join(subject.name for subject in ALL)
    parser.add_argument("--only", action="append", default=[], metavar="NAME,...", help=names)
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the brokers keep their data"
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


def choose(only: Sequence[str]) -> list[Subject]:
    names = [subject.name for subject in ALL]
    [chosen] = rig.choose_terms(only, [names])
    return [subject for subject in ALL if subject.name in chosen] if only else list(DEFAULT)


def measure_all(
    setting: Setting, subjects: Sequence[Subject], rounds: int
) -> tuple[list[Case], list[str]]:
    """The cases, and what went wrong: one framework that fails does not spoil the others."""
    cases, problems = [Case(subject) for subject in subjects], []
    for number in range(rounds):
        print(f"round {number + 1}, load average {os.getloadavg()[0]:.1f}", flush=True)
        for case in cases:
            name, began = case.subject.name, time.monotonic()
            try:
                taken = measure(setting, case.subject)
            except rig.BenchmarkError as error:
                problems.append(f"{name}, round {number + 1}: {error}")
                print(f"  {name:16} FAILED: {error}", flush=True)
                continue
            case.rounds.append(taken)
            print(
                f"  {name:16} {taken.per_s:9,.0f} tasks/s of {taken.tasks:,}, "
                f"{time.monotonic() - began:.1f} s in all",
                flush=True,
            )
    return cases, problems


def describe(setting: Setting, rounds: int, facts: dict[str, object]) -> list[str]:
    frameworks = environment.versions()
    named = ", ".join(f"{name} {version}" for name, version in frameworks.items())
    redis = redis_peer.version().split("v=")[1].split()[0]
    return [
        f"{readings.describe_machine(facts)}, {os.getloadavg()[0]:.1f} at the end.",
        f"Redis {redis}; {named}.",
        f"Taskyard {setting.form}; rounds: {rounds}, of {setting.tasks:,} tasks; medians.",
    ]


def write(cases: Sequence[Case], about: Sequence[str], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "frameworks.svg").write_text(report.plot(cases))
    (directory / "frameworks.md").write_text(report.page(cases, about, "frameworks.svg"))
    print(f"page and plot: {directory}/frameworks.md, frameworks.svg", flush=True)


def results(setting: Setting, cases: Sequence[Case], facts: dict[str, object]) -> dict[str, object]:
    return {
        "machine": facts,
        "versions": environment.versions(),
        "redis": redis_peer.version(),
        "form": setting.form,
        "tasks": setting.tasks,
        "verdict": report.verdict(cases),
        "cases": [
            {
                **asdict(case),
                "per_s": case.per_s,
                "taskyard_to_it": report.ratio(cases, case),
            }
            for case in cases
            if case.rounds
        ],
    }


def main() -> int:
    arguments = read_arguments()
    try:
        if arguments.rounds < 1 or arguments.tasks < FEWEST:
            raise rig.BenchmarkError(f"--rounds is at least 1, --tasks at least {FEWEST:,}")
        subjects = choose(arguments.only)
        missing = redis_peer.available_or_reason()
        if missing:
            raise rig.BenchmarkError(missing)
        form = rig.choose_form(arguments.form)
        setting = Setting(arguments.tasks, form, arguments.dir, environment.prepare())
        facts = readings.machine(setting.directory)
        cases, problems = measure_all(setting, subjects, arguments.rounds)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    about = describe(setting, arguments.rounds, facts)
    print("\n" + "\n".join(about) + f"\n\n{report.table(cases)}\n\n{report.verdict(cases)}\n")
    write(cases, about, arguments.out)
    if arguments.publish and not problems:
        write(cases, about, PUBLISHED)
    rig.write_results(arguments.out / "frameworks.json", results(setting, cases, facts))
    for problem in problems:
        print(f"benchmark: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
