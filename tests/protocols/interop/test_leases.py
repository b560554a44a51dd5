"""Leases: each ends by the rules of its taker or of the job, and the job comes back."""

import pytest
from protocols.interop.adapters.base import Adapter, Can, NotHeld, Options
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld
from support.simulated import SimulatedServer

Dialect = type[Adapter]

HEARTBEAT = 45.0
DEFAULT_TTR = 60.0
A_LITTLE = 0.1


def comes_back_from_a_lost_connection(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> tuple[int, int]:
    """The one job of the world was held by a connection that is gone; gives its new counts."""
    if not pusher.loss_is_failure:
        world.sees(ready=1)
        return 1, 0
    world.sees(delayed=1)
    there = world.open(taker)
    world.nothing_for(there)
    world.close(there)
    return 1, 1


@cases("connection lost")
def test_a_lost_connection_gives_its_jobs_back(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    world.take_this(there, job)
    world.close(there)
    attempts, fails = comes_back_from_a_lost_connection(world, pusher, taker)
    world.between()
    world.job_is(job, "waiting", attempts, fails)
    world.advance(pusher.pause_after_fail(1))
    again = world.open(taker)
    taken = world.take_this(again, job)
    assert taken.fails == (fails if Can.SHOW_FAILS in taker.can else None)
    again.finish(taken)
    world.sees()


@cases("no sign of life")
def test_a_silent_connection_gives_its_jobs_back(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    world.take_this(there, job)
    world.advance(HEARTBEAT - A_LITTLE, silent=there)
    world.sees(leased=1)
    world.advance(2 * A_LITTLE, silent=there)
    world.close(there)
    attempts, fails = comes_back_from_a_lost_connection(world, pusher, taker)
    world.between()
    world.job_is(job, "waiting", attempts, fails)
    world.advance(pusher.pause_after_fail(1))
    world.sees(ready=1)


@cases("connection lost and nothing held")
def test_a_timed_lease_does_not_mind_who_is_connected(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    taken = world.take_this(there, job)
    world.close(there)
    world.sees(leased=1)
    world.job_is(job, "leased", attempts=1, fails=0)
    another = world.open(taker)
    another.finish(taken)
    world.between()
    world.sees()
    world.succeeded(job)


@cases("time over")
def test_a_timed_lease_ends_after_a_minute_if_nobody_says_otherwise(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    world.take_this(there, job)
    world.advance(DEFAULT_TTR - A_LITTLE)
    world.sees(leased=1)
    world.nothing_for(there)
    world.advance(2 * A_LITTLE)
    world.sees(ready=1)
    world.between()
    world.job_is(job, "waiting", attempts=1, fails=0)
    there.finish(world.take_this(there, job))
    world.succeeded(job, attempts=2)


@cases("own ttr")
def test_the_ttr_of_a_job_holds_for_every_taker(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttr=5))
    world.between()
    late = world.take_this(there, job)
    world.advance(5 - A_LITTLE)
    world.sees(leased=1)
    world.advance(2 * A_LITTLE)
    world.sees(ready=1)
    world.job_is(job, "waiting", attempts=1, fails=0)
    if Can.FINISH_ANY not in taker.can:
        with pytest.raises(NotHeld):
            there.finish(late)
    again = world.take_this(there, job)
    there.finish(again)
    world.succeeded(job, attempts=2)


@cases("own ttr")
def test_a_late_finish_counts_only_where_no_lease_is_needed(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there, another = world.open(pusher), world.open(taker), world.open(taker)
    job = world.push(here, Options(ttr=5))
    late = world.take_this(there, job)
    world.advance(5 + A_LITTLE)
    world.take_this(another, job)
    if Can.FINISH_ANY in taker.can:
        there.finish(late)
        world.between()
        world.succeeded(job, attempts=2)
        return
    with pytest.raises(NotHeld):
        there.finish(late)
    if Can.FAIL in taker.can:
        with pytest.raises(NotHeld):
            there.fail(late)
    world.job_is(job, "leased", attempts=2, fails=0)
    world.sees(leased=1)


@cases("attempts used up by time")
def test_a_job_has_failed_when_its_last_attempt_takes_too_long(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttr=5, attempts=2))
    world.take_this(there, job)
    world.advance(5 + A_LITTLE)
    world.between()
    waiters = world.result_waiters(job)
    world.take_this(there, job)
    for waiter in waiters:
        waiter.still_waits()
    world.advance(5 + A_LITTLE)
    world.all_hear(waiters, job, False)
    world.between()
    world.job_is(job, "failed", attempts=2, fails=0)
    world.result_is(job, False)
    world.sees()
    world.nothing_for(there)


@cases("attempts used up by time")
def test_a_job_has_failed_when_the_connection_of_its_last_attempt_is_lost_or_its_time_is_over(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttr=5, attempts=1))
    world.take_this(there, job)
    world.close(there)
    if Can.TIMED_LEASE in taker.can:
        world.sees(leased=1)
        world.advance(5 + A_LITTLE)
    world.job_is(job, "failed", attempts=1, fails=0)
    world.between()
    world.sees()


@cases("attempts used up by a restart")
def test_a_restart_gives_no_attempt_beyond_those_allowed(
    steady_world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    world = steady_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(attempts=2))
    for attempts in (1, 2):
        world.take_this(there, job)
        world.job_is(job, "leased", attempts, fails=0)
        world.interrupt()
    world.job_is(job, "failed", attempts=2, fails=0)
    world.result_is(job, False)
    world.sees()
    world.nothing_for(there)


@cases("one attempt", way=["restart", "crash", "kill"])
def test_the_one_attempt_of_a_job_is_not_forgotten(
    way: str, pusher: Dialect, taker: Dialect
) -> None:
    world = TimedWorld(SimulatedServer(), way)
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(attempts=1))
    world.take_this(there, job)
    world.interrupt()
    world.job_is(job, "leased", attempts=1, fails=0)
    world.advance(DEFAULT_TTR + A_LITTLE)
    world.job_is(job, "failed", attempts=1, fails=0)
    world.nothing_for(there)


@cases("poison")
def test_a_job_whose_leases_are_lost_again_and_again_is_given_up_where_its_pusher_says_so(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    for losses in range(1, pusher.max_losses or 12):
        world.take_this(there, job)
        world.advance(DEFAULT_TTR + A_LITTLE)
        world.job_is(job, "waiting", attempts=losses, fails=0)
        world.between()
    if pusher.max_losses:
        world.take_this(there, job)
        world.advance(DEFAULT_TTR + A_LITTLE)
        world.job_is(job, "failed", pusher.max_losses, fails=0)
        world.result_is(job, False)
        world.sees()
    else:
        world.sees(ready=1)


@cases("held over a restart")
def test_a_restart_keeps_timed_leases_and_gives_back_the_others(
    steady_world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    world = steady_world
    here, there = world.open(pusher), world.open(taker)
    job, behind = world.push(here), world.push(here)
    world.take_this(there, job)
    world.advance(10)
    world.interrupt()
    if Can.TIMED_LEASE in taker.can:
        world.sees(ready=1, leased=1)
        world.job_is(job, "leased", attempts=1, fails=0)
        world.advance(DEFAULT_TTR - 10 - A_LITTLE)
        world.sees(ready=1, leased=1)
        world.advance(2 * A_LITTLE)
    world.sees(ready=2)
    world.job_is(job, "waiting", attempts=1, fails=0)
    world.take_this(there, job)
    world.take_this(there, behind)


@cases("held over a restart", way=["crash", "kill"])
def test_a_crash_loses_at_most_the_lease(way: str, pusher: Dialect, taker: Dialect) -> None:
    world = TimedWorld(SimulatedServer(), way)
    here, there = world.open(pusher), world.open(taker)
    job, behind = world.push(here), world.push(here)
    world.take_this(there, job)
    world.interrupt()
    world.advance(DEFAULT_TTR + A_LITTLE)
    world.sees(ready=2)
    taken = world.take_this(there, job)
    assert taken.fails in {0, None}
    there.finish(taken)
    there.finish(world.take_this(there, behind))
    world.interrupt()
    world.sees()


@cases("held over a restart", seed=range(3))
def test_what_was_answered_stays_when_half_of_what_was_not_synced_is_lost(
    seed: int, pusher: Dialect, taker: Dialect
) -> None:
    world = TimedWorld(SimulatedServer(), "crash")
    here, there = world.open(pusher), world.open(taker)
    jobs = [world.push(here) for _ in range(4)]
    done = world.take_this(there, jobs[0])
    there.finish(done)
    world.take_this(there, jobs[1])
    world.crash_in_part(seed)
    world.advance(DEFAULT_TTR + A_LITTLE)
    world.sees(ready=3)
    world.succeeded(jobs[0])
    for job in jobs[1:]:
        there.finish(world.take_this(there, job))
    world.sees()
