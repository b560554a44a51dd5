"""The tables as views of a Spark session, all at the same moment."""

from typing import TYPE_CHECKING

from deltalake import DeltaTable

from taskyard.pipeline.lake.replay import SCHEMA, TABLE, replay_files
from taskyard.pipeline.lake.snapshot import Lake, data_files
from taskyard.pipeline.lake.tables import PUBLIC, WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def create_views(spark: "SparkSession", lake: Lake) -> None:
    """Also `replays`, those that there are by now, and `watermark` up to the same moment."""
    from pyspark.sql.pandas.types import from_arrow_schema

    for name in PUBLIC:
        lake.frame(spark, name).createOrReplaceTempView(name)
    files = replay_files(lake.path)
    schema = from_arrow_schema(SCHEMA, prefer_timestamp_ntz=False)
    replays = spark.read.parquet(*files) if files else spark.createDataFrame([], schema)
    replays.createOrReplaceTempView(TABLE)
    marks = spark.read.schema(from_arrow_schema(WATERMARK.schema, prefer_timestamp_ntz=False))
    root = lake.path / WATERMARK.name
    steps = marks.parquet(*data_files(root, DeltaTable(root)))
    steps.where(f"step <= {lake.watermark.step}").createOrReplaceTempView(WATERMARK.name)
