"""The lake, measured: from the journal to finished tables, and a rebuild beside DuckDB's.

    python -m benchmarks.pipeline DATA LAKE [--batch N] [--cores N]

DATA is a journal, for example of `python -m benchmarks.pipeline.journals DATA 10000000`. LAKE is
made anew. Says how many events a second each took, once Spark is there and once it is warm.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import duckdb

from taskyard.lake.rebuild import Rebuild
from taskyard.lake.run import BATCH, Options, Run
from taskyard.lake.snapshot import open_lake
from taskyard.lake.spark_tasks import SparkTasks
from taskyard.lake.store import Store
from taskyard.spark import session
from taskyard.spark.ranges import open_journal

SQL = Path(__file__).with_name("rebuild.sql")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("lake", type=Path)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.lake, ignore_errors=True)
    found: dict[str, Any] = {}
    began = time.monotonic()
    spark = session(f"local[{arguments.cores}]", name="benchmark", ui=False)
    tasks = SparkTasks(spark)
    found["session_seconds"] = time.monotonic() - began
    store = Store(arguments.lake)
    _measure_run(tasks, store, arguments, found)
    _measure_rebuild(tasks, store, found)
    store.close()
    spark.stop()
    _measure_duckdb(arguments.lake, arguments.cores, found)
    print(json.dumps({name: _rounded(value) for name, value in found.items()}, indent=2))


def _measure_run(tasks: SparkTasks, store: Store, arguments: Any, found: dict[str, Any]) -> None:
    batches: list[float] = []
    began = last = time.monotonic()

    def tell(done: int, left: int) -> None:
        nonlocal last
        now = time.monotonic()
        batches.append(done / (now - last))
        last = now

    options = Options(batch=arguments.batch)
    journal = open_journal(arguments.data)
    Run(tasks, store, journal, options, stopped=lambda seconds: False, tell=tell).run()
    took = time.monotonic() - began
    events = sum(file.rows for file in store.files("events"))
    found["events"] = events
    found["run_seconds"] = took
    found["run_events_per_second"] = events / took
    found["with_session_events_per_second"] = events / (took + found["session_seconds"])
    found["batches_records_per_second"] = [round(each) for each in batches]


def _measure_rebuild(tasks: SparkTasks, store: Store, found: dict[str, Any]) -> None:
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        Rebuild(tasks, store).run()
        seconds.append(time.monotonic() - began)
    found["rebuild_seconds"] = min(seconds)


def _measure_duckdb(lake: Path, cores: int, found: dict[str, Any]) -> None:
    out = lake / "_work" / "duckdb"
    files = open_lake(lake).files("events")
    seconds = []
    for _ in range(2):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        began = time.monotonic()
        with duckdb.connect() as connection:
            connection.execute(f"set threads = {cores}")
            connection.execute("set timezone = 'UTC'")
            connection.execute("set variable files = $files", {"files": files})
            for statement in SQL.read_text().replace("OUT", str(out)).split(";\n"):
                if statement.strip():
                    connection.execute(statement)
        seconds.append(time.monotonic() - began)
    found["duckdb_jobs"] = _count(out / "jobs")
    found["lake_jobs"] = open_lake(lake).table("jobs").count()
    found["duckdb_seconds"] = min(seconds)
    found["rebuild_by_duckdb"] = found["rebuild_seconds"] / found["duckdb_seconds"]
    shutil.rmtree(out)


def _count(path: Path) -> Any:
    with duckdb.connect() as connection:
        query = f"select count(*) from read_parquet('{path}/*/*.parquet')"
        return connection.execute(query).fetchall()[0][0]


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
