"""A driver of its own: jobs of one queue through Spark into another, until there are no more."""

from __future__ import annotations

import sys

from taskyard.spark import session


def main(master: str, url: str, checkpoint: str) -> None:
    memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
    spark = session(master, ui=False, conf=memory)
    reading = spark.readStream.format("taskyard").option("url", url).option("queues", "in")
    reading = reading.option("consumer", "pump").option("maxJobsPerBatch", "500")
    jobs = reading.option("partitions", "2").load()
    writing = jobs.select("payload").writeStream.format("taskyard").option("url", url)
    writing = writing.option("queue", "out").option("checkpointLocation", checkpoint)
    writing.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
