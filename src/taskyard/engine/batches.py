"""Consumers that read queues in numbered batches, the same jobs for the same number.

A batch is one record and is asked for again after a crash by its number; asking for the next one
says that this one is done.
"""

from __future__ import annotations

from mypy_extensions import i64

from taskyard.engine.checks import check_alive, check_writable
from taskyard.engine.core import Core, measure_wait, tell, tell_watchers
from taskyard.engine.effects import WATCH_LEASED
from taskyard.engine.errors import InvalidOption, StaleBatch
from taskyard.engine.finishing import finish_leased, lose
from taskyard.engine.gates import several_open
from taskyard.engine.job import FOREVER, SYSTEM_ORIGIN, Job, Origin
from taskyard.engine.records import ACKED, EXPIRED, RETURNED
from taskyard.engine.room import RECORD_ROOM, RELEASE_ROOM, STEP_ROOM, fits_due, many
from taskyard.engine.side_apply import apply_batch, apply_batch_done
from taskyard.engine.side_records import Batch, BatchDone
from taskyard.engine.stages import STAGE_ASSIGN
from taskyard.engine.state import Consumer
from taskyard.engine.taking import release
from taskyard.names import NAME_RULE, valid_name

MAX_BATCH = 1_000_000


def lease_batch(
    core: Core,
    name: str,
    number: i64,
    queues: list[bytes],
    limit: i64,
    ttr: i64,
    owner: i64,
    origin: Origin,
    now: i64,
) -> list[Job]:
    """Batch `number` of this consumer: leased now, or the one it already holds."""
    check_alive(core)
    if not valid_name(name):
        raise InvalidOption("consumer", NAME_RULE)
    if not 1 <= limit <= MAX_BATCH:
        raise InvalidOption("limit", f"must be 1 to {MAX_BATCH}")
    if not 0 <= ttr < FOREVER - now:
        raise InvalidOption("ttr", "out of range")
    consumer = core.state.consumers.get(name)
    size: i64 = STEP_ROOM + 8 * _ready(core, queues, limit)
    if consumer is None:
        if number < 1:
            raise InvalidOption("batch", "numbers start at 1")
    elif number == consumer.number and consumer.open:
        return _jobs_held(core, consumer)
    elif consumer.expired:
        raise StaleBatch(f"{name} had batch {consumer.number} for too long; drop the consumer")
    elif number != consumer.number + 1:
        raise StaleBatch(f"{name} is done with batch {consumer.number}; {number} is not the next")
    else:
        if consumer.open:
            size += many(len(consumer.ids), RECORD_ROOM, origin)
            check_writable(core, size)
            _finish_batch(core, consumer, origin, now)
            size = 0  # it has been seen to
        owner = consumer.owner
    if size:
        check_writable(core, size)
    names: list[bytes] = []
    counts: list[int] = []
    jobs = _pick(core, queues, limit, names, counts, now)
    ids: list[int] = [job.id for job in jobs]
    deadline: i64 = now + ttr if ttr else 0
    epoch = core.state.epoch
    record = Batch(now, origin, name, owner, number, epoch, deadline, ids, names, counts)
    core.log.append(record)
    apply_batch(core.state, record)
    for job in jobs:
        measure_wait(core, job, now)
        tell(core, job, STAGE_ASSIGN)
        tell_watchers(core, job, WATCH_LEASED, False)
    return jobs


def ack_batch(core: Core, name: str, upto: i64, origin: Origin, now: i64) -> None:
    """Batches up to this number are done; asking twice is harmless."""
    check_writable(core)
    consumer = core.state.consumers.get(name)
    if consumer is None or upto > consumer.number:
        raise StaleBatch(f"{name} has no batch {upto}")
    if upto == consumer.number and consumer.expired:
        raise StaleBatch(f"{name} had batch {upto} for too long")
    if upto == consumer.number and consumer.open:
        check_writable(core, many(len(consumer.ids), RECORD_ROOM, origin))
        _finish_batch(core, consumer, origin, now)


def drop_consumer(core: Core, name: str, origin: Origin, now: i64) -> None:
    """The consumer is gone for good: what it holds goes back to the queues."""
    check_writable(core)
    consumer = core.state.consumers.get(name)
    if consumer is None:
        raise StaleBatch(f"there is no consumer {name}")
    check_writable(core, many(len(consumer.ids), RELEASE_ROOM, origin))
    for job in _jobs_held(core, consumer):
        release(core, job, RETURNED, origin, now)
    _done(core, BatchDone(now, origin, name, consumer.number, dropped=True))


def expire_batch(core: Core, name: str, now: i64) -> None:
    """The consumer's time is over: its jobs go back, and it gets nothing until it is dropped.

    Its next request would say that this batch is done, which is not so: others have its jobs.
    """
    consumer = core.state.consumers[name]
    for job in _jobs_held(core, consumer):
        if not fits_due(core):
            return
        lose(core, job, EXPIRED, SYSTEM_ORIGIN, now)
    if fits_due(core):
        _done(core, BatchDone(now, SYSTEM_ORIGIN, name, consumer.number, expired=True))


def _finish_batch(core: Core, consumer: Consumer, origin: Origin, now: i64) -> None:
    for job in _jobs_held(core, consumer):
        finish_leased(core, job, ACKED, b"", origin, now)
    _done(core, BatchDone(now, origin, consumer.name, consumer.number))


def _done(core: Core, record: BatchDone) -> None:
    core.log.append(record)
    apply_batch_done(core.state, record)


def _jobs_held(core: Core, consumer: Consumer) -> list[Job]:
    """Those of the batch that the consumer still holds: single ones may have been finished."""
    jobs: list[Job] = []
    for id in consumer.ids:
        job = core.state.live(id)
        if job is not None:
            lease = job.lease
            if lease is not None and lease.owner == consumer.owner:
                jobs.append(job)
    return jobs


def _ready(core: Core, queues: list[bytes], limit: i64) -> i64:
    """How many jobs a batch can have."""
    count: i64 = 0
    for name in dict.fromkeys(queues):
        queue = core.state.queues.get(name)
        if queue is not None:
            count += queue.ready.size
    return min(count, limit)


def _pick(
    core: Core, queues: list[bytes], limit: i64, names: list[bytes], counts: list[int], now: i64
) -> list[Job]:
    """The next jobs of the queues, first come first served; `names` and `counts` are filled."""
    jobs: list[Job] = []
    for name in dict.fromkeys(queues):
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
