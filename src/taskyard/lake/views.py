"""The tables as views of a Spark session, all at the same moment."""

from typing import TYPE_CHECKING

from taskyard.lake.replay import SCHEMA, TABLE, replay_files
from taskyard.lake.snapshot import Lake
from taskyard.lake.tables import PUBLIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_views(spark: "SparkSession", lake: Lake) -> None:
    """Also `replays`: those that there are by now."""
    from pyspark.sql.pandas.types import from_arrow_schema

    for name in PUBLIC:
        lake.frame(spark, name).createOrReplaceTempView(name)
    files = replay_files(lake.path)
    schema = from_arrow_schema(SCHEMA, prefer_timestamp_ntz=False)
    replays = spark.read.parquet(*files) if files else spark.createDataFrame([], schema)
    replays.createOrReplaceTempView(TABLE)
