"""Queues that may hold so much: what counts, what is refused, and what goes to the dead letters."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, Bench

from taskyard.engine.model.events import DuplicateJob, QueueFull, TransactionStepRefused
from taskyard.engine.model.job import BLOCKED, FAILED, SECOND, NewJob, Policy
from taskyard.engine.model.queue import OVERFLOW_DEAD, QueueSettings
from taskyard.engine.model.state import EngineSettings
from taskyard.engine.operations.push import TransactionStep


@pytest.fixture
def bench() -> Bench:
    return Bench()


def bound(bench: Bench, jobs: int = -1, size: int = -1, overflow: int = 0, name: str = "q") -> None:
    settings = QueueSettings(max_jobs=jobs, max_bytes=size, overflow=overflow)
    bench.engine.create_queue(name, settings, ORIGIN, bench.now)


def step(queue: str = "q", payload: bytes = b"", **more: object) -> TransactionStep:
    return TransactionStep(NewJob(queue, "task", payload, NO_LIMIT, **more))  # type: ignore[arg-type]


def transact(bench: Bench, *steps: TransactionStep) -> list[int]:
    return bench.engine.transact(list(steps), OWNER, ORIGIN, bench.now)


def test_jobs_count_until_they_have_ended(bench: Bench) -> None:
    bound(bench, jobs=4)
    first = bench.push()
    bench.push(run_at=bench.now + SECOND)
    bench.push(blocked_by=[first.id])
    held = bench.take()
    bench.push()
    with pytest.raises(QueueFull, match="it may have 4 jobs"):
        bench.push()
    bench.ack(held)
    bench.push()
    with pytest.raises(QueueFull):
        bench.push()


def test_bytes_are_those_of_the_payloads(bench: Bench) -> None:
    bound(bench, size=10)
    bench.push(payload=b"123456")
    with pytest.raises(QueueFull, match="its jobs may have 10 bytes"):
        bench.push(payload=b"12345")
    bench.push(payload=b"1234")
    bench.push()
    bench.ack(bench.take())
    bench.push(payload=b"123456")


def test_other_queues_are_not_bounded(bench: Bench) -> None:
    bound(bench, jobs=0)
    with pytest.raises(QueueFull):
        bench.push()
    bench.push("other")


def test_the_servers_bound_is_for_queues_without_one() -> None:
    bench = Bench(EngineSettings(max_jobs=1, max_bytes=5))
    bound(bench, jobs=3)
    for _ in range(3):
        bench.push()
    bench.push("other")
    for queue in ("q", "other"):
        with pytest.raises(QueueFull):
            bench.push(queue)
    with pytest.raises(QueueFull):
        bench.push("new", payload=b"123456")
    assert bench.engine.queue(b"new") is None


def test_what_is_moved_comes_back_or_is_tried_again_is_never_refused(bench: Bench) -> None:
    bound(bench, jobs=1, name="to")
    bench.push("to")
    bench.engine.move_job(bench.push().id, "to", False, ORIGIN, bench.now)
    bench.push(policy=Policy(max_fails=1, dead_queue="to"))
    bench.nack(bench.take())
    bench.nack(bench.take("to"))
    assert bench.queue("to").unfinished_count() == 3
    dead = bench.push("other", policy=Policy(max_fails=1))
    bench.nack(bench.take("other"))
    bench.configure("other", QueueSettings(max_jobs=0))
    bench.engine.replay_dead_letter(dead.id, ORIGIN, bench.now)
    assert bench.ids("other") == [dead.id]


def test_a_repeated_push_is_known_although_the_queue_is_full(bench: Bench) -> None:
    bound(bench, jobs=1)
    bench.push(uid=b"1" * 16)
    with pytest.raises(DuplicateJob):
        bench.push(uid=b"1" * 16)


def test_a_new_keyed_item_needs_a_place_a_known_one_does_not(bench: Bench) -> None:
    bound(bench, jobs=1)

    def update(key: bytes) -> int:
        return bench.engine.update_keyed("q", key, 1, NO_LIMIT, ORIGIN, bench.now)

    assert [update(b"a"), update(b"a")] == [1, 2]
    with pytest.raises(QueueFull):
        update(b"b")


def test_a_transaction_is_refused_as_a_whole(bench: Bench) -> None:
    bound(bench, jobs=2)
    with pytest.raises(TransactionStepRefused) as refused:
        transact(bench, step("other"), step(), step(), step())
    assert refused.value.index == 3
    assert isinstance(refused.value.cause, QueueFull)
    assert bench.queue().unfinished_count() == 0
    assert bench.engine.queue(b"other") is None
    transact(bench, step(), step())


def test_an_ack_makes_room_for_the_pushes_behind_it(bench: Bench) -> None:
    bound(bench, jobs=1)
    bench.push()
    ack = TransactionStep(None, bench.take().id)
    with pytest.raises(TransactionStepRefused):
        transact(bench, step(), ack)
    assert len(transact(bench, ack, step())) == 1


def test_beyond_the_bound_a_push_is_a_dead_letter(bench: Bench) -> None:
    bound(bench, jobs=1, overflow=OVERFLOW_DEAD)
    bench.push()
    over = bench.push(payload=b"kept", uid=b"1" * 16)
    assert bench.ids(state=FAILED) == [over.id]
    assert over.ensure_extras().reason == "queue full"
    assert bench.read(over.payload_at, over.payload_size) == b"kept"
    with pytest.raises(DuplicateJob):
        bench.push(uid=b"1" * 16)
    assert (bench.engine.statistics.overflowed_pushes, bench.engine.statistics.refused_pushes) == (
        1,
        0,
    )


def test_it_goes_to_the_dead_queue_that_it_names(bench: Bench) -> None:
    bound(bench, jobs=0, overflow=OVERFLOW_DEAD)
    waiter = bench.wait("dead")
    job = bench.push(policy=Policy(dead_queue="dead"))
    assert bench.effects() == [("assigned", waiter.number, job.id)]


def test_a_waiting_taker_does_not_get_what_the_queue_has_no_place_for(bench: Bench) -> None:
    bound(bench, jobs=0, overflow=OVERFLOW_DEAD)
    bench.wait(pop=True)
    bench.push()
    assert bench.effects() == []


def test_what_waits_for_a_job_of_its_transaction_fails_with_it(bench: Bench) -> None:
    bound(bench, jobs=0, overflow=OVERFLOW_DEAD)
    over, waiting = transact(bench, step(), step("other", blocked_by=[-1]))
    assert bench.ids(state=FAILED) == [over]
    assert bench.ids("other", FAILED) == [waiting]
    assert bench.ids("other", BLOCKED) == []


def test_a_dead_queue_counts_what_a_transaction_puts_there(bench: Bench) -> None:
    bound(bench, jobs=0, overflow=OVERFLOW_DEAD)
    bound(bench, jobs=1, name="to")
    over = TransactionStep(NewJob("q", "task", b"", Policy(dead_queue="to")))
    with pytest.raises(TransactionStepRefused):
        transact(bench, over, step("to"))
    transact(bench, step("to"), over)


def test_bounds_are_there_after_a_restart(bench: Bench) -> None:
    bound(bench, jobs=1, size=3, overflow=OVERFLOW_DEAD)
    bench.push(payload=b"123")
    bench.restart()
    assert bench.queue().unfinished_bytes == 3
    assert bench.push().state == FAILED
