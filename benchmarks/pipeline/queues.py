"""Queues and Spark, measured: the sink, the queue source, and what the lake costs the server.

    python -m benchmarks.pipeline.queues [--jobs N] [--rounds N] [--only sink source lake]

Each round starts one fresh sync-durable server for each case. The sink pushes jobs of 200 bytes
out of a DataFrame; the queue source leases, reads and acknowledges as many in a streaming query.
For the lake the load generator pushes, takes and finishes jobs with and without `--lake`, and the
processor time of the server's own process is compared, a job.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import taskyard.spark
from benchmarks import readings, rig
from taskyard import Client

QUEUE = "bench"
SIZE = 200
LOAD = rig.Load(connections=50)
CASES = ("sink", "source", "lake")
SPARK_START = 300.0  # seconds that a lake's process may take until it has its first batch

Found = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=100_000, help="jobs of a batch of the source")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load beside the lake")
    parser.add_argument("--form", choices=("compiled", "interpreted"))
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    form = rig.choose_form(arguments.form)
    found: Found = {}
    if {"sink", "source"} & set(arguments.only):
        spark = taskyard.spark.session(f"local[{arguments.cores}]", ui=False)
        for turn in range(arguments.rounds + 1):  # the first one warms Spark up
            kept = found if turn else {}
            with fresh(form) as (server, _):
                sink(spark, server, arguments.jobs, kept)
                if "source" in arguments.only:
                    source(spark, server, arguments.jobs, arguments.batch, kept)
        spark.stop()
    if "lake" in arguments.only:
        for _ in range(arguments.rounds):
            beside(form, arguments.seconds, found)
    with tempfile.TemporaryDirectory() as directory:
        machine = readings.machine(Path(directory))
    summary: dict[str, Any] = {"form": form, "machine": readings.describe_machine(machine)}
    for name, values in found.items():
        summary[name] = round(statistics.median(values), 3)
        summary[f"{name}_all"] = [round(value, 3) for value in values]
    if "lake" in arguments.only:
        ratio = summary["cpu_us_with_lake"] / summary["cpu_us_without"]
        summary["cpu_ratio"] = round(ratio, 3)
    sys.stdout.write(json.dumps(summary, indent=2) + "\n")


@contextlib.contextmanager
def fresh(form: rig.Form, *options: str) -> Iterator[tuple[rig.RunningServer, Path]]:
    """A server of its own, in a directory of its own, which HERE stands for in the options."""
    with rig.scratch(rig.DEFAULT_DIRECTORY) as directory:
        placed = tuple(each.replace("HERE", str(directory)) for each in options)
        with rig.Taskyard(form, "sync", placed, dialect="lists").run(directory) as server:
            yield server, directory


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def sink(spark: SparkSession, server: rig.RunningServer, jobs: int, found: Found) -> None:
    rows = spark.range(jobs).selectExpr(
        f"lpad(cast(id as string), {SIZE}, '0') as payload", "uuid() as uid", "'task' as name"
    )
    writing = rows.write.format("taskyard").option("url", url_of(server)).option("queue", QUEUE)
    took = timed(writing.mode("append").save)
    with Client(url_of(server)) as client:
        assert client.queue(QUEUE).counts.ready == jobs
    found.setdefault("sink_jobs_per_second", []).append(jobs / took)


def source(
    spark: SparkSession, server: rig.RunningServer, jobs: int, batch: int, found: Found
) -> None:
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
    found.setdefault("source_jobs_per_second", []).append(jobs / took)


def beside(form: rig.Form, seconds: float, found: Found) -> None:
    generator = rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY))
    for name, options in (
        ("cpu_us_without", ()),
        ("cpu_us_with_lake", ("--lake", "HERE/lake", "--lake-master", "local[1]")),
    ):
        with fresh(form, *options) as (server, directory):
            if options:
                wait_for_lake(directory / "lake", generator, server)
            measured = generator.cycle(server, LOAD, seconds=seconds, warmup=2.0)
            cost = measured.server_cores / measured.cycles_per_s * 1_000_000
            found.setdefault(name, []).append(cost)
            rate = name.replace("cpu_us", "cycles_per_second")
            found.setdefault(rate, []).append(measured.cycles_per_s)


def wait_for_lake(lake: Path, generator: rig.Generator, server: rig.RunningServer) -> None:
    """Until it follows: what Spark's start costs is not what is measured."""
    generator.cycles(server, LOAD, 1000)
    limit = time.monotonic() + SPARK_START
    status = lake / "status.json"
    while not status.exists() or not json.loads(status.read_text()).get("batch"):
        if time.monotonic() > limit:
            raise rig.BenchmarkError("the lake does not come to its first batch")
        time.sleep(0.2)


def url_of(server: rig.RunningServer) -> str:
    return f"taskyard://{rig.HOST}:{server.port}"


if __name__ == "__main__":
    main()
