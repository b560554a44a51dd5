"""Records as plain values, for people and for JSON: the names that a dump shows."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime, timedelta
from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.job import DIALECT_NAMES, FAILS_DEFAULT, JSON, STATE_NAMES, Policy
from taskyard.engine.model.state import FIRST_SESSION_ID
from taskyard.engine.records import job_lifecycle as r
from taskyard.engine.records import snapshots as c
from taskyard.engine.records.entities import QueueSet, ScheduleSet, ScheduleSnapshot
from taskyard.engine.schedules.schedule import MISSED_RULES, OUTCOMES, OVERLAP_RULES, Schedule

_MAY_BE_SESSIONS: Final = ("id", "owner", "notify")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DATE: Final = 253_402_300_800_000_000  # the year 10,000
_SESSION_EVENTS: Final = ("opened", "detached", "attached", "delivered", "closed")

# What each kind has beside time and origin. Names, keys and uids are shown as text.
_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    r.BOOT: ("epoch", "version"),
    r.PUSH: ("id", "queue"),
    r.LEASE: ("id", "queue", "attempt", "owner", "bound", "epoch", "deadline"),
    r.FINISH: ("id", "queue", "attempt", "way", "kept_until", "uid"),
    r.RETRY: ("id", "queue", "attempt", "run_at", "keyless"),
    r.RELEASE: ("id", "queue", "attempt", "reason", "keyless"),
    r.FAIL: ("id", "queue", "attempt", "explicit", "reason", "dead_queue"),
    r.WAKE: ("id", "queue"),
    r.UNBLOCK: ("id", "queue", "blocker"),
    r.REMOVE: ("id", "queue", "cause", "ended", "uid"),
    r.MOVE: ("id", "queue", "to", "front"),
    r.RESCORE: ("id", "queue", "priority"),
    r.EXTEND: ("id", "queue", "attempt", "deadline"),
    r.REPLAY: ("id", "queue", "keyless"),
    r.QUEUE: ("queue",),
    r.QUEUE_GONE: ("queue",),
    r.VALUE: ("key", "expires_at", "keep"),
    r.VALUE_GONE: ("key",),
    r.SESSION: ("id", "event", "upto"),
    r.BATCH: (
        "consumer",
        "number",
        "owner",
        "epoch",
        "deadline",
        "ids",
        "queues",
        "counts",
        "attempts",
    ),
    r.BATCH_DONE: ("consumer", "number", "dropped", "expired"),
    r.FORGET: ("before",),
    r.READER: ("name", "next_seq", "lease_until"),
    r.READER_GONE: ("name",),
    r.SCHEDULE: ("queue",),
    r.SCHEDULE_GONE: ("name", "queue"),
    r.SCHEDULE_TICK: ("name", "queue", "due", "outcome", "job", "missed", "next_at"),
    r.PROGRESS: ("id", "queue", "attempt", "permille", "message"),
    r.SNAPSHOT_JOB: (
        "id",
        "queue",
        "name",
        "state",
        "priority",
        "position",
        "content",
        "attempts",
        "fails",
        "losses",
        "leases",
        "pushed_at",
        "run_at",
        "finished_at",
        "payload_at",
        "payload_size",
    ),
    r.SNAPSHOT_QUEUE: ("queue", "number", "tat"),
    r.SNAPSHOT_VALUE: ("key", "expires_at"),
    r.SNAPSHOT_SESSION: (),
    r.SNAPSHOT_CONSUMER: (),
    r.SNAPSHOT_READER: ("name", "next_seq", "lease_until"),
    r.SNAPSHOT_SCHEDULE: (),
    r.SNAPSHOT_KEY_LIMITS: ("queue", "keys", "tats"),
    r.SNAPSHOT_TOMBSTONES: ("since", "first", "ids", "uids"),
    r.CHECKPOINT: ("base", "epoch", "next_id"),
}
_BLOBS: Final = {
    r.PUSH: "payload",
    r.FINISH: "result",
    r.RETRY: "error",
    r.FAIL: "error",
    r.VALUE: "value",
    r.SNAPSHOT_VALUE: "value",
}
_TIMES: Final = (
    "before",
    "deadline",
    "due",
    "expires_at",
    "finished_at",
    "kept_until",
    "last_at",
    "lease_until",
    "next_at",
    "pushed_at",
    "run_at",
    "since",
)
_OPTIONAL_FIELDS: Final = (
    "uid",
    "key",
    "limit_key",
    "ttl_ms",
    "expires_at",
    "reason",
)  # left out if a job has none
# Numbers that stand for words, by kind.
_WORDS: Final = {
    r.FINISH: ("way", r.FINISH_WAYS),
    r.RELEASE: ("reason", r.RELEASE_REASONS),
    r.REMOVE: ("cause", r.REMOVE_CAUSES),
    r.SESSION: ("session_event", _SESSION_EVENTS),
    r.SCHEDULE_TICK: ("outcome", OUTCOMES),
    r.SNAPSHOT_JOB: ("state", STATE_NAMES),
}
_SETTINGS: Final = (
    "created",
    "paused",
    "retries",
    "result_retention",
    "dead_retention",
    "backoff",
    "backoff_base",
    "backoff_cap",
    "max_jobs",
    "max_bytes",
    "overflow",
    "draining",
    "ttr",
    "concurrency",
    "rate_count",
    "rate_period",
    "key_concurrency",
    "key_rate_count",
    "key_rate_period",
    "idle_expiry",
)
_COUNTERS: Final = (  # in the order of Queue.counters
    "pushed",
    "leases",
    "finished",
    "failed",
    "retried",
    "released",
    "expired",
    "removed",
)
_COUNTS: Final = (
    "jobs",
    "queues",
    "values",
    "sessions",
    "consumers",
    "readers",
    "schedules",
)  # and of State.counts
_LEASE: Final = ("owner", "bound", "holder", "epoch", "attempt", "since", "deadline")
_SESSION: Final = ("id", "attached", "since", "numbered", "delivered")
_NOTICE: Final = ("number", "job", "label", "stage")
_CONSUMER: Final = ("owner", "number", "open", "expired", "deadline")
_SCHEDULE: Final = (
    "name",
    "cron",
    "every",
    "paused",
    "since",
    "next_at",
    "last_at",
    "last_job",
    "runs",
    "skipped",
    "missed",
)


def describe(record: r.Record, blobs: bool) -> dict[str, object]:
    """The record as JSON can have it; with `blobs`, its payload, result, error or value too."""
    kind = record.kind()
    origin = record.origin
    found: dict[str, object] = {
        "seq": record.seq,
        "time": iso_time(record.time),
        "event": r.EVENT_NAMES[kind],
        "dialect": _word(DIALECT_NAMES, origin.dialect),
    }
    if origin.user:
        found["user"] = origin.user
    if origin.holder:
        found["holder"] = origin.holder
    for name in _FIELDS[kind]:
        field: object = getattr(record, name)
        if name != "uid" or field is not None:
            found[_shown_name(kind, name)] = _plain(name, field)
    words = _WORDS.get(kind)
    if words is not None:
        found[words[0]] = _word(words[1], _number(found[words[0]]))
    if isinstance(record, r.PushRecord):
        _describe_job(record, found)
    elif isinstance(record, r.BootRecord) and record.next_id:
        found["next_id"] = int(record.next_id)
    elif isinstance(record, QueueSet):
        found["settings"] = _fields(record.settings, _SETTINGS)
    elif isinstance(record, ScheduleSet):
        _describe_schedule(record.schedule, blobs, found)
    elif kind >= r.FIRST_SNAPSHOT:
        _describe_snapshot(record, blobs, found)
    _describe_blob(record, blobs, found)
    return found


def describe_masked(salt: bytes, record: r.Record) -> dict[str, object]:
    """Describe the record without its blob, for clients that may not take over others' sessions.

    The id of a Glovebox session is a secret of its client, and another number stands for it here.
    """
    found = describe(record, False)
    for name in _MAY_BE_SESSIONS:
        number = found.get(name)
        if isinstance(number, int):
            found[name] = masked_session_id(salt, number)
    return found


def masked_session_id(salt: bytes, number: int) -> int:
    """Return one number per session, from which its id cannot be found; others stay."""
    if number < FIRST_SESSION_ID:
        return number
    octets = number.to_bytes(8, "big")
    digest = hashlib.blake2b(octets, key=salt, digest_size=8).digest()
    return FIRST_SESSION_ID | int.from_bytes(digest, "big") % FIRST_SESSION_ID


def iso_time(time: i64) -> object:
    """A time as text with its microseconds; the number itself beyond what a date can say."""
    if not 0 <= time < _LAST_DATE:
        return int(time)
    moment = _EPOCH + timedelta(microseconds=int(time))
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _describe_job(record: r.PushRecord, found: dict[str, object]) -> None:
    job = record.job
    found["name"] = job.name
    found["priority"] = int(job.priority)
    found["content"] = "json" if job.content == JSON else "opaque"
    if job.front:
        found["front"] = True
    if job.run_at:
        found["run_at"] = iso_time(job.run_at)
    if job.uid is not None:
        found["uid"] = job.uid.hex()
    if job.key is not None:
        found["key"] = _text(job.key)
    if job.limit_key is not None:
        found["limit_key"] = _text(job.limit_key)
    if job.ttl_ms:
        found["ttl_ms"] = job.ttl_ms
    if record.blockers:
        found["blocked_by"] = record.blockers
    if job.notify is not None:
        found["notify"] = int(job.notify.session)
    _describe_policy(job.policy, found)


def _describe_policy(policy: Policy, found: dict[str, object]) -> None:
    found["ttr"] = int(policy.ttr)
    found["max_attempts"] = int(policy.max_attempts)
    found["max_fails"] = None if policy.max_fails == FAILS_DEFAULT else int(policy.max_fails)
    if policy.dead_queue:
        found["dead_queue"] = policy.dead_queue


def _describe_snapshot(record: r.Record, blobs: bool, found: dict[str, object]) -> None:
    if isinstance(record, c.JobSnapshot):
        _describe_job_snapshot(record, blobs, found)
    elif isinstance(record, c.QueueSnapshot):
        found["settings"] = _fields(record.settings, _SETTINGS)
        found["counters"] = _named(_COUNTERS, record.counters)
    elif isinstance(record, c.SessionSnapshot):
        found.update(_fields(record.session, _SESSION))
        found["outbox"] = [
            {"time": iso_time(letter.time), **_fields(letter, _NOTICE)}
            for letter in record.session.outbox
        ]
    elif isinstance(record, c.ConsumerSnapshot):
        found["consumer"] = record.consumer.name
        found.update(_fields(record.consumer, _CONSUMER))
        found["ids"] = record.consumer.ids.tolist()  # JSON has no arrays of its kind
    elif isinstance(record, ScheduleSnapshot):
        _describe_schedule(record.schedule, blobs, found)
    elif isinstance(record, c.Checkpoint):
        found["counts"] = _named(_COUNTS, record.counts)


def _describe_schedule(schedule: Schedule, blobs: bool, found: dict[str, object]) -> None:
    job = schedule.job
    found.update(_fields(schedule, _SCHEDULE))
    found["timezone"] = schedule.zone
    found["missed_rule"] = _word(MISSED_RULES, schedule.missed_rule)
    found["overlap"] = _word(OVERLAP_RULES, schedule.overlap)
    found["set_by"] = schedule.user
    found["queue"] = job.queue
    found["task"] = job.name
    found["priority"] = int(job.priority)
    found["content"] = "json" if job.content == JSON else "opaque"
    if job.key is not None:
        found["key"] = _text(job.key)
    if job.limit_key is not None:
        found["limit_key"] = _text(job.limit_key)
    if job.ttl_ms:
        found["ttl_ms"] = job.ttl_ms
    _describe_policy(job.policy, found)
    found["payload_size"] = len(job.payload)
    if blobs:
        _show_blob("payload", job.payload, found)


def _describe_job_snapshot(record: c.JobSnapshot, blobs: bool, found: dict[str, object]) -> None:
    found["content"] = "json" if record.content == JSON else "opaque"
    found["origin"] = _word(DIALECT_NAMES, record.dialect)  # the protocol it was pushed over
    _describe_policy(record.policy, found)
    lease = record.lease
    if lease is not None:
        found["lease"] = _fields(lease, _LEASE)
    extra = record.extras
    if extra is not None:
        for name in _OPTIONAL_FIELDS:
            field: object = getattr(extra, name)
            if field:
                found[name] = _plain(name, field)
        if extra.blockers:
            found["blocked_by"] = sorted(extra.blockers)
        if extra.notify is not None:
            found["notify"] = int(extra.notify.session)
        if extra.has_result:
            found["result_at"] = int(extra.result_at)
            found["result_size"] = int(extra.result_size)
        if extra.error_size:
            found["error_at"] = int(extra.error_at)
            found["error_size"] = int(extra.error_size)
    _describe_moved_blobs(record, blobs, found)


def _describe_moved_blobs(record: c.JobSnapshot, blobs: bool, found: dict[str, object]) -> None:
    """Which of the job's blobs stand in this record from now on; the others stay elsewhere."""
    moves = record.moves
    extra = record.extras
    parts: list[tuple[str, i64]] = []
    if moves & c.MOVES_PAYLOAD:
        parts.append(("payload", record.payload_size))
    if extra is not None and moves & c.MOVES_RESULT:
        parts.append(("result", extra.result_size))
    if extra is not None and moves & c.MOVES_ERROR:
        parts.append(("error", extra.error_size))
    at = record.blob_at
    start: i64 = 0
    for name, size in parts:
        found[f"{name}_at"] = int(at + start)
        if blobs:
            _show_blob(name, record.blob[start : start + size], found)
        start += size
    if moves & c.ERROR_IS_RESULT:
        found["error_at"] = found.get("result_at")


def _describe_blob(record: r.Record, blobs: bool, found: dict[str, object]) -> None:
    name = _BLOBS.get(record.kind())
    if name is None:
        return
    found[f"{name}_size"] = int(record.blob_size)
    if blobs:
        _show_blob(name, record.blob, found)


def _show_blob(name: str, blob: bytes, found: dict[str, object]) -> None:
    try:
        found[name] = blob.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(blob).decode()


def _fields(thing: object, names: tuple[str, ...]) -> dict[str, object]:
    return {name: _plain(name, getattr(thing, name)) for name in names}


def _named(names: tuple[str, ...], numbers: list[int]) -> dict[str, int]:
    return dict(zip(names, numbers, strict=False))


def _shown_name(kind: i64, name: str) -> str:
    return "session_event" if kind == r.SESSION and name == "event" else name


def _plain(name: str, field: object) -> object:
    if isinstance(field, bytes):
        return field.hex() if name == "uid" else _text(field)
    if isinstance(field, list):
        return [_plain("uid" if name == "uids" else "", each) for each in field]
    if name in _TIMES:
        number = _number(field)
        return iso_time(number) if number else None
    return field


def _number(field: object) -> int:
    assert isinstance(field, int)
    return field


def _text(field: bytes) -> str:
    return field.decode(errors="backslashreplace")


def _word(words: tuple[str, ...], number: i64) -> str:
    return words[number] if number < len(words) else str(number)
