"""The data pipeline, measured: every bar it is held to, and the page that says so.

`python -m benchmarks.pipeline`. Each part keeps its figures in a file of its own, so that parts can
be run one by one; the page is made of all that are there.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import readings, rig
from benchmarks.pipeline import beside, report
from benchmarks.pipeline.journals import write_journal

PUBLISHED: Final = rig.ROOT / "docs" / "performance"
PARTS: Final = ("queues", "tables", "small", "rebuild", "broker")
MILLION: Final = 1_000_000
BAR_EVENTS: Final = 10 * MILLION
SMALL_EVENTS: Final = 50_000

PACKAGES: Final = ("pyspark", "pyarrow", "deltalake", "duckdb", "numpy", "pandas")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="PART,...", help=str(PARTS))
    parser.add_argument("--page", action="store_true", help="measure nothing, make the page")
    parser.add_argument("--add", action="store_true", help="to the rounds that are there, if any")
    parser.add_argument("--rounds", type=int, default=3, help="of each part (3)")
    parser.add_argument("--broker-rounds", type=int, default=5, help="of the part broker (5)")
    parser.add_argument("--rate", type=float, action="append", help="jobs a second, 0: all")
    parser.add_argument("--seconds", type=float, default=20.0, help="of load, for broker (20)")
    parser.add_argument("--jobs", type=int, default=500_000, help="for queues (500000)")
    parser.add_argument("--long", action="store_true", help="50 million events too, once")
    parser.add_argument("--millions", type=int, action="append", help="of events, for tables")
    parser.add_argument("--cores", type=int, default=2, help="that Spark and DuckDB use (2)")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument(
        "--dir",
        type=Path,
        default=rig.DEFAULT_DIRECTORY / "pipeline",
        help="where journals and lakes are; journals are kept for the next time",
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


def measure_queues(arguments: argparse.Namespace, form: rig.Form) -> dict[str, Any]:
    jobs, batch = arguments.jobs, arguments.jobs // 5
    found: dict[str, Any]
    found = child(form, "queues", form, jobs, batch, arguments.cores, arguments.rounds)
    for turn in found["rounds"]:
        sink, source = turn["sink_per_second"], turn["source_per_second"]
        say(f"sink {sink:,.0f} jobs/s, source {source:,.0f} jobs/s")
    return found


def measure_tables(arguments: argparse.Namespace, form: rig.Form) -> dict[str, Any]:
    """10 million in a fresh process, then 1 million; 50 million come last, and once."""
    asked = arguments.millions or [10, 1]
    rounds = []
    for turn in range(arguments.rounds):
        is_last = turn == arguments.rounds - 1
        sizes = [*asked, 50] if arguments.long and is_last else asked
        journals = [journal_of(arguments.dir, size * MILLION) for size in sizes]
        found = child(form, "tables", "run", arguments.dir, arguments.cores, *journals)
        for each in found["runs"]:
            rate = each["events"] / each["seconds"]
            say(f"{each['events']:,} events in {each['seconds']:.1f} s: {rate:,.0f}/s")
        rounds.append(found)
    for size in {*asked, 50} - {BAR_EVENTS // MILLION}:
        shutil.rmtree(lake_of(arguments.dir, size * MILLION), ignore_errors=True)
    return {"rounds": rounds}


def measure_small(arguments: argparse.Namespace, form: rig.Form) -> dict[str, Any]:
    """Batches of 1,000 records."""
    journal = journal_of(arguments.dir, SMALL_EVENTS)
    found: dict[str, Any] = child(
        form, "tables", "small", arguments.dir, arguments.cores, journal, arguments.rounds
    )
    for turn in found["rounds"]:
        say(f"a small batch in {turn['seconds'] / len(turn['batches']):.2f} s")
    return found


def measure_rebuild(arguments: argparse.Namespace, form: rig.Form) -> dict[str, Any]:
    lake = lake_of(arguments.dir, BAR_EVENTS)
    if not lake.exists():
        journal = journal_of(arguments.dir, BAR_EVENTS)
        child(form, "tables", "run", arguments.dir, arguments.cores, journal)
    found: dict[str, Any] = child(
        form, "tables", "rebuild", lake, arguments.cores, arguments.rounds
    )
    for turn in found["rounds"]:
        say(f"rebuild {turn['ours']:.1f} s, DuckDB {turn['duckdb']:.1f} s: {turn['ratio']:.2f}")
    return found


def measure_broker(arguments: argparse.Namespace, form: rig.Form) -> dict[str, Any]:
    rates = arguments.rate or list(beside.RATES)
    rounds = []
    for _ in range(arguments.broker_rounds):
        for rate in rates:
            found = beside.measure(beside.Plan(form, rate, arguments.seconds))
            rounds.append({"rate": rate, **found})
            say(f"at {rate:,.0f} jobs/s: {found['ratio']:.3f}")
    return {"seconds": arguments.seconds, "rounds": rounds}


MEASURES: Final[dict[str, Callable[[argparse.Namespace, rig.Form], dict[str, Any]]]] = {
    "queues": measure_queues,
    "tables": measure_tables,
    "small": measure_small,
    "rebuild": measure_rebuild,
    "broker": measure_broker,
}


def child(form: rig.Form, module: str, *words: object) -> Any:
    """What a module found that has Spark, in a process and a session of its own."""
    command = [sys.executable, "-m", f"benchmarks.pipeline.{module}", *map(str, words)]
    path = os.pathsep.join([str(rig.code_path(form)), str(rig.ROOT)])
    run = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        start_new_session=True,  # its processor time is that of its session
    )
    if run.returncode != 0:
        raise rig.BenchmarkError(f"{' '.join(command)} ended with status {run.returncode}")
    return json.loads(run.stdout)


def journal_of(directory: Path, events: int) -> Path:
    """A journal of so many events, written once."""
    path = directory / f"journal-{events}"
    if not path.exists():
        say(f"writing a journal of {events:,} events")
        new = path.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        write_journal(new, events)
        new.rename(path)
    return path


def lake_of(directory: Path, events: int) -> Path:
    return directory / f"lake-journal-{events}"


def say(text: str) -> None:
    print(text, flush=True)


def measure(arguments: argparse.Namespace, parts: list[str]) -> None:
    form = rig.choose_form(arguments.form)
    arguments.dir.mkdir(parents=True, exist_ok=True)
    for part in parts:
        facts = readings.machine(arguments.dir)
        say(f"{part}, load average {facts['load_average']:.1f}")
        began = time.monotonic()
        found = MEASURES[part](arguments, form)
        told = {
            "machine": facts,
            "versions": {name: version(name) for name in PACKAGES},
            "form": form,
            "cores": arguments.cores,
            "command": " ".join(["python -m benchmarks.pipeline", *sys.argv[1:]]),
            "took_seconds": time.monotonic() - began,
            **found,
        }
        path = file_of(arguments.out, part)
        if arguments.add and path.exists():
            told = together(json.loads(path.read_text()), told)
        rig.write_results(path, told)


def together(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Rounds of the same part that were measured one after the other."""
    return {
        **now,
        "command": "; ".join([before["command"], now["command"]]),
        "took_seconds": before["took_seconds"] + now["took_seconds"],
        "rounds": before["rounds"] + now["rounds"],
    }


def file_of(out: Path, part: str) -> Path:
    return out / f"pipeline-{part}.json"


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
        (directory / "pipeline.md").write_text(report.page(found, "pipeline.svg"))
        (directory / "pipeline.svg").write_text(report.plot(found))
        say(f"page and plot: {directory}/pipeline.md, pipeline.svg")
    say("\n" + report.bars(found))


def main() -> int:
    arguments = read_arguments()
    # Servers that were started are to end with this.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        if arguments.rounds < 1 or arguments.broker_rounds < 1:
            raise rig.BenchmarkError("--rounds and --broker-rounds are at least 1")
        [parts] = rig.choose_terms(arguments.only, [PARTS])
        if not arguments.page:
            measure(arguments, parts)
        write_page(arguments.out, arguments.out, *([PUBLISHED] if arguments.publish else []))
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
