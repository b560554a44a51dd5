"""On a real cluster executors read the journal by themselves, over HTTP or from its files."""

from pathlib import Path

from spark.cluster import Cluster
from spark.servers import url_of, work
from support.process import ServerProcess

COUNTS = """
url, path = arguments
by_url = spark.read.format("taskyard.events").option("url", url).load()
by_path = spark.read.format("taskyard.events").option("partitions", 4).load(path)
for frame in (by_url, by_path):
    print(sorted((row["event"], row["count"]) for row in frame.groupBy("event").count().collect()))
print("workers", spark.sparkContext.master)
"""


def test_executors_of_a_cluster_read_by_themselves(cluster: Cluster, tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        work(server, 60)
        told = cluster.run(COUNTS, url_of(server), str(server.data))
    by_url, by_path, master = told.splitlines()
    assert by_url == "[('boot', 1), ('finish', 60), ('lease', 60), ('push', 60)]"
    assert by_path.startswith("[('boot', 1), ('finish', ")
    assert master == f"workers {cluster.master}"
