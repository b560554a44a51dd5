"""Journals into finished tables, and the tables once more from `events`: in a process of its own.

    python -m benchmarks.pipeline.tables run LAKES CORES JOURNAL...
    python -m benchmarks.pipeline.tables rebuild LAKE CORES ROUNDS

Prints JSON. `run` reads one journal after the other, each into a lake of its own in LAKES, under
the journal's name. The first has Spark's first tasks in it, the others find it warm. `rebuild` and
DuckDB take turns, after a rebuild that is not counted.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.pipeline import duck
from taskyard.pipeline.lake.rebuild import Rebuild
from taskyard.pipeline.lake.run import Options, Run
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.spark_tasks import SparkTasks
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.ranges import open_journal
from taskyard.spark import session


def run(lakes: Path, cores: int, journals: list[Path]) -> dict[str, Any]:
    began = time.monotonic()
    spark = session(f"local[{cores}]", name="benchmark", ui=False)
    start = time.monotonic() - began
    tasks = SparkTasks(spark)
    runs = [_fill(tasks, journal, lakes / f"lake-{journal.name}") for journal in journals]
    spark.stop()
    return {"start_seconds": start, "runs": runs}


def _fill(tasks: SparkTasks, journal: Path, lake: Path) -> dict[str, Any]:
    shutil.rmtree(lake, ignore_errors=True)
    os.sync()  # else it would pay for what was there before
    batches: list[tuple[int, float]] = []
    began = time.monotonic()
    store = Store(lake)

    def tell(done: int, left: int) -> None:
        batches.append((done, time.monotonic() - began))

    reading = open_journal(str(journal))
    Run(tasks, store, reading, Options(), stopped=lambda seconds: False, tell=tell).run()
    took = time.monotonic() - began
    found = {
        "events": sum(file.rows for file in store.files("events")),
        "seconds": took,
        "batches": batches,  # records, and seconds since the begin
        "files": {name: len(store.files(name)) for name in ("events", "jobs", "open_jobs")},
    }
    store.close()
    return found


def rebuild(lake: Path, cores: int, rounds: int) -> dict[str, Any]:
    spark = session(f"local[{cores}]", name="benchmark", ui=False)
    tasks = SparkTasks(spark)
    store = Store(lake)
    out = lake / "_work" / "duckdb"
    turns = []
    events = 0
    for turn in range(rounds + 1):
        began = time.monotonic()
        events = Rebuild(tasks, store).run()
        ours = time.monotonic() - began
        store.sweep(0)
        if turn:  # the first one warms Spark up
            os.sync()
            theirs = duck.rebuild(open_lake(lake).files("events"), out, cores)
            turns.append({"ours": ours, "duckdb": theirs, "ratio": ours / theirs})
            os.sync()
    store.close()
    spark.stop()
    compared = duck.compare(open_lake(lake), out)
    shutil.rmtree(out, ignore_errors=True)
    return {"events": events, "rounds": turns, "compared": compared}


def main() -> None:
    word, place, cores, *rest = sys.argv[1:]
    if word == "run":
        found = run(Path(place), int(cores), [Path(each) for each in rest])
    else:
        found = rebuild(Path(place), int(cores), int(rest[0]))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
