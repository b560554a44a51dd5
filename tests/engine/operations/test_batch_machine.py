"""Consumers, their batches in chunks, single ends, expiry and crashes, in any order.

The machine remembers what each consumer was told, and which jobs somebody has said to be done.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from engine.compacting import Compaction
from engine.harness import ORIGIN, Bench
from support.model_invariants import check_invariants
from support.snapshot import lasting

from taskyard.engine.model.events import StaleBatch
from taskyard.engine.model.job import GONE, LEASED, READY, SECOND, Job
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.batches import BatchRequest


@dataclass
class Told:
    """What a consumer knows of the batch that it was given."""

    number: int
    ids: list[int]
    gone: set[int] = field(default_factory=set)  # places that were seen to be empty


class Batches:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        concurrency = self.random.choice((0, 0, 4))
        self.bench = Bench()
        self.bench.in_portions(2)
        if concurrency:
            self.bench.push("b")
            self.bench.configure("b", QueueSettings(concurrency=concurrency))
        self.concurrency = concurrency
        self.requests: dict[str, list[BatchRequest]] = {"one": [], "two": []}
        self.told: dict[str, Told] = {}
        self.pushed = [*range(1, self.bench.engine.state.next_id)]
        self.done: set[int] = set()  # somebody has said so
        self.compaction: Compaction | None = None

    def known(self, name: str) -> int:
        consumer = self.bench.engine.consumer(name)
        return consumer.number if consumer is not None else 0

    def live(self, id: int) -> Job | None:
        return self.bench.engine.state.live_job(id)

    def held_by(self, name: str) -> set[int]:
        consumer = self.bench.engine.consumer(name)
        if consumer is None:
            return set()
        jobs = [self.live(id) for id in consumer.ids]
        return {
            job.id
            for job in jobs
            if job is not None and job.lease is not None and job.lease.owner == consumer.owner
        }

    # What happens

    def step(self) -> None:
        draw = self.random
        name = draw.choice(("one", "one", "two"))
        what = draw.choice(
            ["push"] * 3
            + ["ask"] * 5
            + ["go on"] * 6
            + ["end one"] * 3
            + ["compact"] * 3
            + ["read", "read", "ack", "drop", "take", "wait", "crash"]
        )
        if what == "push":
            self.push(draw.randrange(1, 5), draw.choice(("a", "b")))
        elif what == "ask":
            ttr = draw.choice((0, 0, 5 * SECOND))
            self.ask(name, draw.choice((0, 1)), draw.randrange(1, 8), ttr)
        elif what == "go on":
            self.go_on(name, draw.randrange(4))
        elif what == "end one":
            how = draw.choice(("done", "fail", "return"))
            self.end_one(name, draw.randrange(10), how)
        elif what == "read":
            self.read(name, draw.randrange(3), draw.randrange(1, 10))
        elif what == "ack":
            self.ack(name)
        elif what == "drop":
            self.drop(name)
        elif what == "take":
            self.take(draw.choice(("a", "b")))
        elif what == "wait":
            self.wait(draw.choice((1, 5)), draw.choice((2, 1000)))
        elif what == "compact":
            self.compact(draw.randrange(100), draw.choice((1, 3, 1000)))
        else:
            self.crash()

    def push(self, count: int, queue: str) -> None:
        self.pushed += [self.bench.push(queue).id for _ in range(count)]

    def ask(self, name: str, ahead: int, limit: int, ttr: int) -> None:
        number = max(1, self.known(name) + ahead)
        if number > self.known(name):
            self.done |= self.held_by(name)
        queues = [b"a", b"b"]
        self.requests[name].append(BatchRequest(name, number, queues, limit, ttr, ORIGIN))
        self.go_on(name, len(self.requests[name]) - 1)

    def go_on(self, name: str, which: int) -> None:
        """A chunk of what somebody has asked for."""
        if not self.requests[name]:
            return
        request = self.requests[name][which % len(self.requests[name])]
        consumer = self.bench.engine.consumer(name)
        if consumer is not None and consumer.open and request.number == consumer.number + 1:
            self.done |= self.held_by(name)
        before = self.known(name)
        try:
            over = self.bench.engine.lease_batch(request, self.bench.now)
        except StaleBatch:
            self.requests[name].remove(request)
            return
        if not over:
            return
        self.requests[name].remove(request)
        if not request.count:
            assert request.result_number == request.number - 1
            assert self.known(name) in (before, 0)
            return
        self.hear(name, request.result_number, request.count)

    def hear(self, name: str, number: int, count: int) -> None:
        """The same number is the same batch, whoever asks however often."""
        consumer = self.bench.engine.consumer(name)
        assert consumer is not None
        assert len(consumer.ids) == count
        known = self.told.get(name)
        if known is not None and known.number == number:
            assert known.ids == [*consumer.ids]
        else:
            self.told[name] = Told(number, list(consumer.ids))

    def read(self, name: str, start: int, count: int) -> None:
        known = self.told.get(name)
        if known is None:
            return
        try:
            jobs = self.bench.engine.read_batch(name, known.number, start, count, self.bench.now)
        except StaleBatch:
            return
        for place, job in enumerate(jobs, start):
            if job is None:
                known.gone.add(place)
            else:
                assert job.id == known.ids[place]
                assert place not in known.gone
                assert job.state == LEASED

    def ack(self, name: str) -> None:
        """One chunk of it."""
        held = self.held_by(name)
        try:
            self.bench.engine.ack_batch(name, self.known(name), ORIGIN, self.bench.now)
        except StaleBatch:
            return
        self.done |= held

    def drop(self, name: str) -> None:
        """One chunk of it."""
        try:
            over = self.bench.engine.drop_consumer(name, ORIGIN, self.bench.now)
        except StaleBatch:
            return
        if over:
            self.told.pop(name, None)

    def end_one(self, name: str, which: int, how: str) -> None:
        held = sorted(self.held_by(name))
        if not held:
            return
        id = held[which % len(held)]
        lease = self.bench.engine.job(id).lease
        assert lease is not None
        engine, now = self.bench.engine, self.bench.now
        if how == "done":
            engine.complete(id, b"", ORIGIN, now)
            self.done.add(id)
        elif how == "fail":
            engine.nack(id, lease.owner, b"error", ORIGIN, now, delay=0)
        else:
            engine.release_lease(id, lease.owner, ORIGIN, now)

    def take(self, queue: str) -> None:
        """Somebody else works as well."""
        job = self.bench.try_to_take(queue, owner=7)
        if job is not None:
            self.bench.engine.ack(job.id, 7, ORIGIN, self.bench.now)
            self.done.add(job.id)

    def wait(self, seconds: int, budget: int) -> None:
        self.bench.now += seconds * SECOND
        self.bench.engine.tick(self.bench.now, budget)

    def compact(self, which: int, count: int) -> None:
        """A chunk of a pass, which may let the journal begin between those of a batch."""
        bench = self.bench
        bench.collect()
        if self.compaction is None:
            bases = [frame.base for frame in bench.frames if frame.base > bench.base]
            self.compaction = Compaction(bench, bases[which * len(bases) // 100])
        self.compaction.continue_scan(count, which)
        if self.compaction.closed:
            bench.base = self.compaction.base
            self.compaction = None
            self.the_records_say_all_of_it()

    def crash(self) -> None:
        """Whoever asked for something hears no more of it; what was told stays true."""
        self.the_records_say_all_of_it()
        self.compaction = None
        self.bench.restart()
        self.requests = {"one": [], "two": []}

    # What must be so

    def no_job_is_lost_or_done_that_nobody_has_done(self) -> None:
        for id in self.pushed:
            job = self.bench.engine.state.jobs.get(id)
            if job is None or job.state == GONE:
                assert id in self.done

    def what_is_out_is_held_once(self) -> None:
        assert not self.held_by("one") & self.held_by("two")
        for name in ("one", "two"):
            consumer = self.bench.engine.consumer(name)
            known = self.told.get(name)
            if consumer is not None and consumer.open:
                assert len(consumer.ids) == len(consumer.attempts) > 0
                if known is not None and known.number == consumer.number:
                    assert known.ids == [*consumer.ids]

    def limits_are_kept(self) -> None:
        if self.concurrency:
            queue = self.bench.engine.queue(b"b")
            assert queue is not None
            assert queue.leased.size <= self.concurrency

    def the_records_say_all_of_it(self) -> None:
        check_invariants(self.bench.engine)
        state = self.bench.rebuild()
        assert not state.is_partial_replay
        assert lasting(state) == lasting(self.bench.engine.state)

    def finish(self) -> None:
        """In the end all jobs can be had: those that are not done are there."""
        self.the_records_say_all_of_it()
        engine = self.bench.engine
        for name in list(engine.state.consumers):
            while not engine.drop_consumer(name, ORIGIN, self.bench.now):
                pass
        for id in self.pushed:
            job = self.live(id)
            if job is not None and id not in self.done:
                assert job.state == READY


@pytest.mark.parametrize("seed", range(40))
def test_batches_are_what_they_were_said_to_be(seed: int) -> None:
    world = Batches(seed)
    for _ in range(120):
        world.step()
        world.bench.collect()
        world.no_job_is_lost_or_done_that_nobody_has_done()
        world.what_is_out_is_held_once()
        world.limits_are_kept()
    world.finish()
