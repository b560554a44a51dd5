"""Handing out jobs: fetch, pop, waiting in line, extending and giving back."""

from __future__ import annotations

from collections import OrderedDict

from mypy_extensions import i64

from taskyard.engine.gates import next_open
from taskyard.engine.model.effects import (
    FEW_QUEUES,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    Assigned,
    ReadFirst,
    Take,
    Waiter,
)
from taskyard.engine.model.errors import (
    InvalidOption,
    NotLeaseholder,
    TaskyardError,
    TooManyWaiting,
)
from taskyard.engine.model.job import FOREVER, MAX_MESSAGE, Job, Origin
from taskyard.engine.model.queue import PAUSED, Queue
from taskyard.engine.model.stages import STAGE_ASSIGN, STAGE_FINISH, STAGE_RETRY
from taskyard.engine.operations.checks import check_writable
from taskyard.engine.operations.core import Core, measure_wait, reveal, tell, tell_watchers
from taskyard.engine.operations.room import STEP_ROOM, fits_due
from taskyard.engine.records.apply import (
    apply_extend,
    apply_move,
    apply_progress,
    apply_release,
    finish_job,
    lease_job,
)
from taskyard.engine.records.job_changes import Extend, Move, Progress, Release
from taskyard.engine.records.job_lifecycle import POPPED, RETURNED, Finish, Lease
from taskyard.engine.transitions import key_is_taken
from taskyard.shared.names import NAME_RULE, valid_name


def fetch(core: Core, take: Take, now: i64) -> Job | None:
    """Hand out the next job of the first (or a random) queue that has one."""
    check_writable(core)
    _check_take(take)
    job = next_job(core, take, now)
    if job is None:
        return None
    _hand_over(core, job, take, now)
    if take.move_to:
        serve(core, job.queue, now)
    return job


def fetch_more(core: Core, take: Take, jobs: list[Job], most: i64, size: i64, now: i64) -> None:
    """Hand out others on the same terms, until there are `most` jobs, or `size` bytes of payloads
    have come; the terms are those of a lease."""
    while len(jobs) < most and size > 0:
        try:
            job = fetch(core, take, now)
        except TaskyardError:
            return  # those that are taken are given all the same
        if job is None:
            return
        jobs.append(job)
        size -= job.payload_size
        queue = job.queue
        if queue.gate or (take.uniform and len(take.queues) > 1):
            continue
        # The others of this queue come before those of any other, and nothing has to be asked.
        log = core.log
        while queue.ready.size and len(jobs) < most and size > 0:
            if log.size() + STEP_ROOM > core.room.free:
                break
            job = _next(queue, take)
            _hand_over(core, job, take, now)
            jobs.append(job)
            size -= job.payload_size


def next_job(core: Core, take: Take, now: i64) -> Job | None:
    """The next job of the first (or a random) queue that has one to give."""
    if take.uniform and len(take.queues) > 1:
        return _choose(core, take, now)
    queues = core.state.queues
    for name in take.queues:
        queue = queues.get(name)
        if queue is not None and queue.ready.size:
            if not queue.gate:
                return _next(queue, take)
            job = _next_of_gated(core, queue, take, now)
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
    if queue.gate:
        return next_open(core, queue, last, True, now)
    return queue.ready.last() if last else queue.ready.first()


def wait(core: Core, take: Take, deadline: i64, others: i64 = 0) -> Waiter:
    """Stand in line at each of the queues; Assigned or GaveUp will follow.

    `others`: lines in which its client stands already.
    """
    _check_take(take)
    size = take.size()
    if core.waiting_size + size > core.waiting_limit and len(take.queues) + others > FEW_QUEUES:
        raise TooManyWaiting
    core.waiting_size += size
    core.numbered += 1
    waiter = Waiter(core.numbered, take)
    for name in take.queues:
        line = core.waiting.get(name)
        if line is None:
            line = OrderedDict()
            core.waiting[name] = line
        line[waiter.number] = waiter
    core.state.timers.set(waiter.timer, deadline)
    return waiter


def stop_waiting(core: Core, waiter: Waiter) -> None:
    if not waiter.waiting:
        return
    waiter.waiting = False
    core.waiting_size -= waiter.take.size()
    core.state.timers.cancel(waiter.timer)
    for name in waiter.take.queues:
        line = core.waiting.get(name)
        if line is not None:
            line.pop(waiter.number, None)
            if not line:
                del core.waiting[name]


def serve(core: Core, queue: Queue, now: i64) -> None:
    """Jobs have become ready: hand them to those in line, who may move them to another line."""
    to_serve = [queue]
    while to_serve:
        queue = to_serve.pop()
        while queue.ready.size and not queue.gate & PAUSED:
            line = core.waiting.get(queue.utf8)
            if line is None or not fits_due(core):
                break
            waiter = next(iter(line.values()))
            if queue.gate:  # whoever is first decides: those behind do not overtake
                job = _next_of_gated(core, queue, waiter.take, now)
                if job is None:
                    break
            else:
                job = _next(queue, waiter.take)
            take = waiter.take
            if (take.pop or take.move_to) and not _has_payload(core, waiter, queue, job):
                break
            stop_waiting(core, waiter)
            _hand_over(core, job, take, now)
            core.effects.append(Assigned(waiter, job))
            if take.move_to:  # those who wait there come first
                to_serve.append(queue)
                queue = job.queue


def _has_payload(core: Core, waiter: Waiter, queue: Queue, job: Job) -> bool:
    """Whether the job can be given together with its payload; else that is asked for, and those in
    line behind this waiter wait as well."""
    payload_of = core.payload_of
    if payload_of is None:
        return True
    payload = core.at_hand_payload if job is core.at_hand else payload_of(job)
    waiter.payload = payload
    if payload is not None:
        return True
    if waiter.reads is not job:
        waiter.reads = job
        core.effects.append(ReadFirst(waiter, queue.utf8, job))
    return False


def was_read(core: Core, asked: ReadFirst, payload: bytes | None, now: i64) -> None:
    """A payload was read back, or could not be: look at the line anew. Who is first in it, and
    which job is next, may have changed meanwhile."""
    if asked.waiter.reads is asked.job:
        asked.waiter.reads = None
    queue = core.state.queues.get(asked.queue)
    if queue is None:
        return
    if payload is not None:
        core.at_hand = asked.job
        core.at_hand_payload = payload
    serve(core, queue, now)
    core.at_hand = None
    core.at_hand_payload = b""


def extend(core: Core, job: Job, owner: i64, ttr: i64, origin: Origin, now: i64) -> None:
    """Let the lease last `ttr` from now on."""
    check_writable(core)
    lease = held_lease(job, owner)
    if not 0 < ttr < FOREVER:
        raise InvalidOption("ttr", "out of range")
    record = Extend(now, origin, job.id, job.queue.utf8, lease, after(now, ttr))
    core.log.append(record)
    apply_extend(core.state, record)


def progress(
    core: Core, job: Job, owner: i64, permille: i64, message: str, origin: Origin, now: i64
) -> None:
    """Its holder tells how far the job is."""
    check_writable(core, MAX_MESSAGE)
    attempt = held_lease(job, owner)
    if not 0 <= permille <= 1000:
        raise InvalidOption("permille", "must be 0 to 1000")
    if len(message.encode()) > MAX_MESSAGE:
        raise InvalidOption("message", f"must be at most {MAX_MESSAGE} bytes")
    record = Progress(now, origin, job.id, job.queue.utf8, attempt, permille, message)
    core.log.append(record)
    apply_progress(core.state, record)


def give_back(core: Core, job: Job, owner: i64, origin: Origin, now: i64) -> None:
    """The holder does not want the job after all; no failure, no loss is counted."""
    check_writable(core)
    held_lease(job, owner)
    release(core, job, RETURNED, origin, now)


def release(core: Core, job: Job, reason: i64, origin: Origin, now: i64) -> None:
    queue = job.queue
    keyless = key_is_taken(job)
    record = Release(now, origin, job.id, queue.utf8, i64(job.attempts), reason, keyless)
    core.log.append(record)
    apply_release(core.state, record)
    tell(core, job, STAGE_RETRY)
    serve(core, queue, now)


def held_lease(job: Job, owner: i64) -> i64:
    """The attempt that `owner` holds the job for."""
    lease = job.lease
    if lease is None or lease.owner != owner:
        raise NotLeaseholder(job.id)
    return lease.attempt


def finish_popped(core: Core, job: Job, origin: Origin, now: i64) -> None:
    measure_wait(core, job, now)
    record = finish_record(job, POPPED, b"", origin, now)
    core.log.append(record)
    finish_job(core.state, job, record)
    tell(core, job, STAGE_FINISH)
    tell_watchers(core, job, WATCH_SUCCEEDED, True, job.queue)


def finish_record(
    job: Job, way: i64, result: bytes, origin: Origin, now: i64, keep: i64 = 0
) -> Finish:
    queue = job.queue
    retention = keep or queue.rules.result_retention
    kept_until: i64 = 0
    if retention:
        kept_until = now + retention
    uid: bytes | None = None
    producer = b""
    extra = job.extra
    if extra is not None:
        uid = extra.uid
        if extra.expires_at:
            kept_until = extra.expires_at
        if not kept_until:
            producer = extra.producer
    attempts = i64(job.attempts)
    return Finish(now, origin, job.id, queue.utf8, attempts, way, kept_until, uid, result, producer)


def move_ready(core: Core, job: Job, to: str, front: bool, origin: Origin, now: i64) -> None:
    """Put a job into another queue, or to another end of its own, ready."""
    _move(core, job, to, front, origin, now)
    serve(core, job.queue, now)


def _move(core: Core, job: Job, to: str, front: bool, origin: Origin, now: i64) -> None:
    record = Move(now, origin, job.id, job.queue.utf8, to.encode(), front)
    core.log.append(record)
    apply_move(core.state, record)
    reveal(core)


def _check_take(take: Take) -> None:
    if take.ttr < 0:
        raise InvalidOption("ttr", "must not be negative")
    if take.move_to and not valid_name(take.move_to):
        raise InvalidOption("queue", NAME_RULE)


def _next(queue: Queue, take: Take) -> Job:
    """The job that the taker gets of a queue that has one."""
    if take.last:
        last = queue.ready.last()
        assert last is not None
        return last
    return queue.ready.top.first()


def _next_of_gated(core: Core, queue: Queue, take: Take, now: i64) -> Job | None:
    """The same of a queue that is paused, or has limits. A move is no start: none holds it back."""
    if take.move_to:
        return None if queue.gate & PAUSED else _next(queue, take)
    return next_open(core, queue, take.last, take.pop, now)


def _choose(core: Core, take: Take, now: i64) -> Job | None:
    able: list[Job] = []
    for name in take.queues:
        queue = core.state.queues.get(name)
        if queue is not None and queue.ready.size:
            job = _next_of_gated(core, queue, take, now) if queue.gate else _next(queue, take)
            if job is not None:
                able.append(job)
    return core.random.choice(able) if able else None


def _hand_over(core: Core, job: Job, take: Take, now: i64) -> None:
    if take.pop:
        finish_popped(core, job, take.origin, now)
        return
    if take.move_to:
        _move(core, job, take.move_to, take.front, take.origin, now)
        return
    ttr = job.policy.ttr
    if not ttr and not take.bound and job.queue.rules.ttr > 0:
        ttr = job.queue.rules.ttr
    if take.ttr and (not ttr or take.ttr < ttr):
        ttr = take.ttr
    if not ttr and not take.bound:
        ttr = core.state.settings.default_ttr
    deadline: i64 = 0
    if ttr:
        deadline = after(now, ttr)
    measure_wait(core, job, now)
    record = Lease(
        now,
        take.origin,
        job.id,
        job.queue.utf8,
        take.owner,
        take.bound,
        core.state.epoch,
        i64(job.attempts) + 1,
        deadline,
    )
    core.log.append(record)
    lease_job(core.state, job, record)
    if job.extra is not None:
        tell(core, job, STAGE_ASSIGN)
    if core.watchers:
        tell_watchers(core, job, WATCH_LEASED, False, job.queue)


def after(now: i64, duration: i64) -> i64:
    """A time ahead; far enough is for ever."""
    if duration < FOREVER - now:
        return now + duration
    return FOREVER
