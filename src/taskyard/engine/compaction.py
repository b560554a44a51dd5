"""Snapshots of what still lives in the oldest part of the journal: see journal/compaction.py.

`replay_start` is where the journal is to begin: what is before it is about to be removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.engine.limits import KeyLimit, key_limit_record_bytes
from taskyard.engine.model.job import LIMITED, READY, SYSTEM_ORIGIN, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import (
    BatchConsumer,
    DurableSession,
    NamedReader,
    Value,
    consumer_record_bytes,
    queue_record_bytes,
    schedule_record_bytes,
    session_record_bytes,
)
from taskyard.engine.operations.core import Core
from taskyard.engine.records.entities import ScheduleSnapshot
from taskyard.engine.records.job_lifecycle import Record
from taskyard.engine.records.snapshots import (
    ERROR_IS_RESULT,
    MOVES_ERROR,
    MOVES_PAYLOAD,
    MOVES_RESULT,
    Checkpoint,
    ConsumerSnapshot,
    JobSnapshot,
    KeyLimitsSnapshot,
    QueueSnapshot,
    ReaderSnapshot,
    SessionSnapshot,
    TombstonesSnapshot,
    ValueSnapshot,
    apply_snapshot,
)
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.structures.index import TOMBSTONE_RECORD_BYTES, TombstoneBucket

TOMBSTONES_PER_RECORD: Final = 4096  # uids in one record

SCAN_COST_BYTES: Final = 24  # what it costs to check something, in bytes of snapshots
OUT_OF_SPACE: Final = -1
KEY_LIMITS_CHUNK_BYTES: Final = 8192  # bytes of limit keys in one record

EnsureSpace = Callable[[int], bool]

# Jobs and values


def blobs_to_move(job: Job, replay_start: i64) -> i64:
    """Return which of the job's blobs are before `replay_start`, as bits of a JobSnapshot; 0: it
    can stay.

    A payload of no bytes at the very end of a segment has the position where the next one begins.
    """
    moves: i64 = MOVES_PAYLOAD if job.payload_at <= replay_start else 0
    extra = job.extras
    if extra is not None:
        if extra.result_size and extra.result_at < replay_start:
            moves |= MOVES_RESULT
        if extra.error_size and extra.error_at < replay_start:
            shared = moves & MOVES_RESULT and extra.error_at == extra.result_at
            moves |= ERROR_IS_RESULT if shared else MOVES_ERROR
    return moves


def ranges_to_move(job: Job, moves: i64) -> list[tuple[int, int]]:
    """Return positions and sizes of the bytes in such a snapshot, in its order."""
    found: list[tuple[int, int]] = []
    if moves & MOVES_PAYLOAD and job.payload_size:
        found.append((job.payload_at, job.payload_size))
    extra = job.extras
    if extra is not None:
        if moves & MOVES_RESULT:
            found.append((extra.result_at, extra.result_size))
        if moves & MOVES_ERROR:
            found.append((extra.error_at, extra.error_size))
    return found


def snapshot_job(core: Core, job: Job, moves: i64, blob: bytes, now: i64) -> None:
    record = JobSnapshot(
        now, SYSTEM_ORIGIN, job.id, job.queue.utf8, job.name, job.policy, moves, blob
    )
    record.state = READY if job.state == LIMITED else i64(job.state)
    record.dialect = i64(job.dialect)
    record.content = i64(job.content)
    record.priority = job.priority
    record.position = job.order_key
    record.attempts = i64(job.attempts)
    record.fails = i64(job.fails)
    record.losses = i64(job.losses)
    record.leases = i64(job.leases)
    record.pushed_at = job.pushed_at
    record.run_at = job.run_at
    record.finished_at = job.finished_at
    record.payload_at = job.payload_at
    record.payload_size = job.payload_size
    record.record_bytes = i64(job.record_bytes)
    record.lease = job.lease
    record.extras = job.extras
    if job.extras is None:
        _append_and_apply(core, record)
        return
    blobs = ranges_to_move(job, moves)
    _append_and_apply(core, record)
    if len(blobs) > 1:
        _keep_moved_blobs(core, record, blobs)


def _keep_moved_blobs(core: Core, record: JobSnapshot, blobs: list[tuple[int, int]]) -> None:
    """Until it is written, the log knows each of its blobs by its own place."""
    start: i64 = 0
    for _, size in blobs:
        end = start + size
        core.records.keep_blob(record.blob_at + start, record.blob[start:end])
        start = end


def snapshot_value(core: Core, value: Value, blob: bytes, now: i64) -> None:
    record = ValueSnapshot(now, SYSTEM_ORIGIN, value.key, value.expires_at, blob)
    _append_and_apply(core, record)


# All but jobs and values


class EntitySnapshotter:
    """Snapshots without searching for it what needs a snapshot: all but jobs and values.

    There is not much of it, so it goes through all of it, one entity at a time. It snapshots
    entities as they were after the last snapshot of a job; later ones need none.
    """

    def __init__(
        self, core: Core, replay_start: i64, first_seq: i64, ensure_space: EnsureSpace
    ) -> None:
        state = core.state
        self._core = core
        self._replay_start = replay_start
        self._first_seq = first_seq  # of the first record behind the replay start
        self._ensure_space = ensure_space
        self._queues = list(state.queues.values())
        self._key_limits: list[KeyLimit] = []  # of the current queue
        self._sessions = list(state.sessions.values())
        self._consumers = list(state.consumers.values())
        self._readers = list(state.readers.values())
        self._schedules = list(state.schedules.values())
        self._tombstone_buckets = list(state.tombstones.buckets.values())

    def snapshot_next(self, now: i64) -> i64:
        """The next one, if it needs it; gives what that took, 0 at the end, or OUT_OF_SPACE."""
        if self._key_limits:
            return self._snapshot_key_limits(now)
        if self._queues:
            return self._snapshot_queue(now)
        if self._sessions:
            return self._snapshot_session(now)
        if self._consumers:
            return self._snapshot_consumer(now)
        if self._readers:
            return self._snapshot_reader(now)
        if self._schedules:
            return self._snapshot_schedule(now)
        if self._tombstone_buckets:
            return self._snapshot_tombstones(now)
        return 0

    def _snapshot_queue(self, now: i64) -> i64:
        queue = self._queues.pop()
        if self._core.state.queues.get(queue.utf8) is not queue:
            return SCAN_COST_BYTES
        gates = queue.key_limits
        if gates is not None:  # jobs that a replay does not know may have been started since
            self._key_limits = [gate for gate in gates.values() if gate.theoretical_arrival_ns]
        if queue.record_at > self._replay_start:
            return SCAN_COST_BYTES
        snapshot_queue(self._core, queue, now)
        return queue_record_bytes(queue)

    def _snapshot_key_limits(self, now: i64) -> i64:
        gates = self._key_limits
        queue = gates[0].queue
        if self._core.state.queues.get(queue.utf8) is not queue:
            self._key_limits = []
            return SCAN_COST_BYTES
        portion: list[KeyLimit] = []
        size: i64 = SCAN_COST_BYTES
        while gates and size < KEY_LIMITS_CHUNK_BYTES:
            gate = gates.pop()
            if gate.theoretical_arrival_ns:  # else it was forgotten meanwhile
                portion.append(gate)
                size += key_limit_record_bytes(gate)
        if not self._ensure_space(size):
            gates.extend(portion)
            return OUT_OF_SPACE
        if portion:
            snapshot_key_limits(self._core, queue, portion, now)
        return size

    def _snapshot_session(self, now: i64) -> i64:
        """A notice of a job that a replay does not know may be newer than the session's last
        snapshot.
        """
        session = self._sessions[-1]
        size: i64 = SCAN_COST_BYTES
        known = self._core.state.sessions.get(session.id) is session
        if known and (session.record_seq < self._first_seq or session.changed_since_snapshot):
            size = session_record_bytes(session)
            if not self._ensure_space(size):
                return OUT_OF_SPACE
            snapshot_session(self._core, session, now)
        self._sessions.pop()
        return size

    def _snapshot_consumer(self, now: i64) -> i64:
        consumer = self._consumers[-1]
        size: i64 = SCAN_COST_BYTES
        known = self._core.state.consumers.get(consumer.name) is consumer
        if known and consumer.record_seq < self._first_seq:
            size = consumer_record_bytes(consumer)
            if not self._ensure_space(size):
                return OUT_OF_SPACE
            snapshot_consumer(self._core, consumer, now)
        self._consumers.pop()
        return size

    def _snapshot_reader(self, now: i64) -> i64:
        reader = self._readers.pop()
        known = self._core.state.readers.get(reader.name) is reader
        if known and reader.record_seq < self._first_seq:
            snapshot_reader(self._core, reader, now)
        return 2 * SCAN_COST_BYTES

    def _snapshot_schedule(self, now: i64) -> i64:
        schedule = self._schedules[-1]
        size: i64 = SCAN_COST_BYTES
        known = self._core.state.schedules.get(schedule.name) is schedule
        if known and schedule.record_seq < self._first_seq:
            size = schedule_record_bytes(schedule)
            if not self._ensure_space(size):
                return OUT_OF_SPACE
            snapshot_schedule(self._core, schedule, now)
        self._schedules.pop()
        return size

    def _snapshot_tombstones(self, now: i64) -> i64:
        grave = self._tombstone_buckets[-1]
        size: i64 = SCAN_COST_BYTES
        known = self._core.state.tombstones.buckets.get(grave.since) is grave
        if known and grave.record_seq < self._first_seq:
            size = TOMBSTONE_RECORD_BYTES * len(grave.uids)
            if not self._ensure_space(size):
                return OUT_OF_SPACE
            snapshot_tombstones(self._core, grave, now)
        self._tombstone_buckets.pop()
        return size


def snapshot_queue(core: Core, queue: Queue, now: i64) -> None:
    record = QueueSnapshot(
        now,
        SYSTEM_ORIGIN,
        queue.utf8,
        queue.created_seq,
        queue.settings,
        queue.counters(),
        queue.theoretical_arrival_ns,
    )
    _append_and_apply(core, record)


def snapshot_key_limits(core: Core, queue: Queue, gates: list[KeyLimit], now: i64) -> None:
    """Write a snapshot of keys whose rates are remembered; those that are over by now may be among
    them.
    """
    keys = [gate.key for gate in gates]
    tats: list[int] = [gate.theoretical_arrival_ns for gate in gates]
    _append_and_apply(core, KeyLimitsSnapshot(now, SYSTEM_ORIGIN, queue.utf8, keys, tats))


def snapshot_session(core: Core, session: DurableSession, now: i64) -> None:
    record = SessionSnapshot(now, SYSTEM_ORIGIN, session)
    _append_and_apply(core, record)


def snapshot_consumer(core: Core, consumer: BatchConsumer, now: i64) -> None:
    record = ConsumerSnapshot(now, SYSTEM_ORIGIN, consumer)
    _append_and_apply(core, record)


def snapshot_reader(core: Core, reader: NamedReader, now: i64) -> None:
    record = ReaderSnapshot(now, SYSTEM_ORIGIN, reader.name, reader.next_seq, reader.lease_until)
    _append_and_apply(core, record)


def snapshot_schedule(core: Core, schedule: Schedule, now: i64) -> None:
    record = ScheduleSnapshot(now, SYSTEM_ORIGIN, schedule)
    _append_and_apply(core, record)


def snapshot_tombstones(core: Core, grave: TombstoneBucket, now: i64) -> None:
    start: i64 = 0
    while start < len(grave.uids):
        end = start + TOMBSTONES_PER_RECORD
        stones = grave.tombstones[start:end]
        record = TombstonesSnapshot(
            now,
            SYSTEM_ORIGIN,
            grave.since,
            start == 0,
            grave.uids[start:end],
            [stone.id for stone in stones],
            [stone.producer for stone in stones],
        )
        _append_and_apply(core, record)
        start = end


# Checkpoint


def write_checkpoint(core: Core, replay_start: i64, now: i64) -> None:
    """Write the checkpoint: all that lived before `replay_start` has a snapshot, and no dependents
    are pending.
    """
    state = core.state
    record = Checkpoint(now, replay_start, state.epoch, state.next_id, state.entity_counts())
    _append_and_apply(core, record)


def _append_and_apply(core: Core, record: Record) -> None:
    core.records.append(record)
    apply_snapshot(core.state, record)
