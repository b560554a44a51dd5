"""Compaction as far as the engine has a part in it: one pass, in any portions.

The journal's own (journal/compaction.py) finds what lives in the dying segments by reading them;
here it is found by looking at everything.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.harness import Bench

from taskyard.engine.compaction import (
    carry_consumer,
    carry_grave,
    carry_job,
    carry_keys,
    carry_queue,
    carry_reader,
    carry_schedule,
    carry_session,
    carry_value,
    close_base,
    job_blobs,
    job_moves,
)
from taskyard.engine.model.job import GONE, Job
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import Consumer, NamedReader, Session, State, Value
from taskyard.engine.schedules.schedule import Schedule
from taskyard.engine.structures.tombstones import Grave


@dataclass
class KeysOf:
    """What a queue remembers of its limit keys."""

    queue: Queue


Side = Queue | KeysOf | Session | Consumer | NamedReader | Schedule | Grave


class Compaction:
    def __init__(self, bench: Bench, base: int) -> None:
        self.bench = bench
        self.base = base
        self.closed = False
        later = [frame.first for frame in bench.frames if frame.base >= base]
        self.first_seq = later[0] if later else bench.next_seq
        self._sides: list[Side] | None = None  # still to be carried, once all jobs are

    @property
    def state(self) -> State:
        return self.bench.engine.state

    def go_on(self, count: int, pick: int) -> None:
        """Carry at most so many things; `pick` says in which order."""
        if self.closed or self.state.followups:
            return
        waiting = list(self._jobs_and_values())
        for _ in range(count):
            if waiting:
                assert self._sides is None  # all that came since is behind the base
                self._carry(waiting.pop(pick % len(waiting)))
                continue
            if self._sides is None:
                self._sides = list(self._all_sides())
            if not self._sides:
                close_base(self.bench.engine, self.base, self.bench.now)
                self.closed = True
                return
            self._carry_side(self._sides.pop(pick % len(self._sides)))

    def _jobs_and_values(self) -> Iterator[Job | Value]:
        for job in self.state.jobs:
            if job.state != GONE and job_moves(job, self.base):
                yield job
        for value in self.state.values.values():
            if value.at <= self.base:
                yield value

    def _carry(self, thing: Job | Value) -> None:
        engine, now = self.bench.engine, self.bench.now
        if isinstance(thing, Value):
            carry_value(engine, thing, self.bench.read(thing.at, thing.size), now)
            return
        moves = job_moves(thing, self.base)
        parts = [self.bench.read(at, size) for at, size in job_blobs(thing, moves)]
        carry_job(engine, thing, moves, b"".join(parts), now)
        assert not job_moves(thing, self.base)

    def _all_sides(self) -> Iterator[Side]:
        state = self.state
        yield from state.queues.values()
        yield from state.sessions.values()
        yield from state.consumers.values()
        yield from state.readers.values()
        yield from state.schedules.values()
        yield from state.tombstones.graves.values()

    def _carry_side(self, side: Side) -> None:
        """Unless it is gone by now, or all of it was told behind the base."""
        engine, now = self.bench.engine, self.bench.now
        if isinstance(side, Queue):
            self._carry_queue(side)
            return
        if isinstance(side, KeysOf):
            self._carry_keys(side.queue)
            return
        if side.anchor >= self.first_seq and not (isinstance(side, Session) and side.noted):
            return
        if not self._is_there(side):
            return
        if isinstance(side, Session):
            carry_session(engine, side, now)
        elif isinstance(side, Consumer):
            carry_consumer(engine, side, now)
        elif isinstance(side, NamedReader):
            carry_reader(engine, side, now)
        elif isinstance(side, Schedule):
            carry_schedule(engine, side, now)
        else:
            carry_grave(engine, side, now)

    def _is_there(self, side: Side) -> bool:
        return any(each is side for each in self._all_sides())

    def _carry_queue(self, queue: Queue) -> None:
        engine, now = self.bench.engine, self.bench.now
        if self.state.queues.get(queue.utf8) is not queue:
            return
        if queue.at <= self.base:
            carry_queue(engine, queue, now)
        assert self._sides is not None
        self._sides.append(KeysOf(queue))  # some time later, not necessarily at once

    def _carry_keys(self, queue: Queue) -> None:
        gates = [gate for gate in (queue.gates or {}).values() if gate.tat]
        if gates and self.state.queues.get(queue.utf8) is queue:
            carry_keys(self.bench.engine, queue, gates, self.bench.now)


def places(state: State) -> Iterator[int]:
    """Where the bytes stand that are still needed."""
    for job in state.jobs:
        if job.state == GONE:
            continue
        yield job.payload_at
        if job.extra is not None:
            yield from (job.extra.result_at,) * bool(job.extra.result_size)
            yield from (job.extra.error_at,) * bool(job.extra.error_size)
    for value in state.values.values():
        yield value.at
