"""Journals on disk to read with Spark, and streams that end when all has been read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from journal.building import Running
from pyspark.sql import DataFrame, SparkSession

from taskyard.journal.disk import RealDisk

Batches = list[tuple[int, list[int]]]  # the number of each batch, and its records in order


def written(
    data: Path, jobs: int, segment_size: int = 4000, payload: bytes = b"payload"
) -> Running:
    """A journal to which so many jobs were added, each pushed, leased and finished."""
    run = Running(RealDisk(str(data)), segment_size=segment_size)
    add_jobs(run, jobs, payload)
    return run


def add_jobs(run: Running, jobs: int, payload: bytes = b"payload") -> None:
    """One or two of them in a frame, with payloads of several sizes."""
    for number in range(jobs):
        run.push(payload * (number % 7))
        job = run.take()
        assert job is not None
        run.ack(job)
        if number % 3:
            run.commit()
    run.commit()


def dropped(run: Running, count: int) -> int:
    """Drop the first segments; gives the first record that is left."""
    work = run.journal.remove_segments_before(run.journal._bases[count])
    assert work is not None
    work.run()
    run.journal.on_segments_removed(work)
    return int(run.journal.first_seq_of(run.journal.first_base))


def dropped_beyond(run: Running, seq: int) -> int:
    """Drop segments until the first record that is left is behind this one; gives it."""
    while (first := dropped(run, 1)) <= seq:
        pass
    return first


def drain(
    spark: SparkSession,
    checkpoint: Path,
    options: dict[str, Any],
    also: Callable[[DataFrame, int], None] | None = None,
) -> Batches:
    """All that a stream gives until nothing is left."""
    batches: Batches = []

    def take(frame: DataFrame, number: int) -> None:
        if also is not None:
            also(frame, number)
        rows = frame.select("seq").collect()
        batches.append((number, sorted(row["seq"] for row in rows)))

    stream = spark.readStream.format("taskyard.events").options(**options).load()
    query = (
        stream.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def offset_of(checkpoint: Path, batch: int) -> dict[str, Any]:
    """Where a batch ended, as Spark has noted it."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    offset: dict[str, Any] = json.loads(lines[-1])
    return offset
