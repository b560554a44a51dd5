"""The form of jobs, leases and bytes in the API's answers."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from taskyard.broker.commit import Broker
from taskyard.engine.model.job import (
    DELAYED,
    DIALECT_NAMES,
    FOREVER,
    SECOND,
    STATE_NAMES,
    Job,
    JobExtras,
    Lease,
)
from taskyard.engine.model.state import format_uid
from taskyard.engine.operations.facade import Engine
from taskyard.engine.operations.finish import final_failure_number
from taskyard.protocols.text import format_moment
from taskyard.shared import api_types as messages
from taskyard.shared.error_line import error_line, is_traceback

ERROR_PREVIEW_BYTES: Final = 4096  # bytes of an error that a list shows

MAX_ERROR_LINE_CHARS: Final = 500  # characters of the line that an error is shown by

_decode_json: Final = msgspec.json.Decoder(Raw).decode
_EPOCH: Final = "1970-01-01T00:00:00.000000Z"


def moment(us: int) -> str:
    """A time that is always there."""
    return format_moment(us) or _EPOCH


def seconds(us: int) -> float:
    return us / SECOND


def job_summary_fields(engine: Engine, job: Job, now: int) -> dict[str, Any]:
    """Return the fields of JobSummary; longer views add theirs."""
    policy = job.policy
    most = final_failure_number(job)
    extra = job.extras or JobExtras()
    lease = job.lease
    key = extra.key
    ttl = extra.ttl_ms
    return {
        "id": job.id,
        "uid": format_uid(engine.uid_of(job)),
        "queue": job.queue.name,
        "name": job.name,
        "state": STATE_NAMES[job.state],
        "priority": job.priority,
        "dialect": DIALECT_NAMES[job.dialect],
        "payload_size": job.payload_size,
        "pushed_at": moment(job.pushed_at),
        "run_at": format_moment(job.run_at),
        "due_at": format_moment(job.order_key) if job.state == DELAYED else None,
        "finished_at": format_moment(job.finished_at),
        "expires_at": format_moment(extra.expires_at),
        "attempts": job.attempts,
        "fails": job.fails,
        "losses": job.losses,
        "max_attempts": policy.max_attempts or None,
        "max_fails": max(1, most) if most >= 0 else None,
        "max_losses": policy.max_losses or None,
        "ttr": seconds(policy.ttr) if policy.ttr else None,
        "ttl": ttl / 1000 if ttl else None,
        "dead_queue": policy.dead_queue or None,
        "key": content_view(key, len(key)) if key is not None else None,
        "limit_key": _key_text(extra.limit_key),
        "blocked_by": sorted(extra.blockers) if extra.blockers else [],
        "dependents": len(engine.state.dependents.get(job.id, ())),
        "lease": lease_view(lease, now) if lease is not None else None,
        "progress": progress_view(lease) if lease is not None else None,
        "reason": extra.reason or None,
    }


def _key_text(key: bytes | None) -> str | None:
    return key.decode(errors="backslashreplace") if key is not None else None


def lease_view(lease: Lease, now: int) -> messages.LeaseView:
    return messages.LeaseView(
        holder=lease.holder,
        attempt=lease.attempt,
        since=moment(lease.since),
        age=seconds(max(0, now - lease.since)),
        deadline=format_moment(lease.deadline),
        bound=lease.bound,
    )


def progress_view(lease: Lease) -> messages.ProgressView | None:
    progress = lease.progress
    if progress is None:
        return None
    return messages.ProgressView(
        fraction=progress.permille / 1000, message=progress.message, at=moment(progress.at)
    )


def held_job_view(engine: Engine, job: Job, lease: Lease, now: int) -> messages.Held:
    return messages.Held(
        id=job.id,
        uid=format_uid(engine.uid_of(job)),
        queue=job.queue.name,
        name=job.name,
        priority=job.priority,
        attempts=job.attempts,
        fails=job.fails,
        lease=lease_view(lease, now),
        progress=progress_view(lease),
    )


def content_view(data: bytes | None, size: int) -> messages.Content:
    """Bytes of that size; None: they are lost, fewer: the remainder is not shown."""
    content = messages.Content(size=size, cut=data is not None and len(data) < size)
    if data is None:
        return content
    text = _text_of(data, content.cut)
    if text is None:
        content.base64 = base64.b64encode(data).decode()
    elif not content.cut and _reads_as_json(data):
        content.json = Raw(data)
    else:
        content.text = text
    return content


def _text_of(data: bytes, cut: bool) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if cut and error.reason == "unexpected end of data":
            return data[: error.start].decode()  # cut within a character
        return None


def _reads_as_json(data: bytes) -> bool:
    try:
        _decode_json(data)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return True


def error_location(job: Job, most: int) -> tuple[int, int]:
    """Where the job's last error is, or the beginning of it; a size of 0: it has none."""
    extra = job.extras
    return (0, 0) if extra is None else (extra.error_at, min(extra.error_size, most))


def error_view(job: Job, data: bytes | None) -> messages.Content | None:
    extra = job.extras
    size = extra.error_size if extra is not None else 0
    return content_view(data, size) if size else None


def error_end_location(broker: Broker, job: Job, begin: bytes | None) -> tuple[int, int]:
    """Where the end of an error is, if its line may stand there; a size of 0: it does not.

    It may be more than the end: what is not written yet can only be had as a whole.
    """
    at, size = error_location(job, FOREVER)
    if begin is None or size <= len(begin) or not is_traceback(begin.decode(errors="replace")):
        return 0, 0
    if at >= broker.journal.records.start_position:
        return at, size
    most = min(ERROR_PREVIEW_BYTES, size - len(begin))
    return at + size - most, most


def error_line_of(
    content: messages.Content | None, begin: bytes | None, end: bytes | None
) -> str | None:
    """What an error says in one line; None if it is not text."""
    if content is None or content.text is UNSET or begin is None:
        return None
    head, tail = (
        data.decode(errors="replace") for data in (begin, (end or b"")[-ERROR_PREVIEW_BYTES:])
    )
    return error_line(head, tail)[:MAX_ERROR_LINE_CHARS]
