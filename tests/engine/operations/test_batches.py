"""Consumers that read in numbered batches: the same jobs for the same number, or an error."""

import pytest
from engine.harness import ORIGIN, OWNER, START, Bench
from support.batches import ack_all, drop_all, lease_all

from taskyard.engine.model.events import WATCH_LEASED, InvalidOption, JobNotFound, StaleBatch
from taskyard.engine.model.job import FAILED, FOREVER, LEASED, READY, SECOND, Job, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.operations.batches import BatchRequest


def lease(
    bench: Bench,
    number: int,
    limit: int = 2,
    *,
    consumer: str = "c",
    queues: tuple[str, ...] = ("q",),
    ttr: int = 0,
) -> list[int]:
    names = [name.encode() for name in queues]
    jobs = lease_all(bench.engine, consumer, number, names, limit, ttr, ORIGIN, bench.now)
    return [job.id for job in jobs]


def ack(bench: Bench, number: int, consumer: str = "c") -> None:
    ack_all(bench.engine, consumer, number, ORIGIN, bench.now)


def push(bench: Bench, count: int, queue: str = "q") -> list[Job]:
    return [bench.push(queue) for _ in range(count)]


def test_a_batch_has_the_first_jobs_of_its_queues(bench: Bench) -> None:
    push(bench, 2, "a")
    push(bench, 3, "b")
    assert lease(bench, 1, 4, queues=("a", "b", "a", "unknown")) == [1, 2, 3, 4]
    assert bench.ids("b") == [5]
    assert bench.engine.job(1).attempts == 1


@pytest.mark.parametrize(
    "rules",
    [
        QueueSettings(concurrency=9, rate_count=0, key_concurrency=0, key_rate_count=0),
        QueueSettings(concurrency=0, rate_count=9, rate_period=SECOND),
    ],
)
def test_limits_of_zero_are_none(bench: Bench, rules: QueueSettings) -> None:
    for _ in range(4):
        bench.push(limit_key=b"k")
    bench.configure("q", rules)
    assert bench.take().id == 1
    assert lease(bench, 1, 5) == [2, 3, 4]


@pytest.mark.parametrize(
    "rules", [QueueSettings(concurrency=1), QueueSettings(rate_count=1, rate_period=SECOND)]
)
def test_a_batch_keeps_within_a_limit_of_one(bench: Bench, rules: QueueSettings) -> None:
    push(bench, 3)
    bench.configure("q", rules)
    assert lease(bench, 1, 5) == [1]


def test_the_same_number_gives_the_same_jobs(bench: Bench) -> None:
    push(bench, 5)
    assert lease(bench, 1) == [1, 2]
    bench.collect()
    assert lease(bench, 1, 5) == [1, 2]
    assert bench.collect() == []


def test_the_next_number_says_that_this_one_is_done(bench: Bench) -> None:
    jobs = push(bench, 5)
    lease(bench, 1)
    assert lease(bench, 2) == [3, 4]
    assert bench.engine.recent(1) is jobs[0]
    assert bench.queue().finished == 2


def test_there_are_no_empty_batches(bench: Bench) -> None:
    bench.collect()
    request = BatchRequest("c", 3, [b"q"], 2, 0, ORIGIN)
    assert bench.engine.lease_batch(request, bench.now)
    assert (request.result_number, request.count) == (2, 0)
    assert bench.collect() == []
    assert bench.engine.consumer("c") is None


def test_what_comes_later_is_the_next_batch_and_the_one_before_is_done(bench: Bench) -> None:
    jobs = push(bench, 1)
    lease(bench, 1)
    assert lease(bench, 2) == []
    assert bench.engine.recent(1) is jobs[0]
    push(bench, 1)
    assert lease(bench, 2) == [2]


def test_a_consumer_may_begin_with_any_number(bench: Bench) -> None:
    push(bench, 2)
    assert lease(bench, 41, 1) == [1]
    assert lease(bench, 42, 1) == [2]


@pytest.mark.parametrize("number", [-1, 0, 1, 4])
def test_any_other_number_is_refused(bench: Bench, number: int) -> None:
    push(bench, 9)
    lease(bench, 1)
    lease(bench, 2)
    bench.collect()
    with pytest.raises(StaleBatch if number > 0 else InvalidOption):
        lease(bench, number)
    assert bench.collect() == []


@pytest.mark.parametrize(
    ("number", "limit", "ttr", "consumer"),
    [
        (0, 1, 0, "c"),
        (-1, 1, 0, "c"),
        (1, 0, 0, "c"),
        (1, 1_000_001, 0, "c"),
        (1, 1, -1, "c"),
        (1, 1, FOREVER - START, "c"),
        (1, 1, 0, ""),
        (1, 1, 0, "two words"),
        (1, 1, 0, "c" * 256),
        (1, 1, 0, "c" * 70_000),
    ],
)
def test_a_batch_out_of_range_is_refused(
    bench: Bench, number: int, limit: int, ttr: int, consumer: str
) -> None:
    push(bench, 1)
    bench.collect()
    with pytest.raises(InvalidOption):
        lease(bench, number, limit, ttr=ttr, consumer=consumer)
    assert bench.collect() == []


def test_an_acked_batch_is_done_however_often_it_is_said(bench: Bench) -> None:
    push(bench, 3)
    lease(bench, 1)
    ack(bench, 1)
    ack(bench, 1)
    ack(bench, 0)
    assert bench.queue().finished == 2
    with pytest.raises(StaleBatch):
        lease(bench, 1)
    assert lease(bench, 2) == [3]


def test_a_batch_that_is_not_out_cannot_be_acked(bench: Bench) -> None:
    lease(bench, 1)
    with pytest.raises(StaleBatch):
        ack(bench, 2)
    with pytest.raises(StaleBatch):
        ack(bench, 1, "unknown")


def test_consumers_do_not_share_jobs(bench: Bench) -> None:
    push(bench, 4)
    assert lease(bench, 1, consumer="one") == [1, 2]
    assert lease(bench, 1, consumer="two") == [3, 4]


def test_single_jobs_may_be_finished_before_the_batch(bench: Bench) -> None:
    jobs = push(bench, 2)
    lease(bench, 1)
    bench.engine.complete(jobs[0].id, b"", ORIGIN, bench.now)
    assert lease(bench, 1) == [2]
    ack(bench, 1)
    assert bench.queue().finished == 2


def test_a_job_that_others_have_by_now_is_not_finished_with_the_batch(bench: Bench) -> None:
    (job,) = push(bench, 1)
    lease(bench, 1)
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    bench.take(owner=7)
    ack(bench, 1)
    assert job.state == LEASED


def test_a_batch_survives_a_restart(bench: Bench) -> None:
    push(bench, 3)
    lease(bench, 1)
    bench.restart()
    assert lease(bench, 1) == [1, 2]
    assert lease(bench, 2) == [3]


def test_a_batch_has_no_end_by_default(bench: Bench) -> None:
    push(bench, 1)
    lease(bench, 1)
    bench.advance_clock(10_000 * SECOND)
    assert lease(bench, 1) == [1]


def test_a_batch_that_was_out_for_too_long_goes_back(bench: Bench) -> None:
    jobs = push(bench, 3)
    lease(bench, 1, ttr=5 * SECOND)
    bench.advance_clock(5 * SECOND - 1)
    assert lease(bench, 1, ttr=5 * SECOND) == [1, 2]
    bench.advance_clock(1)
    assert bench.ids() == [job.id for job in jobs]
    assert jobs[0].losses == 1


@pytest.mark.parametrize("number", [1, 2])
def test_who_comes_too_late_gets_an_error_and_never_other_jobs(bench: Bench, number: int) -> None:
    push(bench, 3)
    lease(bench, 1, ttr=5 * SECOND)
    bench.advance_clock(5 * SECOND)
    for _ in range(2):
        with pytest.raises(StaleBatch):
            lease(bench, number)
        bench.restart()


def test_a_batch_that_expired_cannot_be_acked(bench: Bench) -> None:
    """Others have its jobs: a promise that they are done would be a lie."""
    push(bench, 1)
    lease(bench, 1, ttr=5 * SECOND)
    bench.advance_clock(5 * SECOND)
    with pytest.raises(StaleBatch):
        ack(bench, 1)


def test_a_consumer_that_came_too_late_begins_anew_once_it_is_dropped(bench: Bench) -> None:
    push(bench, 1)
    lease(bench, 1, ttr=5 * SECOND)
    bench.advance_clock(5 * SECOND)
    drop_all(bench.engine, "c", ORIGIN, bench.now)
    assert lease(bench, 1) == [1]


def test_a_job_of_an_expired_batch_counts_it_as_a_loss(bench: Bench) -> None:
    poison = bench.push(policy=Policy(max_losses=1))
    last = bench.push(policy=Policy(max_attempts=1))
    lease(bench, 1, ttr=SECOND)
    bench.advance_clock(SECOND)
    assert bench.ids(state=FAILED) == [poison.id, last.id]


def test_a_dropped_consumer_gives_its_jobs_back_uncounted(bench: Bench) -> None:
    jobs = push(bench, 3)
    lease(bench, 1, ttr=SECOND)
    drop_all(bench.engine, "c", ORIGIN, bench.now)
    assert bench.ids() == [job.id for job in jobs]
    assert jobs[0].losses == 0
    assert bench.engine.state.timers.heap == []
    with pytest.raises(StaleBatch):
        drop_all(bench.engine, "c", ORIGIN, bench.now)


def test_a_paused_queue_is_left_out(bench: Bench) -> None:
    push(bench, 1, "a")
    push(bench, 1, "b")
    bench.configure("a", QueueSettings(paused=True))
    assert lease(bench, 1, queues=("a", "b")) == [2]


def test_dependents_of_a_batch_are_released_with_it(bench: Bench) -> None:
    push(bench, 1)
    blocked = bench.push(blocked_by=[1])
    lease(bench, 1)
    ack(bench, 1)
    assert blocked.state == READY


def test_a_removed_job_leaves_the_batch(bench: Bench) -> None:
    jobs = push(bench, 2)
    lease(bench, 1)
    bench.delete(jobs[0])
    assert lease(bench, 1) == [2]
    with pytest.raises(JobNotFound):
        bench.engine.job(1)


def test_there_are_no_batches_below_zero(bench: Bench) -> None:
    with pytest.raises(InvalidOption, match="must not be negative"):
        bench.engine.ack_batch("c", -1, ORIGIN, bench.now)


def test_nothing_can_be_read_of_a_consumer_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(StaleBatch, match="no consumer c"):
        bench.engine.read_batch("c", 1, 0, 10, bench.now)


def test_who_watches_a_job_hears_that_a_batch_has_it(bench: Bench) -> None:
    job = bench.push()
    watcher = bench.engine.watch_job(job.id, OWNER)
    lease(bench, 1)
    assert bench.effects() == [("watched", watcher.number, WATCH_LEASED, job.id)]
