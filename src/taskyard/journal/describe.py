"""Records as plain values, for people and for JSON: the names that a dump shows."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Final

from mypy_extensions import i64

from taskyard.engine import records as r
from taskyard.engine.job import DIALECT_NAMES, JSON
from taskyard.engine.side_records import QueueSet

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_DATE: Final = 253_402_300_800_000_000  # the year 10,000
_SESSION_EVENTS: Final = ("opened", "detached", "attached", "delivered", "closed")

# What each kind has beside time and origin. "queue" is text, *_at and deadline are times.
_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    r.BOOT: ("epoch", "version"),
    r.PUSH: ("id", "queue"),
    r.LEASE: ("id", "queue", "attempt", "owner", "bound", "deadline"),
    r.FINISH: ("id", "queue", "attempt", "way"),
    r.RETRY: ("id", "queue", "attempt", "run_at"),
    r.RELEASE: ("id", "queue", "attempt", "reason"),
    r.FAIL: ("id", "queue", "attempt", "explicit", "reason", "dead_queue"),
    r.WAKE: ("id", "queue"),
    r.UNBLOCK: ("id", "queue", "blocker"),
    r.REMOVE: ("id", "queue", "cause"),
    r.MOVE: ("id", "queue", "to", "front"),
    r.RESCORE: ("id", "queue", "priority"),
    r.EXTEND: ("id", "queue", "attempt", "deadline"),
    r.REPLAY: ("id", "queue"),
    r.QUEUE: ("queue",),
    r.QUEUE_GONE: ("queue",),
    r.VALUE: ("key", "expires_at", "keep"),
    r.VALUE_GONE: ("key",),
    r.SESSION: ("id", "event", "upto"),
    r.BATCH: ("consumer", "number", "owner", "deadline", "ids"),
    r.BATCH_DONE: ("consumer", "number", "dropped"),
    r.FORGET: ("count",),
}
_BLOBS: Final = {
    r.PUSH: "payload",
    r.FINISH: "result",
    r.RETRY: "error",
    r.FAIL: "error",
    r.VALUE: "value",
}
_TIMES: Final = ("deadline", "run_at", "expires_at")
# Numbers that stand for words, by kind.
_WORDS: Final = {
    r.FINISH: ("way", r.FINISH_WAYS),
    r.RELEASE: ("reason", r.RELEASE_REASONS),
    r.REMOVE: ("cause", r.REMOVE_CAUSES),
    r.SESSION: ("session_event", _SESSION_EVENTS),
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
)


def describe(record: r.Record, blobs: bool) -> dict[str, object]:
    """The record as JSON can have it; with `blobs`, its payload, result, error or value too."""
    kind = record.kind()
    origin = record.origin
    found: dict[str, object] = {
        "seq": record.seq,
        "time": iso(record.time),
        "event": r.EVENT_NAMES[kind],
        "dialect": _word(DIALECT_NAMES, origin.dialect),
    }
    if origin.user:
        found["user"] = origin.user
    if origin.holder:
        found["holder"] = origin.holder
    for name in _FIELDS[kind]:
        found[_shown_name(kind, name)] = _plain(name, getattr(record, name))
    words = _WORDS.get(kind)
    if words is not None:
        found[words[0]] = _word(words[1], _number(found[words[0]]))
    if isinstance(record, r.Push):
        _describe_job(record, found)
    elif isinstance(record, QueueSet):
        found["settings"] = {name: getattr(record.settings, name) for name in _SETTINGS}
    _describe_blob(record, blobs, found)
    return found


def iso(time: i64) -> object:
    """A time as text with its microseconds; the number itself beyond what a date can say."""
    if not 0 <= time < _LAST_DATE:
        return int(time)
    moment = _EPOCH + timedelta(microseconds=int(time))
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _describe_job(record: r.Push, found: dict[str, object]) -> None:
    job = record.job
    policy = job.policy
    found["name"] = job.name
    found["priority"] = int(job.priority)
    found["content"] = "json" if job.content == JSON else "opaque"
    if job.front:
        found["front"] = True
    if job.run_at:
        found["run_at"] = iso(job.run_at)
    if job.uid is not None:
        found["uid"] = job.uid.hex()
    if job.key is not None:
        found["key"] = _text(job.key)
    if job.ttl_ms:
        found["ttl_ms"] = job.ttl_ms
    if record.blockers:
        found["blocked_by"] = record.blockers
    if job.notify is not None:
        found["notify"] = int(job.notify.session)
    found["ttr"] = int(policy.ttr)
    found["max_attempts"] = int(policy.max_attempts)
    found["max_fails"] = int(policy.max_fails)
    if policy.dead_queue:
        found["dead_queue"] = policy.dead_queue


def _describe_blob(record: r.Record, blobs: bool, found: dict[str, object]) -> None:
    name = _BLOBS.get(record.kind())
    if name is None:
        return
    found[f"{name}_size"] = int(record.blob_size)
    if not blobs:
        return
    try:
        found[name] = record.blob.decode()
    except UnicodeDecodeError:
        found[f"{name}_base64"] = base64.b64encode(record.blob).decode()


def _shown_name(kind: i64, name: str) -> str:
    return "session_event" if kind == r.SESSION and name == "event" else name


def _plain(name: str, field: object) -> object:
    if isinstance(field, bytes):
        return _text(field)
    if name in _TIMES:
        number = _number(field)
        return iso(number) if number else None
    return field


def _number(field: object) -> int:
    assert isinstance(field, int)
    return field


def _text(field: bytes) -> str:
    return field.decode(errors="backslashreplace")


def _word(words: tuple[str, ...], number: i64) -> str:
    return words[number] if number < len(words) else str(number)
