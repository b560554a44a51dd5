"""What is wrong with columns and options is said before anything is pushed: without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from taskyard.pipeline.spark.options import OptionError, SourceOptions
from taskyard.pipeline.spark.queue import QueueDataSource

URL = "taskyard://localhost"
_PAYLOAD = t.StructField("payload", t.StringType())


@pytest.mark.parametrize(
    ("fields", "options", "reason"),
    [
        ([_PAYLOAD], {}, "where to?"),
        ([t.StructField("body", t.StringType())], {"queue": "q"}, "no column payload, only body"),
        ([_PAYLOAD], {"queue": "no good"}, "without spaces"),
        ([_PAYLOAD], {"queue": "q", "name": ""}, "without spaces"),
        ([_PAYLOAD], {"queue": "q", "ttl": "soon"}, "ttl must be a duration like"),
        ([_PAYLOAD], {"queue": "q", "retries": "-2"}, "retries must be a number from -1"),
        ([_PAYLOAD], {"queue": "q", "prioritty": "1"}, "there is no option prioritty, only"),
        ([_PAYLOAD], {"queue": "q", "txnVersion": "1"}, "a df.write of a queryId (or txnAppId)"),
        ([_PAYLOAD], {"queue": "q", "topic": "q"}, "the option queue is given twice"),
        ([_PAYLOAD], {"queue": "q", "uidColumn": "u"}, "uidColumn: there is no column u"),
        ([_PAYLOAD], {"queue": "q", "url": "redis://x"}, "not a URL like taskyard://"),
        ([_PAYLOAD], {"queue": "q", "url": ""}, "the option url is needed"),
        ([_PAYLOAD], {"queue": "q", "mode": "upsert"}, "mode must be jobs or results"),
        (
            [_PAYLOAD, t.StructField("priority", t.StringType())],
            {"queue": "q"},
            "column priority is a string, and priority must be one of tinyint",
        ),
        (
            [_PAYLOAD, t.StructField("run_at", t.TimestampNTZType())],
            {"queue": "q"},
            "It has no time zone: cast it to timestamp",
        ),
        (
            [t.StructField("payload", t.VariantType())],
            {"queue": "q"},
            "column payload is a variant, of which no JSON can be made",
        ),
        (
            [_PAYLOAD, *(t.StructField(name, t.StringType()) for name in ("uid", "ref"))],
            {"queue": "q"},
            'a server that knows their uids takes no second job with one: .option("uidColumn", "")',
        ),
        ([_PAYLOAD], {"mode": "results"}, "needs the column ref"),
        (
            [t.StructField("ref", t.StringType()), _PAYLOAD],
            {"mode": "results"},
            "no use for column payload",
        ),
        (
            [t.StructField("ref", t.StringType()), t.StructField("error", t.LongType())],
            {"mode": "results"},
            "column error is a bigint, not a string",
        ),
    ],
)
def test_rows_that_cannot_be_written(
    fields: list[t.StructField], options: dict[str, str], reason: str
) -> None:
    source = QueueDataSource({"url": URL, **options})
    with pytest.raises(OptionError) as raised:
        source.writer(t.StructType(fields), False)
    assert reason in str(raised.value)


def test_a_stream_numbers_its_batches_itself() -> None:
    source = QueueDataSource({"url": URL, "queue": "q", "queryId": "one", "txnVersion": "1"})
    source.writer(t.StructType([_PAYLOAD]), False)
    with pytest.raises(OptionError, match="a stream numbers its batches itself"):
        source.streamWriter(t.StructType([_PAYLOAD]), False)


def test_a_column_that_means_something_else_can_be_left_alone() -> None:
    fields = [_PAYLOAD, t.StructField("priority", t.StringType())]
    source = QueueDataSource({"url": URL, "queue": "q", "prioritycolumn": ""})
    source.writer(t.StructType(fields), False)


def test_a_password_is_not_shown() -> None:
    for wrong in ("taskyard://ann:sec/ret@host", "http://ann:secret@host"):
        with pytest.raises(OptionError) as raised:
            SourceOptions({"url": wrong}, ("url",)).address()
        assert "sec" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"consumer": "c"}, "the option queues is needed"),
        ({"queues": "a,b"}, "the option consumer is needed"),
        ({"queues": "a,,b", "consumer": "c"}, "queues: ''"),
        ({"queues": "a", "consumer": "c d"}, "consumer: 'c d'"),
        ({"queues": "a", "consumer": "c", "maxJobsPerBatch": "0"}, "from 1 to 1000000, not '0'"),
        ({"queues": "a", "consumer": "c", "queue": "b"}, "there is no option queue, only"),
        (
            {"queues": "a", "consumer": "c", "maxJobsPerTrigger": "5", "maxJobsPerBatch": "5"},
            "the option maxJobsPerBatch is given twice",
        ),
    ],
)
def test_a_stream_that_cannot_be_read(options: dict[str, str], reason: str) -> None:
    source = QueueDataSource({"url": URL, **options})
    with pytest.raises(OptionError) as raised:
        source.streamReader(t.StructType([]))
    assert reason in str(raised.value)


def test_jobs_are_not_read_without_being_leased() -> None:
    with pytest.raises(OptionError, match="read as a stream"):
        QueueDataSource({}).reader(t.StructType([]))
