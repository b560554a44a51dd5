"""Queues and Spark: how many jobs a second the sink pushes, and the queue source takes.

    python -m benchmarks.pipeline.queues FORM JOBS BATCH CORES ROUNDS

Prints JSON.
Each round starts a fresh sync-durable server. The sink pushes jobs of 200 bytes out of a DataFrame;
the queue source then leases, reads and acknowledges all of them in a streaming query.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import SparkSession

import taskyard.spark
from benchmarks import rig
from taskyard import Client

QUEUE: Final = "bench"
SIZE: Final = 200  # bytes of a payload


def measure(form: rig.Form, jobs: int, batch: int, cores: int, rounds: int) -> dict[str, Any]:
    spark = taskyard.spark.session(f"local[{cores}]", ui=False)
    found = [_one(spark, form, jobs, batch) for _ in range(rounds + 1)]
    spark.stop()
    # The first one warmed Spark up.
    return {"jobs": jobs, "batch": batch, "payload": SIZE, "rounds": found[1:]}


def _one(spark: SparkSession, form: rig.Form, jobs: int, batch: int) -> dict[str, Any]:
    with (
        rig.scratch(rig.DEFAULT_DIRECTORY) as directory,
        rig.Taskyard(form, "sync", dialect="lists").run(directory) as server,
    ):
        sink = push(spark, server, jobs)
        source = take(spark, server, jobs, batch)
    return {"sink_per_second": jobs / sink, "source_per_second": jobs / source}


def push(spark: SparkSession, server: rig.RunningServer, jobs: int) -> float:
    rows = spark.range(jobs).selectExpr(
        f"lpad(cast(id as string), {SIZE}, '0') as payload", "uuid() as uid", "'task' as name"
    )
    writing = rows.write.format("taskyard").option("url", url_of(server)).option("queue", QUEUE)
    took = timed(writing.mode("append").save)
    with Client(url_of(server)) as client:
        assert client.queue(QUEUE).counts.ready == jobs
    return took


def take(spark: SparkSession, server: rig.RunningServer, jobs: int, batch: int) -> float:
    reading = spark.readStream.format("taskyard").option("url", url_of(server))
    reading = reading.option("queues", QUEUE).option("consumer", "bench")
    frame = reading.option("maxJobsPerBatch", batch).load()
    with tempfile.TemporaryDirectory() as checkpoint:
        writing = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)

        def run() -> None:
            writing.trigger(availableNow=True).start().awaitTermination()

        took = timed(run)
    with Client(url_of(server)) as client:
        queue = client.queue(QUEUE)
        assert (queue.counts.ready, queue.counts.leased) == (0, 0)
        assert queue.counters.finished == jobs
    return took


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def url_of(server: rig.RunningServer) -> str:
    return f"taskyard://{rig.HOST}:{server.port}"


def main() -> None:
    form, *numbers = sys.argv[1:]
    jobs, batch, cores, rounds = map(int, numbers)
    found = measure(rig.choose_form(form), jobs, batch, cores, rounds)  # type: ignore[arg-type]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
