"""Consumers that read queues in numbered batches: the same number always has the same jobs.

After a crash a consumer requests its batch again by the number; a request for the next number says
that this batch is done. A batch may have a million jobs, so it is leased and ended in chunks, with
turns of others in between. Each chunk is a record: a crash leaves a batch that is as long as it
got, and from then on it stays as it is.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.gates import next_allowed_many
from taskyard.engine.model.events import WATCH_LEASED, InvalidOption, NoSpace, StaleBatch
from taskyard.engine.model.job import FOREVER, STAGE_ASSIGN, SYSTEM_ORIGIN, Job, Origin
from taskyard.engine.model.state import BatchConsumer
from taskyard.engine.operations.checks import check_not_read_only, check_writable
from taskyard.engine.operations.core import Core, notify_session, notify_watchers, record_wait_time
from taskyard.engine.operations.finish import end_lost_lease, finish_leased
from taskyard.engine.operations.lease import emit_release
from taskyard.engine.operations.room import (
    MAX_RECORD_BYTES,
    MAX_RELEASE_BYTES,
    ensure_space_or_postpone,
    total_record_bytes,
)
from taskyard.engine.records.entities import BatchDone, BatchRecord, apply_batch, apply_batch_done
from taskyard.engine.records.job_lifecycle import ACKED, EXPIRED, RETURNED
from taskyard.shared.text import NAME_RULE, valid_name

MAX_BATCH_JOBS: Final = 1_000_000
MAX_BATCH_NUMBER: Final = 1 << 62
_BYTES_PER_JOB: Final = 12  # bytes of a job in the record of its batch


class BatchRequest:
    """A request for a batch; once complete, `result_number` and `count` say which, and how long."""

    __slots__ = (
        "consumer",
        "count",
        "fill_id",
        "limit",
        "number",
        "origin",
        "queues",
        "result_number",
        "ttr",
    )

    def __init__(
        self,
        consumer: str,
        number: i64,
        queues: list[bytes],
        limit: i64,
        ttr: i64,
        origin: Origin,
    ) -> None:
        self.consumer = consumer
        self.number = number
        self.queues = list(dict.fromkeys(queues))
        self.limit = limit
        self.ttr = ttr  # 0: it may be out for ever
        self.origin = origin
        self.result_number: i64 = 0
        self.count: i64 = 0
        self.fill_id: i64 = 0  # while it fills the batch


def lease_batch(core: Core, request: BatchRequest, owner: i64, now: i64) -> bool:
    """Lease a chunk of the requested batch; True when it was the last."""
    if request.fill_id:
        return _continue_fill(core, request, now)
    check_not_read_only(core)
    _check_request(request, now)
    name = request.consumer
    number = request.number
    consumer = core.state.consumers.get(name)
    if consumer is not None:
        if number == consumer.number and consumer.open:
            _check_in_time(consumer, now)
            consumer.fill_id = 0  # a client knows by now how long it is
            return _set_result(request, number, len(consumer.ids))
        _check_next(consumer, number, now)
        if consumer.open:
            _finish_chunk(core, consumer, request.origin, now)
            return False
        owner = consumer.owner
    return _fill_chunk(core, request, owner, now)


def ack_batch(core: Core, name: str, upto: i64, origin: Origin, now: i64) -> bool:
    """Batches up to this number are done; asking twice is harmless. True when all is said."""
    check_not_read_only(core)
    if upto < 0:
        raise InvalidOption("batch", "must not be negative")
    consumer = core.state.consumers.get(name)
    last: i64 = consumer.number if consumer is not None else 0
    if upto > last:
        raise StaleBatch(f"{name} has no batch {upto}")
    if consumer is None or upto < last or not (consumer.open or consumer.expired):
        return True
    _check_in_time(consumer, now)
    return _finish_chunk(core, consumer, origin, now)


def drop_consumer(core: Core, name: str, origin: Origin, now: i64) -> bool:
    """Drop the consumer for good: its jobs return to the queues. True when all have."""
    check_not_read_only(core)
    consumer = core.state.consumers.get(name)
    if consumer is None:
        raise StaleBatch(f"there is no consumer {name}")
    jobs = _next_held_chunk(core, consumer)
    check_writable(core, total_record_bytes(len(jobs), MAX_RELEASE_BYTES, origin))
    for job in jobs:
        emit_release(core, job, RETURNED, origin, now)
    if not _advance_cleared(core, consumer):
        return False
    _emit_batch_done(core, BatchDone(now, origin, name, consumer.number, dropped=True))
    return True


def read_batch(
    core: Core, name: str, number: i64, start: i64, count: i64, now: i64
) -> list[Job | None]:
    """The jobs at places of a batch; None for those that the consumer does not hold any more."""
    check_not_read_only(core)
    consumer = core.state.consumers.get(name)
    if consumer is None:
        raise StaleBatch(f"there is no consumer {name}")
    if number != consumer.number or not consumer.open:
        if number == consumer.number:
            _check_in_time(consumer, now)
        raise StaleBatch(f"{name} does not hold batch {number}")
    _check_in_time(consumer, now)
    end = min(start + count, len(consumer.ids))
    return [_held_job_at(core, consumer, place) for place in range(start, end)]


def expire_batch(core: Core, name: str, now: i64, budget: i64) -> i64:
    """Return the jobs of a consumer whose time is over; it gets nothing until it is dropped.

    Its next request would say that this batch is done, which is not so: others have its jobs.
    Returns the number of steps that were done of it.
    """
    consumer = core.state.consumers[name]
    consumer.fill_id = 0
    size: i64 = len(consumer.ids)
    steps: i64 = 0
    while consumer.cleared_count < size and steps < budget:
        if not ensure_space_or_postpone(core):
            return steps + 1
        job = _held_job_at(core, consumer, consumer.cleared_count)
        if job is not None:
            end_lost_lease(core, job, EXPIRED, SYSTEM_ORIGIN, now)
        consumer.cleared_count += 1
        steps += 1
    if consumer.cleared_count >= size and ensure_space_or_postpone(core):
        _emit_batch_done(core, BatchDone(now, SYSTEM_ORIGIN, name, consumer.number, expired=True))
    return steps + 1


# Leasing


def _check_request(request: BatchRequest, now: i64) -> None:
    if not valid_name(request.consumer):
        raise InvalidOption("consumer", NAME_RULE)
    if not 1 <= request.number <= MAX_BATCH_NUMBER:
        raise InvalidOption("batch", f"must be 1 to {MAX_BATCH_NUMBER}")
    if not 1 <= request.limit <= MAX_BATCH_JOBS:
        raise InvalidOption("limit", f"must be 1 to {MAX_BATCH_JOBS}")
    if not 0 <= request.ttr < FOREVER - now:
        raise InvalidOption("ttr", "out of range")


def _check_next(consumer: BatchConsumer, number: i64, now: i64) -> None:
    _check_in_time(consumer, now)
    if number != consumer.number + 1:
        last = consumer.number
        raise StaleBatch(f"{consumer.name} is at batch {last}; {number} is not the next")


def _check_in_time(consumer: BatchConsumer, now: i64) -> None:
    """Check this also while its jobs are still being returned."""
    if consumer.expired or (consumer.open and 0 < consumer.deadline <= now):
        raise StaleBatch(
            f"{consumer.name} had batch {consumer.number} for too long; drop the consumer"
        )


def _continue_fill(core: Core, request: BatchRequest, now: i64) -> bool:
    """Make the batch longer, unless a client knows its length, or has ended it, meanwhile."""
    name = request.consumer
    number = request.number
    consumer = core.state.consumers.get(name)
    if consumer is None or consumer.number != number or not consumer.open:
        raise StaleBatch(f"batch {number} of {name} was ended while it was leased")
    _check_in_time(consumer, now)
    if consumer.fill_id != request.fill_id:
        # Other requests may still fill it, if the consumer was dropped and made again.
        return _end_fill(consumer, request)
    try:
        return _fill_chunk(core, request, consumer.owner, now)
    except NoSpace:
        return _end_fill(consumer, request)


def _fill_chunk(core: Core, request: BatchRequest, owner: i64, now: i64) -> bool:
    """Lease a chunk; True if there are no more jobs, or none at all."""
    wanted: i64 = min(request.limit - request.count, core.batch_chunk_jobs)
    size: i64 = wanted * _BYTES_PER_JOB
    for queue in request.queues:
        size += len(queue) + 10
    size += len(_user_of(core, request).encode())
    check_writable(core, size)
    before = _ready_count(core, request.queues)
    names: list[bytes] = []
    counts: list[int] = []
    jobs = _pick_jobs(core, request.queues, wanted, names, counts, now)
    if jobs:
        _lease_jobs(core, request, owner, jobs, names, counts, now)
    # Jobs whose key is closed, by this chunk as well, are parked when they are found: there may
    # be others behind them.
    found: i64 = len(jobs)
    look_again = before > _ready_count(core, request.queues) and _any_restricted(
        core, request.queues
    )
    consumer = core.state.consumers.get(request.consumer) if request.fill_id else None
    if consumer is None:
        return not look_again and _set_result(request, request.number - 1, 0)
    if request.count < request.limit and (found == wanted or look_again):
        return False
    return _end_fill(consumer, request)


def _lease_jobs(
    core: Core,
    request: BatchRequest,
    owner: i64,
    jobs: list[Job],
    names: list[bytes],
    counts: list[int],
    now: i64,
) -> None:
    deadline: i64 = now + request.ttr if request.ttr else 0
    if request.fill_id:
        deadline = core.state.consumers[request.consumer].deadline
    record = BatchRecord(
        now,
        request.origin,
        request.consumer,
        owner,
        request.number,
        core.state.epoch,
        deadline,
        [job.id for job in jobs],
        names,
        counts,
        [job.attempts + 1 for job in jobs],
        _user_of(core, request),
    )
    core.records.append(record)
    apply_batch(core.state, record)
    request.count += len(jobs)
    if not request.fill_id:
        core.last_fill_id += 1
        request.fill_id = core.last_fill_id
        core.state.consumers[request.consumer].fill_id = core.last_fill_id
    for job in jobs:
        record_wait_time(core, job, now)
        if job.extras is not None:
            notify_session(core, job, STAGE_ASSIGN)
        if core.watchers:
            notify_watchers(core, job, WATCH_LEASED, False, job.queue)


def _user_of(core: Core, request: BatchRequest) -> str:
    """Return the consumer's user from this batch on: the first user that leases one as it."""
    consumer = core.state.consumers.get(request.consumer)
    if consumer is not None and consumer.user:
        return consumer.user
    return request.origin.user


def _end_fill(consumer: BatchConsumer, request: BatchRequest) -> bool:
    consumer.fill_id = 0
    return _set_result(request, consumer.number, len(consumer.ids))


def _set_result(request: BatchRequest, number: i64, count: i64) -> bool:
    request.result_number = number
    request.count = count
    return True


def _ready_count(core: Core, queues: list[bytes]) -> i64:
    count: i64 = 0
    for name in queues:
        queue = core.state.queues.get(name)
        if queue is not None:
            count += queue.ready.size
    return count


def _any_restricted(core: Core, queues: list[bytes]) -> bool:
    for name in queues:
        queue = core.state.queues.get(name)
        if queue is not None and queue.restrictions:
            return True
    return False


def _pick_jobs(
    core: Core, queues: list[bytes], limit: i64, names: list[bytes], counts: list[int], now: i64
) -> list[Job]:
    """Choose the next jobs of the queues in order of arrival; `names` and `counts` are filled."""
    jobs: list[Job] = []
    for name in queues:
        queue = core.state.queues.get(name)
        if queue is not None and queue.ready.size:
            room: i64 = limit - len(jobs)
            if queue.restrictions:
                found = next_allowed_many(core, queue, room, now)
            else:
                found = queue.ready.slice(0, room)
            if found:
                jobs.extend(found)
                names.append(name)
                counts.append(len(found))
        if len(jobs) >= limit:
            break
    return jobs


# Ending


def _finish_chunk(core: Core, consumer: BatchConsumer, origin: Origin, now: i64) -> bool:
    """Finish a chunk of the consumer's jobs; True when its batch is done with that."""
    jobs = _next_held_chunk(core, consumer)
    check_writable(core, total_record_bytes(len(jobs), MAX_RECORD_BYTES, origin))
    for job in jobs:
        finish_leased(core, job, ACKED, b"", origin, now)
    if not _advance_cleared(core, consumer):
        return False
    _emit_batch_done(core, BatchDone(now, origin, consumer.name, consumer.number))
    return True


def _next_held_chunk(core: Core, consumer: BatchConsumer) -> list[Job]:
    """Return the next chunk of the batch, as far as the consumer still holds it."""
    end = min(consumer.cleared_count + core.batch_chunk_jobs, len(consumer.ids))
    jobs: list[Job] = []
    for place in range(consumer.cleared_count, end):
        job = _held_job_at(core, consumer, place)
        if job is not None:
            jobs.append(job)
    return jobs


def _advance_cleared(core: Core, consumer: BatchConsumer) -> bool:
    """Mark that chunk as done; True if it was the last."""
    size: i64 = len(consumer.ids)
    consumer.fill_id = 0
    consumer.cleared_count = min(consumer.cleared_count + core.batch_chunk_jobs, size)
    return consumer.cleared_count >= size


def _emit_batch_done(core: Core, record: BatchDone) -> None:
    core.records.append(record)
    apply_batch_done(core.state, record)


def _held_job_at(core: Core, consumer: BatchConsumer, place: i64) -> Job | None:
    """Return the job there, unless it was ended or released alone, whoever leases it now."""
    job = core.state.live_job(consumer.ids[place])
    lease = job.lease if job is not None else None
    if lease is None or lease.owner != consumer.owner:
        return None
    attempt = consumer.attempts[place]
    return job if not attempt or lease.attempt == attempt else None
