"""Consumers that read queues in numbered batches, the same jobs for the same number.

A batch is asked for again after a crash by its number; asking for the next one says that this one
is done. It may have a million jobs, so it is leased and ended a portion at a time, and others have
their turn in between. Each portion is a record: a crash leaves a batch that is as long as it got,
and from then on it stays as it is.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.gates import several_open
from taskyard.engine.model.effects import WATCH_LEASED
from taskyard.engine.model.errors import InvalidOption, NoSpace, StaleBatch
from taskyard.engine.model.job import FOREVER, SYSTEM_ORIGIN, Job, Origin
from taskyard.engine.model.stages import STAGE_ASSIGN
from taskyard.engine.model.state import Consumer
from taskyard.engine.operations.checks import check_alive, check_writable
from taskyard.engine.operations.core import Core, measure_wait, tell, tell_watchers
from taskyard.engine.operations.finish import finish_leased, lose
from taskyard.engine.operations.lease import release
from taskyard.engine.operations.room import RECORD_ROOM, RELEASE_ROOM, fits_due, many
from taskyard.engine.records.job_lifecycle import ACKED, EXPIRED, RETURNED
from taskyard.engine.records.side_apply import apply_batch, apply_batch_done
from taskyard.engine.records.side_records import Batch, BatchDone
from taskyard.shared.names import NAME_RULE, valid_name

MAX_BATCH: Final = 1_000_000
MAX_NUMBER: Final = 1 << 62
_EACH: Final = 12  # bytes of a job in the record of its batch


class BatchRequest:
    """A batch that is asked for; once it is there, `got` and `count` say which, and how long."""

    __slots__ = ("consumer", "count", "got", "limit", "number", "origin", "queues", "token", "ttr")

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
        self.got: i64 = 0
        self.count: i64 = 0
        self.token: i64 = 0  # while it fills the batch


def lease_batch(core: Core, request: BatchRequest, owner: i64, now: i64) -> bool:
    """Do a portion of what is asked for; True when that was the last."""
    if request.token:
        return _go_on(core, request, now)
    check_alive(core)
    _check_request(request, now)
    name = request.consumer
    number = request.number
    consumer = core.state.consumers.get(name)
    if consumer is not None:
        if number == consumer.number and consumer.open:
            _check_in_time(consumer, now)
            consumer.filling = 0  # somebody knows by now how long it is
            return _has(request, number, len(consumer.ids))
        _check_next(consumer, number, now)
        if consumer.open:
            _finish_portion(core, consumer, request.origin, now)
            return False
        owner = consumer.owner
    return _fill(core, request, owner, now)


def ack_batch(core: Core, name: str, upto: i64, origin: Origin, now: i64) -> bool:
    """Batches up to this number are done; asking twice is harmless. True when all is said."""
    check_alive(core)
    if upto < 0:
        raise InvalidOption("batch", "must not be negative")
    consumer = core.state.consumers.get(name)
    last: i64 = consumer.number if consumer is not None else 0
    if upto > last:
        raise StaleBatch(f"{name} has no batch {upto}")
    if consumer is None or upto < last or not (consumer.open or consumer.expired):
        return True
    _check_in_time(consumer, now)
    return _finish_portion(core, consumer, origin, now)


def drop_consumer(core: Core, name: str, origin: Origin, now: i64) -> bool:
    """The consumer is gone for good: what it holds goes back to the queues. True when it has."""
    check_alive(core)
    consumer = core.state.consumers.get(name)
    if consumer is None:
        raise StaleBatch(f"there is no consumer {name}")
    jobs = _held_next(core, consumer)
    check_writable(core, many(len(jobs), RELEASE_ROOM, origin))
    for job in jobs:
        release(core, job, RETURNED, origin, now)
    if not _cleared_portion(core, consumer):
        return False
    _done(core, BatchDone(now, origin, name, consumer.number, dropped=True))
    return True


def read_batch(
    core: Core, name: str, number: i64, start: i64, count: i64, now: i64
) -> list[Job | None]:
    """The jobs at places of a batch; None for those that the consumer does not hold any more."""
    check_alive(core)
    consumer = core.state.consumers.get(name)
    if consumer is None:
        raise StaleBatch(f"there is no consumer {name}")
    if number != consumer.number or not consumer.open:
        if number == consumer.number:
            _check_in_time(consumer, now)
        raise StaleBatch(f"{name} does not hold batch {number}")
    _check_in_time(consumer, now)
    end = min(start + count, len(consumer.ids))
    return [_held_at(core, consumer, place) for place in range(start, end)]


def expire_batch(core: Core, name: str, now: i64, budget: i64) -> i64:
    """The consumer's time is over: its jobs go back, and it gets nothing until it is dropped.

    Its next request would say that this batch is done, which is not so: others have its jobs.
    Gives the number of steps that were done of it.
    """
    consumer = core.state.consumers[name]
    consumer.filling = 0
    size: i64 = len(consumer.ids)
    steps: i64 = 0
    while consumer.cleared < size and steps < budget:
        if not fits_due(core):
            return steps + 1
        job = _held_at(core, consumer, consumer.cleared)
        if job is not None:
            lose(core, job, EXPIRED, SYSTEM_ORIGIN, now)
        consumer.cleared += 1
        steps += 1
    if consumer.cleared >= size and fits_due(core):
        _done(core, BatchDone(now, SYSTEM_ORIGIN, name, consumer.number, expired=True))
    return steps + 1


# Leasing


def _check_request(request: BatchRequest, now: i64) -> None:
    if not valid_name(request.consumer):
        raise InvalidOption("consumer", NAME_RULE)
    if not 1 <= request.number <= MAX_NUMBER:
        raise InvalidOption("batch", f"must be 1 to {MAX_NUMBER}")
    if not 1 <= request.limit <= MAX_BATCH:
        raise InvalidOption("limit", f"must be 1 to {MAX_BATCH}")
    if not 0 <= request.ttr < FOREVER - now:
        raise InvalidOption("ttr", "out of range")


def _check_next(consumer: Consumer, number: i64, now: i64) -> None:
    _check_in_time(consumer, now)
    if number != consumer.number + 1:
        last = consumer.number
        raise StaleBatch(f"{consumer.name} is at batch {last}; {number} is not the next")


def _check_in_time(consumer: Consumer, now: i64) -> None:
    """Also while its jobs are still being given back."""
    if consumer.expired or (consumer.open and 0 < consumer.deadline <= now):
        raise StaleBatch(
            f"{consumer.name} had batch {consumer.number} for too long; drop the consumer"
        )


def _go_on(core: Core, request: BatchRequest, now: i64) -> bool:
    """Make the batch longer, unless somebody has heard of it, or ended it, meanwhile."""
    name = request.consumer
    number = request.number
    consumer = core.state.consumers.get(name)
    if consumer is None or consumer.number != number or not consumer.open:
        raise StaleBatch(f"batch {number} of {name} was ended while it was leased")
    _check_in_time(consumer, now)
    if consumer.filling != request.token:
        # Others may be filling it still, if the consumer was dropped and has begun anew.
        return _filled(consumer, request)
    try:
        return _fill(core, request, consumer.owner, now)
    except NoSpace:
        return _filled(consumer, request)


def _fill(core: Core, request: BatchRequest, owner: i64, now: i64) -> bool:
    """Lease a portion; True if there is no more, or none at all."""
    wanted: i64 = min(request.limit - request.count, core.portion)
    size: i64 = wanted * _EACH
    for queue in request.queues:
        size += len(queue) + 10
    size += len(_user_of(core, request).encode())
    check_writable(core, size)
    before = _ready(core, request.queues)
    names: list[bytes] = []
    counts: list[int] = []
    jobs = _pick(core, request.queues, wanted, names, counts, now)
    if jobs:
        _lease(core, request, owner, jobs, names, counts, now)
    # Jobs whose key is closed, by this portion as well, are set aside as they are met: there may
    # be others behind them.
    found: i64 = len(jobs)
    look_again = before > _ready(core, request.queues) and _has_gate(core, request.queues)
    consumer = core.state.consumers.get(request.consumer) if request.token else None
    if consumer is None:
        return not look_again and _has(request, request.number - 1, 0)
    if request.count < request.limit and (found == wanted or look_again):
        return False
    return _filled(consumer, request)


def _lease(
    core: Core,
    request: BatchRequest,
    owner: i64,
    jobs: list[Job],
    names: list[bytes],
    counts: list[int],
    now: i64,
) -> None:
    deadline: i64 = now + request.ttr if request.ttr else 0
    if request.token:
        deadline = core.state.consumers[request.consumer].deadline
    record = Batch(
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
    core.log.append(record)
    apply_batch(core.state, record)
    request.count += len(jobs)
    if not request.token:
        core.requests += 1
        request.token = core.requests
        core.state.consumers[request.consumer].filling = core.requests
    for job in jobs:
        measure_wait(core, job, now)
        if job.extra is not None:
            tell(core, job, STAGE_ASSIGN)
        if core.watchers:
            tell_watchers(core, job, WATCH_LEASED, False, job.queue)


def _user_of(core: Core, request: BatchRequest) -> str:
    """Whose the consumer is from this batch on: the first user's who leases one as it."""
    consumer = core.state.consumers.get(request.consumer)
    if consumer is not None and consumer.user:
        return consumer.user
    return request.origin.user


def _filled(consumer: Consumer, request: BatchRequest) -> bool:
    consumer.filling = 0
    return _has(request, consumer.number, len(consumer.ids))


def _has(request: BatchRequest, number: i64, count: i64) -> bool:
    request.got = number
    request.count = count
    return True


def _ready(core: Core, queues: list[bytes]) -> i64:
    count: i64 = 0
    for name in queues:
        queue = core.state.queues.get(name)
        if queue is not None:
            count += queue.ready.size
    return count


def _has_gate(core: Core, queues: list[bytes]) -> bool:
    for name in queues:
        queue = core.state.queues.get(name)
        if queue is not None and queue.gate:
            return True
    return False


def _pick(
    core: Core, queues: list[bytes], limit: i64, names: list[bytes], counts: list[int], now: i64
) -> list[Job]:
    """The next jobs of the queues, first come first served; `names` and `counts` are filled."""
    jobs: list[Job] = []
    for name in queues:
        queue = core.state.queues.get(name)
        if queue is not None and queue.ready.size:
            room: i64 = limit - len(jobs)
            if queue.gate:
                found = several_open(core, queue, room, now)
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


def _finish_portion(core: Core, consumer: Consumer, origin: Origin, now: i64) -> bool:
    """Finish a portion of what the consumer holds; True when its batch is done with that."""
    jobs = _held_next(core, consumer)
    check_writable(core, many(len(jobs), RECORD_ROOM, origin))
    for job in jobs:
        finish_leased(core, job, ACKED, b"", origin, now)
    if not _cleared_portion(core, consumer):
        return False
    _done(core, BatchDone(now, origin, consumer.name, consumer.number))
    return True


def _held_next(core: Core, consumer: Consumer) -> list[Job]:
    """The next portion of the batch, as far as the consumer still holds it."""
    end = min(consumer.cleared + core.portion, len(consumer.ids))
    jobs: list[Job] = []
    for place in range(consumer.cleared, end):
        job = _held_at(core, consumer, place)
        if job is not None:
            jobs.append(job)
    return jobs


def _cleared_portion(core: Core, consumer: Consumer) -> bool:
    """That portion has been seen to; True if it was the last."""
    size: i64 = len(consumer.ids)
    consumer.filling = 0
    consumer.cleared = min(consumer.cleared + core.portion, size)
    return consumer.cleared >= size


def _done(core: Core, record: BatchDone) -> None:
    core.log.append(record)
    apply_batch_done(core.state, record)


def _held_at(core: Core, consumer: Consumer, place: i64) -> Job | None:
    """The job there, unless it was ended or given back by itself, whoever has it now."""
    job = core.state.live(consumer.ids[place])
    lease = job.lease if job is not None else None
    if lease is None or lease.owner != consumer.owner:
        return None
    attempt = consumer.attempts[place]
    return job if not attempt or lease.attempt == attempt else None
