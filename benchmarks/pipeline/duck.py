"""The same three tables from the same files by DuckDB, and whether they come out the same."""

import math
import shutil
import time
from pathlib import Path
from typing import Any, Final

import duckdb

from taskyard.pipeline.lake.snapshot import Lake

SQL: Final = Path(__file__).with_name("rebuild.sql")
# What is added up in both: together they tell rows that are missing, doubled or wrong.
SUMS: Final = {
    "jobs": (
        "job_id",
        "seq",
        "attempts",
        "retries",
        "wait_seconds",
        "run_seconds",
        "total_seconds",
        "payload_size",
        "(outcome = 'succeeded')::int",
        "(outcome = 'failed')::int",
        "epoch_us(finished_at) % 1000000007",
        "length(queue) + length(name)",
    ),
    "attempts": (
        "job_id",
        "seq",
        "attempt",
        "wait_seconds",
        "run_seconds",
        "(outcome = 'retried')::int",
        "length(worker) + length(queue) + length(name)",
        "coalesce(length(error), 0)",
    ),
    "queue_minutes": (
        "arrivals",
        "starts",
        "finishes",
        "failures",
        "retries",
        "depth",
        "in_flight",
        "workers",
        "wait_p50",
        "wait_p95",
        "wait_p99",
        "run_p50",
        "run_p95",
        "run_p99",
    ),
}


def rebuild(files: list[str], out: Path, cores: int) -> float:
    """Seconds that it took, of a connection of its own: nothing is left of the time before."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    began = time.monotonic()
    with duckdb.connect() as connection:
        connection.execute(f"set threads = {cores}")
        connection.execute("set timezone = 'UTC'")
        connection.execute("set preserve_insertion_order = false")  # which makes it quicker
        connection.execute("set variable files = $files", {"files": files})
        for statement in SQL.read_text().replace("OUT", str(out)).split(";\n"):
            if statement.strip():
                connection.execute(statement)
    return time.monotonic() - began


def paths_of(lake: Lake, table: str) -> list[str]:
    return [str(Path(lake.storage.table_uri(table)) / file.path) for file in lake.files(table)]


def compare(files: dict[str, list[str]], out: Path) -> dict[str, int]:
    """The rows of each table; AssertionError where rows or sums differ."""
    found = {}
    for table, sums in SUMS.items():
        ours = _added_up(files[table], sums)
        theirs = _added_up([f"{out}/{table}/*/*.parquet"], sums)
        names = ("rows", *sums)
        for name, mine, other in zip(names, ours, theirs, strict=True):
            assert math.isclose(mine, other, rel_tol=1e-9), f"{table}.{name}: {mine}, {other}"
        found[table] = int(ours[0])
    return found


def _added_up(files: list[str], sums: tuple[str, ...]) -> Any:
    columns = ", ".join(f"sum({each})" for each in sums)
    query = f"select count(*), {columns} from read_parquet($files, hive_partitioning = true)"
    with duckdb.connect() as connection:
        return connection.execute(query, {"files": files}).fetchall()[0]
