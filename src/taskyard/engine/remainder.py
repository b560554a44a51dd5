"""What compaction carries without having to look for it: all but jobs and values.

There is not much of it, so all of it is gone through, one thing at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.engine import compaction as carrying
from taskyard.engine.limits import KeyGate, gate_weight
from taskyard.engine.model.state import (
    consumer_weight,
    queue_weight,
    schedule_weight,
    session_weight,
)
from taskyard.engine.operations.core import Core
from taskyard.engine.structures.weights import TOMBSTONE_WEIGHT

LOOK: Final = 24  # what it costs to look at something, in bytes of carries
NO_ROOM: Final = -1
KEYS_PORTION: Final = 8192  # bytes of limit keys in one record

HasRoom = Callable[[int], bool]


class Remainder:
    """Things as they were when the last job had been carried; what came since needs no carry."""

    def __init__(self, core: Core, base: i64, first_seq: i64, has_room: HasRoom) -> None:
        state = core.state
        self._core = core
        self._base = base
        self._first_seq = first_seq  # of the first record behind the base
        self._has_room = has_room
        self._queues = list(state.queues.values())
        self._gates: list[KeyGate] = []  # of the queue whose turn it is
        self._sessions = list(state.sessions.values())
        self._consumers = list(state.consumers.values())
        self._readers = list(state.readers.values())
        self._schedules = list(state.schedules.values())
        self._graves = list(state.tombstones.graves.values())

    def carry_one(self, now: i64) -> i64:
        """The next one, if it needs it; gives what that took, 0 at the end, or NO_ROOM."""
        if self._gates:
            return self._keys(now)
        if self._queues:
            return self._queue(now)
        if self._sessions:
            return self._session(now)
        if self._consumers:
            return self._consumer(now)
        if self._readers:
            return self._reader(now)
        if self._schedules:
            return self._schedule(now)
        if self._graves:
            return self._grave(now)
        return 0

    def _queue(self, now: i64) -> i64:
        queue = self._queues.pop()
        if self._core.state.queues.get(queue.utf8) is not queue:
            return LOOK
        gates = queue.gates
        if gates is not None:  # jobs that a replay does not know may have been started since
            self._gates = [gate for gate in gates.values() if gate.tat]
        if queue.at > self._base:
            return LOOK
        carrying.carry_queue(self._core, queue, now)
        return queue_weight(queue)

    def _keys(self, now: i64) -> i64:
        gates = self._gates
        queue = gates[0].queue
        if self._core.state.queues.get(queue.utf8) is not queue:
            self._gates = []
            return LOOK
        portion: list[KeyGate] = []
        size: i64 = LOOK
        while gates and size < KEYS_PORTION:
            gate = gates.pop()
            if gate.tat:  # else it was forgotten meanwhile
                portion.append(gate)
                size += gate_weight(gate)
        if not self._has_room(size):
            gates.extend(portion)
            return NO_ROOM
        if portion:
            carrying.carry_keys(self._core, queue, portion, now)
        return size

    def _session(self, now: i64) -> i64:
        """A letter of a job that a replay does not know may have come since its last carry."""
        session = self._sessions[-1]
        size: i64 = LOOK
        known = self._core.state.sessions.get(session.id) is session
        if known and (session.anchor < self._first_seq or session.noted):
            size = session_weight(session)
            if not self._has_room(size):
                return NO_ROOM
            carrying.carry_session(self._core, session, now)
        self._sessions.pop()
        return size

    def _consumer(self, now: i64) -> i64:
        consumer = self._consumers[-1]
        size: i64 = LOOK
        known = self._core.state.consumers.get(consumer.name) is consumer
        if known and consumer.anchor < self._first_seq:
            size = consumer_weight(consumer)
            if not self._has_room(size):
                return NO_ROOM
            carrying.carry_consumer(self._core, consumer, now)
        self._consumers.pop()
        return size

    def _reader(self, now: i64) -> i64:
        reader = self._readers.pop()
        known = self._core.state.readers.get(reader.name) is reader
        if known and reader.anchor < self._first_seq:
            carrying.carry_reader(self._core, reader, now)
        return 2 * LOOK

    def _schedule(self, now: i64) -> i64:
        schedule = self._schedules[-1]
        size: i64 = LOOK
        known = self._core.state.schedules.get(schedule.name) is schedule
        if known and schedule.anchor < self._first_seq:
            size = schedule_weight(schedule)
            if not self._has_room(size):
                return NO_ROOM
            carrying.carry_schedule(self._core, schedule, now)
        self._schedules.pop()
        return size

    def _grave(self, now: i64) -> i64:
        grave = self._graves[-1]
        size: i64 = LOOK
        known = self._core.state.tombstones.graves.get(grave.since) is grave
        if known and grave.anchor < self._first_seq:
            size = TOMBSTONE_WEIGHT * len(grave.uids)
            if not self._has_room(size):
                return NO_ROOM
            carrying.carry_grave(self._core, grave, now)
        self._graves.pop()
        return size
