"""Looking after what the engine keeps: jobs and queues (delete, move, re-score, replay, pause,
purge, and the like), expiring keyed values, durable sessions, and readers of the journal.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.limits import change_effective_settings
from taskyard.engine.model.events import (
    InvalidOption,
    QueueExists,
    QueueNotFound,
    ReaderNotFound,
    SessionNotFound,
    WrongState,
)
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    FOREVER,
    LIMITED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    READY,
    SECOND,
    SUCCEEDED,
    Job,
    NewJob,
    Origin,
    Policy,
)
from taskyard.engine.model.queue import Queue, QueueRule, QueueSettings
from taskyard.engine.model.state import DurableSession, NamedReader, Value
from taskyard.engine.operations.checks import (
    check_adding,
    check_settings,
    check_size,
    check_writable,
)
from taskyard.engine.operations.core import Core, require_durable_before_delivery
from taskyard.engine.operations.finish import emit_removal, finish_leased
from taskyard.engine.operations.lease import move_ready, serve_queue
from taskyard.engine.operations.push import push
from taskyard.engine.operations.room import (
    MAX_RECORD_BYTES,
    ensure_space,
    ensure_space_or_postpone,
    total_record_bytes,
)
from taskyard.engine.records.apply import apply_replay, apply_rescore, apply_wake
from taskyard.engine.records.entities import (
    QueueGone,
    QueueSet,
    ReaderGone,
    ReaderSet,
    SessionChange,
    ValueGone,
    ValueSet,
    apply_queue,
    apply_queue_gone,
    apply_reader,
    apply_reader_gone,
    apply_session,
    apply_value,
    apply_value_gone,
)
from taskyard.engine.records.job_changes import ReplayRecord, RescoreRecord, WakeRecord
from taskyard.engine.records.job_lifecycle import (
    ATTACHED,
    CLOSED,
    DELIVERED,
    DETACHED,
    OPENED,
    PURGED,
    REMOVED_FROM_LIST,
)
from taskyard.engine.transitions import dead_letter_expiry, is_key_taken
from taskyard.shared.text import NAME_RULE, valid_name

MAX_KEY_BYTES = 0xFFFF

MIN_LEASE: Final = SECOND
MAX_LEASE: Final = 366 * 86_400 * SECOND

# Jobs and queues


def delete_job(core: Core, job: Job, cause: i64, origin: Origin, now: i64) -> None:
    """Remove a job in whatever state."""
    check_writable(core)
    emit_removal(core, job, cause, origin, now)


def move_job(core: Core, job: Job, to: str, front: bool, origin: Origin, now: i64) -> None:
    """Put a job that is not leased into another queue, ready."""
    check_writable(core)
    if job.state not in (READY, LIMITED, DELAYED, FAILED):
        raise WrongState("only a ready, delayed or dead job can be moved")
    if not valid_name(to):
        raise InvalidOption("queue", NAME_RULE)
    move_ready(core, job, to, front, origin, now)


def rescore(core: Core, job: Job, priority: int, origin: Origin, now: i64) -> None:
    check_writable(core)
    if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
        raise InvalidOption("priority", "outside of 64 bits")
    if job.state in (SUCCEEDED, FAILED):
        raise WrongState("the job has ended")
    was_limited = job.state == LIMITED
    record = RescoreRecord(now, origin, job.id, job.queue.utf8, priority)
    core.records.append(record)
    apply_rescore(core.state, record)
    require_durable_before_delivery(core)
    if was_limited:
        serve_queue(core, job.queue, now)


def update_keyed(
    core: Core, queue_name: str, key: bytes, delta: int, policy: Policy, origin: Origin, now: i64
) -> int:
    """Add to the score of the queued item with this key, or queue it; gives its score."""
    check_writable(core)
    queue = core.state.queues.get(queue_name.encode())
    keys = queue.keys if queue is not None else None
    job = keys.get(key) if keys is not None else None
    if job is None:
        if not MIN_PRIORITY <= delta <= MAX_PRIORITY:
            raise InvalidOption("score", "outside of 64 bits")
        new = NewJob(queue_name, queue_name, key, policy, priority=delta, key=key)
        push(core, new, origin, now)
        return delta
    before: int = job.priority  # int: the sum may be beyond 64 bits
    score = before + delta
    rescore(core, job, score, origin, now)
    return score


def wake_job(core: Core, job: Job, origin: Origin, now: i64) -> None:
    """Do not wait any longer for a delayed job's time."""
    check_writable(core)
    if job.state != DELAYED:
        raise WrongState("the job is not delayed")
    record = WakeRecord(now, origin, job.id, job.queue.utf8)
    core.records.append(record)
    apply_wake(core.state, record)
    require_durable_before_delivery(core)
    serve_queue(core, job.queue, now)


def replay_dead_letter(core: Core, job: Job, origin: Origin, now: i64) -> None:
    """Replay a dead letter: make it ready in its queue, with its counts at zero."""
    check_writable(core)
    if job.state != FAILED:
        raise WrongState("the job is not among the dead letters")
    record = ReplayRecord(now, origin, job.id, job.queue.utf8, is_key_taken(job))
    core.records.append(record)
    apply_replay(core.state, record)
    require_durable_before_delivery(core)
    serve_queue(core, job.queue, now)


def remove_from_list(core: Core, job: Job, origin: Origin, now: i64) -> None:
    """Remove a ready job from its list for a client: it is done."""
    check_writable(core)
    if job.state != READY:
        raise WrongState("the job is not ready")
    finish_leased(core, job, REMOVED_FROM_LIST, b"", origin, now)


def create_queue(core: Core, name: str, settings: QueueSettings, origin: Origin, now: i64) -> Queue:
    check_adding(core, 0)
    if not valid_name(name):
        raise InvalidOption("queue", NAME_RULE)
    check_settings(settings)
    if name.encode() in core.state.queues:
        raise QueueExists(name)
    settings.created = True
    return _set_queue(core, name.encode(), settings, origin, now)


def configure_queue(
    core: Core, name: bytes, settings: QueueSettings, origin: Origin, now: i64
) -> Queue:
    """Give a queue other settings; pausing and resuming are settings too."""
    check_adding(core, 0)
    if name not in core.state.queues:
        raise QueueNotFound(name.decode(errors="replace"))
    check_settings(settings)
    queue = _set_queue(core, name, settings, origin, now)
    serve_queue(core, queue, now)
    return queue


def _set_queue(core: Core, name: bytes, settings: QueueSettings, origin: Origin, now: i64) -> Queue:
    record = QueueSet(now, origin, name, settings)
    core.records.append(record)
    apply_queue(core.state, record)
    require_durable_before_delivery(core)
    return core.state.queues[name]


def set_queue_rules(core: Core, rules: list[QueueRule]) -> None:
    """Not persistent: it is the server's configuration, which is read at each start."""
    state = core.state
    state.settings.queue_rules = rules
    state.shared_effective_settings.clear()
    for queue in state.queues.values():
        before = queue.effective_settings.idle_expiry
        change_effective_settings(
            state, queue, state.effective_settings_of(queue.name, queue.settings)
        )
        if (
            queue.effective_settings.idle_expiry != before
        ):  # else it continues, however often that is read
            state.arm_idle_timer(queue)
        if queue.dead.size:
            state.timers.set(queue.dead_timer, dead_letter_expiry(state, queue, queue.dead.first()))
        state.queues_to_serve[queue.utf8] = queue
    state.limits_changed = True


def set_draining(core: Core, draining: bool) -> None:
    """Not persistent: a server that is started again takes pushes."""
    core.draining = draining
    core.state.any_queue_bounded = True


def purge_queue(core: Core, name: bytes, state: i64, count: i64, origin: Origin, now: i64) -> i64:
    """Remove the first `count` jobs of one state; returns how many there were.

    A caller purges a long queue in chunks, so that other clients do not wait.
    """
    check_writable(core)
    queue = _existing_queue(core, name)
    if not BLOCKED <= state <= FAILED and state != LIMITED:
        raise InvalidOption("state", "not one in which a queue keeps jobs")
    if count < 0:
        raise InvalidOption("count", "must not be negative")
    order = queue.priority_queue(state)
    lane = queue.ordered_jobs(state) if order is None else None
    jobs = order.slice(0, count) if order is not None else []
    if lane is not None:
        jobs = lane.slice(0, count)
    check_writable(core, total_record_bytes(len(jobs), MAX_RECORD_BYTES, origin))
    for job in jobs:
        emit_removal(core, job, PURGED, origin, now)
    return len(jobs)


def delete_queue(core: Core, name: bytes, origin: Origin, now: i64) -> None:
    """Forget a queue that has no jobs any more; purge it first."""
    check_writable(core)
    queue = _existing_queue(core, name)
    if not queue.is_empty():
        raise WrongState("the queue still has jobs")
    emit_queue_removal(core, queue, origin, now)


def emit_queue_removal(core: Core, queue: Queue, origin: Origin, now: i64) -> None:
    record = QueueGone(now, origin, queue.utf8)
    core.records.append(record)
    apply_queue_gone(core.state, record)
    core.queues_to_rescan.pop(queue.utf8, None)
    core.statistics.forget_queue(queue)


def _existing_queue(core: Core, name: bytes) -> Queue:
    queue = core.state.queues.get(name)
    if queue is None:
        raise QueueNotFound(name.decode(errors="replace"))
    return queue


# Keyed values and durable sessions


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


# Readers of the journal


def register_reader(
    core: Core, name: str, next_seq: i64, lease: i64, origin: Origin, now: i64
) -> NamedReader:
    """Register a reader that wants all from record `next_seq` on, or renew one that returns.

    Readers of the journal are named, each with a position and a lease of its own. What a reader has
    not committed yet is kept for it, within the operator's limits, while its lease lasts: see
    journal/compaction.py. That a lease lapses is not an event; its reader stays, with its position,
    and may return. One that returns is where it was, unless it says that it is further.
    """
    if not valid_name(name):
        raise InvalidOption("reader", NAME_RULE)
    _check_reader(core, next_seq, lease)
    known = core.state.readers.get(name)
    if known is None:
        check_adding(core, 0)
    else:
        check_writable(core)
        next_seq = max(next_seq, known.next_seq)
    return _emit_reader(core, name, next_seq, now + lease, origin, now)


def commit_reader(
    core: Core, name: str, next_seq: i64, lease: i64, origin: Origin, now: i64
) -> NamedReader:
    """The reader has all before `next_seq`, for good; its lease begins anew."""
    check_writable(core)
    known = core.state.readers.get(name)
    if known is None:
        raise ReaderNotFound(name)
    _check_reader(core, next_seq, lease)
    if next_seq < known.next_seq:
        raise InvalidOption("next_seq", f"{name} is at {known.next_seq} already")
    return _emit_reader(core, name, next_seq, now + lease, origin, now)


def drop_reader(core: Core, name: str, origin: Origin, now: i64) -> None:
    """Remove a reader for good."""
    check_writable(core)
    if name not in core.state.readers:
        raise ReaderNotFound(name)
    record = ReaderGone(now, origin, name)
    core.records.append(record)
    apply_reader_gone(core.state, record)


def _emit_reader(
    core: Core, name: str, next_seq: i64, lease_until: i64, origin: Origin, now: i64
) -> NamedReader:
    record = ReaderSet(now, origin, name, next_seq, lease_until)
    core.records.append(record)
    apply_reader(core.state, record)
    return core.state.readers[name]


def _check_reader(core: Core, next_seq: i64, lease: i64) -> None:
    if not 1 <= next_seq <= core.records.next_seq:
        raise InvalidOption("next_seq", "must be from 1 to the number of the next record")
    if not MIN_LEASE <= lease <= MAX_LEASE:
        raise InvalidOption("lease", "must be 1 second to 366 days")
