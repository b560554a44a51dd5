"""Batches are leased and ended a chunk at a time: what others see and do between, and crashes."""

import pytest
from engine.harness import ORIGIN, Bench
from support.batches import ack_all, drop_all, lease_all

from taskyard.engine.model.events import NoSpace, StaleBatch
from taskyard.engine.model.job import LEASED, READY, SECOND, Job
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.batches import BatchRequest
from taskyard.engine.records.entities import BatchRecord


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.in_portions(2)
    return bench


def push(bench: Bench, count: int, **options: object) -> list[Job]:
    return [bench.push(**options) for _ in range(count)]  # type: ignore[arg-type]


def ask(bench: Bench, number: int, limit: int = 9, ttr: int = 0) -> BatchRequest:
    return BatchRequest("c", number, [b"q"], limit, ttr, ORIGIN)


def step(bench: Bench, request: BatchRequest) -> bool:
    return bench.engine.lease_batch(request, bench.now)


def whole(bench: Bench, number: int, limit: int = 9, ttr: int = 0) -> list[int]:
    jobs = lease_all(bench.engine, "c", number, [b"q"], limit, ttr, ORIGIN, bench.now)
    return [job.id for job in jobs]


def held(bench: Bench, number: int = 1) -> list[int | None]:
    jobs = bench.engine.read_batch("c", number, 0, 99, bench.now)
    return [job.id if job is not None else None for job in jobs]


def test_others_have_their_turn_between_the_portions(bench: Bench) -> None:
    push(bench, 5)
    request = ask(bench, 1, 4)
    assert not step(bench, request)
    assert bench.take().id == 3
    assert step(bench, request)
    assert (request.result_number, request.count) == (1, 4)
    assert held(bench) == [1, 2, 4, 5]


def test_each_portion_is_a_record_that_says_which_attempts_these_are(bench: Bench) -> None:
    push(bench, 3)
    for _ in range(2):
        bench.engine.release_lease(bench.take(owner=7).id, 7, ORIGIN, bench.now)
    bench.collect()
    whole(bench, 1)
    records = [record for record in bench.collect() if isinstance(record, BatchRecord)]
    assert [(record.ids, record.attempts) for record in records] == [([1, 2], [3, 1]), ([3], [1])]


def test_a_crash_leaves_a_batch_that_is_as_long_as_it_got(bench: Bench) -> None:
    push(bench, 5)
    step(bench, ask(bench, 1))
    bench.restart()
    assert whole(bench, 1) == [1, 2]
    bench.restart()
    assert whole(bench, 1) == [1, 2]
    assert whole(bench, 2) == [3, 4, 5]


def test_a_batch_does_not_grow_once_somebody_knows_how_long_it_is(bench: Bench) -> None:
    push(bench, 5)
    first = ask(bench, 1)
    assert not step(bench, first)
    second = ask(bench, 1)
    assert step(bench, second)
    assert step(bench, first)
    assert (first.result_number, first.count) == (second.result_number, second.count) == (1, 2)
    assert held(bench) == [1, 2]


def test_two_who_ask_for_the_next_get_the_same(bench: Bench) -> None:
    push(bench, 3)
    whole(bench, 1, 3)
    push(bench, 3)
    first, second = ask(bench, 2), ask(bench, 2)
    for _ in range(9):
        for request in (first, second):
            if not request.result_number:
                step(bench, request)
    assert (first.result_number, first.count) == (second.result_number, second.count) == (2, 2)
    assert held(bench, 2) == [4, 5]


@pytest.mark.parametrize("how", ["acked", "dropped", "expired"])
def test_a_batch_that_is_ended_while_it_is_leased_is_no_batch(bench: Bench, how: str) -> None:
    push(bench, 5)
    request = ask(bench, 1, ttr=5 * SECOND)
    step(bench, request)
    if how == "acked":
        ack_all(bench.engine, "c", 1, ORIGIN, bench.now)
    elif how == "dropped":
        bench.engine.drop_consumer("c", ORIGIN, bench.now)
    else:
        bench.advance_clock(5 * SECOND)
    with pytest.raises(StaleBatch):
        step(bench, request)


def test_a_batch_expires_in_the_smallest_of_steps(bench: Bench) -> None:
    push(bench, 5)
    whole(bench, 1, ttr=5 * SECOND)
    bench.now += 5 * SECOND
    steps = 0
    while bench.engine.tick(bench.now, 1):
        steps += 1
        assert steps < 100
    assert bench.ids() == [1, 2, 3, 4, 5]


def test_an_ack_that_was_cut_short_goes_on_where_it_was(bench: Bench) -> None:
    push(bench, 5)
    whole(bench, 1)
    assert not bench.engine.ack_batch("c", 1, ORIGIN, bench.now)
    bench.restart()
    assert held(bench) == [None, None, 3, 4, 5]
    assert bench.queue().finished == 2
    push(bench, 1)
    assert whole(bench, 2) == [6]
    assert bench.queue().finished == 5


def test_a_drop_that_was_cut_short_is_done_when_it_is_asked_for_again(bench: Bench) -> None:
    push(bench, 3)
    whole(bench, 1)
    assert not bench.engine.drop_consumer("c", ORIGIN, bench.now)
    assert bench.ids() == [1, 2]
    bench.restart()
    while not bench.engine.drop_consumer("c", ORIGIN, bench.now):
        pass
    assert bench.ids() == [1, 2, 3]
    assert bench.engine.consumer("c") is None


def test_who_is_late_is_refused_while_the_jobs_still_go_back(bench: Bench) -> None:
    push(bench, 5)
    whole(bench, 1, ttr=5 * SECOND)
    bench.now += 5 * SECOND
    bench.engine.tick(bench.now, 3)
    assert 0 < len(bench.ids()) < 5
    for number in (1, 2):
        with pytest.raises(StaleBatch, match="too long"):
            whole(bench, number)
    with pytest.raises(StaleBatch, match="too long"):
        held(bench)
    with pytest.raises(StaleBatch, match="too long"):
        bench.engine.ack_batch("c", 1, ORIGIN, bench.now)
    bench.restart()
    while bench.engine.tick(bench.now, 3):
        pass
    assert bench.ids() == [1, 2, 3, 4, 5]
    with pytest.raises(StaleBatch, match="too long"):
        whole(bench, 2)


def test_a_job_that_comes_back_while_the_batch_grows_is_in_it_once(bench: Bench) -> None:
    push(bench, 2)
    request = ask(bench, 1)
    assert not step(bench, request)
    job = bench.engine.job(1)
    assert job.lease is not None
    bench.engine.release_lease(1, job.lease.owner, ORIGIN, bench.now)
    assert step(bench, request)
    assert request.count == 3
    assert held(bench) == [None, 2, 1]
    ack_all(bench.engine, "c", 1, ORIGIN, bench.now)
    assert bench.queue().finished == 2


def test_a_batch_has_no_more_than_a_limit_allows(bench: Bench) -> None:
    push(bench, 5)
    bench.configure("q", QueueSettings(concurrency=3))
    assert whole(bench, 1) == [1, 2, 3]
    bench.engine.complete(1, b"", ORIGIN, bench.now)
    assert whole(bench, 2) == [4, 5]


def test_jobs_behind_those_of_a_closed_key_are_found(bench: Bench) -> None:
    push(bench, 1200, limit_key=b"busy")
    push(bench, 1, limit_key=b"idle")
    bench.configure("q", QueueSettings(key_concurrency=1))
    assert whole(bench, 1, 2) == [1, 1201]


def test_without_room_a_batch_is_as_long_as_it_got(bench: Bench) -> None:
    push(bench, 5)
    request = ask(bench, 1)
    assert not step(bench, request)
    bench.collect()
    bench.engine.journal_space.free_bytes = 0
    assert step(bench, request)
    assert (request.result_number, request.count) == (1, 2)
    with pytest.raises(NoSpace):
        bench.engine.ack_batch("c", 1, ORIGIN, bench.now)
    assert held(bench) == [1, 2]


def test_a_lease_is_taken_from_those_who_ended_singly(bench: Bench) -> None:
    jobs = push(bench, 4)
    whole(bench, 1)
    bench.engine.complete(1, b"", ORIGIN, bench.now)
    bench.engine.fail(2, b"", ORIGIN, bench.now)
    bench.delete(jobs[2])
    assert held(bench) == [None, None, None, 4]
    assert bench.engine.read_batch("c", 1, 3, 1, bench.now) == [jobs[3]]
    assert bench.engine.read_batch("c", 1, 4, 9, bench.now) == []
    ack_all(bench.engine, "c", 1, ORIGIN, bench.now)
    assert jobs[3].state not in (READY, LEASED)


def test_a_batch_of_many_queues_names_each_of_them_once(bench: Bench) -> None:
    names = [b"q%d" % number for number in range(5)]
    for name in [*names, *names]:
        bench.push(queue=name.decode())
    request = BatchRequest("c", 1, [*names, b"q0"], 9, 0, ORIGIN)
    while not step(bench, request):
        pass
    consumer = bench.engine.consumer("c")
    assert consumer is not None
    assert list(consumer.queues) == names


def test_a_batch_does_not_grow_after_one_who_asked_before_a_drop_has_heard_of_it(
    bench: Bench,
) -> None:
    push(bench, 9)
    before, after = ask(bench, 1), ask(bench, 1)
    assert not step(bench, before)
    drop_all(bench.engine, "c", ORIGIN, bench.now)
    assert not step(bench, after)
    assert step(bench, before)
    assert step(bench, after)
    assert before.count == after.count == len(held(bench)) == 2
