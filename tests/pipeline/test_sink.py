"""Rows pushed as jobs by a real Spark into a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from pyspark.errors import PySparkException

from taskyard.client.sync import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UID = "6e6fe2ea-0d1e-4b4b-8e9c-0a7c5c3e2f10"


def test_columns_say_what_a_job_is(spark: SparkSession, client: Client) -> None:
    later = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    rows = [
        ("mail", "send", [1, 2], 7, None, bytearray(UUID(UID).bytes), 2.5, None),
        ("mail", None, None, None, later, None, None, "k"),
    ]
    schema = (
        "queue string, name string, numbers array<int>, urgency int, run_at timestamp, "
        "uid binary, ttr double, key string"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    _write(frame, client, payload="numbers", priorityColumn="urgency", ttl="1h")
    [job] = client.fetch("mail")
    assert (job.uid, job.name, job.payload) == (UID, "send", b"[1,2]")
    view = client.inspect(job)
    assert (view.priority, view.ttr, view.ttl) == (7, 2.5, 3600)
    [delayed] = client.jobs("mail", state="delayed")
    assert delayed.run_at == later
    assert delayed.name == "mail"
    assert delayed.payload_size == 0


def test_options_have_the_names_of_other_sinks_too(spark: SparkSession, client: Client) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) as payload").coalesce(1)
    for batch in (7, 7, 8):
        _write(frame, client, topic="named", txnAppId="orders", txnVersion=batch)
    assert client.queue("named").counts.ready == 20
    frame.write.format("taskyard").option("url", str(client.address)).mode("append").save("saved")
    assert client.queue("saved").counts.ready == 10


def test_a_column_of_any_type_is_json_as_of_one_row(spark: SparkSession, client: Client) -> None:
    frame = spark.sql(
        "select timestamp '2026-01-02 03:04:05.5' as at, timestamp_ntz '2026-01-02 03:04:05' as "
        "local, date '2026-01-02' as day, cast(1.5 as decimal(9,2)) as money, x'00ff' as bytes, "
        "cast('NaN' as double) as none, cast(0.1 as float) as single, map('a', array(1, null)) as "
        "map, map(1, 2) as numbers, interval '1 2:00:01.5' day to second as span, named_struct('d',"
        " array(date '2026-01-02')) as inner, cast(1 as tinyint) as small, void as missing from "
        "(select null as void)"
    )
    _write(frame, client, payload="*", queue="types")
    [job] = client.fetch("types")
    assert job.payload.decode() == (
        '{"at":"2026-01-02T03:04:05.500000Z","local":"2026-01-02T03:04:05.000000",'
        '"day":"2026-01-02","money":1.50,"bytes":"AP8=","none":null,"single":0.1,'
        '"map":{"a":[1,null]},"numbers":{"1":2},"span":93601.5,"inner":{"d":["2026-01-02"]},'
        '"small":1,"missing":null}'
    )


def test_what_was_written_once_is_not_written_again(spark: SparkSession, client: Client) -> None:
    frame = spark.range(0, 3000, 1, 3).selectExpr("cast(id % 10 as string) as payload")
    for _ in range(2):
        _write(frame, client, queue="once", queryId="nightly 2026-01-02")
    assert client.queue("once").counts.ready == 3000
    # They are known when they are done, too.
    while jobs := client.fetch("once", count=1000):
        client.ack_many(jobs)
    _write(frame, client, queue="once", queryId="nightly 2026-01-02")
    assert client.queue("once").counts.ready == 0
    # A write without a name is one of its own.
    for _ in range(2):
        _write(frame, client, queue="own")
    assert client.queue("own").counts.ready == 6000


def test_a_uid_of_another_queue_is_an_error_and_no_row_is_left_out(
    spark: SparkSession, client: Client
) -> None:
    uids = [client.push("there", uid=uuid4()).uid for _ in range(2)]
    frame = spark.createDataFrame([(uid,) for uid in uids], "uid string").coalesce(1)
    _write(frame, client, payload="*", queue="there")  # known
    assert client.queue("there").counts.ready == 2
    with pytest.raises(PySparkException) as raised:
        _write(frame, client, payload="*", queue="elsewhere")
    assert f"row 0 of partition 0 was refused by {client.address}: UIDTAKEN" in str(raised.value)


def test_errors_name_column_and_row(spark: SparkSession, client: Client) -> None:
    frame = spark.sql("select 'x' as payload, if(id = 3, -1, 1) as ttl from range(0, 5, 1, 1)")
    with pytest.raises(PySparkException) as raised:
        _write(frame, client, queue="wrong")
    assert "column ttl, row 3 of partition 0: -1 cannot be the ttl of a job" in str(raised.value)
    assert "wrong" not in [queue.name for queue in client.queues()]
    frame = spark.sql(
        "select repeat('x', if(id = 7, 2000000, 1)) as payload from range(0, 10, 1, 1)"
    )
    with pytest.raises(PySparkException) as raised:
        _write(frame, client, queue="long")
    assert f"row 7 of partition 0 was refused by {client.address}" in str(raised.value)


def _write(frame: DataFrame, client: Client, **options: Any) -> None:
    wanted = {"url": str(client.address), **options}
    frame.write.format("taskyard").options(**wanted).mode("append").save()
