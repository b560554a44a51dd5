"""What compaction snapshots without searching for it: all but jobs and values.

There is not much of it, so it goes through all of it, one entity at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.engine import compaction
from taskyard.engine.limits import KeyLimit, key_limit_record_bytes
from taskyard.engine.model.state import (
    consumer_record_bytes,
    queue_record_bytes,
    schedule_record_bytes,
    session_record_bytes,
)
from taskyard.engine.operations.core import Core
from taskyard.engine.structures.weights import TOMBSTONE_RECORD_BYTES

SCAN_COST_BYTES: Final = 24  # what it costs to check something, in bytes of snapshots
OUT_OF_SPACE: Final = -1
KEY_LIMITS_CHUNK_BYTES: Final = 8192  # bytes of limit keys in one record

EnsureSpace = Callable[[int], bool]


class EntitySnapshotter:
    """Snapshots entities as they were after the last snapshot of a job; later ones need none."""

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
        """The next one, if it needs it; gives what that took, 0 at the end, or NO_ROOM."""
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
        compaction.snapshot_queue(self._core, queue, now)
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
            compaction.snapshot_key_limits(self._core, queue, portion, now)
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
            compaction.snapshot_session(self._core, session, now)
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
            compaction.snapshot_consumer(self._core, consumer, now)
        self._consumers.pop()
        return size

    def _snapshot_reader(self, now: i64) -> i64:
        reader = self._readers.pop()
        known = self._core.state.readers.get(reader.name) is reader
        if known and reader.record_seq < self._first_seq:
            compaction.snapshot_reader(self._core, reader, now)
        return 2 * SCAN_COST_BYTES

    def _snapshot_schedule(self, now: i64) -> i64:
        schedule = self._schedules[-1]
        size: i64 = SCAN_COST_BYTES
        known = self._core.state.schedules.get(schedule.name) is schedule
        if known and schedule.record_seq < self._first_seq:
            size = schedule_record_bytes(schedule)
            if not self._ensure_space(size):
                return OUT_OF_SPACE
            compaction.snapshot_schedule(self._core, schedule, now)
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
            compaction.snapshot_tombstones(self._core, grave, now)
        self._tombstone_buckets.pop()
        return size
