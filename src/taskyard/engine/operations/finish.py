"""How jobs end: ack, nack, complete, fail, lost holders, and what follows for dependents."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.model.events import (
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_SUCCEEDED,
    DuplicateResult,
    JobNotFound,
    NotLeaseholder,
)
from taskyard.engine.model.job import (
    BACKOFF_DEFAULT,
    BACKOFF_EXPONENTIAL,
    BACKOFF_NONE,
    BACKOFF_QUARTIC,
    BLOCKED,
    DELAYED,
    FAILED,
    FAILS_DEFAULT,
    FOREVER,
    LEASED,
    READY,
    SECOND,
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_RETRY,
    SUCCEEDED,
    SYSTEM_ORIGIN,
    WORKQ,
    Job,
    Origin,
)
from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.checks import check_size, check_writable
from taskyard.engine.operations.core import (
    Core,
    DisconnectedOwner,
    notify_session,
    notify_watchers,
    require_durable_before_delivery,
)
from taskyard.engine.operations.lease import (
    deadline_after,
    emit_release,
    make_finish_record,
    serve_queue,
)
from taskyard.engine.operations.room import ensure_space, ensure_space_or_postpone
from taskyard.engine.records.apply import (
    apply_fail,
    apply_remove,
    apply_retry,
    apply_unblock,
    finish_job,
)
from taskyard.engine.records.job_changes import FailRecord, RemoveRecord, RetryRecord, UnblockRecord
from taskyard.engine.records.job_lifecycle import (
    ACKED,
    COMPLETED,
    LOST,
    RESTARTED,
    RETENTION_OVER,
    WITHDRAWN,
)
from taskyard.engine.transitions import is_key_taken, jobs_bound_to
from taskyard.shared.retries import DEFAULT_BACKOFF_CAP_S, DEFAULT_BACKOFF_S, DEFAULT_RETRIES

# Reasons of final failures: few and fixed, so that dead letters can be grouped by them.
FAILS_USED_UP = "failures used up"
ATTEMPTS_USED_UP = "attempts used up"
POISON_PILL = "poison pill: too many holders were lost"
BLOCKER_FAILED = "a job it waited for failed"
QUEUE_FULL = "queue full"

GIVEN_UP = "given up by its worker"

CONNECTION_LOST = b"connection lost"

# Instead of how long to wait before the next attempt:
BY_POLICY: Final = -1
NEVER: Final = -2

# that end when their owner disconnects; the others follow soon
MAX_LEASES_RELEASED_AT_ONCE: Final = 256


def ack(core: Core, id: i64, owner: i64, origin: Origin, now: i64) -> Job:
    """The holder is done with the job."""
    check_writable(core)
    job = _leased_job_of(core, id, owner)
    finish_leased(core, job, ACKED, b"", origin, now)
    return job


def nack(
    core: Core,
    id: i64,
    owner: i64,
    error: bytes,
    origin: Origin,
    now: i64,
    delay: i64 = BY_POLICY,
) -> Job:
    """The holder could not do the job, and may know when, or that never, to try it again."""
    check_writable(core, len(error))
    check_size(core, "error", error)
    job = _leased_job_of(core, id, owner)
    fail_attempt(core, job, error, origin, now, delay)
    return job


def complete(core: Core, job: Job, result: bytes, origin: Origin, now: i64, keep: i64 = 0) -> None:
    """Finish a job with success and a result, whoever holds it.

    `keep`: for how long the result is kept, if the job itself does not say.
    """
    check_writable(core, len(result))
    check_size(core, "result", result)
    _check_unfinished(job)
    finish_leased(core, job, COMPLETED, result, origin, now, keep)


def fail(core: Core, job: Job, error: bytes, origin: Origin, now: i64) -> None:
    """Count one failure of a job, whoever holds it; its policy says whether it is final."""
    check_writable(core, len(error))
    check_size(core, "error", error)
    _check_unfinished(job)
    fail_attempt(core, job, error, origin, now)


def finish_with_token(
    core: Core, id: i64, epoch: i64, number: i64, result: bytes, origin: Origin, now: i64
) -> Job:
    """Succeed a job if the lease of this number is still the one that counts."""
    check_writable(core, len(result))
    check_size(core, "result", result)
    job = core.state.live_job(id)
    if job is None:
        raise JobNotFound
    lease = job.lease
    if lease is None or lease.epoch != epoch or i64(job.leases) != number:
        raise NotLeaseholder(id)
    finish_leased(core, job, COMPLETED, result, origin, now)
    return job


def owner_by_token(core: Core, id: int, epoch: int, number: int) -> i64:
    next_id: int = core.state.next_id
    job = core.state.live_job(id) if 0 < id < next_id else None  # a client may send any number
    if job is None or job.lease is None:
        raise NotLeaseholder(id)
    lease = job.lease
    held: int = int(job.leases)
    boot: int = lease.epoch
    if boot != epoch or held != number:
        raise NotLeaseholder(id)
    return lease.owner


def disconnect(core: Core, owner: i64, origin: Origin, now: i64) -> None:
    """End the leases bound to a closed connection, the first of them now, the others soon."""
    jobs = jobs_bound_to(core.state, owner)
    if not jobs or core.read_only_reason:
        return
    jobs.reverse()
    release_leases(core, DisconnectedOwner(owner, origin, jobs), now, MAX_LEASES_RELEASED_AT_ONCE)


def release_leases(core: Core, disconnected: DisconnectedOwner, now: i64, budget: i64) -> i64:
    """End leases of a disconnected owner, at most `budget` of them; returns what is left of it."""
    jobs = disconnected.jobs
    origin = disconnected.origin
    while jobs:
        if budget <= 0 or not ensure_space_or_postpone(core):
            core.pending_disconnects.append(disconnected)
            break
        job = jobs.pop()
        lease = job.lease
        if lease is None or not lease.bound or lease.owner != disconnected.owner:
            continue  # another client has ended it
        budget -= 1
        if job.policy.lost_is_failed:
            fail_attempt(core, job, CONNECTION_LOST, origin, now)
        else:
            end_lost_lease(core, job, LOST, origin, now)
    return budget


def finish_leased(
    core: Core, job: Job, way: i64, result: bytes, origin: Origin, now: i64, keep: i64 = 0
) -> None:
    lease = job.lease
    if lease is not None:  # a client that does not hold it may finish it too
        core.statistics.times_of(job.queue).runs.add(now - lease.since)
    record = make_finish_record(job, way, result, origin, now, keep)
    core.records.append(record)
    finish_job(core.state, job, record)
    if job.extras is not None:
        notify_session(core, job, STAGE_FINISH)
    if core.watchers:
        notify_watchers(core, job, WATCH_SUCCEEDED, True, job.queue)


def fail_attempt(
    core: Core, job: Job, error: bytes, origin: Origin, now: i64, delay: i64 = BY_POLICY
) -> None:
    """An explicit failure: retried with back-off while the policy allows it."""
    policy = job.policy
    fails = i64(job.fails) + 1
    attempts = i64(job.attempts)
    if _fails_used_up(job, fails, delay):
        fail_finally(core, job, FAILS_USED_UP, True, error, origin, now)
    elif policy.max_attempts and attempts >= policy.max_attempts:
        fail_finally(core, job, ATTEMPTS_USED_UP, True, error, origin, now)
    elif delay == NEVER:
        fail_finally(core, job, GIVEN_UP, True, error, origin, now)
    else:
        queue = job.queue
        run_at: i64 = 0
        if delay > 0:
            run_at = deadline_after(now, delay)
        elif delay == BY_POLICY and job.state != BLOCKED:
            run_at = _retry_at(core, job, fails, now)
        if job.state == DELAYED and job.order_key > run_at:
            run_at = job.order_key  # a failure does not make it due sooner
        keyless = is_key_taken(job)
        record = RetryRecord(now, origin, job.id, queue.utf8, attempts, run_at, keyless, error)
        core.records.append(record)
        apply_retry(core.state, record)
        notify_session(core, job, STAGE_RETRY)
        require_durable_before_delivery(
            core
        )  # the next delivery may be soon, and shows how often it failed
        if job.state == READY:
            serve_queue(core, queue, now)


def final_failure_number(job: Job) -> i64:
    """Return the number of the failure that is final; -1: none is; 0: the first, by default.

    If the push has no limit of failures, the queue's counts. In Workq, a job without any fails for
    good the first time.
    """
    most = job.policy.max_fails
    if most > 0 or most == -1:
        return most
    retries = job.queue.effective_settings.retries
    if most == FAILS_DEFAULT:
        return retries + 1 if retries >= 0 else DEFAULT_RETRIES + 1
    return retries + 1 if job.dialect != WORKQ and retries >= 0 else 0


def _fails_used_up(job: Job, fails: i64, delay: i64) -> bool:
    """Where neither its pusher nor its queue has said how often, its worker can say: once more."""
    most = final_failure_number(job)
    if not most:
        return delay < 0
    return 0 < most <= fails


def end_lost_lease(core: Core, job: Job, reason: i64, origin: Origin, now: i64) -> None:
    """End a lease whose holder did not answer in time, or at all."""
    policy = job.policy
    if policy.max_attempts and i64(job.attempts) >= policy.max_attempts:
        fail_finally(core, job, ATTEMPTS_USED_UP, False, b"", origin, now)
    elif policy.max_losses and i64(job.losses) + 1 >= policy.max_losses:
        fail_finally(core, job, POISON_PILL, False, b"", origin, now)
    else:
        emit_release(core, job, reason, origin, now)


def reclaim_after_restart(core: Core, job: Job, now: i64) -> None:
    """Release a lease of the last run: a restart is no failure, but the attempt counts."""
    policy = job.policy
    if policy.max_attempts and i64(job.attempts) >= policy.max_attempts:
        fail_finally(core, job, ATTEMPTS_USED_UP, False, b"", SYSTEM_ORIGIN, now)
    else:
        emit_release(core, job, RESTARTED, SYSTEM_ORIGIN, now)


def resolve_dependents(core: Core, now: i64, budget: i64) -> i64:
    """Resolve dependents of ended jobs, at most `budget` of them; returns what is left of it."""
    followups = core.state.pending_dependents
    while followups and budget > 0:
        blocker = next(iter(followups))
        followup = followups[blocker]
        ids = followup.failed or followup.succeeded
        if not ids:
            del followups[blocker]
            continue
        job = core.state.live_job(ids[-1])
        if job is None or not _is_blocked_by(job, blocker):
            ids.pop()
            continue
        if not ensure_space_or_postpone(core):
            return 0
        budget -= 1
        if not followup.failed:
            _unblock(core, job, blocker, now)
        else:
            ids.pop()
            fail_finally(core, job, BLOCKER_FAILED, False, b"", SYSTEM_ORIGIN, now)
    return budget


def _unblock(core: Core, job: Job, blocker: i64, now: i64) -> None:
    record = UnblockRecord(now, SYSTEM_ORIGIN, job.id, job.queue.utf8, blocker)
    core.records.append(record)
    apply_unblock(core.state, record)
    if job.state == READY:
        require_durable_before_delivery(core)
        serve_queue(core, job.queue, now)


def _is_blocked_by(job: Job, blocker: int) -> bool:
    extra = job.extras
    if job.state != BLOCKED or extra is None:
        return False
    blockers = extra.blockers
    return blockers is not None and blocker in blockers


def fail_finally(
    core: Core, job: Job, reason: str, explicit: bool, error: bytes, origin: Origin, now: i64
) -> None:
    dead_queue = job.policy.dead_queue
    queue = job.queue
    record = FailRecord(
        now,
        origin,
        job.id,
        queue.utf8,
        i64(job.attempts),
        explicit,
        reason,
        dead_queue,
        error,
    )
    core.records.append(record)
    apply_fail(core.state, record)
    notify_session(core, job, STAGE_DROP)
    notify_watchers(core, job, WATCH_FAILED, True, queue)
    if job.state == READY:
        require_durable_before_delivery(core)
        serve_queue(core, job.queue, now)
    else:
        _trim_dead_letters(core, job.queue, now)


def remove_job(core: Core, job: Job, cause: i64, now: i64) -> None:
    """End a job without success, by the broker's own decision."""
    emit_removal(core, job, cause, SYSTEM_ORIGIN, now)


def cancel_abandoned(core: Core, id: i64, origin: Origin, now: i64) -> None:
    """Remove a job whose caller has disconnected, unless a worker has leased it.

    Without space for that it stays until its ttl.
    """
    job = core.state.live_job(id)
    if job is not None and job.state != LEASED and ensure_space(core):
        emit_removal(core, job, WITHDRAWN, origin, now)


def emit_removal(core: Core, job: Job, cause: i64, origin: Origin, now: i64) -> None:
    ended = job.state == SUCCEEDED or job.state == FAILED
    extra = job.extras
    uid = extra.uid if extra is not None else None
    producer = extra.producer if extra is not None and cause == RETENTION_OVER else b""
    record = RemoveRecord(now, origin, job.id, job.queue.utf8, cause, ended, uid, producer)
    core.records.append(record)
    apply_remove(core.state, record)
    notify_watchers(core, job, WATCH_GONE, True, job.queue)


def _trim_dead_letters(core: Core, queue: Queue, now: i64) -> None:
    """Keep the dead letters of a queue within their bytes: remove the oldest first."""
    limit = core.state.settings.dead_bytes
    while queue.dead_bytes > limit and queue.dead.size and ensure_space(core):
        remove_job(core, queue.dead.first(), RETENTION_OVER, now)


def _retry_at(core: Core, job: Job, fails: int, now: int) -> i64:
    """Return when the next attempt may start; 0: now. In `int`, since it may be beyond 64 bits."""
    policy = job.policy
    kind = policy.backoff
    base = policy.backoff_base
    cap = policy.backoff_cap
    if kind in (BACKOFF_NONE, BACKOFF_DEFAULT):
        rules = job.queue.effective_settings
        base = rules.backoff_base
        cap = rules.backoff_cap
        if rules.backoff >= 0:
            kind = rules.backoff
            if not base:
                base = DEFAULT_BACKOFF_S * SECOND
        elif kind == BACKOFF_DEFAULT:
            kind = BACKOFF_EXPONENTIAL
            base = DEFAULT_BACKOFF_S * SECOND
            cap = DEFAULT_BACKOFF_CAP_S * SECOND
    if kind == BACKOFF_QUARTIC:
        when = (now + fails**4 * SECOND) // SECOND * SECOND
        return min(when, FOREVER - 1)
    if kind == BACKOFF_EXPONENTIAL:
        delay: int = base
        delay <<= min(fails - 1, 62)
        if cap and delay > cap:
            delay = cap
        # Half of it is jitter, so that jobs that failed together are not retried together.
        delay = delay // 2 + core.random.randrange(delay // 2 + 1)
        return min(now + delay, FOREVER - 1)
    return 0


def _leased_job_of(core: Core, id: i64, owner: i64) -> Job:
    job = core.state.live_job(id)
    if job is None:
        raise NotLeaseholder(id)
    lease = job.lease
    if lease is None or lease.owner != owner:
        raise NotLeaseholder(id)
    return job


def _check_unfinished(job: Job) -> None:
    if job.state == SUCCEEDED or job.state == FAILED:
        raise DuplicateResult
