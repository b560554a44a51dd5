"""What a worker says of the next attempt, and tokens by which it names its lease."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, Bench

from taskyard.engine.model.events import NotLeaseholder
from taskyard.engine.model.job import (
    BACKOFF_QUARTIC,
    DELAYED,
    FAILED,
    FOREVER,
    READY,
    SECOND,
    Job,
    Policy,
)
from taskyard.engine.operations.finish import BY_POLICY, NEVER

QUARTIC = Policy(max_fails=-1, backoff=BACKOFF_QUARTIC)


def nack_in(bench: Bench, job: Job, delay: int) -> None:
    bench.engine.nack(job.id, OWNER, b"error", ORIGIN, bench.now, delay)


@pytest.mark.parametrize("policy", [NO_LIMIT, QUARTIC])
def test_a_nack_may_say_when_the_next_attempt_may_start(bench: Bench, policy: Policy) -> None:
    job = bench.push(policy=policy)
    bench.take()
    nack_in(bench, job, 5 * SECOND)
    assert (job.state, job.fails, job.order_key) == (DELAYED, 1, bench.now + 5 * SECOND)
    bench.advance_clock(5 * SECOND - 1)
    assert job.state == DELAYED
    bench.advance_clock(1)
    assert job.state == READY


def test_a_nack_may_say_that_the_next_attempt_may_start_at_once(bench: Bench) -> None:
    job = bench.push(policy=QUARTIC)
    bench.take()
    nack_in(bench, job, 0)
    assert (job.state, job.fails) == (READY, 1)


@pytest.mark.parametrize("delay", [0, SECOND])
def test_a_worker_may_ask_for_another_attempt_where_nothing_says_how_many(
    bench: Bench, delay: int
) -> None:
    job = bench.push(policy=Policy())
    bench.take()
    nack_in(bench, job, delay)
    assert (job.state, job.fails) == (DELAYED if delay else READY, 1)


def test_the_farthest_next_attempt_is_never(bench: Bench) -> None:
    job = bench.push()
    bench.take()
    nack_in(bench, job, FOREVER)
    assert (job.state, job.order_key) == (DELAYED, FOREVER)


@pytest.mark.parametrize("delay", [0, SECOND, NEVER, BY_POLICY])
@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (Policy(max_fails=1), "failures used up"),
        (Policy(max_fails=5, max_attempts=1), "attempts used up"),
    ],
)
def test_no_word_of_a_worker_gives_more_attempts_than_there_are(
    bench: Bench, policy: Policy, reason: str, delay: int
) -> None:
    job = bench.push(policy=policy)
    bench.take()
    nack_in(bench, job, delay)
    assert (job.state, job.ensure_extras().reason) == (FAILED, reason)


def test_a_nack_may_say_never(bench: Bench) -> None:
    job = bench.push(policy=QUARTIC)
    bench.take()
    nack_in(bench, job, NEVER)
    assert (job.state, job.fails, job.ensure_extras().reason) == (
        FAILED,
        1,
        "given up by its worker",
    )
    extra = job.ensure_extras()
    assert bench.read(extra.result_at, extra.result_size) == b"error"
    assert bench.queue().failed == 1
    dependent = bench.push("other", blocked_by=[job.id])
    assert dependent.state == READY


def test_who_waits_for_a_job_that_is_given_up_fails_with_it(bench: Bench) -> None:
    job = bench.push(policy=NO_LIMIT)
    dependent = bench.push("other", blocked_by=[job.id])
    bench.take()
    nack_in(bench, job, NEVER)
    assert dependent.state == FAILED


def test_a_job_that_is_given_up_goes_to_its_dead_queue(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=-1, dead_queue="dead"))
    bench.take()
    nack_in(bench, job, NEVER)
    assert (job.state, job.queue.name, job.fails) == (READY, "dead", 0)


@pytest.mark.parametrize("delay", [0, SECOND, NEVER, BY_POLICY])
def test_what_a_worker_says_is_so_after_a_restart(bench: Bench, delay: int) -> None:
    job = bench.push(policy=QUARTIC)
    bench.take()
    nack_in(bench, job, delay)
    before = (job.state, job.fails, job.order_key)
    bench.restart()
    again = bench.engine.job(job.id)
    assert (again.state, again.fails, again.order_key) == before


# Tokens


def test_a_token_names_its_holder_while_the_lease_lasts(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=-1, ttr=SECOND))
    bench.take(owner=7)
    owner_of = bench.engine.owner_by_token
    assert owner_of(job.id, 1, 1) == 7
    bench.nack(job, 7)
    with pytest.raises(NotLeaseholder):
        owner_of(job.id, 1, 1)
    bench.take(owner=8)
    assert owner_of(job.id, 1, 2) == 8
    with pytest.raises(NotLeaseholder):
        owner_of(job.id, 1, 1)
    bench.advance_clock(SECOND)
    with pytest.raises(NotLeaseholder):
        owner_of(job.id, 1, 2)


def test_a_token_is_of_the_run_in_which_the_lease_began(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=60 * SECOND))
    bench.take(owner=7)
    bench.restart()
    assert bench.engine.owner_by_token(job.id, 1, 1) == 7
    with pytest.raises(NotLeaseholder):
        bench.engine.owner_by_token(job.id, 2, 1)


@pytest.mark.parametrize(
    "token",
    [(0, 1, 1), (-1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), (2**63, 1, 1), (2**70, 1, 1),
     (1, 2**70, 1), (1, 1, 2**70), (1, 0, 1), (1, 1, 0), (1, -1, -1)],
)  # fmt: skip
def test_a_token_of_nothing_has_no_holder(bench: Bench, token: tuple[int, int, int]) -> None:
    bench.push()
    bench.take()
    bench.push()  # ready
    gone = bench.push()
    bench.delete(gone)
    with pytest.raises(NotLeaseholder):
        bench.engine.owner_by_token(*token)
