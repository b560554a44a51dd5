"""When the journal has no room: what adds is refused first, finishing later, and all before it."""

from collections.abc import Callable
from random import Random

import pytest
from engine.harness import ORIGIN, OWNER, Bench
from engine.scheduling import known, put, wish
from support.batches import lease_all
from support.effort import effort

from taskyard.engine.model.events import FetchRequest, NoSpace
from taskyard.engine.model.job import API, DELAYED, LEASED, READY, SECOND, NewJob, Origin, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.batches import BatchRequest
from taskyard.engine.operations.push import TransactionStep
from taskyard.engine.transitions import jobs_bound_to

FULL = "no room for the next segment"
LONG = "n" * 255


def refuse_additions(bench: Bench) -> None:
    bench.engine.journal_space.push_refusal = FULL


def fill(bench: Bench) -> None:
    """Not one record more fits."""
    bench.engine.journal_space.free_bytes = 0


def empty(bench: Bench) -> None:
    """There is room again, and whoever waits for it is told."""
    bench.engine.journal_space.free_bytes = 1 << 30
    bench.engine.journal_space.push_refusal = ""
    bench.engine.resume_postponed(bench.now)


def additions(bench: Bench) -> list[Callable[[], object]]:
    engine, now = bench.engine, bench.now
    return [
        bench.push,
        lambda: engine.transact(
            [TransactionStep(NewJob("q", "a", b"", Policy()))], OWNER, ORIGIN, now
        ),
        lambda: engine.set_value(b"key", b"value", 0, ORIGIN, now),
        lambda: engine.open_session(7, ORIGIN, now),
        lambda: engine.create_queue("new", QueueSettings(), ORIGIN, now),
        bench.configure,
        lambda: engine.update_keyed("q", b"key", 1, Policy(), ORIGIN, now),
    ]


def test_what_adds_something_is_refused_with_the_reason(bench: Bench) -> None:
    bench.push()
    bench.collect()
    refuse_additions(bench)
    for addition in additions(bench):
        with pytest.raises(NoSpace, match=FULL):
            addition()
    assert bench.collect() == []


def test_what_finishes_work_goes_on_meanwhile(bench: Bench) -> None:
    for _ in range(4):
        bench.push()
    refuse_additions(bench)
    bench.ack(bench.take())
    bench.nack(bench.take(), error=b"broken")
    bench.engine.release_lease(bench.take().id, OWNER, ORIGIN, bench.now)
    bench.engine.transact([TransactionStep(None, bench.take().id)], OWNER, ORIGIN, bench.now)
    bench.engine.delete_job(4, ORIGIN, bench.now)
    assert bench.queue().job_count(READY) + bench.queue().job_count(DELAYED) == 1


def test_a_transaction_that_pushes_is_refused_as_a_whole(bench: Bench) -> None:
    bench.push()
    job = bench.take()
    refuse_additions(bench)
    steps = [TransactionStep(None, job.id), TransactionStep(NewJob("q", "a", b"", Policy()))]
    with pytest.raises(NoSpace):
        bench.engine.transact(steps, OWNER, ORIGIN, bench.now)
    assert job.state == LEASED


def test_without_any_room_everything_is_refused_and_nothing_changed(bench: Bench) -> None:
    bench.push(payload=b"1")
    bench.push(payload=b"2")
    job = bench.take()
    bench.collect()
    fill(bench)
    engine, now = bench.engine, bench.now
    operations: list[Callable[[], object]] = [
        *additions(bench),
        bench.take,
        lambda: bench.ack(job),
        lambda: bench.nack(job),
        lambda: engine.complete(job.id, b"result", ORIGIN, now),
        lambda: engine.finish_with_token(job.id, 1, 1, b"result", ORIGIN, now),
        lambda: engine.fail(job.id, b"", ORIGIN, now),
        lambda: engine.extend_lease(job.id, OWNER, SECOND, ORIGIN, now),
        lambda: engine.release_lease(job.id, OWNER, ORIGIN, now),
        lambda: engine.pop(b"q", False, ORIGIN, now),
        lambda: engine.delete_job(job.id, ORIGIN, now),
        lambda: engine.move_job(2, "other", False, ORIGIN, now),
        lambda: engine.rescore(2, 5, ORIGIN, now),
        lambda: engine.purge_queue(b"q", READY, 5, ORIGIN, now),
        lambda: engine.remove_from_list(2, ORIGIN, now),
        lambda: lease_all(engine, "c", 1, [b"q"], 1, 0, ORIGIN, now),
    ]
    for operation in operations:
        with pytest.raises(NoSpace, match="no room"):
            operation()
    assert bench.collect() == []
    assert (job.state, bench.ids()) == (LEASED, [2])
    engine.check_not_read_only()


def test_a_payload_must_fit_with_what_is_around_it(bench: Bench) -> None:
    bench.engine.journal_space.free_bytes = bench.engine.records.size() + 100_000
    with pytest.raises(NoSpace):
        bench.push(payload=bytes(100_000))
    bench.push(payload=bytes(90_000))
    with pytest.raises(NoSpace):
        bench.push(payload=bytes(9_000))


def test_what_is_due_happens_when_there_is_room_again(bench: Bench) -> None:
    bench.push(run_at=bench.now + SECOND)
    bench.push("leased", policy=Policy(ttr=SECOND))
    bench.take("leased")
    bench.engine.set_value(b"k" * 60_000, b"v", bench.now + SECOND, ORIGIN, bench.now)
    bench.collect()
    fill(bench)
    bench.advance_clock(5 * SECOND)
    assert bench.collect() == []
    assert bench.engine.journal_space.postponed_work
    assert bench.engine.next_deadline(bench.now) == 0
    empty(bench)
    assert (bench.ids(), bench.ids("leased")) == ([1], [2])
    assert bench.engine.value(b"k" * 60_000) is None
    assert not bench.engine.journal_space.postponed_work


def test_waits_end_in_time_without_any_room(bench: Bench) -> None:
    bench.push(run_at=bench.now + SECOND)
    waiter = bench.wait(seconds=3)
    fill(bench)
    bench.advance_clock(4 * SECOND)
    assert not waiter.waiting
    assert [effect[0] for effect in bench.effects()] == ["gave up"]


def test_jobs_of_a_lost_connection_come_back_when_there_is_room_again(bench: Bench) -> None:
    for _ in range(3):
        bench.push()
        bench.take(bound=True)
    bench.collect()
    fill(bench)
    bench.engine.disconnect(OWNER, ORIGIN, bench.now)
    assert bench.ids(state=LEASED) == [1, 2, 3]
    empty(bench)
    assert bench.ids() == [1, 2, 3]


def test_who_is_in_line_is_served_when_there_is_room_again(bench: Bench) -> None:
    bench.push()
    job = bench.take()
    waiter = bench.wait(owner=2)
    room = bench.engine.journal_space
    room.free_bytes = bench.engine.records.size() + 2560
    bench.nack(job)
    if waiter.waiting:
        empty(bench)
    assert not waiter.waiting
    assert job.state == LEASED


def test_dependents_are_told_when_there_is_room_again(bench: Bench) -> None:
    first = bench.push()
    for _ in range(5):
        bench.push("after", blocked_by=[first.id])
    job = bench.take()
    bench.engine.journal_space.free_bytes = bench.engine.records.size() + 2600
    bench.ack(job)
    assert len(bench.ids("after")) < 5
    assert bench.engine.next_deadline(bench.now) == 0
    empty(bench)
    bench.advance_clock(SECOND)
    assert len(bench.ids("after")) == 5


def test_a_batch_that_expires_goes_back_in_portions(bench: Bench) -> None:
    for _ in range(10):
        bench.push()
    lease_all(bench.engine, "c", 1, [b"q"], 10, SECOND, ORIGIN, bench.now)
    bench.engine.journal_space.free_bytes = bench.engine.records.size() + 2700
    bench.advance_clock(2 * SECOND)
    assert 0 < len(bench.ids()) < 10
    empty(bench)
    assert len(bench.ids()) == 10
    assert bench.engine.state.consumers["c"].expired


class Busy:
    """Clients that do anything, with names as long as they may be."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench(seed=seed)
        self.bench.collect()
        self.engine = self.bench.engine
        self.origin = Origin(API, LONG, LONG)
        self.policies = [
            Policy(max_fails=2, dead_queue="d" * 255),
            Policy(max_fails=1),
            Policy(ttr=SECOND),
        ]
        self.queues = [LONG, "q" * 255]
        self.utf8 = [name.encode() for name in self.queues]

    def step(self) -> None:
        self.random.choice(
            (
                self.push,
                self.push,
                self.transact,
                self.fetch,
                self.fetch,
                self.finish,
                self.finish,
                self.leave,
                self.purge,
                self.tick,
                self.batch,
            )
        )()

    def _new(self, blockers: list[int] | None) -> NewJob:
        random = self.random
        return NewJob(
            random.choice(self.queues),
            LONG,
            bytes(random.choice((0, 10, 3000))),
            random.choice(self.policies),
            run_at=random.choice((0, 0, self.bench.now + SECOND)),
            uid=random.randbytes(16),
            key=random.randbytes(random.choice((1, 5000))),
            blocked_by=blockers,
        )

    def push(self) -> None:
        blockers = [self.random.randint(1, 50) for _ in range(self.random.choice((0, 3, 255)))]
        self.engine.push(self._new(blockers or None), self.origin, self.bench.now)

    def transact(self) -> None:
        steps = [TransactionStep(self._new(None)) for _ in range(self.random.randint(1, 4))]
        self.engine.transact(steps, OWNER, self.origin, self.bench.now)

    def fetch(self) -> None:
        wish = FetchRequest(
            self.utf8, self.random.randint(1, 3), self.origin, bound_to_connection=True
        )
        if self.engine.fetch(wish, self.bench.now) is None:
            self.engine.wait_for_job(wish, self.bench.now + SECOND)

    def finish(self) -> None:
        owner = self.random.randint(1, 3)
        held = jobs_bound_to(self.engine.state, owner)
        if not held:
            return
        job = self.random.choice(held)
        if self.random.random() < 0.5:
            self.engine.ack(job.id, owner, self.origin, self.bench.now)
        else:
            self.engine.nack(job.id, owner, bytes(500), self.origin, self.bench.now)

    def leave(self) -> None:
        self.engine.disconnect(self.random.randint(1, 3), self.origin, self.bench.now)

    def purge(self) -> None:
        if self.engine.queue(self.utf8[0]) is not None:
            self.engine.purge_queue(self.utf8[0], READY, 5, self.origin, self.bench.now)

    def tick(self) -> None:
        self.bench.now += SECOND // 2
        self.engine.tick(self.bench.now)

    def batch(self) -> None:
        consumer = self.engine.state.consumers.get("c")
        number = consumer.number + 1 if consumer is not None else 1
        request = BatchRequest("c", number, self.utf8, 7, 0, self.origin)
        self.engine.lease_batch(request, self.bench.now)  # a chunk: all of it, or nothing

    def room_changes(self) -> None:
        self.bench.collect()
        self.engine.journal_space.free_bytes = self.random.choice((0, 2600, 6000, 20_000))
        self.engine.resume_postponed(self.bench.now)


@pytest.mark.parametrize("seed", range(effort(40, 15)))
def test_the_log_never_holds_more_than_there_is_room_for(seed: int) -> None:
    busy = Busy(seed)
    log, room = busy.engine.records, busy.engine.journal_space
    refused = 0
    for _ in range(300):
        if busy.random.random() < 0.2:
            busy.room_changes()
        before = log.size()
        try:
            busy.step()
        except NoSpace:
            refused += 1
            assert log.size() == before
        assert log.size() <= room.free_bytes
    assert refused


def attached(bench: Bench) -> list[int]:
    return [id for id, session in bench.engine.state.sessions.items() if session.attached]


def test_a_session_whose_client_leaves_meanwhile_is_detached_when_there_is_room(
    bench: Bench,
) -> None:
    bench.engine.open_session(7, ORIGIN, bench.now)
    fill(bench)
    bench.engine.detach_session(7, ORIGIN, bench.now)
    assert attached(bench) == [7]
    empty(bench)
    assert attached(bench) == []
    bench.advance_clock(bench.settings.outbox_age)
    assert 7 not in bench.engine.state.sessions


def test_a_long_key_is_forgotten_once_there_is_room_for_saying_so(bench: Bench) -> None:
    key = bytes(60_000)
    bench.engine.set_value(key, b"value", bench.now + SECOND, ORIGIN, bench.now)
    bench.collect()
    bench.engine.journal_space.free_bytes = bench.engine.records.size() + 30_000
    bench.now += SECOND
    bench.engine.tick(bench.now)
    assert bench.engine.value(key) is not None
    assert bench.collect() == []
    empty(bench)
    assert bench.engine.value(key) is None


def test_a_schedule_is_not_paused_without_room_for_saying_so(bench: Bench) -> None:
    put(bench, wish(every=SECOND * 60))
    refuse_additions(bench)
    with pytest.raises(NoSpace, match=FULL):
        bench.engine.pause_schedule("s", True, ORIGIN, bench.now)
    assert not known(bench).paused
    empty(bench)
    assert bench.engine.pause_schedule("s", True, ORIGIN, bench.now).paused


def test_many_that_wake_at_once_keep_within_the_room(bench: Bench) -> None:
    for _ in range(200):
        bench.push(run_at=bench.now + SECOND)
    bench.collect()
    bench.engine.journal_space.free_bytes = bench.engine.records.size() + 6000
    bench.now += SECOND
    while bench.engine.tick(bench.now):
        pass
    assert bench.engine.records.size() <= bench.engine.journal_space.free_bytes
    assert 0 < len(bench.ids()) < 200
    bench.collect()
    empty(bench)
    while bench.engine.tick(bench.now):
        pass
    assert len(bench.ids()) == 200
