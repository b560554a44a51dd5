"""Journals into finished tables, and the tables once more from `events`: in a process of its own.

    python -m benchmarks.pipeline.tables run LAKES CORES JOURNAL...
    python -m benchmarks.pipeline.tables small LAKES CORES JOURNAL ROUNDS
    python -m benchmarks.pipeline.tables rebuild LAKE CORES ROUNDS

Prints JSON. `run` reads one journal after the other, each into a lake of its own in LAKES, under
the journal's name. The first has Spark's first tasks in it, the others find it warm. `small` does
that in batches of few records. `rebuild` and DuckDB take turns, after one that is not counted.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.pipeline import duck
from benchmarks.readings import session_cpu
from taskyard.pipeline.lake.maintain import rebuild as rebuild_tables
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.stream import MAX_RECORDS, BatchProgress, LakeFiller
from taskyard.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: Final = 1000  # records


def run(lakes: Path, cores: int, journals: list[Path]) -> dict[str, Any]:
    began = time.monotonic()
    spark = session(f"local[{cores}]", name="benchmark", ui=False)
    start = time.monotonic() - began
    runs = [_fill(spark, journal, lakes / f"lake-{journal.name}") for journal in journals]
    spark.stop()
    return {"start_seconds": start, "runs": runs}


def small(lakes: Path, cores: int, journal: Path, rounds: int) -> dict[str, Any]:
    """Batches of few records; the first round warms Spark up."""
    spark = session(f"local[{cores}]", name="benchmark", ui=False)
    runs = [_fill(spark, journal, lakes / f"lake-{journal.name}", SMALL) for _ in range(rounds + 1)]
    spark.stop()
    return {"records": SMALL, "rounds": runs[1:]}


def _fill(
    spark: "SparkSession", journal: Path, lake: Path, max_records: int = MAX_RECORDS
) -> dict[str, Any]:
    shutil.rmtree(lake, ignore_errors=True)
    os.sync()  # else it would pay for what was there before
    batches: list[tuple[int, float]] = []
    last = 0

    def on_batch(progress: BatchProgress) -> None:
        nonlocal last
        next_seq = progress.watermark.next_seq
        batches.append((next_seq - last, time.monotonic() - began))
        last = next_seq

    cpu = session_cpu(os.getsid(0))
    began = time.monotonic()
    filler = LakeFiller(Storage(lake), data=str(journal), max_records=max_records)
    filler.on_batch = on_batch
    filler.start(spark, None).awaitTermination()
    took = time.monotonic() - began
    return {
        "events": sum(file.rows for file in filler.store.files("events")),
        "seconds": took,
        "cpu_seconds": session_cpu(os.getsid(0)) - cpu,
        "batches": batches,  # records, and seconds since the begin
        "files": {name: len(filler.store.files(name)) for name in ("events", "jobs", "open_jobs")},
    }


def rebuild(lake: Path, cores: int, rounds: int) -> dict[str, Any]:
    spark = session(f"local[{cores}]", name="benchmark", ui=False)
    store = Store(Storage(lake))
    out = lake.parent / f"{lake.name}-duckdb"
    turns = []
    events = 0
    for turn in range(rounds + 1):
        began = time.monotonic()
        events = rebuild_tables(spark, store)
        ours = time.monotonic() - began
        store.run_step(store.purge)
        if turn:  # the first one warms Spark up
            os.sync()
            files = duck.paths_of(open_lake(lake), "events")
            cpu = time.process_time()
            theirs = duck.rebuild(files, out, cores)
            cpu = time.process_time() - cpu
            turns.append(
                {"ours": ours, "duckdb": theirs, "ratio": ours / theirs, "duckdb_cpu": cpu}
            )
            os.sync()
    spark.stop()
    made = open_lake(lake)
    compared = duck.compare({name: duck.paths_of(made, name) for name in duck.SUMS}, out)
    shutil.rmtree(out, ignore_errors=True)
    return {"events": events, "rounds": turns, "compared": compared}


def main() -> None:
    word, place, cores, *rest = sys.argv[1:]
    if word == "run":
        found = run(Path(place), int(cores), [Path(each) for each in rest])
    elif word == "small":
        found = small(Path(place), int(cores), Path(rest[0]), int(rest[1]))
    else:
        found = rebuild(Path(place), int(cores), int(rest[0]))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
