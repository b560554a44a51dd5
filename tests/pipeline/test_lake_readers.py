"""Whatever reads a lake finds the same rows, and those of one moment."""

import json
import threading
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pipeline.lake_runs import KEYS, assert_same, fill
from pipeline.oracle import Tables, compute, read_records
from pipeline.seaweed import S3
from pyspark.sql import SparkSession
from support.small_lake import closed_job
from support.small_lake import fill as fill_small

from taskyard.pipeline.lake import snapshot
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.snapshot import Lake, open_lake
from taskyard.pipeline.lake.storage import Storage
from taskyard.pipeline.lake.store import Store
from taskyard.pipeline.lake.tables import PUBLIC, TABLES

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def want(data: Path) -> Tables:
    return compute(read_records(data))


@pytest.fixture(scope="module", params=["disk", "s3"])
def lake(
    request: pytest.FixtureRequest,
    s3: S3,
    data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Lake:
    storage = Storage(s3.uri("read"), s3.options)
    if request.param == "disk":
        storage = Storage(tmp_path_factory.mktemp("lake"))
    fill(data, storage, 300)
    return open_lake(storage)


# Each gives the rows of a table.


def with_spark(spark: SparkSession, lake: Lake, name: str) -> Rows:
    reader = spark.read.format("taskyard.lake").options(**lake.storage.options)
    frame = reader.option("table", name).load(lake.storage.uri)
    rows: Rows = frame.toArrow().to_pylist()
    return rows


def with_spark_by_path(spark: SparkSession, lake: Lake, name: str) -> Rows:
    reader = spark.read.format("taskyard.lake").options(**lake.storage.options)
    rows: Rows = reader.load(f"{lake.storage.uri}/{name}").toArrow().to_pylist()
    return rows


def with_views(spark: SparkSession, lake: Lake, name: str) -> Rows:
    lake.create_views(spark)
    rows: Rows = spark.sql(f"select * from {name}").toArrow().to_pylist()
    return rows


def with_duckdb(spark: SparkSession, lake: Lake, name: str) -> Rows:
    with lake.connect() as connection:
        rows: Rows = connection.sql(f"select * from {name}").to_arrow_table().to_pylist()
        return rows


def with_polars(spark: SparkSession, lake: Lake, name: str) -> Rows:
    uri, options = lake.storage.table_uri(name), lake.storage.options or None
    rows: Rows = pl.scan_delta(uri, storage_options=options).collect().to_arrow().to_pylist()
    assert pl.read_delta(uri, storage_options=options).height == len(rows)
    return rows


def with_delta_rs(spark: SparkSession, lake: Lake, name: str) -> Rows:
    rows: Rows = lake.storage.table(name).to_pyarrow_table().to_pylist()
    return rows


@pytest.mark.parametrize(
    "rows_of", [with_spark, with_spark_by_path, with_views, with_duckdb, with_polars, with_delta_rs]
)
def test_all_readers_find_the_same_rows(spark: SparkSession, lake: Lake, rows_of: Any) -> None:
    for name in PUBLIC:
        key = KEYS.get(name, ("seq", "part"))
        expected = _sorted(lake.arrow(name).to_pylist(), key)
        assert expected
        assert _sorted(rows_of(spark, lake, name), key) == expected


def _sorted(rows: Rows, key: tuple[str, ...]) -> Rows:
    return sorted(rows, key=lambda row: json.dumps([row[name] for name in key], default=str))


def test_the_tables_are_the_right_ones(lake: Lake, want: Tables) -> None:
    assert_same(lake, want)


def test_questions_are_answered(spark: SparkSession, lake: Lake, want: Tables) -> None:
    """As people ask them, with filters that readers use to skip files."""
    query = "select outcome, count(*) as n from jobs where date >= '2026-01-01' group by outcome"
    expected: dict[str, int] = {}
    for row in want.jobs:
        expected[row["outcome"]] = expected.get(row["outcome"], 0) + 1
    lake.create_views(spark)
    assert {row["outcome"]: row["n"] for row in spark.sql(query).collect()} == expected
    with lake.connect() as connection:
        assert dict(connection.sql(query).fetchall()) == expected
    frame = DeltaTable(
        lake.storage.table_uri("jobs"), storage_options=lake.storage.options
    ).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.groupby("outcome").size().to_dict() == expected
    job = want.jobs[len(want.jobs) // 2]["job_id"]
    files = lake.files_of_job("jobs", job)
    rows = lake.arrow("jobs", filter=pc.field("job_id") == job, files=files).to_pylist()
    assert len(rows) == sum(row["job_id"] == job for row in want.jobs)


@pytest.mark.parametrize("name", list(TABLES))
def test_readers_that_skip_files_find_every_row(lake: Lake, name: str) -> None:
    """The log has bounds of some columns only: nothing may be taken for empty for that."""
    delta = lake.storage.table(name)
    partitioned_by = TABLES[name].partitioned_by
    assert delta.metadata().partition_columns == ([partitioned_by] if partitioned_by else [])
    rows = delta.to_pyarrow_table()
    dataset = delta.to_pyarrow_dataset()
    for column in rows.schema:
        values = rows[column.name].drop_null()
        if pa.types.is_nested(column.type) or not len(values):
            continue
        wanted = pc.field(column.name) == values[len(values) // 2]
        found = dataset.to_table(filter=wanted).num_rows
        assert (column.name, found) == (column.name, rows.filter(wanted).num_rows)


def test_watermarks_can_be_asked_for(spark: SparkSession, lake: Lake) -> None:
    lake.create_views(spark)
    query = "select batch, next_seq from watermark order by step"
    rows = [(row["batch"], row["next_seq"]) for row in spark.sql(query).collect()]
    assert [batch for batch, _ in rows] == list(range(1, lake.watermark.batch + 1))
    assert rows[-1][1] == lake.watermark.next_seq
    with lake.connect() as connection:
        assert connection.sql(query).fetchall() == rows


def test_reads_are_of_one_moment_while_the_lake_is_written(data: Path, tmp_path: Path) -> None:
    """A lake that was opened stays as it was, and none that is opened has half a batch."""
    writer = threading.Thread(target=fill, args=(data, tmp_path, 40))
    writer.start()
    seen: dict[int, Lake] = {}
    while writer.is_alive():
        try:
            lake = open_lake(tmp_path)
        except LakeError:
            continue  # nothing is finished yet
        if lake.watermark.batch not in seen:
            seen[lake.watermark.batch] = lake
            _assert_whole(lake, data)
    writer.join()
    assert len(seen) > 3
    for lake in seen.values():
        _assert_whole(Lake(lake.storage, lake.watermark), data)


def _assert_whole(lake: Lake, data: Path) -> None:
    records = [r for r in read_records(data) if r.seq < lake.watermark.next_seq]
    assert_same(lake, compute(records))
    assert lake.arrow("events", ["seq"]).num_rows >= len(records)


def test_frames_of_an_object_store_are_of_one_moment(spark: SparkSession, s3: S3) -> None:
    storage = Storage(s3.uri("moments"), s3.options)
    lakes = []
    for number in (1, 2):
        fill_small(storage, jobs=[closed_job(number)])
        lakes.append(open_lake(storage))
    assert [lake.frame(spark, "jobs").count() for lake in lakes] == [1, 2]


def test_pages_of_spark_show_no_credentials(spark: SparkSession, lake: Lake) -> None:
    names = ("aws_access_key_id", "azure_storage_account_key", "azure_storage_sas_token")
    reader = spark.read.format("taskyard.lake").options(**lake.storage.options, table="jobs")
    frame = reader.options(**dict.fromkeys(names, "hunter2")).load(lake.storage.uri)
    frame.createOrReplaceTempView("shown")
    given = ", ".join(f"{name} 'hunter2'" for name in names)
    spark.sql(
        "create or replace temporary view shown_too using `taskyard.lake` "
        f"options (path '{lake.storage.uri}', table 'jobs', {given})"
    )
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [
        executions.apply(number).physicalPlanDescription()
        for number in range(executions.size() - 2, executions.size())
    ]
    assert all("shown" in plan and names[0] in plan for plan in plans)
    assert not [plan for plan in plans if "hunter2" in plan]


def test_a_moment_that_is_gone_is_said_to_be(data: Path, tmp_path: Path) -> None:
    fill(data, tmp_path)
    lake = open_lake(tmp_path)
    for path in (tmp_path / "jobs" / "_delta_log").glob("*"):
        path.unlink()
    with pytest.raises(LakeError, match="version of jobs is not there any more"):
        lake.arrow("jobs")


def test_what_cannot_be_read_is_one_sentence(
    lake: Lake, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LakeError, match=r"there is no lake in .* yet; make one with"):
        open_lake(tmp_path)
    reader = spark.read.format("taskyard.lake").options(**lake.storage.options)
    with pytest.raises(Exception, match="a lake has no table 'job': it has events, jobs, "):
        reader.option("table", "job").load(lake.storage.uri)
    with pytest.raises(Exception, match="needs the path or the URI of a lake"):
        reader.load()
    monkeypatch.setattr(snapshot, "SCHEMA_VERSION", 0)
    for opening in (open_lake, Store):
        with pytest.raises(LakeError, match="was written by a newer Taskyard"):
            opening(Storage(lake.storage.uri, lake.storage.options))


def test_duckdb_reads_files_of_a_disk(lake: Lake, want: Tables) -> None:
    """For `delta_scan`, and for S3, it loads extensions from the network."""
    if lake.path is None:
        return
    files = DeltaTable(lake.storage.table_uri("jobs")).file_uris()
    query = f"select count(*) from read_parquet({files}, hive_partitioning = true)"
    with duckdb.connect() as connection:
        assert connection.execute(query).fetchall() == [(len(want.jobs),)]
