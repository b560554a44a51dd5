"""How leases end: in time, too late, with their connection, or with a restart."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, OWNER, START, Bench

from taskyard.engine.model.events import InvalidOption, JobNotFound, NotLeaseholder
from taskyard.engine.model.job import DELAYED, FAILED, FOREVER, LEASED, READY, SECOND, Job, Policy
from taskyard.engine.operations.finish import MAX_LEASES_RELEASED_AT_ONCE


def leases(bench: Bench, count: int, bound: bool = True) -> list[Job]:
    for _ in range(count):
        bench.push()
    return [bench.take(bound=bound) for _ in range(count)]


# Expiry


def test_an_expired_lease_puts_the_job_back_in_its_place(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=5 * SECOND))
    behind = bench.push()
    bench.take()
    bench.advance_clock(5 * SECOND - 1)
    assert job.state == LEASED
    bench.advance_clock(1)
    assert bench.ids() == [job.id, behind.id]
    assert (job.attempts, job.fails, job.losses) == (1, 0, 1)


def test_jobs_come_back_in_the_order_they_had(bench: Bench) -> None:
    jobs = leases(bench, 4)
    for job in (jobs[2], jobs[0], jobs[3], jobs[1]):
        bench.engine.release_lease(job.id, OWNER, ORIGIN, bench.now)
    assert bench.ids() == [job.id for job in jobs]


def test_a_late_finish_is_refused(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=SECOND))
    bench.take()
    bench.advance_clock(SECOND)
    with pytest.raises(NotLeaseholder):
        bench.ack(job)
    bench.take(owner=2)
    with pytest.raises(NotLeaseholder):
        bench.ack(job)


def test_attempts_used_up_by_lost_leases_end_the_job(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=SECOND, max_attempts=2))
    for _ in range(2):
        bench.take()
        bench.advance_clock(SECOND)
    assert job.state == FAILED
    assert job.ensure_extras().reason == "attempts used up"
    assert not job.ensure_extras().has_result


def test_a_job_whose_holders_keep_dying_is_poison(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=-1, max_losses=3))
    for owner in range(3):
        assert job.state == READY
        bench.take(owner=owner, bound=True)
        bench.engine.disconnect(owner, ORIGIN, bench.now)
    assert job.state == FAILED
    assert job.ensure_extras().reason == "poison pill: too many holders were lost"


def test_failing_is_not_dying(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=-1, max_losses=2))
    for _ in range(5):
        bench.take()
        bench.nack(job)
    assert job.state == READY
    assert (job.fails, job.losses) == (5, 0)


def test_without_the_guard_a_job_may_be_lost_for_ever(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=-1))
    for _ in range(50):
        bench.take(bound=True)
        bench.engine.disconnect(OWNER, ORIGIN, bench.now)
    assert (job.state, job.losses) == (READY, 50)


# Extending


def test_an_extended_lease_lasts_from_now_on(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=5 * SECOND))
    bench.take()
    bench.advance_clock(4 * SECOND)
    bench.engine.extend_lease(job.id, OWNER, 5 * SECOND, ORIGIN, bench.now)
    bench.advance_clock(5 * SECOND - 1)
    assert job.state == LEASED
    bench.advance_clock(1)
    assert job.state == READY


def test_a_lease_can_be_made_shorter_too(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=50 * SECOND))
    bench.take()
    bench.engine.extend_lease(job.id, OWNER, SECOND, ORIGIN, bench.now)
    bench.advance_clock(SECOND)
    assert job.state == READY


def test_a_lease_without_a_time_can_be_given_one(bench: Bench) -> None:
    job = leases(bench, 1)[0]
    bench.engine.extend_lease(job.id, OWNER, SECOND, ORIGIN, bench.now)
    bench.advance_clock(SECOND)
    assert job.state == READY


@pytest.mark.parametrize("ttr", [0, -1, FOREVER])
def test_no_time_is_no_extension(bench: Bench, ttr: int) -> None:
    job = leases(bench, 1)[0]
    with pytest.raises(InvalidOption):
        bench.engine.extend_lease(job.id, OWNER, ttr, ORIGIN, bench.now)
    assert job.lease is not None
    assert job.lease.deadline == 0


def test_only_the_holder_can_extend_or_give_back(bench: Bench) -> None:
    job = leases(bench, 1)[0]
    other = bench.push()
    for id, owner in ((job.id, OWNER + 1), (other.id, OWNER)):
        with pytest.raises(NotLeaseholder):
            bench.engine.extend_lease(id, owner, SECOND, ORIGIN, bench.now)
        with pytest.raises(NotLeaseholder):
            bench.engine.release_lease(id, owner, ORIGIN, bench.now)
    with pytest.raises(JobNotFound):
        bench.engine.extend_lease(99, OWNER, SECOND, ORIGIN, bench.now)


def test_giving_back_counts_neither_a_fail_nor_a_loss(bench: Bench) -> None:
    job = leases(bench, 1)[0]
    bench.engine.release_lease(job.id, OWNER, ORIGIN, bench.now)
    assert (job.state, job.attempts, job.fails, job.losses) == (READY, 1, 0, 0)
    assert bench.queue().released == 1


# Lost connections


def test_a_lost_connection_ends_the_leases_bound_to_it(bench: Bench) -> None:
    mine, theirs, timed = bench.push(), bench.push(), bench.push()
    bench.take(bound=True)
    bench.take(owner=2, bound=True)
    bench.take(bound=False)
    bench.engine.disconnect(OWNER, ORIGIN, bench.now)
    assert (mine.state, theirs.state, timed.state) == (READY, LEASED, LEASED)
    assert (mine.attempts, mine.fails, mine.losses) == (1, 0, 1)
    assert OWNER not in bench.engine.state.bound_jobs_by_owner


def test_a_job_can_count_a_lost_holder_as_a_fail(bench: Bench) -> None:
    """As Masenko's do: closing for any reason is a NACK."""
    job = bench.push(policy=Policy(max_fails=-1, backoff=1, lost_is_failed=True))
    bench.take(bound=True)
    bench.engine.disconnect(OWNER, ORIGIN, bench.now)
    assert (job.state, job.fails, job.losses) == (DELAYED, 1, 0)
    extra = job.ensure_extras()
    assert bench.read(extra.error_at, extra.error_size) == b"connection lost"


def test_an_expired_lease_of_such_a_job_is_still_a_loss(bench: Bench) -> None:
    job = bench.push(policy=Policy(ttr=SECOND, max_fails=1, lost_is_failed=True))
    bench.take()
    bench.advance_clock(SECOND)
    assert (job.state, job.fails, job.losses) == (READY, 0, 1)


def test_a_connection_that_holds_nothing_may_go_unnoticed(bench: Bench) -> None:
    bench.collect()
    bench.engine.disconnect(99, ORIGIN, bench.now)
    assert bench.collect() == []


def test_what_a_lost_connection_held_goes_to_those_who_wait(bench: Bench) -> None:
    first, second = leases(bench, 2)
    waiter = bench.wait(owner=2)
    bench.engine.disconnect(OWNER, ORIGIN, bench.now)
    assert bench.effects() == [("assigned", waiter.number, first.id)]
    assert second.state == READY


# Tokens


def test_a_token_finishes_the_lease_it_was_made_for(bench: Bench) -> None:
    job = leases(bench, 1, bound=False)[0]
    bench.engine.finish_with_token(job.id, 1, 1, b"result", ORIGIN, bench.now)
    assert bench.engine.recent(job.id) is job


def test_a_token_of_an_earlier_attempt_is_refused(bench: Bench) -> None:
    job = leases(bench, 1, bound=False)[0]
    bench.nack(job)
    bench.take()
    with pytest.raises(NotLeaseholder):
        bench.engine.finish_with_token(job.id, 1, 1, b"", ORIGIN, bench.now)
    bench.engine.finish_with_token(job.id, 1, 2, b"", ORIGIN, bench.now)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_token_is_of_no_use_for_the_same_job_in_its_dead_queue(
    bench: Bench, restarts: bool
) -> None:
    """Its attempts are counted anew there, and its leases are not."""
    job = bench.push(policy=Policy(max_attempts=1, dead_queue="dead"))
    bench.take()
    bench.nack(job)
    if restarts:
        bench.restart()
    epoch = bench.engine.state.epoch
    again = bench.take("dead", bound=False)
    assert (again.id, again.attempts) == (job.id, 1)
    with pytest.raises(NotLeaseholder):
        bench.engine.finish_with_token(job.id, epoch, 1, b"", ORIGIN, bench.now)
    bench.engine.finish_with_token(job.id, epoch, 2, b"", ORIGIN, bench.now)


def test_a_token_of_an_earlier_run_is_refused_if_its_lease_was_lost(bench: Bench) -> None:
    """The lease was not yet on disk when the server died; another got the same attempt."""
    job = bench.push()
    bench.collect()
    bench.take()
    bench.engine.records.drain(0)  # never written
    bench.restart()
    again = bench.take(owner=2)
    assert again.id == job.id
    with pytest.raises(NotLeaseholder):
        bench.engine.finish_with_token(job.id, 1, 1, b"", ORIGIN, bench.now)
    bench.engine.finish_with_token(job.id, 2, 1, b"", ORIGIN, bench.now)


def test_a_token_survives_a_restart_with_its_lease(bench: Bench) -> None:
    job = leases(bench, 1, bound=False)[0]
    bench.restart()
    bench.engine.finish_with_token(job.id, 1, 1, b"", ORIGIN, bench.now)
    assert bench.engine.recent(job.id) is not None


def test_a_token_for_a_job_that_is_not_leased_or_not_there_is_refused(bench: Bench) -> None:
    job = bench.push()
    with pytest.raises(NotLeaseholder):
        bench.engine.finish_with_token(job.id, 1, 0, b"", ORIGIN, bench.now)
    with pytest.raises(JobNotFound):
        bench.engine.finish_with_token(99, 1, 1, b"", ORIGIN, bench.now)


# Restart


def test_a_restart_returns_bound_leases_in_place_with_the_attempt_but_no_fail(
    bench: Bench,
) -> None:
    policy = Policy(max_fails=1, max_losses=1, lost_is_failed=True, backoff=1)
    held = [bench.push(policy=policy).id for _ in range(2)]
    behind = bench.push().id
    for _ in held:
        bench.take(bound=True)
    bench.restart()
    assert bench.ids() == [*held, behind]
    job = bench.engine.job(held[0])
    assert (job.attempts, job.fails, job.losses) == (1, 0, 0)
    assert bench.engine.state.bound_jobs_by_owner == {}


def test_a_restart_keeps_timed_leases_until_their_deadline(bench: Bench) -> None:
    id = bench.push(policy=Policy(ttr=10 * SECOND, max_fails=-1)).id
    bench.take(owner=4)
    bench.advance_clock(6 * SECOND)
    bench.restart()
    assert bench.ids(state=LEASED) == [id]
    bench.advance_clock(4 * SECOND - 1)
    assert bench.ids(state=LEASED) == [id]
    bench.advance_clock(1)
    assert bench.ids() == [id]


def test_a_timed_lease_can_be_finished_after_a_restart(bench: Bench) -> None:
    job = bench.push(policy=NO_LIMIT)
    bench.take(owner=4)
    bench.restart()
    bench.engine.ack(job.id, 4, ORIGIN, bench.now)
    assert bench.ids(state=LEASED) == []


def test_owners_of_one_run_are_not_those_of_the_next(bench: Bench) -> None:
    before = {bench.engine.new_owner() for _ in range(3)}
    bench.restart()
    after = {bench.engine.new_owner() for _ in range(3)}
    assert len(before | after) == 6


def test_time_goes_on_while_the_server_is_down(bench: Bench) -> None:
    job = bench.push(ttl_ms=5000)
    delayed = bench.push(run_at=START + SECOND)
    bench.now += 60 * SECOND
    bench.restart()
    bench.engine.tick(bench.now)
    assert bench.ids() == [delayed.id]
    assert bench.engine.recent(job.id) is not None


def test_a_job_that_another_has_by_now_is_not_taken_from_it(bench: Bench) -> None:
    """Of one who held a great many and goes, the leases end in chunks."""
    for _ in range(MAX_LEASES_RELEASED_AT_ONCE):
        bench.push()
        bench.take(owner=1, bound=True)
    last = bench.push("last")
    bench.take("last", owner=1, bound=True)
    bench.engine.disconnect(1, ORIGIN, bench.now)
    assert last.state == LEASED
    bench.engine.release_lease(last.id, 1, ORIGIN, bench.now)
    assert bench.take("last", owner=2, bound=True) is last
    while bench.engine.tick(bench.now):
        pass
    assert last.lease is not None
    assert last.lease.owner == 2
    assert bench.queue().leased.size == 0
