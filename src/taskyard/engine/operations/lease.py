"""Delivering jobs: fetch, pop, waiting, extending and releasing leases."""

from __future__ import annotations

from collections import OrderedDict

from mypy_extensions import i64

from taskyard.engine.gates import next_allowed
from taskyard.engine.model.events import (
    ALWAYS_ALLOWED_QUEUES,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    FetchRequest,
    InvalidOption,
    JobAssigned,
    NotLeaseholder,
    PayloadNeeded,
    TaskyardError,
    TooManyWaiting,
    Waiter,
)
from taskyard.engine.model.job import (
    FOREVER,
    MAX_PROGRESS_MESSAGE_BYTES,
    STAGE_ASSIGN,
    STAGE_FINISH,
    STAGE_RETRY,
    Job,
    Origin,
)
from taskyard.engine.model.queue import PAUSED, Queue
from taskyard.engine.operations.checks import check_writable
from taskyard.engine.operations.core import (
    Core,
    notify_session,
    notify_watchers,
    record_wait_time,
    require_durable_before_delivery,
)
from taskyard.engine.operations.room import MAX_STEP_BYTES, ensure_space_or_postpone
from taskyard.engine.records.apply import (
    apply_extend,
    apply_move,
    apply_progress,
    apply_release,
    finish_job,
    lease_job,
)
from taskyard.engine.records.job_changes import (
    ExtendRecord,
    MoveRecord,
    ProgressRecord,
    ReleaseRecord,
)
from taskyard.engine.records.job_lifecycle import POPPED, RETURNED, FinishRecord, LeaseRecord
from taskyard.engine.transitions import is_key_taken
from taskyard.shared.text import NAME_RULE, valid_name


def fetch(core: Core, request: FetchRequest, now: i64) -> Job | None:
    """Deliver the next job of the first (or a random) queue that has one."""
    check_writable(core)
    _check_request(request)
    job = next_job(core, request, now)
    if job is None:
        return None
    _deliver(core, job, request, now)
    if request.move_to:
        serve_queue(core, job.queue, now)
    return job


def fetch_more(
    core: Core, request: FetchRequest, jobs: list[Job], most: i64, size: i64, now: i64
) -> None:
    """Deliver others with the same request, until there are `most` jobs or `size` bytes of
    payloads; the request must be for leases.
    """
    while len(jobs) < most and size > 0:
        try:
            job = fetch(core, request, now)
        except TaskyardError:
            return  # those that are taken are given all the same
        if job is None:
            return
        jobs.append(job)
        size -= job.payload_size
        queue = job.queue
        if queue.restrictions or (request.random_queue and len(request.queues) > 1):
            continue
        # The others of this queue come before those of any other, without further checks.
        log = core.records
        while queue.ready.size and len(jobs) < most and size > 0:
            if log.size() + MAX_STEP_BYTES > core.journal_space.free_bytes:
                break
            job = _next_ready(queue, request)
            _deliver(core, job, request, now)
            jobs.append(job)
            size -= job.payload_size


def next_job(core: Core, request: FetchRequest, now: i64) -> Job | None:
    """The next job of the first (or a random) queue that has one to give."""
    if request.random_queue and len(request.queues) > 1:
        return _choose_at_random(core, request, now)
    queues = core.state.queues
    for name in request.queues:
        queue = queues.get(name)
        if queue is not None and queue.ready.size:
            if not queue.restrictions:
                return _next_ready(queue, request)
            job = _next_restricted(core, queue, request, now)
            if job is not None:
                return job
    return None


def pop(core: Core, queue_name: bytes, last: bool, origin: Origin, now: i64) -> Job | None:
    """Take the first or the last job of a queue; it is finished with that."""
    check_writable(core)
    job = next_pop(core, queue_name, last, now)
    if job is not None:
        finish_popped(core, job, origin, now)
    return job


def next_pop(core: Core, queue_name: bytes, last: bool, now: i64) -> Job | None:
    """The job that `pop` would take."""
    queue = core.state.queues.get(queue_name)
    if queue is None:
        return None
    if queue.restrictions:
        return next_allowed(core, queue, last, True, now)
    return queue.ready.last() if last else queue.ready.first()


def wait_for_job(core: Core, request: FetchRequest, deadline: i64, others: i64 = 0) -> Waiter:
    """Wait at each of the queues; JobAssigned or WaitTimedOut will follow.

    `others`: places in queues in which its client waits already.
    """
    _check_request(request)
    size = request.waiter_bytes()
    if (
        core.waiter_bytes + size > core.waiter_bytes_limit
        and len(request.queues) + others > ALWAYS_ALLOWED_QUEUES
    ):
        raise TooManyWaiting
    core.waiter_bytes += size
    core.last_wait_number += 1
    waiter = Waiter(core.last_wait_number, request)
    for name in request.queues:
        line = core.waiters.get(name)
        if line is None:
            line = OrderedDict()
            core.waiters[name] = line
        line[waiter.number] = waiter
    core.state.timers.set(waiter.timer, deadline)
    return waiter


def stop_waiting(core: Core, waiter: Waiter) -> None:
    if not waiter.waiting:
        return
    waiter.waiting = False
    core.waiter_bytes -= waiter.request.waiter_bytes()
    core.state.timers.cancel(waiter.timer)
    for name in waiter.request.queues:
        line = core.waiters.get(name)
        if line is not None:
            line.pop(waiter.number, None)
            if not line:
                del core.waiters[name]


def serve_queue(core: Core, queue: Queue, now: i64) -> None:
    """Deliver jobs that have become ready to the waiters, which may move them to another queue."""
    to_serve = [queue]
    while to_serve:
        queue = to_serve.pop()
        while queue.ready.size and not queue.restrictions & PAUSED:
            line = core.waiters.get(queue.utf8)
            if line is None or not ensure_space_or_postpone(core):
                break
            waiter = next(iter(line.values()))
            if queue.restrictions:  # the first waiter decides: those behind do not overtake
                job = _next_restricted(core, queue, waiter.request, now)
                if job is None:
                    break
            else:
                job = _next_ready(queue, waiter.request)
            take = waiter.request
            if (take.pop or take.move_to) and not _ensure_payload(core, waiter, queue, job):
                break
            stop_waiting(core, waiter)
            _deliver(core, job, take, now)
            core.effects.append(JobAssigned(waiter, job))
            if take.move_to:  # the waiters there come first
                to_serve.append(queue)
                queue = job.queue


def _ensure_payload(core: Core, waiter: Waiter, queue: Queue, job: Job) -> bool:
    """Whether the job can be delivered with its payload; else the payload is read, and this waiter
    and those behind it wait.
    """
    payload_of = core.read_payload_if_cached
    if payload_of is None:
        return True
    payload = core.loaded_payload if job is core.loaded_job else payload_of(job)
    waiter.payload = payload
    if payload is not None:
        return True
    if waiter.job_being_read is not job:
        waiter.job_being_read = job
        core.effects.append(PayloadNeeded(waiter, queue.utf8, job))
    return False


def on_payload_read(core: Core, needed: PayloadNeeded, payload: bytes | None, now: i64) -> None:
    """Serve the queue again: a payload was read, or could not be.

    The first waiter, and the next job, may have changed meanwhile.
    """
    if needed.waiter.job_being_read is needed.job:
        needed.waiter.job_being_read = None
    queue = core.state.queues.get(needed.queue)
    if queue is None:
        return
    if payload is not None:
        core.loaded_job = needed.job
        core.loaded_payload = payload
    serve_queue(core, queue, now)
    core.loaded_job = None
    core.loaded_payload = b""


def extend_lease(core: Core, job: Job, owner: i64, ttr: i64, origin: Origin, now: i64) -> None:
    """Let the lease last `ttr` from now on."""
    check_writable(core)
    lease = attempt_held_by(job, owner)
    if not 0 < ttr < FOREVER:
        raise InvalidOption("ttr", "out of range")
    record = ExtendRecord(now, origin, job.id, job.queue.utf8, lease, deadline_after(now, ttr))
    core.records.append(record)
    apply_extend(core.state, record)


def report_progress(
    core: Core, job: Job, owner: i64, permille: i64, message: str, origin: Origin, now: i64
) -> None:
    """Record how far the job is, as its holder reports."""
    check_writable(core, MAX_PROGRESS_MESSAGE_BYTES)
    attempt = attempt_held_by(job, owner)
    if not 0 <= permille <= 1000:
        raise InvalidOption("permille", "must be 0 to 1000")
    if len(message.encode()) > MAX_PROGRESS_MESSAGE_BYTES:
        raise InvalidOption("message", f"must be at most {MAX_PROGRESS_MESSAGE_BYTES} bytes")
    record = ProgressRecord(now, origin, job.id, job.queue.utf8, attempt, permille, message)
    core.records.append(record)
    apply_progress(core.state, record)


def release_lease(core: Core, job: Job, owner: i64, origin: Origin, now: i64) -> None:
    """Release the job without a verdict; no failure, no loss is counted."""
    check_writable(core)
    attempt_held_by(job, owner)
    emit_release(core, job, RETURNED, origin, now)


def emit_release(core: Core, job: Job, reason: i64, origin: Origin, now: i64) -> None:
    queue = job.queue
    keyless = is_key_taken(job)
    record = ReleaseRecord(now, origin, job.id, queue.utf8, i64(job.attempts), reason, keyless)
    core.records.append(record)
    apply_release(core.state, record)
    notify_session(core, job, STAGE_RETRY)
    serve_queue(core, queue, now)


def attempt_held_by(job: Job, owner: i64) -> i64:
    """The attempt that `owner` holds the job for."""
    lease = job.lease
    if lease is None or lease.owner != owner:
        raise NotLeaseholder(job.id)
    return lease.attempt


def finish_popped(core: Core, job: Job, origin: Origin, now: i64) -> None:
    record_wait_time(core, job, now)
    record = make_finish_record(job, POPPED, b"", origin, now)
    core.records.append(record)
    finish_job(core.state, job, record)
    notify_session(core, job, STAGE_FINISH)
    notify_watchers(core, job, WATCH_SUCCEEDED, True, job.queue)


def make_finish_record(
    job: Job, way: i64, result: bytes, origin: Origin, now: i64, keep: i64 = 0
) -> FinishRecord:
    queue = job.queue
    retention = keep or queue.effective_settings.result_retention
    kept_until: i64 = 0
    if retention:
        kept_until = now + retention
    uid: bytes | None = None
    producer = b""
    extra = job.extras
    if extra is not None:
        uid = extra.uid
        if extra.expires_at:
            kept_until = extra.expires_at
        if not kept_until:
            producer = extra.producer
    attempts = i64(job.attempts)
    return FinishRecord(
        now, origin, job.id, queue.utf8, attempts, way, kept_until, uid, result, producer
    )


def move_ready(core: Core, job: Job, to: str, front: bool, origin: Origin, now: i64) -> None:
    """Put a job into another queue, or to another end of its own, ready."""
    _emit_move(core, job, to, front, origin, now)
    serve_queue(core, job.queue, now)


def _emit_move(core: Core, job: Job, to: str, front: bool, origin: Origin, now: i64) -> None:
    record = MoveRecord(now, origin, job.id, job.queue.utf8, to.encode(), front)
    core.records.append(record)
    apply_move(core.state, record)
    require_durable_before_delivery(core)


def _check_request(request: FetchRequest) -> None:
    if request.ttr < 0:
        raise InvalidOption("ttr", "must not be negative")
    if request.move_to and not valid_name(request.move_to):
        raise InvalidOption("queue", NAME_RULE)


def _next_ready(queue: Queue, request: FetchRequest) -> Job:
    """Return the job for this fetch, of a queue that has one."""
    if request.last:
        last = queue.ready.last()
        assert last is not None
        return last
    return queue.ready.highest.first()


def _next_restricted(core: Core, queue: Queue, request: FetchRequest, now: i64) -> Job | None:
    """The same of a queue that is paused, or has limits. A move is no start: none holds it back."""
    if request.move_to:
        return None if queue.restrictions & PAUSED else _next_ready(queue, request)
    return next_allowed(core, queue, request.last, request.pop, now)


def _choose_at_random(core: Core, request: FetchRequest, now: i64) -> Job | None:
    able: list[Job] = []
    for name in request.queues:
        queue = core.state.queues.get(name)
        if queue is not None and queue.ready.size:
            job = (
                _next_restricted(core, queue, request, now)
                if queue.restrictions
                else _next_ready(queue, request)
            )
            if job is not None:
                able.append(job)
    return core.random.choice(able) if able else None


def _deliver(core: Core, job: Job, request: FetchRequest, now: i64) -> None:
    if request.pop:
        finish_popped(core, job, request.origin, now)
        return
    if request.move_to:
        _emit_move(core, job, request.move_to, request.front, request.origin, now)
        return
    ttr = job.policy.ttr
    if not ttr and not request.bound_to_connection and job.queue.effective_settings.ttr > 0:
        ttr = job.queue.effective_settings.ttr
    if request.ttr and (not ttr or request.ttr < ttr):
        ttr = request.ttr
    if not ttr and not request.bound_to_connection:
        ttr = core.state.settings.default_ttr
    deadline: i64 = 0
    if ttr:
        deadline = deadline_after(now, ttr)
    record_wait_time(core, job, now)
    record = LeaseRecord(
        now,
        request.origin,
        job.id,
        job.queue.utf8,
        request.owner,
        request.bound_to_connection,
        core.state.epoch,
        i64(job.attempts) + 1,
        deadline,
    )
    core.records.append(record)
    lease_job(core.state, job, record)
    if job.extras is not None:
        notify_session(core, job, STAGE_ASSIGN)
    if core.watchers:
        notify_watchers(core, job, WATCH_LEASED, False, job.queue)


def deadline_after(now: i64, duration: i64) -> i64:
    """A time ahead; far enough is for ever."""
    if duration < FOREVER - now:
        return now + duration
    return FOREVER
