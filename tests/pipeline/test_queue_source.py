"""Jobs read by a real Spark as a stream, and what is left on the server when it is done."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pipeline.cluster import Driver
from pipeline.servers import Server
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadMaxRows
from support.waiting import wait_for

from taskyard.client.errors import Claimed
from taskyard.client.sync import Client
from taskyard.pipeline.spark import queue_source
from taskyard.pipeline.spark.options import SourceOptions
from taskyard.spark import acknowledge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


# A driver whose query takes a batch of jobs and comes to no end with it.
_STUCK: Final = """
import sys, threading
from taskyard.spark import session
url, checkpoint = sys.argv[1:]
spark = session("local[1]", ui=False, conf={"spark.driver.memory": "512m"})
reading = spark.readStream.format("taskyard").option("url", url)
jobs = reading.option("queues", "stuck").option("consumer", "stuck").load()
writing = jobs.writeStream.foreachBatch(lambda frame, batch: threading.Event().wait())
writing.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


@pytest.fixture
def own_client(server: Server) -> Iterator[Client]:
    """Of a server that can be killed."""
    with server.client() as connected:
        yield connected


def test_available_jobs_are_read_once_and_none_stays_leased(
    spark: SparkSession, client: Client, tmp_path: Path
) -> None:
    client.push_many("a", [b"a%d" % number for number in range(30)], name="x")
    client.push_many("b", [b"b%d" % number for number in range(20)], priority=5)
    seen: list[list[tuple[str, str, bytes, int, int]]] = []

    def take(frame: DataFrame, batch: int) -> None:
        rows = frame.select("queue", "name", "payload", "attempt", "priority").collect()
        seen.append([(row[0], row[1], bytes(row[2]), row[3], row[4]) for row in rows])
        late = frame.where("pushed_at > current_timestamp() or pushed_at < '2026-01-01'").count()
        assert late == 0
        client.push("b", b"late")  # not there when the query began

    jobs = _jobs(spark, client, queues="a,b", consumer="both", maxJobsPerBatch=20, partitions=3)
    _run(jobs, take, tmp_path)
    wanted = [("a", "x", b"a%d" % number, 1, 0) for number in range(30)]
    wanted += [("b", "b", b"b%d" % number, 1, 5) for number in range(20)]
    assert [len(batch) for batch in seen] == [20, 20, 10]
    assert sorted(row for batch in seen for row in batch) == sorted(wanted)
    assert _counts(client, "a") == (0, 0)
    assert _counts(client, "b") == (3, 0)
    # A query that goes on takes what has come since.
    more: list[int] = []
    _run(jobs, lambda frame, batch: more.append(frame.count()), tmp_path)
    assert more == [3]
    assert _counts(client, "b") == (0, 0)


def test_the_progress_of_a_query_shows_how_many_jobs_wait_behind_a_batch(
    spark: SparkSession, client: Client, tmp_path: Path
) -> None:
    client.push_many("deep", [b"x"] * 25)
    jobs = _jobs(spark, client, queues="deep", consumer="deep", maxJobsPerTrigger=10)

    def count(frame: DataFrame, batch: int) -> None:
        frame.count()

    query = (
        jobs.writeStream.foreachBatch(count)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    _finish(query)
    sources = [progress["sources"][0] for progress in query.recentProgress]
    latest = [json.loads(source["latestOffset"]) for source in sources if source["numInputRows"]]
    assert [offset["ready"] for offset in latest] == [15, 5, 0]


def test_a_batch_that_failed_comes_again_with_the_same_jobs(
    spark: SparkSession, client: Client, tmp_path: Path
) -> None:
    client.push_many("again", [b"%d" % number for number in range(10)])
    tries: list[list[int]] = []

    def take(frame: DataFrame, batch: int) -> None:
        tries.append(sorted(row.id for row in frame.collect()))
        if len(tries) == 1:
            client.push_many("again", [b"urgent"] * 10, priority=9)
            raise ValueError("this sink does not work")

    jobs = _jobs(spark, client, queues="again", consumer="again", maxJobsPerBatch=10)
    with pytest.raises(PySparkException):
        _run(jobs, take, tmp_path / "one")
    # Neither a restart nor one that has lost its checkpoint takes others.
    _run(jobs, take, tmp_path / "two")
    assert tries[0] == tries[1]
    assert len(tries[2]) == 10
    assert not set(tries[2]) & set(tries[0])
    with pytest.raises(PySparkException, match="does not hold batch 1"):
        _run(jobs, take, tmp_path / "one")


def test_results_are_written_back(spark: SparkSession, client: Client, tmp_path: Path) -> None:
    payloads = [b"good", b"bad", b"poor", b"back", b"plain"]
    pushed = client.push_many("work", payloads, retries=1, backoff=0, ttl=3600)
    jobs = _jobs(spark, client, queues="work", consumer="worker", partitions=2)
    outcomes = jobs.selectExpr(
        "ref",
        "if(payload = 'good', named_struct('length', length(payload)), null) as result",
        "if(payload in ('bad', 'poor'), 'no good', null) as error",
        "case when payload = 'bad' then 'failed' when payload = 'back' then 'released' end "
        "as outcome",
    )
    writing = outcomes.writeStream.format("taskyard").option("url", str(client.address))
    writing = writing.option("mode", "results").option("checkpointLocation", str(tmp_path))
    _finish(writing.trigger(availableNow=True).start())
    states = [client.inspect(one).state for one in pushed]
    assert states == ["succeeded", "failed", "ready", "ready", "succeeded"]
    good, bad = client.result(pushed[0]), client.result(pushed[1])
    assert good is not None
    assert good.result == b'{"length":4}'
    assert bad is not None
    assert bad.error == b"no good"
    assert client.inspect(pushed[2]).fails == 1
    assert client.inspect(pushed[3]).fails == 0


def test_a_listener_acknowledges_what_a_stopped_query_has_done(
    spark: SparkSession, client: Client, tmp_path: Path
) -> None:
    client.push_many("hourly", [b"x"] * 5)
    listener = acknowledge(spark, str(client.address))
    try:
        jobs = _jobs(spark, client, queues="hourly", consumer="hourly")
        writing = jobs.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        query = writing.trigger(processingTime="1 hour").start()
        wait_for(lambda: _counts(client, "hourly") == (0, 0))
        query.stop()
    finally:
        spark.streams.removeListener(listener)
    [consumer] = [one for one in client.consumers() if one.name == "hourly"]
    assert (consumer.batch, consumer.open) == (1, False)


def test_two_queries_do_not_get_the_same_jobs(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_source, "_TASK_EXIT_S", 0.1)
    client.push_many("shared", [b"x"] * 5)
    one, other = [_reader(client, queues="shared", consumer="shared") for _ in range(2)]
    start = one.initialOffset()
    end = one.latestOffset(start, one.getDefaultReadLimit())
    assert end["count"] == 5
    with pytest.raises(Claimed, match="has the consumer shared, and two would get the same jobs"):
        other.initialOffset()
    with pytest.raises(Claimed):  # as one that goes on with a batch of its checkpoint
        other.partitions(start, end)
    one.stop()  # or the end of its process
    assert other.initialOffset() == start
    other.stop()


def test_a_driver_that_is_killed_leaves_its_consumer_and_its_batch_to_the_next(
    spark: SparkSession, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_source, "_TASK_EXIT_S", 0.1)
    client.push_many("stuck", [b"x"] * 5)
    command = [sys.executable, "-c", _STUCK, str(client.address), str(tmp_path / "one")]
    with Driver(tmp_path, command) as driver:
        driver.wait_until(lambda: _counts(client, "stuck") == (0, 5))
        with pytest.raises(Claimed, match=f"CLAIMED {socket.gethostname()}:"):
            _reader(client, queues="stuck", consumer="stuck").initialOffset()
        assert driver.is_running()
    # The JVM and its Python find out by themselves.
    jobs = _jobs(spark, client, queues="stuck", consumer="stuck")
    seen: list[int] = []
    _run(jobs, lambda frame, batch: seen.append(frame.count()), tmp_path / "two")
    assert seen == [5]
    assert _counts(client, "stuck") == (0, 0)


def test_a_query_that_has_lost_its_consumer_cannot_end_what_another_one_does(
    server: Server, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's connection is lost with the server, and the second one is quicker."""
    monkeypatch.setattr(queue_source, "_TASK_EXIT_S", 0.1)
    client = own_client
    client.push_many("q", [b"x"] * 5)
    first, second = [_reader(client, queues="q", consumer="c") for _ in range(2)]
    limit = ReadMaxRows(3)
    end = first.latestOffset(first.initialOffset(), limit)
    latest = first.reportLatestOffset()
    assert latest is not None
    server.kill()
    server.restart()
    start = second.initialOffset()
    assert second.latestOffset(start, limit) == end
    with pytest.raises(Claimed):  # it would say that the batch is done
        first.latestOffset(end, limit)
    with pytest.raises(Claimed):
        client.ack_batch("c", end["batch"], latest["holder"])
    places = second.partitions(start, end)
    assert sum(jobs.num_rows for place in places for jobs in second.read(place)) == 3
    assert _counts(client, "q") == (2, 3)
    assert second.latestOffset(end, limit)["count"] == 2
    second.stop()


def test_a_query_waits_for_its_server_and_has_its_consumer_again(
    server: Server, own_client: Client
) -> None:
    client = own_client
    client.push_many("q", [b"x"] * 5)
    reader = _reader(client, queues="q", consumer="c")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    server.kill()
    server.restart()
    assert reader.latestOffset(end, ReadMaxRows(3))["count"] == 2
    with pytest.raises(Claimed):
        client.lease_batch("c", 3, 1, ["q"])
    reader.stop()


def test_the_usual_names_of_options_mean_the_same(client: Client) -> None:
    usual = {"maxOffsetsPerTrigger": "5", "minPartitions": "3"}
    reader = _reader(client, queues="usual", consumer="usual", **usual)
    assert reader.getDefaultReadLimit() == ReadMaxRows(5)
    start = reader.initialOffset()
    assert len(reader.partitions(start, {**start, "batch": 1, "count": 1000})) == 3
    reader.stop()


def test_a_password_is_in_no_plan(spark: SparkSession) -> None:
    reading = spark.readStream.format("taskyard").option("url", "taskyard://ann:hush@localhost")
    jobs = reading.option("queues", "a").option("consumer", "c").load()
    source = spark.read.format("taskyard.events")
    for frame in (jobs, source.option("url", "http://ann:hush@localhost:9").load()):
        plan = frame._jdf.queryExecution().logical().toString()
        assert "taskyard" in plan.lower()
        assert "hush" not in plan


def test_a_query_that_comes_too_late_gets_an_error_and_no_jobs(
    spark: SparkSession, client: Client, tmp_path: Path
) -> None:
    client.push_many("slow", [b"x"] * 5)

    def take(frame: DataFrame, batch: int) -> None:
        wait_for(lambda: _counts(client, "slow") == (5, 0))
        frame.collect()

    jobs = _jobs(spark, client, queues="slow", consumer="slow", ttr="200ms")
    with pytest.raises(PySparkException, match="for too long; drop the consumer"):
        _run(jobs, take, tmp_path)
    client.drop_consumer("slow")
    assert _counts(client, "slow") == (5, 0)


def _reader(client: Client, **options: str) -> queue_source.QueueStreamReader:
    given = {"url": str(client.address), **options}
    return queue_source.QueueStreamReader(
        SourceOptions(given, queue_source.KNOWN, queue_source.ALIASES)
    )


def _jobs(spark: SparkSession, client: Client, **options: Any) -> DataFrame:
    reading = spark.readStream.format("taskyard").option("url", str(client.address))
    return reading.options(**options).load()


def _run(jobs: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: Path) -> None:
    writing = jobs.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    _finish(writing.trigger(availableNow=True).start())


def _finish(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    finally:
        query.stop()


def _counts(client: Client, queue: str) -> tuple[int, int]:
    counts = client.queue(queue).counts
    return counts.ready, counts.leased
