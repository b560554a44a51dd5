"""Writing forward what still lives in the oldest part of the journal: see journal/compaction.py.

`base` is where the journal is to begin: what stands before it is about to go.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from taskyard.engine.limits import KeyGate
from taskyard.engine.model.job import LIMITED, READY, SYSTEM_ORIGIN, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import Consumer, NamedReader, Session, Value
from taskyard.engine.operations.core import Core
from taskyard.engine.records.carried import apply_carry
from taskyard.engine.records.carry_records import (
    ERROR_IS_RESULT,
    MOVES_ERROR,
    MOVES_PAYLOAD,
    MOVES_RESULT,
    Base,
    CarryConsumer,
    CarryGrave,
    CarryJob,
    CarryKeys,
    CarryQueue,
    CarryReader,
    CarrySession,
    CarryValue,
)
from taskyard.engine.records.job_lifecycle import Record
from taskyard.engine.records.schedule_records import CarrySchedule
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.structures.tombstones import Grave

GRAVE_PORTION: Final = 4096  # uids in one record


def job_moves(job: Job, base: i64) -> i64:
    """Which of the job's blobs stand before `base`, as bits of a CarryJob; 0: it can stay.

    A payload of no bytes at the very end of a segment has the position where the next one begins.
    """
    moves: i64 = MOVES_PAYLOAD if job.payload_at <= base else 0
    extra = job.extra
    if extra is not None:
        if extra.result_size and extra.result_at < base:
            moves |= MOVES_RESULT
        if extra.error_size and extra.error_at < base:
            shared = moves & MOVES_RESULT and extra.error_at == extra.result_at
            moves |= ERROR_IS_RESULT if shared else MOVES_ERROR
    return moves


def job_blobs(job: Job, moves: i64) -> list[tuple[int, int]]:
    """Places and sizes of the bytes that such a carry is made of, in its order."""
    found: list[tuple[int, int]] = []
    if moves & MOVES_PAYLOAD and job.payload_size:
        found.append((job.payload_at, job.payload_size))
    extra = job.extra
    if extra is not None:
        if moves & MOVES_RESULT:
            found.append((extra.result_at, extra.result_size))
        if moves & MOVES_ERROR:
            found.append((extra.error_at, extra.error_size))
    return found


def carry_job(core: Core, job: Job, moves: i64, blob: bytes, now: i64) -> None:
    record = CarryJob(now, SYSTEM_ORIGIN, job.id, job.queue.utf8, job.name, job.policy, moves, blob)
    record.state = READY if job.state == LIMITED else i64(job.state)
    record.dialect = i64(job.dialect)
    record.content = i64(job.content)
    record.priority = job.priority
    record.position = job.position
    record.attempts = i64(job.attempts)
    record.fails = i64(job.fails)
    record.losses = i64(job.losses)
    record.leases = i64(job.leases)
    record.pushed_at = job.pushed_at
    record.run_at = job.run_at
    record.finished_at = job.finished_at
    record.payload_at = job.payload_at
    record.payload_size = job.payload_size
    record.weight = i64(job.weight)
    record.lease = job.lease
    record.extra = job.extra
    if job.extra is None:
        _emit(core, record)
        return
    blobs = job_blobs(job, moves)
    _emit(core, record)
    if len(blobs) > 1:
        _know_parts(core, record, blobs)


def _know_parts(core: Core, record: CarryJob, blobs: list[tuple[int, int]]) -> None:
    """Until it is written, the log knows each of its blobs by its own place."""
    start: i64 = 0
    for _, size in blobs:
        end = start + size
        core.log.keep(record.blob_at + start, record.blob[start:end])
        start = end


def carry_value(core: Core, value: Value, blob: bytes, now: i64) -> None:
    record = CarryValue(now, SYSTEM_ORIGIN, value.key, value.expires_at, blob)
    _emit(core, record)


def carry_queue(core: Core, queue: Queue, now: i64) -> None:
    record = CarryQueue(
        now, SYSTEM_ORIGIN, queue.utf8, queue.number, queue.settings, queue.counters(), queue.tat
    )
    _emit(core, record)


def carry_keys(core: Core, queue: Queue, gates: list[KeyGate], now: i64) -> None:
    """Some of the keys whose rates are remembered; those that are over by now may be among them."""
    keys = [gate.key for gate in gates]
    tats: list[int] = [gate.tat for gate in gates]
    _emit(core, CarryKeys(now, SYSTEM_ORIGIN, queue.utf8, keys, tats))


def carry_session(core: Core, session: Session, now: i64) -> None:
    record = CarrySession(now, SYSTEM_ORIGIN, session)
    _emit(core, record)


def carry_consumer(core: Core, consumer: Consumer, now: i64) -> None:
    record = CarryConsumer(now, SYSTEM_ORIGIN, consumer)
    _emit(core, record)


def carry_reader(core: Core, reader: NamedReader, now: i64) -> None:
    record = CarryReader(now, SYSTEM_ORIGIN, reader.name, reader.next_seq, reader.lease_until)
    _emit(core, record)


def carry_schedule(core: Core, schedule: Schedule, now: i64) -> None:
    record = CarrySchedule(now, SYSTEM_ORIGIN, schedule)
    _emit(core, record)


def carry_grave(core: Core, grave: Grave, now: i64) -> None:
    start: i64 = 0
    while start < len(grave.uids):
        end = start + GRAVE_PORTION
        stones = grave.stones[start:end]
        record = CarryGrave(
            now,
            SYSTEM_ORIGIN,
            grave.since,
            start == 0,
            grave.uids[start:end],
            [stone.id for stone in stones],
            [stone.producer for stone in stones],
        )
        _emit(core, record)
        start = end


def close_base(core: Core, base: i64, now: i64) -> None:
    """All that lived before `base` has been carried, and nobody is still to hear of an end."""
    state = core.state
    record = Base(now, base, state.epoch, state.next_id, state.counts())
    _emit(core, record)


def _emit(core: Core, record: Record) -> None:
    core.log.append(record)
    apply_carry(core.state, record)
