"""Limits under anything that may happen: the engine against a model that goes through lists.

At no time is more out than may be, or more started than the rate allows; whoever asks gets the
first job that may be started; nobody waits beside one; and a replay, from the beginning or from a
base, comes to the same.
"""

from engine.compacting import Compaction
from engine.harness import ORIGIN, Bench, machine_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.batches import lease_all
from support.limit_model import LimitModel
from support.model_invariants import check_invariants
from support.snapshot import lasting, snapshot, waiting_jobs

from taskyard.engine.model.events import TaskyardError
from taskyard.engine.model.job import SECOND, Policy
from taskyard.engine.model.queue import QueueSettings

QUEUES = ("a", "b")
KEYS = st.sampled_from([None, b"x", b"y", b"z"])
QUEUE = st.sampled_from(QUEUES)
# All of a whole number of microseconds from start to start: what is open is not a matter of a
# nanosecond.
RATE = st.sampled_from([(-1, 0), (0, 0), (1, SECOND), (2, SECOND), (3, 600_000), (4, 10 * SECOND)])
SLOTS = st.sampled_from([-1, 0, 1, 1, 2, 3])
OWNERS = st.integers(1, 4)
PICK = st.integers(0, 1000)
POLICY = Policy(ttr=5 * SECOND, max_fails=-1)
PUSHES = st.lists(st.tuples(QUEUE, KEYS, st.integers(0, 1)), min_size=1, max_size=12)


@st.composite
def limits(draw: st.DrawFn) -> QueueSettings:
    rate, key_rate = draw(RATE), draw(RATE)
    return QueueSettings(
        paused=draw(st.integers(0, 9)) == 9,
        concurrency=draw(SLOTS),
        rate_count=rate[0],
        rate_period=rate[1],
        key_concurrency=draw(SLOTS),
        key_rate_count=key_rate[0],
        key_rate_period=key_rate[1],
    )


class LimitRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.model = LimitModel()
        self.compaction: Compaction | None = None
        for queue in QUEUES:
            self.bench.engine.create_queue(queue, QueueSettings(), ORIGIN, self.bench.now)

    # What clients do

    @initialize(of_a=limits(), of_b=limits(), pushes=PUSHES)
    def begin(
        self,
        of_a: QueueSettings,
        of_b: QueueSettings,
        pushes: list[tuple[str, bytes | None, int]],
    ) -> None:
        """Limits and jobs from the start, so that each run has something to limit."""
        self.configure("a", of_a)
        self.configure("b", of_b)
        self.push(pushes, 0)
        self.push(pushes, 0)

    @rule(pushes=PUSHES, delay=st.sampled_from([0, 0, 0, 1]))
    def push(self, pushes: list[tuple[str, bytes | None, int]], delay: int) -> None:
        run_at = self.bench.now + delay * SECOND if delay else 0
        for queue, key, priority in pushes:
            self.bench.push(queue, b"p", POLICY, priority=priority, run_at=run_at, limit_key=key)

    @rule(
        queues=st.sampled_from([("a",), ("b",), QUEUES]),
        count=st.integers(1, 5),
        pop=st.integers(0, 4).map(lambda number: number == 0),
        bound=st.booleans(),
        owner=OWNERS,
    )
    def fetch(
        self, queues: tuple[str, ...], count: int, pop: bool, bound: bool, owner: int
    ) -> None:
        for _ in range(count):
            self._observe()
            found = (self.model.next(queue.encode(), pop, self.bench.now) for queue in queues)
            expected = next((job for job in found if job is not None), None)
            wish = self.bench.fetch_request(*queues, owner=owner, bound=bound, pop=pop)
            job = self.bench.engine.fetch(wish, self.bench.now)
            assert (job.id if job is not None else None) == (expected.id if expected else None)

    @rule(queues=st.sampled_from([("a",), ("b",), QUEUES]), pop=st.booleans(), owner=OWNERS)
    def fetch_or_wait(self, queues: tuple[str, ...], pop: bool, owner: int) -> None:
        wish = self.bench.fetch_request(*queues, owner=owner, bound=True, pop=pop)
        if self.bench.engine.fetch(wish, self.bench.now) is None:
            self.bench.engine.wait_for_job(wish, self.bench.now + 20 * SECOND)

    @rule(
        picks=st.lists(PICK, min_size=1, max_size=4),
        how=st.sampled_from(["ack", "ack", "nack", "return", "complete", "delete"]),
    )
    def end_leases(self, picks: list[int], how: str) -> None:
        for pick in picks:
            self._end_a_lease(pick, how)

    def _end_a_lease(self, pick: int, how: str) -> None:
        leased = [job for job in self.bench.engine.state.jobs if job.lease is not None]
        if not leased:
            return
        job = leased[pick % len(leased)]
        assert job.lease is not None
        engine, now, owner = self.bench.engine, self.bench.now, job.lease.owner
        if how == "ack":
            engine.ack(job.id, owner, ORIGIN, now)
        elif how == "nack":
            engine.nack(job.id, owner, b"", ORIGIN, now, pick % 3 * SECOND)
        elif how == "return":
            engine.release_lease(job.id, owner, ORIGIN, now)
        elif how == "complete":
            engine.complete(job.id, b"", ORIGIN, now)
        else:
            engine.delete_job(job.id, ORIGIN, now)

    @rule(owner=OWNERS)
    def disconnect(self, owner: int) -> None:
        engine = self.bench.engine
        for line in list(engine.waiters.values()):
            for waiter in list(line.values()):
                if waiter.request.owner == owner:
                    engine.stop_waiting(waiter)
        engine.disconnect(owner, ORIGIN, self.bench.now)

    @rule(pick=PICK, how=st.sampled_from(["delete", "rescore", "front", "move"]))
    def handle_a_waiting_job(self, pick: int, how: str) -> None:
        engine, now = self.bench.engine, self.bench.now
        waiting = [job for queue in engine.state.queues.values() for job in waiting_jobs(queue)]
        if not waiting:
            return
        job = waiting[pick % len(waiting)]
        if how == "delete":
            engine.delete_job(job.id, ORIGIN, now)
        elif how == "rescore":
            engine.rescore(job.id, pick % 2, ORIGIN, now)
        else:
            to = QUEUES[pick % 2] if how == "move" else job.queue.name
            engine.move_job(job.id, to, how == "front", ORIGIN, now)

    @rule(queue=QUEUE, limit=st.integers(1, 4), number=st.integers(1, 3))
    def lease_a_batch(self, queue: str, limit: int, number: int) -> None:
        engine = self.bench.engine
        consumer = engine.state.consumers.get("c")
        number = number if consumer is None else consumer.number + 1
        try:
            lease_all(engine, "c", number, [queue.encode()], limit, 0, ORIGIN, self.bench.now)
        except TaskyardError:
            assert consumer is not None

    # What operators do

    @rule(queue=QUEUE, settings=limits())
    def configure(self, queue: str, settings: QueueSettings) -> None:
        self.bench.configure(queue, settings)

    @rule(duration=st.sampled_from([1, 200_000, 333_333, SECOND, 5 * SECOND, 30 * SECOND]))
    def pass_time(self, duration: int) -> None:
        self.bench.advance_clock(duration)

    @rule(duration=st.sampled_from([200_000, SECOND, 2 * SECOND, 6 * SECOND]))
    def tick_late(self, duration: int) -> None:
        """Much is due at once; the order of delivery holds."""
        self.bench.now += duration
        while self.bench.engine.tick(self.bench.now):
            pass

    @rule()
    def restart(self) -> None:
        self._observe()
        self.bench.restart()
        self.compaction = None

    @rule(count=st.integers(1, 30), pick=PICK)
    def compact(self, count: int, pick: int) -> None:
        self._observe()
        bench = self.bench
        if self.compaction is None:
            self.compaction = Compaction(bench, bench.frames[pick % len(bench.frames)].base)
        self.compaction.continue_scan(count, pick)
        if self.compaction.closed:
            self._observe()
            found = lasting(bench.replay(self.compaction.base), bench.now)
            assert found == lasting(bench.engine.state, bench.now)
            bench.base = max(bench.base, self.compaction.base)
            self.compaction = None

    # What must hold

    @invariant()
    def all_is_in_order(self) -> None:
        self._settle()
        engine, now = self.bench.engine, self.bench.now
        check_invariants(engine)
        state = self.bench.rebuild()
        if self.bench.base:
            assert lasting(state, now) == lasting(engine.state, now)
        else:
            assert snapshot(state, now) == snapshot(engine.state, now)
        for queue in engine.state.queues.values():
            line = [job.id for job in self.model.line(queue.utf8)]
            assert [job.id for job in waiting_jobs(queue)] == line
            waiting = engine.waiters.get(queue.utf8)
            if waiting:
                first = next(iter(waiting.values()))
                assert self.model.next(queue.utf8, first.request.pop, self.bench.now) is None

    def _settle(self) -> None:
        while self.bench.engine.has_pending_work():
            self.bench.engine.tick(self.bench.now)
        self._observe()

    def _observe(self) -> None:
        self.model.see(self.bench.collect())
        self.bench.engine.drain_effects()


TestLimits = LimitRules.TestCase
TestLimits.settings = machine_settings(examples=80, steps=40)
