"""Has Spark do a bit of all that the tests do, so that it loads the classes for it."""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.journals import drain, written

import taskyard.spark


def main(place: Path) -> None:
    conf = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    spark = taskyard.spark.session("local[2]", conf=conf)
    written(place / "data", 3).journal.close()
    drain(spark, place / "checkpoint", {"path": str(place / "data")})
    events = spark.read.format("taskyard.events").load(str(place / "data"))
    events.write.parquet(str(place / "events"))
    spark.read.parquet(str(place / "events")).createOrReplaceTempView("events")
    spark.sql(
        "select event, count(*) as n, percentile(seq, 0.5) from events "
        "where seq in (select max(seq) over (partition by event) from events) "
        "group by event order by n"
    ).toArrow()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()  # which ends it, and when it ends it writes the archive
    gateway.proc.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
