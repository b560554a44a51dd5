"""On a real cluster: executors read the journal by themselves, over HTTP or from its files; and
jobs go from queue to queue while server, executor and driver are killed.
"""

import random
from pathlib import Path
from typing import Final

from pipeline.cluster import Cluster
from pipeline.servers import Server

from taskyard.client.errors import QueueNotFound
from taskyard.client.sync import Client

# What the executors read, and then jobs of one queue into another, until there are no more.
PUMP: Final = """
http, path, url, checkpoint = arguments
by_url = spark.read.format("taskyard.events").option("url", http).load()
by_path = spark.read.format("taskyard.events").option("partitions", 4).load(path)
for frame in (by_url, by_path):
    counts = {row["event"]: row["count"] for row in frame.groupBy("event").count().collect()}
    print("read", counts.get("boot"), counts.get("finish"), flush=True)
print("master", spark.sparkContext.master, flush=True)
reading = spark.readStream.format("taskyard").option("url", url).option("queues", "in")
reading = reading.option("consumer", "pump").option("maxJobsPerBatch", "500")
jobs = reading.option("partitions", "2").load()
writing = jobs.select("payload").writeStream.format("taskyard").option("url", url)
writing = writing.option("queue", "out").option("checkpointLocation", checkpoint)
writing.trigger(availableNow=True).start().awaitTermination()
"""
JOBS: Final = 3000


def test_executors_read_and_write_and_nothing_is_lost_or_doubled_when_they_are_killed(
    cluster: Cluster, server: Server, tmp_path: Path
) -> None:
    """The uids are derived: nobody else would notice."""
    marks = sorted(random.sample(range(1, JOBS * 2 // 3), 3))
    with server.client() as client:
        server.work(60)
        client.push_many("in", [b"%d" % number for number in range(JOBS)])
        places = (server.http_url(), str(server.data), str(client.address))
        pump = (PUMP, *places, str(tmp_path / "checkpoint"))
        with cluster.driver(tmp_path, *pump) as first:
            first.wait_until(lambda: ready_in(client, "out") >= marks[0])
            said = first.log()
            assert "read 1 60\nread 1 " in said
            assert f"master {cluster.master}\n" in said
            server.kill()
            server.restart()
            first.wait_until(lambda: ready_in(client, "out") >= marks[1])
            cluster.kill_executors()
            first.wait_until(lambda: ready_in(client, "out") >= marks[2])
        with cluster.driver(tmp_path, *pump) as second:
            assert second.wait() == 0, second.log()
        left = client.queue("in").counts
        assert (left.ready, left.leased) == (0, 0)
        taken = [job for _ in range(JOBS // 1000 + 1) for job in client.fetch("out", count=1000)]
        assert sorted(int(job.payload) for job in taken) == list(range(JOBS)), marks


def ready_in(client: Client, queue: str) -> int:
    try:
        return client.queue(queue).counts.ready
    except QueueNotFound:
        return 0
