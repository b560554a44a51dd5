"""Verdicts: ack, nack, complete, fail, back-off, and results that are kept."""

from collections.abc import Callable

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, START, Bench

from taskyard.engine.model.events import (
    DuplicateResult,
    InvalidOption,
    JobNotFound,
    NotLeaseholder,
    ReadOnly,
)
from taskyard.engine.model.job import (
    BACKOFF_EXPONENTIAL,
    BACKOFF_QUARTIC,
    BLOCKED,
    DELAYED,
    FAILED,
    FOREVER,
    GONE,
    READY,
    SECOND,
    SUCCEEDED,
    Job,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings

QUARTIC = Policy(max_fails=-1, backoff=BACKOFF_QUARTIC)


def complete(bench: Bench, job: Job, result: bytes = b"") -> None:
    bench.engine.complete(job.id, result, ORIGIN, bench.now)


def fail(bench: Bench, job: Job, error: bytes = b"") -> None:
    bench.engine.fail(job.id, error, ORIGIN, bench.now)


def result_of(bench: Bench, job: Job) -> bytes | None:
    extra = job.extras
    if extra is None or not extra.has_result:
        return None
    return bench.read(extra.result_at, extra.result_size)


# Ack and nack


def test_an_acked_job_is_gone(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    bench.ack(job)
    assert job.state == GONE
    with pytest.raises(JobNotFound):
        bench.engine.job(job.id)
    assert bench.queue().finished == 1


def test_only_the_holder_can_ack_and_nack(bench: Bench) -> None:
    job = bench.push()
    for owner in (OWNER, 0):
        with pytest.raises(NotLeaseholder):
            bench.ack(job, owner)
    bench.take()
    with pytest.raises(NotLeaseholder):
        bench.ack(job, OWNER + 1)
    with pytest.raises(NotLeaseholder):
        bench.nack(job, OWNER + 1)
    with pytest.raises(NotLeaseholder):
        bench.engine.ack(99, OWNER, ORIGIN, bench.now)


def test_an_ack_is_accepted_once(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    bench.ack(job)
    with pytest.raises(NotLeaseholder):
        bench.ack(job)


def test_without_back_off_a_nacked_job_is_ready_in_its_place(bench: Bench) -> None:
    job, behind = bench.push(), bench.push()
    bench.take()
    bench.nack(job)
    assert bench.ids() == [job.id, behind.id]
    assert (job.attempts, job.fails) == (1, 1)
    assert bench.queue().retried == 1


def test_a_nacked_job_goes_to_who_waits(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    waiter = bench.wait(owner=2)
    bench.nack(job)
    assert bench.effects() == [("assigned", waiter.number, job.id)]


@pytest.mark.parametrize(("max_fails", "allowed"), [(0, 1), (1, 1), (2, 2), (5, 5)])
def test_the_nth_fail_is_final(bench: Bench, max_fails: int, allowed: int) -> None:
    job = bench.push(policy=Policy(max_fails=max_fails))
    for _ in range(allowed):
        assert job.state == READY
        bench.take()
        bench.nack(job)
    assert job.state == FAILED
    assert (job.fails, job.ensure_extras().reason) == (allowed, "failures used up")


def test_a_fail_with_fails_left_but_attempts_used_up_is_final(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=10, max_attempts=2))
    for _ in range(2):
        bench.take()
        bench.nack(job)
    assert (job.state, job.fails, job.ensure_extras().reason) == (FAILED, 2, "attempts used up")


def test_the_error_of_the_last_attempt_is_kept(bench: Bench) -> None:
    job = bench.push()
    for error in (b"first", b"second", b""):
        bench.take()
        bench.nack(job, error=error)
    extra = job.ensure_extras()
    assert bench.read(extra.error_at, extra.error_size) == b"second"
    assert result_of(bench, job) is None


def test_results_and_errors_have_the_limit_of_payloads() -> None:
    bench = Bench(EngineSettings(payload_limit=10))
    job = bench.push()
    bench.take()
    for refused in (
        lambda: bench.nack(job, error=b"x" * 11),
        lambda: complete(bench, job, b"x" * 11),
        lambda: fail(bench, job, b"x" * 11),
        lambda: bench.engine.finish_with_token(job.id, 1, 1, b"x" * 11, ORIGIN, bench.now),
    ):
        with pytest.raises(InvalidOption):
            refused()
    complete(bench, job, b"x" * 10)


# Back-off


@pytest.mark.parametrize(("fails", "seconds"), [(1, 1), (2, 16), (3, 81), (4, 256)])
def test_quartic_back_off(bench: Bench, fails: int, seconds: int) -> None:
    job = bench.push(policy=QUARTIC)
    for _ in range(fails - 1):
        fail(bench, job)
        bench.engine.wake_job(job.id, ORIGIN, bench.now)
    bench.now += 900_000
    bench.take()
    bench.nack(job)
    assert job.state == DELAYED
    assert job.order_key == START + seconds * SECOND  # down to a whole second of the clock
    bench.advance_clock(job.order_key - bench.now)
    assert job.state == READY


def test_a_retried_job_joins_the_back_when_its_time_comes(bench: Bench) -> None:
    job, other = bench.push(policy=QUARTIC), bench.push()
    bench.take()
    bench.nack(job)
    bench.advance_clock(SECOND)
    assert bench.ids() == [other.id, job.id]


def test_very_many_failures_put_it_off_as_far_as_time_goes(bench: Bench) -> None:
    job = bench.push(policy=QUARTIC)
    for _ in range(1800):
        fail(bench, job)
    assert job.order_key == FOREVER - 1


def test_exponential_back_off_doubles_up_to_its_cap_with_jitter(bench: Bench) -> None:
    policy = Policy(
        max_fails=-1, backoff=BACKOFF_EXPONENTIAL, backoff_base=SECOND, backoff_cap=5 * SECOND
    )
    job = bench.push(policy=policy)
    for longest in (1, 2, 4, 5, 5):
        bench.take()
        bench.nack(job)
        assert longest * SECOND // 2 <= job.order_key - bench.now <= longest * SECOND
        bench.advance_clock(longest * SECOND)


def test_exponential_back_off_without_a_cap_does_not_overflow(bench: Bench) -> None:
    policy = Policy(max_fails=-1, backoff=BACKOFF_EXPONENTIAL, backoff_base=SECOND)
    job = bench.push(policy=policy)
    last = 0
    for fails in range(1, 100):
        fail(bench, job)
        assert job.order_key >= last
        shortest = min(bench.now + SECOND * 2 ** (fails - 1) // 2, FOREVER - 1)
        assert shortest <= job.order_key < FOREVER
        last = job.order_key


def test_a_queue_can_set_the_back_off_of_jobs_that_have_none(bench: Bench) -> None:
    own, none = bench.push(policy=QUARTIC), bench.push()
    bench.configure("q", QueueSettings(backoff=BACKOFF_EXPONENTIAL, backoff_base=100 * SECOND))
    for job in (own, none):
        bench.take()
        bench.nack(job)
    assert own.order_key == START + SECOND
    assert none.order_key >= START + 50 * SECOND


# Complete and fail, whoever holds the job


@pytest.mark.parametrize("state", ["ready", "delayed", "blocked", "leased"])
def test_a_job_can_be_completed_in_any_open_state(bench: Bench, state: str) -> None:
    other = bench.push("other")
    blocked_by = [other.id] if state == "blocked" else None
    run_at = START + SECOND if state == "delayed" else 0
    job = bench.push(ttl_ms=60_000, run_at=run_at, blocked_by=blocked_by)
    if state == "leased":
        bench.take(bound=True)
    complete(bench, job, b"result")
    assert job.state == SUCCEEDED
    assert result_of(bench, job) == b"result"
    assert bench.engine.state.dependents == {}
    with pytest.raises(NotLeaseholder):
        bench.ack(job)


def test_completing_ends_anothers_lease(bench: Bench) -> None:
    job = bench.push()
    bench.take(owner=5, bound=True)
    complete(bench, job)
    with pytest.raises(NotLeaseholder):
        bench.ack(job, 5)
    assert bench.engine.state.bound_jobs_by_owner == {}


def test_the_first_result_wins(bench: Bench) -> None:
    done, failed = bench.push(ttl_ms=60_000), bench.push(policy=Policy(), ttl_ms=60_000)
    complete(bench, done, b"first")
    fail(bench, failed, b"first")
    for job in (done, failed):
        with pytest.raises(DuplicateResult):
            complete(bench, job, b"second")
        with pytest.raises(DuplicateResult):
            fail(bench, job, b"second")
        assert result_of(bench, job) == b"first"


def test_what_is_not_there_can_be_neither_completed_nor_failed(bench: Bench) -> None:
    for verdict in (bench.engine.complete, bench.engine.fail):
        with pytest.raises(JobNotFound):
            verdict(99, b"", ORIGIN, bench.now)


def test_a_failed_attempt_of_a_ready_job_leaves_it_in_its_place(bench: Bench) -> None:
    job, behind = bench.push(), bench.push()
    fail(bench, job)
    assert bench.ids() == [job.id, behind.id]


def test_a_failed_attempt_does_not_bring_a_delayed_job_forward(bench: Bench) -> None:
    plain = bench.push(run_at=START + 50 * SECOND)
    with_back_off = bench.push(run_at=START + 50 * SECOND, policy=QUARTIC)
    for job in (plain, with_back_off):
        fail(bench, job)
        assert (job.state, job.order_key) == (DELAYED, START + 50 * SECOND)


def test_a_failed_attempt_can_put_a_delayed_job_off(bench: Bench) -> None:
    job = bench.push(run_at=START + SECOND, policy=QUARTIC)
    fail(bench, job)
    fail(bench, job)
    assert job.order_key == START + 16 * SECOND


def test_a_failed_attempt_does_not_release_a_blocked_job(bench: Bench) -> None:
    blocker = bench.push("other")
    job = bench.push(blocked_by=[blocker.id], policy=QUARTIC)
    fail(bench, job, b"error")
    assert (job.state, job.fails) == (BLOCKED, 1)
    complete(bench, blocker)
    assert job.state == READY


def test_a_final_fail_of_a_worker_leaves_its_result(bench: Bench) -> None:
    job = bench.push(policy=Policy())
    bench.take()
    fail(bench, job, b"why")
    assert job.state == FAILED
    assert result_of(bench, job) == b"why"


# Results


def test_a_result_is_kept_until_the_ttl(bench: Bench) -> None:
    job = bench.push(ttl_ms=10_000)
    bench.advance_clock(4 * SECOND)
    complete(bench, job, b"result")
    bench.advance_clock(6 * SECOND - 1)
    assert bench.engine.job(job.id) is job
    bench.advance_clock(1)
    with pytest.raises(JobNotFound):
        bench.engine.job(job.id)
    assert bench.queue().expired == 0  # it was finished before
    assert bench.engine.state.evicted == 0


def test_a_result_without_a_ttl_goes_with_the_job(bench: Bench) -> None:
    job = bench.push()
    complete(bench, job, b"result")
    assert job.state == GONE
    assert result_of(bench, job) == b"result"  # for those who were told


def test_a_queue_can_keep_results_of_jobs_without_a_ttl(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(result_retention=5 * SECOND), ORIGIN, bench.now)
    job, with_ttl = bench.push(), bench.push(ttl_ms=60_000)
    complete(bench, job, b"result")
    complete(bench, with_ttl, b"result")
    assert job.state == SUCCEEDED
    bench.advance_clock(5 * SECOND)
    assert job.state == GONE
    assert with_ttl.state == SUCCEEDED


def test_kept_results_are_in_order_of_finishing(bench: Bench) -> None:
    jobs = [bench.push(ttl_ms=60_000) for _ in range(3)]
    for job in reversed(jobs):
        bench.now += 1
        complete(bench, job)
    assert bench.ids(state=SUCCEEDED) == [job.id for job in reversed(jobs)]


# The ring of recently finished jobs


def test_the_ring_of_recently_finished_jobs_is_bounded_in_bytes() -> None:
    bench = Bench(EngineSettings(finished_bytes=3 * 512))
    jobs = [bench.push() for _ in range(5)]
    for job in jobs:
        complete(bench, job)
    assert [bench.engine.recent(job.id) is job for job in jobs] == [False, False, True, True, True]
    assert bench.engine.state.jobs.size == 3


def test_without_a_ring_a_finished_job_leaves_nothing() -> None:
    bench = Bench(EngineSettings(finished_bytes=0))
    complete(bench, bench.push(policy=NO_LIMIT))
    assert bench.engine.state.jobs.size == 0


def test_a_live_job_is_not_a_recent_one(bench: Bench) -> None:
    job = bench.push()
    assert bench.engine.recent(job.id) is None
    assert bench.engine.recent(99) is None


def test_no_verdict_is_taken_when_no_record_can_be_written(bench: Bench) -> None:
    job = bench.push()
    bench.take(bound=True)
    bench.engine.read_only_reason = "disk failed"
    verdicts: tuple[Callable[[], None], ...] = (
        lambda: bench.ack(job),
        lambda: bench.nack(job),
        lambda: complete(bench, job),
        lambda: fail(bench, job),
        lambda: bench.delete(job),
    )
    for verdict in verdicts:
        with pytest.raises(ReadOnly):
            verdict()
    bench.engine.disconnect(OWNER, ORIGIN, bench.now)
    assert job.lease is not None
