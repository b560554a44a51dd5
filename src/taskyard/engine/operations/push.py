"""Taking jobs in: push, and transactions of pushes and acks."""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.model.events import (
    Draining,
    DuplicateJob,
    DuplicateKey,
    InvalidOption,
    NotLeaseholder,
    QueueFull,
    TaskyardError,
    TransactionStepRefused,
    UidTaken,
)
from taskyard.engine.model.job import (
    FAILED,
    READY,
    STAGE_FINISH,
    STAGE_READY,
    STAGE_SYNC,
    STAGE_WRITE,
    SUCCEEDED,
    Job,
    NewJob,
    Notify,
    Origin,
)
from taskyard.engine.model.queue import OVERFLOW_DEAD, Queue
from taskyard.engine.model.state import is_same_producer, job_id_of
from taskyard.engine.operations.checks import (
    check_adding,
    check_names,
    check_new_job,
    check_not_read_only,
    check_options,
    check_writable,
    push_record_bytes,
)
from taskyard.engine.operations.core import Core, notify_session
from taskyard.engine.operations.finish import QUEUE_FULL, fail_finally, finish_leased
from taskyard.engine.operations.lease import serve_queue
from taskyard.engine.operations.room import MAX_STEP_BYTES
from taskyard.engine.records.apply import apply_push
from taskyard.engine.records.job_lifecycle import ACKED, PushRecord

# How much a queue may hold, and what happens to a push beyond that


class _PlannedGrowth:
    """What the earlier steps of a transaction change about a queue."""

    __slots__ = ("jobs", "size")

    def __init__(self) -> None:
        self.jobs: i64 = 0
        self.size: i64 = 0


def must_dead_letter(core: Core, name: bytes, size: i64, jobs: i64 = 0, more: i64 = 0) -> bool:
    """Whether a payload of `size` bytes must go to the dead letters, after so many other jobs and
    bytes more than there are now.

    A queue that refuses what is beyond its bounds raises QueueFull, one that is drained Draining.
    """
    queue = core.state.queues.get(name)
    _check_draining(core, queue)
    reason = _exceeded_bound(core, queue, jobs + 1, more + size)
    if not reason:
        return False
    if queue is not None and queue.settings.overflow == OVERFLOW_DEAD:
        core.statistics.overflowed_pushes += 1
        return True
    core.statistics.refused_pushes += 1
    raise QueueFull(f"queue is full: {reason}")


def steps_to_dead_letter(core: Core, steps: list[TransactionStep]) -> set[int]:
    """Return the steps of a transaction whose jobs must go to the dead letters."""
    growths: dict[bytes, _PlannedGrowth] = {}
    found: set[int] = set()
    for index, step in enumerate(steps):
        new = step.new
        if new is None:
            job = core.state.live_job(step.ack)
            if job is not None:
                _add_growth(growths, job.queue.utf8, -1, -job.payload_size)
            continue
        name = new.queue.encode()
        size: i64 = len(new.payload)
        growth = _add_growth(growths, name, 0, 0)
        try:
            dead = must_dead_letter(core, name, size, growth.jobs, growth.size)
        except (QueueFull, Draining) as error:
            raise TransactionStepRefused(index, error) from error
        if dead:
            found.add(index)
            if new.policy.dead_queue:
                _add_growth(growths, new.policy.dead_queue.encode(), 1, size)
        else:
            _add_growth(growths, name, 1, size)
    return found


def _check_draining(core: Core, queue: Queue | None) -> None:
    if core.draining:
        raise Draining("the server is being drained and takes no pushes")
    if queue is not None and queue.settings.draining:
        raise Draining(f"queue {queue.name} is being drained and takes no pushes")


def _add_growth(
    growths: dict[bytes, _PlannedGrowth], name: bytes, jobs: i64, size: i64
) -> _PlannedGrowth:
    growth = growths.get(name)
    if growth is None:
        growth = _PlannedGrowth()
        growths[name] = growth
    growth.jobs += jobs
    growth.size += size
    return growth


def _exceeded_bound(core: Core, queue: Queue | None, jobs: i64, size: i64) -> str:
    """What there would be too much of with so much more; "": it all has a place."""
    server = core.state.settings
    most = server.max_jobs
    largest = server.max_bytes
    if queue is not None:
        settings = queue.settings
        jobs += queue.unfinished_count()
        size += queue.unfinished_bytes
        if settings.max_jobs >= 0:
            most = settings.max_jobs
        if settings.max_bytes >= 0:
            largest = settings.max_bytes
    if 0 <= most < jobs:
        return f"it may have {most} jobs"
    if 0 <= largest < size:
        return f"its jobs may have {largest} bytes"
    return ""


class TransactionStep:
    """One command of a transaction: a push, or the ack of a job its owner holds."""

    __slots__ = ("ack", "new", "queue")

    def __init__(self, new: NewJob | None, ack: i64 = 0) -> None:
        self.new = new
        self.ack = ack
        self.queue = b""  # of the push, in UTF-8, when it has been checked


def push(core: Core, new: NewJob, origin: Origin, now: i64) -> Job:
    check_not_read_only(core)
    queue = check_new_job(core, new)
    check_adding(core, push_record_bytes(new))
    if new.uid is not None:
        check_uid(core, new.uid, queue, origin)
    blocked_by = new.blocked_by
    if blocked_by is not None:
        for blocker in blocked_by:
            if blocker <= 0:
                raise InvalidOption("blocked_by", "not a job id")
    if core.state.any_queue_bounded and must_dead_letter(core, queue, len(new.payload)):
        check_adding(core, push_record_bytes(new) + MAX_STEP_BYTES)
        job = _emit_push(core, new, queue, origin, now)
        fail_finally(core, job, QUEUE_FULL, False, b"", origin, now)
        return job
    if core.waiters:
        _prepare_immediate_pop(core, new, queue, now)
    job = _emit_push(core, new, queue, origin, now)
    if core.waiters and job.state == READY:
        serve_queue(core, job.queue, now)
    return job


def transact(
    core: Core, steps: list[TransactionStep], owner: i64, origin: Origin, now: i64
) -> list[int]:
    """All of the steps or none; gives the ids of the pushed jobs.

    A blocker of 0 or below is relative: -k is the k-th push before this one in the transaction.
    """
    check_not_read_only(core)
    check_steps(core, steps, owner, origin)
    dead = steps_to_dead_letter(core, steps) if core.state.any_queue_bounded else None
    _check_space(core, steps, len(dead) if dead else 0)
    ids: list[int] = []
    touched: list[Queue] = []
    over: list[Job] = []
    for index, step in enumerate(steps):
        new = step.new
        if new is None:
            job = core.state.jobs.get(step.ack)
            assert job is not None
            finish_leased(core, job, ACKED, b"", origin, now)
            continue
        if new.blocked_by:
            new.blocked_by = _absolute_blockers(new.blocked_by, ids)
        job = _emit_push(core, new, step.queue, origin, now)
        ids.append(job.id)
        touched.append(job.queue)
        if dead and index in dead:
            over.append(job)
    for job in over:  # now that all is there that waits for them, and fails with them
        fail_finally(core, job, QUEUE_FULL, False, b"", origin, now)
    if core.waiters:
        for queue in touched:
            serve_queue(core, queue, now)
    return ids


def push_all(
    core: Core, new: NewJob, payloads: list[bytes], owner: i64, origin: Origin, now: i64
) -> None:
    """Push the same job with one payload after the other: all of them or none.

    It has no uid and no key, waits for no other, and no client is notified of it.
    """
    if core.state.any_queue_bounded:
        steps = [TransactionStep(new.with_payload(payload)) for payload in payloads]
        transact(core, steps, owner, origin, now)
        return
    check_not_read_only(core)
    queue = check_new_job(core, new)
    limit = core.state.settings.payload_limit
    size: i64 = len(payloads) * MAX_STEP_BYTES
    for index, payload in enumerate(payloads):
        if len(payload) > limit:
            raise TransactionStepRefused(index, InvalidOption("payload", "too large"))
        size += len(payload)
    check_adding(core, size)
    state = core.state
    for payload in payloads:
        new.payload = payload
        record = PushRecord(now, origin, state.next_id, queue, new)
        core.records.append(record)
        apply_push(state, record)
    if core.waiters and payloads:
        serve_queue(core, state.queues[queue], now)


def check_uid(core: Core, uid: bytes, queue: bytes, origin: Origin) -> None:
    """Refuse a uid that a job has, or had until a short while ago: as a repetition if it was pushed
    to that queue by that user, wherever it is by now, and as taken if not."""
    state = core.state
    job = state.uids.get(uid)
    if job is not None:
        raise _uid_refusal(core, job.id, job.ensure_extras().producer, queue, origin)
    buried = state.tombstones.by_uid.get(uid)
    if buried is not None:
        raise _uid_refusal(core, buried.id, buried.producer, queue, origin)
    derived = job_id_of(core.salt, uid, state.next_id)
    if derived and state.live_job(derived) is not None:
        raise UidTaken  # no push has named it, so none repeats it


def _uid_refusal(
    core: Core, id: i64, producer: bytes, queue: bytes, origin: Origin
) -> TaskyardError:
    """Why a push with the uid of this job is refused."""
    if is_same_producer(producer, core.state.producer_hashes.hash_of(queue, origin.user)):
        return DuplicateJob(id)
    return UidTaken()


def check_key(core: Core, queue: bytes, key: bytes) -> None:
    """Refuse a key that a job of the queue has while it waits."""
    there = core.state.queues.get(queue)
    keys = there.keys if there is not None else None
    job = keys.get(key) if keys is not None else None
    if job is not None:
        raise DuplicateKey(job.id)


def _emit_push(core: Core, new: NewJob, queue: bytes, origin: Origin, now: i64) -> Job:
    state = core.state
    blockers = _unfinished_blockers(core, new.blocked_by) if new.blocked_by else None
    if new.key is not None:
        there = state.queues.get(queue)
        if there is not None and there.keys is not None and new.key in there.keys:
            new.key = None  # another queued job has it
    record = PushRecord(now, origin, state.next_id, queue, new, blockers)
    core.records.append(record)
    job = apply_push(state, record)
    if new.notify is not None:
        notify_session(core, job, STAGE_READY)
        notify_session(core, job, STAGE_WRITE)
        notify_session(core, job, STAGE_SYNC)
    return job


def _unfinished_blockers(core: Core, ids: list[int]) -> list[int] | None:
    """Those of the blockers that can still succeed; finished and unknown ones do not block."""
    found: list[int] = []
    next_id: int = core.state.next_id
    for id in dict.fromkeys(ids):
        job = core.state.live_job(id) if id < next_id else None  # a client may send any number
        if job is not None and job.state != SUCCEEDED and job.state != FAILED:
            found.append(id)
    return found or None


def _prepare_immediate_pop(core: Core, new: NewJob, name: bytes, now: i64) -> None:
    """Prepare a job that a waiting pop gets at once: it was never ready, so a session that asked
    for that stage is notified that it is finished.
    """
    notify = new.notify
    if notify is None or new.run_at > now or new.blocked_by:
        return
    line = core.waiters.get(name)
    if line is None or not next(iter(line.values())).request.pop:
        return
    queue = core.state.queues.get(name)
    if queue is not None and (
        queue.restrictions or queue.ready.size
    ):  # it may have to wait after all
        return
    wanted = notify.stages & (STAGE_READY | STAGE_FINISH)
    new.notify = Notify(notify.session, notify.label, STAGE_FINISH if wanted else 0)


def check_steps(core: Core, steps: list[TransactionStep], owner: i64, origin: Origin) -> None:
    """Refuse the first step that cannot be done."""
    pushed: i64 = 0
    acked: set[int] = set()
    uids: set[bytes] = set()
    before: NewJob | None = None  # the push before, with whose names most are
    queue = b""
    for index, step in enumerate(steps):
        try:
            new = step.new
            if new is None:
                _check_ack(core, step.ack, owner, acked)
            else:
                if before is None or new.queue is not before.queue or new.name is not before.name:
                    queue = check_names(core, new)
                    before = new
                step.queue = queue
                check_options(core, new)
                uid = new.uid
                if uid is not None:
                    check_uid(core, uid, queue, origin)
                    if uid in uids:
                        raise DuplicateJob(0)
                    uids.add(uid)
                _check_relative_blockers(new.blocked_by, pushed)
                pushed += 1
        except TaskyardError as error:
            raise TransactionStepRefused(index, error) from error


def _check_space(core: Core, steps: list[TransactionStep], dead: i64) -> None:
    """All of it must fit, because none of it is done otherwise; `dead` of them fail at once."""
    size: i64 = (len(steps) + dead) * MAX_STEP_BYTES
    adds = False
    for step in steps:
        new = step.new
        if new is not None:
            adds = True
            size += push_record_bytes(new)
    if adds:
        check_adding(core, size)
    else:
        check_writable(core, size)


def _check_ack(core: Core, id: i64, owner: i64, acked: set[int]) -> None:
    job = core.state.live_job(id)
    lease = job.lease if job is not None else None
    if lease is None or lease.owner != owner or id in acked:
        raise NotLeaseholder(id)
    acked.add(id)


def _check_relative_blockers(blocked_by: list[int] | None, pushed: int) -> None:
    if blocked_by is None:
        return
    for blocker in blocked_by:
        if blocker == 0:
            raise InvalidOption("blocked_by", "a job cannot wait for itself")
        if -blocker > pushed:
            raise InvalidOption("blocked_by", "no push so far back in the transaction")


def _absolute_blockers(blocked_by: list[int], ids: list[int]) -> list[int]:
    return [blocker if blocker > 0 else ids[blocker] for blocker in blocked_by]
