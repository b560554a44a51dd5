"""Jobs out of the lake, back into a queue: those that a condition in SQL picks, each once.

A job that is pushed back has a uid that is worked out from the lake, the job, its run and the queue
it goes to. So one that was pushed before is known: by the table `replays`, by the lake itself
where it has seen it come back, and by the server as long as that remembers uids.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from taskyard.pipeline.lake.disk import private
from taskyard.pipeline.lake.errors import LakeError
from taskyard.pipeline.lake.snapshot import Lake, data_files
from taskyard.pipeline.lake.tables import PUBLIC, TIME

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TABLE: Final = "replays"
SCHEMA: Final = pa.schema(
    [
        ("job_id", pa.int64()),
        ("run", pa.int32()),
        ("uid", pa.string()),  # of the job that was pushed
        ("from_queue", pa.string()),
        ("to_queue", pa.string()),
        ("again", pa.string()),
        ("condition", pa.string()),
        ("new", pa.bool_()),  # false: the lake had seen it come back, so it was not pushed
        ("replayed_at", TIME),
    ]
)

# What is to become of a job that was picked.
NEW: Final = "new"
RETURNED: Final = "returned"  # the lake has seen it come back, though no replay has said so
REPLAYED: Final = "replayed"
NO_PAYLOAD: Final = "no payload"
NO_PUSH: Final = "no push"

SAMPLE: Final = ("job_id", "run", "queue", "to_queue", "name", "outcome", "finished_at", "error")
_WHICH: Final = ("job_id", "run", "date")
_KEYS: Final = (*_WHICH, "queue", "to_queue", "uid", "fate")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asks for."""

    where: str
    to: str | None = None  # None: each to the queue where it was
    again: str = ""  # jobs that were replayed with another word are not known
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    new: int = 0
    returned: int = 0
    replayed: int = 0
    no_payload: int = 0
    no_push: int = 0

    @property
    def there(self) -> int:
        """They were replayed before."""
        return self.returned + self.replayed

    @property
    def left_out(self) -> int:
        return self.no_payload + self.no_push


class Replay:
    """Count, sample, push: all of the same jobs, as the lake had them when this was made."""

    def __init__(self, spark: "SparkSession", lake: Lake, wanted: Wanted) -> None:
        self._spark = spark
        self._lake = lake
        self._wanted = wanted
        self._jobs = _picked(spark, lake, wanted)
        self._keys = self._judged().persist()
        self._counts: Counts | None = None

    def __enter__(self) -> "Replay":
        return self

    def __exit__(self, *_: object) -> None:
        self._keys.unpersist()

    def counts(self) -> Counts:
        if self._counts is None:
            with _Explained():
                rows = self._keys.groupBy("fate").count().collect()
            found = {row["fate"].replace(" ", "_"): row["count"] for row in rows}
            self._counts = Counts(**found)
        return self._counts

    def sample(self, size: int) -> list[dict[str, Any]]:
        """Of those that would be pushed, the first."""
        rows = self._to_push().orderBy("job_id", "run").limit(size).select(*SAMPLE).collect()
        return [row.asDict() for row in rows]

    def uids(self) -> dict[int, str]:
        """Under which the jobs would come back, by their ids."""
        return {row["job_id"]: row["uid"] for row in self._keys.collect()}

    def push(self, url: str) -> None:
        """Returns when all are durable in the queues, and the lake knows that."""
        if self.counts().new:
            columns = ("to_queue", "name", "priority", "payload", "unhex(uid) as uid")
            writer = self._to_push().selectExpr(*columns).write.format("taskyard").mode("append")
            options = {"url": url, "queueColumn": "to_queue", "payload": "payload"}
            with _Explained():
                writer.options(**options).save()
        if self.counts().new or self.counts().returned:
            self._record()

    def _to_push(self) -> "DataFrame":
        """Those that were counted, not those that the condition picks by now: it may ask what
        time it is."""
        from pyspark.sql import functions as f
        from pyspark.sql.functions import col

        keys = self._keys.where(col("fate") == NEW).select(*_WHICH, "to_queue", "uid")
        jobs = self._lake.frame(self._spark, "jobs").drop("uid")
        bounds = keys.agg(f.min("date"), f.max("date"), f.min("job_id"), f.max("job_id")).collect()
        first, last, low, high = bounds[0]  # so that files without any of them are not read
        jobs = jobs.where(col("date").between(first, last) & col("job_id").between(low, high))
        return jobs.join(keys, list(_WHICH))

    def _judged(self) -> "DataFrame":
        """The keys of what was picked, and what is to become of each."""
        from pyspark.sql.functions import coalesce, col, lit, when

        spark, lake = self._spark, self._lake
        known = _replayed(spark, lake.path).withColumn("replayed", lit(True))
        seen = _seen(spark, lake).withColumn("returned", lit(True))
        unknown = col("payload_size").isNull() | col("name").isNull() | col("to_queue").isNull()
        fate = (
            when(col("replayed"), lit(REPLAYED))
            .when(col("returned"), lit(RETURNED))
            .when(unknown, lit(NO_PUSH))
            .when(col("payload").isNull() & (col("payload_size") > 0), lit(NO_PAYLOAD))
            .otherwise(lit(NEW))
        )
        uid = _uid(coalesce(col("to_queue"), lit("")), lake_id(lake), self._wanted.again)
        jobs = self._jobs.withColumn("uid", uid)
        joined = jobs.join(known, "uid", "left").join(seen, "uid", "left")
        return joined.withColumn("fate", fate).select(*_KEYS)

    def _record(self) -> None:
        """Those that are in their queues now, and those that the lake knows to have been."""
        from pyspark.sql.functions import col

        keys = self._keys.where(col("fate").isin(NEW, RETURNED)).toArrow()
        uids = sorted(keys["uid"].to_pylist())
        app = f"taskyard.replay.{hashlib.sha256(''.join(uids).encode()).hexdigest()[:32]}"
        if _has_transaction(self._lake.path / TABLE, app):
            return
        rows, now = keys.num_rows, datetime.now(UTC)
        columns = {
            "job_id": keys["job_id"],
            "run": keys["run"],
            "uid": keys["uid"],
            "from_queue": keys["queue"],
            "to_queue": keys["to_queue"],
            "again": [self._wanted.again] * rows,
            "condition": [self._wanted.where] * rows,
            "new": [fate == NEW for fate in keys["fate"].to_pylist()],
            "replayed_at": [now] * rows,
        }
        arrays = [
            pa.chunked_array([columns[f.name]], f.type)
            if isinstance(columns[f.name], list)
            else columns[f.name].cast(f.type)
            for f in SCHEMA
        ]
        with private():
            write_deltalake(
                self._lake.path / TABLE,
                pa.Table.from_arrays(arrays, schema=SCHEMA),
                mode="append",
                commit_properties=CommitProperties(app_transactions=[Transaction(app, 1)]),
            )


def lake_id(lake: Lake) -> str:
    """The same for as long as the lake has its events, also when its other tables are made anew."""
    return str(lake.table("events").metadata().id)


def _picked(spark: "SparkSession", lake: Lake, wanted: Wanted) -> "DataFrame":
    from pyspark.sql.functions import col, lit

    jobs = lake.frame(spark, "jobs")
    if re.search(r"\bselect\b", wanted.where, re.IGNORECASE):
        for name in PUBLIC:  # for what it asks beside the job itself
            lake.frame(spark, name).createOrReplaceTempView(name)
    with _Explained("the condition cannot be used"):
        picked = jobs.where(wanted.where)
    if wanted.limit is not None:
        picked = picked.orderBy("finished_at", "job_id", "run").limit(wanted.limit)
    target = col("queue") if wanted.to is None else lit(wanted.to)
    return picked.withColumn("to_queue", target)


def _uid(to_queue: "Column", lake: str, again: str) -> "Column":
    """A UUID of version 8, which is for everyone's own ways to make them, in the 32 digits in which
    the lake has uids.
    """
    from pyspark.sql.functions import col, concat, lit, sha2, substring

    zero = lit("\0")
    said = concat(
        lit(lake),
        zero,
        col("job_id").cast("string"),
        zero,
        col("run").cast("string"),
        zero,
        to_queue,
        zero,
        lit(again),
    )
    digest = sha2(said, 256)
    return concat(
        substring(digest, 1, 12),
        lit("8"),
        substring(digest, 13, 3),
        lit("a"),
        substring(digest, 16, 15),
    )


def replay_files(lake: Path) -> list[str]:
    """Of the table of those that were replayed."""
    try:
        return data_files(lake / TABLE, DeltaTable(lake / TABLE))
    except TableNotFoundError:
        return []


def _replayed(spark: "SparkSession", lake: Path) -> "DataFrame":
    files = replay_files(lake)
    if not files:
        return spark.createDataFrame([], "uid string")
    return spark.read.parquet(*files).select("uid").distinct()


def _seen(spark: "SparkSession", lake: Lake) -> "DataFrame":
    """The uids of all jobs that the lake knows."""
    closed, still_open = (lake.frame(spark, name).select("uid") for name in ("jobs", "open_jobs"))
    return closed.union(still_open).where("uid is not null").distinct()


def _has_transaction(table: Path, app: str) -> bool:
    try:
        return DeltaTable(table).transaction_version(app) is not None
    except TableNotFoundError:
        return False


class _Explained:
    """Errors of Spark as one sentence."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from pyspark.errors import PySparkException

        if isinstance(error, PySparkException):
            sentence = sentence_of(str(error))
            raise LakeError(f"{self._prefix}: {sentence}" if self._prefix else sentence) from error


_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\] ")
_RAISED: Final = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)


def sentence_of(text: str) -> str:
    """What Spark says, without traces; of an error in a task, what the task said."""
    raised = [said for name, said in _RAISED.findall(text) if name != "PythonException"]
    line = raised[-1] if "Traceback" in text and raised else text.strip().partition("\n")[0]
    line = _CONDITION.sub("", line).partition(" SQLSTATE")[0].strip()
    return line.rstrip(".;: ") or "Spark gave no reason"
