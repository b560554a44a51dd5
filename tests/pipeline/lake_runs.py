"""Lakes that are filled from a journal by real queries, and what the oracle says to them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from pipeline.oracle import Tables, compute, read_records
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from taskyard.pipeline.journal import open_journal, plan_ranges, read_range
from taskyard.pipeline.lake.build import TableBuilder, build_tables
from taskyard.pipeline.lake.kernel import Kernel
from taskyard.pipeline.lake.maintain import maintain
from taskyard.pipeline.lake.snapshot import Lake, open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.stream import LakeFiller
from taskyard.pipeline.records.fields import DEFAULT_COLUMNS
from taskyard.pipeline.records.packed import pack, read_columns

Where = Path | str | Storage

KEYS: Final = {
    "jobs": ("job_id", "run", "seq"),
    "open_jobs": ("job_id",),
    "attempts": ("job_id", "seq"),
    "queue_minutes": ("queue", "minute"),
    "failures": ("queue", "name", "error_class", "message"),
}


def storage_of(lake: Where) -> Storage:
    return lake if isinstance(lake, Storage) else Storage(lake)


def read_in(
    spark: SparkSession,
    data: Path | str | None,
    lake: Where,
    **options: Any,
) -> LakeFiller:
    """All of a journal into a lake, as `taskyard lake run` does it."""
    path = None if data is None else str(data)
    filler = LakeFiller(storage_of(lake), data=path, **options)
    run(spark, filler)
    return filler


def run(spark: SparkSession, filler: LakeFiller) -> None:
    """All that there is now."""
    finish(filler, filler.start(spark, None))


def finish(filler: LakeFiller, query: StreamingQuery) -> None:
    """Raise what a batch has raised."""
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if filler.error is None:
            raise
        raise filler.error from None


def fill(
    data: Path,
    lake: Where,
    records: int = 1 << 20,
    columns: tuple[str, ...] = DEFAULT_COLUMNS,
) -> None:
    """The same in this process and without Spark, for tests of what becomes of a lake then."""
    journal = open_journal(str(data))
    view = journal.contents()
    builder = TableBuilder(Store(storage_of(lake)))
    first = builder.store.next_seq or view.first_seq
    for seq in range(first, view.durable_seq + 1, records):
        last = min(seq + records - 1, view.durable_seq)
        rows: list[Any] = []
        for some in plan_ranges(view, seq, last, 1):
            read_from = (view.timeline, some.first_seq, some.last_seq)
            rows += pack(read_range(some, read_columns(columns)), columns, read_from)
        builder.add(HereEvents(rows))  # type: ignore[arg-type]
        maintain(builder.store)


class HereEvents:
    """What a batch needs of a data frame of packed events."""

    columns: Final = ["ids", "rows"]

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def repartition(self, by: str) -> HereEvents:
        return self

    def mapInArrow(self, kernel: Kernel, schema: str) -> HereEvents:  # noqa: N802
        return HereEvents(list(pickle.loads(pickle.dumps(kernel))(iter(self._batches))))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(result=each["result"][0].as_py()) for each in self._batches]


def read_one(spark: SparkSession, data: Path, lake: Path, records: int) -> None:
    """A batch of so many records, and no more."""
    events = spark.read.format("taskyard.events").option("endingSeq", records)
    packed = events.option("packed", True).load(str(data))
    build_tables(packed, 0, lake=lake)


def assert_right(lake: Where | Lake, data: Path) -> None:
    """The lake has every record of the journal before its watermark, and each once."""
    found = lake if isinstance(lake, Lake) else open_lake(lake)
    end = found.watermark.next_seq
    records = [record for record in read_records(data) if record.seq < end]
    rows = found.arrow("events", ["seq", "part"]).to_pylist()
    assert len({(row["seq"], row["part"]) for row in rows}) == len(rows)
    assert sorted({row["seq"] for row in rows}) == [record.seq for record in records]
    assert_same(found, compute(records))


def assert_same(found: Lake, want: Tables, names: Iterable[str] = KEYS) -> None:
    """The tables are those that the oracle has made, row for row."""
    for name in names:
        key = KEYS[name]
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
