"""Runs of a lake in this process in which something happens at a certain point."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from spark.lake_process import next_seq
from spark.lake_runs import HereTasks, assert_same
from spark.oracle import compute, read_records

from taskyard.pipeline.lake.run import Options, Run
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.ranges import open_journal

T = TypeVar("T")
R = TypeVar("R")
READ, MAKE = "read the journal", "make the tables"  # the two halves of a batch


class Disturbed(HereTasks):
    """Calls something in the middle of a batch: when it is about to do what `doc` says."""

    def __init__(self, doc: str, disturb: Callable[[], object]) -> None:
        self._doc = doc
        self._disturb: Callable[[], object] | None = disturb

    def run(self, doc: str, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        if doc == self._doc and self._disturb is not None:
            disturb, self._disturb = self._disturb, None
            disturb()
        return super().run(doc, work, tasks)


@contextlib.contextmanager
def opened(lake: Path) -> Iterator[Store]:
    store = Store(lake)
    try:
        yield store
    finally:
        store.close()


def read_one_batch(data: Path, lake: Path, records: int) -> bool:
    """And be told to stop then."""
    stop = [False, True]
    with opened(lake) as store:
        journal, options = open_journal(str(data)), Options(batch=records)
        run = Run(HereTasks(), store, journal, options, stopped=lambda seconds: stop.pop(0))
        return run.run()


def assert_up_to_its_mark(lake: Path, data: Path) -> None:
    end = next_seq(lake)
    records = [record for record in read_records(data) if record.seq < end]
    assert_same(lake, compute(records))
    rows = open_lake(lake).arrow("events", ["seq", "part"]).to_pylist()
    assert len({(row["seq"], row["part"]) for row in rows}) == len(rows)
    assert sorted({row["seq"] for row in rows}) == [record.seq for record in records]
