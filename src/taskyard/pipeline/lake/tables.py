"""The tables of a lake: their columns, their partitions, and the version of all that.

Knows nothing of Spark. A table's files hold all columns but the one that it is partitioned by,
which is in the file's path, as Delta wants it.
"""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from taskyard.pipeline.records.fields import TYPES

# Raised with every change of a table's meaning or columns; a lake of a newer one is refused.
SCHEMA_VERSION: Final = 1

TIME: Final = pa.timestamp("us", tz="UTC")
# Members are named as Delta and Spark name them.
_IDS: Final = pa.list_(pa.field("element", pa.int64()))
_NAMES: Final = pa.list_(pa.field("element", pa.string()))
# Open jobs are kept in files of so many neighbouring ids (a power of two), so that a batch
# rewrites only those that its events touch.
RANGE_BITS: Final = 16

# What is known of a run from the push of its job to its last start.
_RUN: Final = {
    "job_id": pa.int64(),
    "run": pa.int32(),
    "uid": pa.string(),
    "queue": pa.string(),
    "first_queue": pa.string(),
    "name": pa.string(),
    "dialect_in": pa.string(),
    "dialect_out": pa.string(),
    "user": pa.string(),
    "priority": pa.int64(),
    "content": pa.string(),
    "payload_size": pa.int64(),
    "pushed_at": TIME,
    "run_at": TIME,
    "ready_at": TIME,
    "started_at": TIME,
    "last_started_at": TIME,
    "run_seconds": pa.float64(),
    "attempts": pa.int32(),
    "retries": pa.int32(),
    "releases": pa.int32(),
    "blocked_by": _IDS,
    "payload": pa.binary(),
}

# How a run ended.
_CLOSING: Final = {
    "finished_at": TIME,
    "wait_seconds": pa.float64(),
    "total_seconds": pa.float64(),
    "outcome": pa.string(),  # succeeded, failed, deleted, purged, expired, withdrawn
    "way": pa.string(),
    "reason": pa.string(),
    "error": pa.string(),
    "error_class": pa.string(),
    "result_size": pa.int64(),
    "seq": pa.int64(),  # of the event that closed it
}

_JOBS: Final = {
    **_RUN,
    **_CLOSING,
    "result": pa.binary(),
    "date": pa.date32(),
}

_OPEN_JOBS: Final = {
    **_RUN,
    "state": pa.string(),  # blocked, delayed, ready, leased, failed (a dead letter)
    "began_at": TIME,  # of the run: the push, or what opened it again
    "ready_since": TIME,  # null unless it is ready
    "blockers_left": pa.int32(),
    "unblocked": pa.int32(),  # how many of blocked_by are done
    "worker": pa.string(),  # who has it, while it is leased, as what, and which attempt that is
    "worker_user": pa.string(),
    "attempt": pa.int32(),
    "waited_from": TIME,  # since when it was ready before this attempt
    **_CLOSING,  # of a dead letter
    "last_seq": pa.int64(),
    "last_time": TIME,
    "ids": pa.int64(),  # job_id >> RANGE_BITS
}

_ATTEMPTS: Final = {
    "job_id": pa.int64(),
    "run": pa.int32(),
    "attempt": pa.int32(),
    "queue": pa.string(),
    "name": pa.string(),
    "worker": pa.string(),
    "user": pa.string(),
    "dialect": pa.string(),
    "ready_at": TIME,
    "started_at": TIME,
    "ended_at": TIME,
    "wait_seconds": pa.float64(),
    "run_seconds": pa.float64(),
    "outcome": pa.string(),  # succeeded, retried, failed, released, removed, moved
    "reason": pa.string(),
    "error": pa.string(),
    "error_class": pa.string(),
    "seq": pa.int64(),  # of the event that ended it
    "date": pa.date32(),
}

# Of a queue in a minute; the last two are levels at its end.
COUNTS: Final = (
    *("arrivals", "starts", "finishes", "failures", "retries", "releases", "removals"),
    *("depth", "in_flight"),
)
PERCENTS: Final = (50, 95, 99)  # of waits and runs

_QUEUE_MINUTES: Final = {
    "queue": pa.string(),
    "minute": TIME,
    **dict.fromkeys(COUNTS, pa.int64()),
    **{f"{name}_p{percent}": pa.float64() for name in ("wait", "run") for percent in PERCENTS},
    "workers": pa.int64(),
    "date": pa.date32(),
}

_FAILURES: Final = {
    "queue": pa.string(),
    "name": pa.string(),
    "error_class": pa.string(),
    "message": pa.string(),
    "count": pa.int64(),
    "final": pa.int64(),
    "first_seen": TIME,
    "last_seen": TIME,
    "sample_jobs": _IDS,
    "sample_error": pa.string(),
}

# What the minute that is not over yet has come to, and how full the queues were before it:
# `minute` null is a queue's level; else a part of that minute, of which a queue may have several.
_MINUTE_STATE: Final = {
    "queue": pa.string(),
    "minute": TIME,
    "counts": _IDS,
    "waits": pa.binary(),  # float64 values, as the processor has them
    "runs": pa.binary(),
    "workers": _NAMES,
}

_REPLAYS: Final = {
    "job_id": pa.int64(),
    "run": pa.int32(),
    "uid": pa.string(),  # of the job that was pushed
    "from_queue": pa.string(),
    "to_queue": pa.string(),
    "again": pa.string(),
    "condition": pa.string(),
    "new": pa.bool_(),  # false: the lake had seen it come back, so it was not pushed
    "replayed_at": TIME,
}

_WATERMARK: Final = {
    "step": pa.int64(),  # of all changes of the lake: batches, and what keeps it in order
    "batch": pa.int64(),
    "timeline": pa.string(),
    "next_seq": pa.int64(),
    "last_time": TIME,
    "versions": pa.string(),  # JSON: table to version
    "schema_version": pa.int32(),
    "written_at": TIME,
}


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    schema: Any  # pyarrow.Schema
    partitioned_by: str | None = None

    @property
    def file_schema(self) -> Any:
        """What stands in its files."""
        return pa.schema([field for field in self.schema if field.name != self.partitioned_by])


def _table(name: str, columns: dict[str, Any], partitioned_by: str | None = None) -> Table:
    return Table(name, pa.schema(list(columns.items())), partitioned_by)


# Payload and result are null unless they were asked for.
EVENTS: Final = _table("events", {**TYPES, "date": pa.date32()}, "date")
JOBS: Final = _table("jobs", _JOBS, "date")
OPEN_JOBS: Final = _table("open_jobs", _OPEN_JOBS, "ids")
ATTEMPTS: Final = _table("attempts", _ATTEMPTS, "date")
QUEUE_MINUTES: Final = _table("queue_minutes", _QUEUE_MINUTES, "date")
FAILURES: Final = _table("failures", _FAILURES)
MINUTE_STATE: Final = _table("minute_state", _MINUTE_STATE)
WATERMARK: Final = _table("watermark", _WATERMARK)

# All but the watermark, in the order in which a batch commits them.
TABLES: Final = {
    table.name: table
    for table in (EVENTS, JOBS, OPEN_JOBS, ATTEMPTS, QUEUE_MINUTES, FAILURES, MINUTE_STATE)
}
# The jobs that `taskyard lake replay` has pushed: no step of the lake changes it.
REPLAYS: Final = _table("replays", _REPLAYS)

# What people ask questions of.
PUBLIC: Final = ("events", "jobs", "open_jobs", "attempts", "queue_minutes", "failures")
READABLE: Final = {
    **{name: TABLES[name] for name in PUBLIC},
    REPLAYS.name: REPLAYS,
    WATERMARK.name: WATERMARK,
}
