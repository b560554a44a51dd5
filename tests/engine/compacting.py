"""Compaction as far as the engine has a part in it: one pass, in any chunks.

The journal's own (journal/compaction.py) finds what lives in the dying segments by reading them;
here it is found by looking at everything.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.harness import Bench

from taskyard.engine.compaction import (
    blobs_to_move,
    ranges_to_move,
    snapshot_consumer,
    snapshot_job,
    snapshot_key_limits,
    snapshot_queue,
    snapshot_reader,
    snapshot_schedule,
    snapshot_session,
    snapshot_tombstones,
    snapshot_value,
    write_checkpoint,
)
from taskyard.engine.model.job import GONE, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import BatchConsumer, DurableSession, NamedReader, State, Value
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.structures.index import TombstoneBucket


@dataclass
class KeysOf:
    """What a queue remembers of its limit keys."""

    queue: Queue


Entity = Queue | KeysOf | DurableSession | BatchConsumer | NamedReader | Schedule | TombstoneBucket


class Compaction:
    def __init__(self, bench: Bench, base: int) -> None:
        self.bench = bench
        self.base = base
        self.closed = False
        later = [frame.first for frame in bench.frames if frame.base >= base]
        self.first_seq = later[0] if later else bench.next_seq
        self._sides: list[Entity] | None = None  # still to be carried, once all jobs are

    @property
    def state(self) -> State:
        return self.bench.engine.state

    def continue_scan(self, count: int, pick: int) -> None:
        """Carry at most so many things; `pick` says in which order."""
        if self.closed or self.state.pending_dependents:
            return
        waiting = list(self._jobs_and_values())
        for _ in range(count):
            if waiting:
                assert self._sides is None  # all that came since is behind the base
                self._snapshot(waiting.pop(pick % len(waiting)))
                continue
            if self._sides is None:
                self._sides = list(self._all_entities())
            if not self._sides:
                write_checkpoint(self.bench.engine, self.base, self.bench.now)
                self.closed = True
                return
            self._snapshot_entity(self._sides.pop(pick % len(self._sides)))

    def _jobs_and_values(self) -> Iterator[Job | Value]:
        for job in self.state.jobs:
            if job.state != GONE and blobs_to_move(job, self.base):
                yield job
        for value in self.state.values.values():
            if value.value_at <= self.base:
                yield value

    def _snapshot(self, thing: Job | Value) -> None:
        engine, now = self.bench.engine, self.bench.now
        if isinstance(thing, Value):
            snapshot_value(engine, thing, self.bench.read(thing.value_at, thing.size), now)
            return
        moves = blobs_to_move(thing, self.base)
        parts = [self.bench.read(at, size) for at, size in ranges_to_move(thing, moves)]
        snapshot_job(engine, thing, moves, b"".join(parts), now)
        assert not blobs_to_move(thing, self.base)

    def _all_entities(self) -> Iterator[Entity]:
        state = self.state
        yield from state.queues.values()
        yield from state.sessions.values()
        yield from state.consumers.values()
        yield from state.readers.values()
        yield from state.schedules.values()
        yield from state.tombstones.buckets.values()

    def _snapshot_entity(self, side: Entity) -> None:
        """Unless it is gone by now, or all of it was told behind the base."""
        engine, now = self.bench.engine, self.bench.now
        if isinstance(side, Queue):
            self._snapshot_queue(side)
            return
        if isinstance(side, KeysOf):
            self._snapshot_keys(side.queue)
            return
        if side.record_seq >= self.first_seq and not (
            isinstance(side, DurableSession) and side.changed_since_snapshot
        ):
            return
        if not self._is_there(side):
            return
        if isinstance(side, DurableSession):
            snapshot_session(engine, side, now)
        elif isinstance(side, BatchConsumer):
            snapshot_consumer(engine, side, now)
        elif isinstance(side, NamedReader):
            snapshot_reader(engine, side, now)
        elif isinstance(side, Schedule):
            snapshot_schedule(engine, side, now)
        else:
            snapshot_tombstones(engine, side, now)

    def _is_there(self, side: Entity) -> bool:
        return any(each is side for each in self._all_entities())

    def _snapshot_queue(self, queue: Queue) -> None:
        engine, now = self.bench.engine, self.bench.now
        if self.state.queues.get(queue.utf8) is not queue:
            return
        if queue.record_at <= self.base:
            snapshot_queue(engine, queue, now)
        assert self._sides is not None
        self._sides.append(KeysOf(queue))  # some time later, not necessarily at once

    def _snapshot_keys(self, queue: Queue) -> None:
        gates = [gate for gate in (queue.key_limits or {}).values() if gate.theoretical_arrival_ns]
        if gates and self.state.queues.get(queue.utf8) is queue:
            snapshot_key_limits(self.bench.engine, queue, gates, self.bench.now)


def places(state: State) -> Iterator[int]:
    """Where the bytes stand that are still needed."""
    for job in state.jobs:
        if job.state == GONE:
            continue
        yield job.payload_at
        if job.extras is not None:
            yield from (job.extras.result_at,) * bool(job.extras.result_size)
            yield from (job.extras.error_at,) * bool(job.extras.error_size)
    for value in state.values.values():
        yield value.value_at
