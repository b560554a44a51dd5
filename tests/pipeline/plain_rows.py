"""The rows of events the plain way: one record after the other, as the engine reads them."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from taskyard.engine.model.job import DIALECT_NAMES, JSON
from taskyard.engine.records import entities as s
from taskyard.engine.records import job_changes as j
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records.describe import describe_masked
from taskyard.engine.records.entities import ScheduleGone, ScheduleSet, ScheduleTick
from taskyard.pipeline.records.fields import ALL_COLUMNS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
NOT_IN_DETAILS = {"seq", "time", "event", "dialect", "user", "holder", "queue", "consumer"}
NOT_IN_DETAILS |= {"number", "session_event"}
INT_MAX = 2**31 - 1

Row = dict[str, Any]


def plain_rows(records: Iterable[r.Record]) -> list[Row]:
    """Of records with their numbers and blobs."""
    found: list[Row] = []
    for record in records:
        if record.kind() < r.FIRST_SNAPSHOT:
            found += rows_of(record)
    return found


def rows_of(record: r.Record) -> list[Row]:
    row: Row = dict.fromkeys(ALL_COLUMNS)
    row |= {
        "seq": record.seq,
        "part": 0,
        "time": moment(record.time),
        "event": r.EVENT_NAMES[record.kind()],
        "dialect": word(DIALECT_NAMES, record.origin.dialect),
        "user": record.origin.user or None,
        "holder": record.origin.holder or None,
    }
    if isinstance(record, s.BatchRecord):
        return batch_rows(record, row)
    if isinstance(record, j.JobRecord | r.PushRecord | r.LeaseRecord | r.FinishRecord):
        row |= {"job_id": record.id, "queue": text(record.queue)}
        return [row | job_columns(record)]
    return [row | other_columns(record)]


def job_columns(record: Any) -> Row:
    number = {"attempt": min(record.attempt, INT_MAX)} if hasattr(record, "attempt") else {}
    match record:
        case r.PushRecord():
            return push_columns(record)
        case r.LeaseRecord() | j.ExtendRecord():
            return {**number, "deadline": moment(record.deadline)}
        case r.FinishRecord():
            reason, result = word(r.FINISH_WAYS, record.way), record.blob or None
            told = {"reason": reason, "result_size": record.blob_size, "result": result}
            return {**number, **told, "uid": hexadecimal(record.uid)}
        case j.RetryRecord():
            return {**number, "run_at": moment(record.run_at), **error_columns(record)}
        case j.ReleaseRecord():
            return {**number, "reason": word(r.RELEASE_REASONS, record.reason)}
        case j.FailRecord():
            told = {"explicit": record.explicit, "reason": record.reason or None}
            told["to_queue"] = record.dead_queue or None
            return {**number, **told, **error_columns(record)}
        case j.UnblockRecord():
            return {"blocker": record.blocker}
        case j.RemoveRecord():
            reason = word(r.REMOVE_CAUSES, record.cause)
            return {"reason": reason, "ended": record.ended, "uid": hexadecimal(record.uid)}
        case j.MoveRecord():
            return {"to_queue": text(record.to)}
        case j.RescoreRecord():
            return {"priority": record.priority}
        case j.ProgressRecord():
            return {**number, "permille": record.permille, "message": record.message or None}
        case _:
            return {}


def push_columns(record: r.PushRecord) -> Row:
    job = record.job
    return {
        "uid": hexadecimal(job.uid),
        "name": job.name or None,
        "priority": job.priority,
        "content": "json" if job.content == JSON else "opaque",
        "payload_size": record.blob_size,
        "payload": record.blob,
        "run_at": moment(job.run_at),
        "blocked_by": record.blockers or None,
        "key": text(job.key),
        "limit_key": text(job.limit_key),
        "ttl_ms": min(job.ttl_ms, 2**63 - 1) or None,
    }


def error_columns(record: r.Record) -> Row:
    error = record.blob.decode(errors="replace") or None
    return {"error_size": record.blob_size, "error": error}


def batch_rows(record: s.BatchRecord, row: Row) -> list[Row]:
    row |= {"consumer": record.consumer or None, "batch": record.number}
    row |= {"deadline": moment(record.deadline)}
    queues = [q for q, n in zip(record.queues, record.counts, strict=True) for _ in range(n)]
    parts = [
        {
            **row,
            "part": number + 1,
            "event": "lease",
            "job_id": record.ids[number],
            "queue": text(queues[number]),
            "attempt": record.attempts[number] or None,
        }
        for number in range(len(record.ids))
    ]
    details = json.dumps({"owner": record.owner, "epoch": record.epoch})
    return [{**row, "details": details}, *parts]


def other_columns(record: r.Record) -> Row:
    shown = describe_masked(b"", record)
    details = {name: value for name, value in shown.items() if name not in NOT_IN_DETAILS}
    row: Row = {"details": json.dumps(details, ensure_ascii=False)}
    if isinstance(record, s.BatchDone):
        row |= {"consumer": record.consumer, "batch": record.number}
    elif isinstance(record, s.SessionChange):
        row["reason"] = shown["session_event"]
    elif isinstance(record, s.QueueSet | s.QueueGone | ScheduleGone | ScheduleTick):
        row["queue"] = text(record.queue)
    elif isinstance(record, ScheduleSet):
        row["queue"] = record.schedule.job.queue
    return row


def moment(time: int) -> datetime | None:
    if not time:
        return None
    try:
        return EPOCH + timedelta(microseconds=time)
    except OverflowError:
        return LAST


def text(value: bytes | None) -> str | None:
    return value.decode(errors="backslashreplace") or None if value is not None else None


def hexadecimal(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def word(words: tuple[str, ...], number: int) -> str:
    return words[number] if number < len(words) else str(number)
