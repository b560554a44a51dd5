"""Expiring keyed values and durable sessions."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.model.errors import InvalidOption, SessionNotFound
from taskyard.engine.model.job import FOREVER, Origin
from taskyard.engine.model.state import DurableSession, Value
from taskyard.engine.operations.checks import check_adding, check_size, check_writable
from taskyard.engine.operations.core import Core
from taskyard.engine.operations.room import ensure_space, ensure_space_or_postpone
from taskyard.engine.records.job_lifecycle import ATTACHED, CLOSED, DELIVERED, DETACHED, OPENED
from taskyard.engine.records.side_apply import apply_session, apply_value, apply_value_gone
from taskyard.engine.records.side_records import SessionChange, ValueGone, ValueSet

MAX_KEY_BYTES = 0xFFFF


def set_value(
    core: Core, key: bytes, value: bytes, expires_at: i64, origin: Origin, now: i64
) -> None:
    """Set a value that is forgotten at `expires_at`; 0: never."""
    check_adding(core, len(key) + len(value))
    _check_key(key)
    _check_expiry(expires_at, now)
    check_size(core, "value", value)
    record = ValueSet(now, origin, key, expires_at, False, value)
    core.records.append(record)
    apply_value(core.state, record)


def set_value_expiry(core: Core, key: bytes, expires_at: i64, origin: Origin, now: i64) -> bool:
    """Change when a value expires; False if there is none."""
    check_writable(core, len(key))
    _check_expiry(expires_at, now)
    if key not in core.state.values:
        return False
    record = ValueSet(now, origin, key, expires_at, True)
    core.records.append(record)
    apply_value(core.state, record)
    return True


def delete_value(core: Core, key: bytes, origin: Origin, now: i64) -> bool:
    check_writable(core, len(key))
    if key not in core.state.values:
        return False
    record = ValueGone(now, origin, key)
    core.records.append(record)
    apply_value_gone(core.state, record)
    return True


def get_value(core: Core, key: bytes) -> Value | None:
    return core.state.values.get(key)


def open_session(core: Core, id: i64, origin: Origin, now: i64) -> DurableSession:
    check_adding(core, 0)
    if id in core.state.sessions:
        raise InvalidOption("session", "already there")
    _emit_session_event(core, id, OPENED, 0, origin, now)
    return core.state.sessions[id]


def attach_session(core: Core, id: i64, origin: Origin, now: i64) -> DurableSession:
    """Attach a client that is back: its notices are in the outbox."""
    check_writable(core)
    if id not in core.state.sessions:
        raise SessionNotFound(str(id))
    _emit_session_event(core, id, ATTACHED, 0, origin, now)
    return core.state.sessions[id]


def detach_session(core: Core, id: i64, origin: Origin, now: i64) -> None:
    """The socket is away; the session is kept for a while."""
    if id not in core.state.sessions or core.read_only_reason:
        return
    if ensure_space_or_postpone(core):
        _emit_session_event(core, id, DETACHED, 0, origin, now)
    else:
        core.pending_detaches.append((id, origin))


def close_session(core: Core, id: i64, origin: Origin, now: i64) -> None:
    check_writable(core)
    if id not in core.state.sessions:
        raise SessionNotFound(str(id))
    _emit_session_event(core, id, CLOSED, 0, origin, now)


def acknowledge_notices(core: Core, id: i64, upto: i64, origin: Origin, now: i64) -> None:
    """Remove the notices up to this number: the client has them."""
    session = core.state.sessions.get(id)
    if session is None or core.read_only_reason:
        return
    if upto > session.numbered:
        raise InvalidOption("upto", "no letter has that number yet")
    if upto > session.delivered and ensure_space(core):  # else they will be sent a second time
        _emit_session_event(core, id, DELIVERED, upto, origin, now)


def _emit_session_event(
    core: Core, id: i64, event: i64, upto: i64, origin: Origin, now: i64
) -> None:
    record = SessionChange(now, origin, id, event, upto)
    core.records.append(record)
    apply_session(core.state, record)


def _check_key(key: bytes) -> None:
    if not 0 < len(key) <= MAX_KEY_BYTES:
        raise InvalidOption("key", f"must be 1 to {MAX_KEY_BYTES} bytes")


def _check_expiry(expires_at: i64, now: i64) -> None:
    if expires_at and not now < expires_at <= FOREVER:
        raise InvalidOption("expires_at", "must lie ahead")
