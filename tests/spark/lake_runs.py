"""Lakes that are made in this process, without a Spark session, and what the oracle says to them.

As a program: `lake_runs.py DATA LAKE BATCH` reads a journal into a lake, to be killed meanwhile.
"""

import math
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from taskyard.pipeline.lake.run import Options, Run
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.ranges import open_journal

T = TypeVar("T")
R = TypeVar("R")

KEYS = {
    "jobs": ("job_id", "run", "seq"),
    "open_jobs": ("job_id",),
    "attempts": ("job_id", "seq"),
    "queue_minutes": ("queue", "minute"),
    "failures": ("queue", "name", "error_class", "message"),
}


class HereTasks:
    """Does all by itself, one task after the other; they are pickled as they would be for Spark."""

    parallelism = 3
    ui = None

    def run(self, doc: str, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        return [self._run(work, task) for task in tasks]

    def _run(self, work: Callable[[T], R], task: T) -> R:
        result: R = pickle.loads(pickle.dumps(work(pickle.loads(pickle.dumps(task)))))
        return result


def read_in(data: Path, lake: Path, tasks: Any = None, **options: Any) -> None:
    """All of a journal into a lake."""
    store = Store(lake)
    try:
        Run(
            tasks or HereTasks(),
            store,
            open_journal(str(data)),
            Options(**options),
            stopped=lambda seconds: False,
        ).run()
    finally:
        store.close()


def assert_same(lake: Path, want: Any) -> None:
    """The tables are those that the oracle has made, row for row."""
    found = open_lake(lake)
    for name, key in KEYS.items():
        rows = _by_key(found.arrow(name).to_pylist(), key)
        expected = _by_key(getattr(want, name), key)
        assert rows.keys() == expected.keys(), name
        for which, row in expected.items():
            for column, value in row.items():
                assert _is_like(rows[which][column], value), (name, which, column)


def _by_key(rows: list[dict[str, Any]], key: tuple[str, ...]) -> dict[Any, dict[str, Any]]:
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


def _is_like(got: Any, want: Any) -> bool:
    if isinstance(got, float) and isinstance(want, float):
        return math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-9)
    return bool(got == want)


if __name__ == "__main__":
    read_in(Path(sys.argv[1]), Path(sys.argv[2]), batch=int(sys.argv[3]))
