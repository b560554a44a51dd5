"""Order and time: priorities, arrival, delays and ttls hold whoever looks."""

import pytest
from protocols.interop.adapters.base import Adapter, Can, NotFound, NotHeld, Options
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World

Dialect = type[Adapter]

A_LITTLE = 0.1


@cases("arrival")
def test_jobs_come_in_the_order_of_their_arrival(
    any_world: World, first: Dialect, second: Dialect, taker: Dialect
) -> None:
    world = any_world
    one, other, there = world.open(first), world.open(second), world.open(taker)
    jobs = [world.push(client) for client in (one, other, other, one, one, other)]
    world.between()
    for job in jobs:
        world.take_this(there, job)


@cases("priority")
def test_priorities_hold_for_every_taker_and_others_push_at_zero(
    any_world: World, pusher: Dialect, plain: Dialect, taker: Dialect
) -> None:
    world = any_world
    here, other, there = world.open(pusher), world.open(plain), world.open(taker)
    low = world.push(here, Options(priority=-5))
    first_plain = world.push(other)
    high = world.push(here, Options(priority=10))
    zero = world.push(here, Options(priority=0))
    second_plain = world.push(other)
    high_too = world.push(here, Options(priority=10))
    least = world.push(here, Options(priority=-(2**31)))
    most = world.push(here, Options(priority=2**31 - 1))
    world.between()
    for job in (most, high, high_too, first_plain, zero, second_plain, low, least):
        world.take_this(there, job)


@cases("back in its place")
def test_a_job_that_comes_back_stands_before_those_that_came_later(
    world: TimedWorld, pusher: Dialect, later: Dialect, taker: Dialect
) -> None:
    here, other, there = world.open(pusher), world.open(later), world.open(taker)
    job = world.push(here)
    world.take_this(there, job)
    behind = world.push(other)
    world.advance(60 + A_LITTLE)
    world.between()
    world.take_this(there, job)
    world.take_this(there, behind)


@cases("delayed")
def test_a_delayed_job_is_nobodys_before_its_time(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    due = world.now() + 10
    job = world.push(here, Options(run_at=due))
    world.sees(delayed=1)
    world.between()
    world.sees(delayed=1)
    world.nothing_for(there)
    world.advance(due - A_LITTLE - world.now())
    world.sees(delayed=1)
    world.nothing_for(there)
    world.advance(2 * A_LITTLE)
    world.sees(ready=1)
    world.job_is(job, "waiting", attempts=0, fails=0)
    there.finish(world.take_this(there, job))
    world.sees()


@cases("delayed")
def test_a_job_whose_time_came_while_the_server_was_down_is_ready(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(run_at=world.now() + 10))
    world.advance(11)
    world.between()
    world.sees(ready=1)
    world.take_this(there, job)


@cases("delayed")
def test_a_time_in_the_past_is_no_delay(world: TimedWorld, pusher: Dialect, taker: Dialect) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(run_at=world.now() - 10))
    world.sees(ready=1)
    world.between()
    world.take_this(there, job)


@cases("delays in order")
def test_delayed_jobs_come_in_the_order_of_their_times(
    world: TimedWorld, first: Dialect, second: Dialect, taker: Dialect
) -> None:
    one, other, there = world.open(first), world.open(second), world.open(taker)
    start = world.now()
    third = world.push(one, Options(run_at=start + 3))
    earliest = world.push(other, Options(run_at=start + 1))
    middle = world.push(one, Options(run_at=start + 2))
    now = world.push(other)
    world.sees(ready=1, delayed=3)
    world.between()
    world.advance(5)
    for job in (now, earliest, middle, third):
        world.take_this(there, job)


@cases("ttl over")
def test_a_job_is_gone_for_everybody_when_its_ttl_is_over(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttl=10))
    waiters = world.result_waiters(job)
    world.advance(10 - A_LITTLE)
    world.sees(ready=1)
    world.advance(2 * A_LITTLE)
    for waiter in waiters:
        with pytest.raises(NotFound):
            waiter.result()
    world.between()
    world.sees()
    world.job_is_gone(job)
    world.nothing_for(there)


@cases("ttl over")
def test_a_ttl_goes_on_while_the_server_is_down(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttl=10))
    world.advance(6)
    world.between()
    world.sees(ready=1)
    world.advance(4 + A_LITTLE)
    world.job_is_gone(job)
    world.sees()
    world.nothing_for(there)


@cases("ttl over while held")
def test_a_job_whose_ttl_is_over_is_taken_from_its_holder(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttl=10))
    world.between()
    taken = world.take_this(there, job)
    world.advance(10 + A_LITTLE)
    world.sees()
    for end in (there.finish, there.fail) if Can.FAIL in taker.can else (there.finish,):
        with pytest.raises(NotFound if Can.FINISH_ANY in taker.can else NotHeld):
            end(taken)
    world.job_is_gone(job)


@cases("ttl of a delayed job")
def test_the_ttl_of_a_delayed_job_begins_at_its_time(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    due = world.now() + 10
    job = world.push(here, Options(run_at=due, ttl=5))
    world.between()
    world.advance(due + 5 - A_LITTLE - world.now())
    world.sees(ready=1)
    world.advance(2 * A_LITTLE)
    world.sees()
    world.job_is_gone(job)
    world.nothing_for(there)


@cases("result after the ttl")
def test_a_result_is_kept_until_the_ttl(world: TimedWorld, pusher: Dialect, taker: Dialect) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttl=10))
    there.finish(world.take_this(there, job))
    world.advance(10 - A_LITTLE)
    world.between()
    world.succeeded(job)
    world.advance(2 * A_LITTLE)
    world.job_is_gone(job)


@cases("failed until the ttl")
def test_a_job_that_failed_is_forgotten_when_its_ttl_is_over(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(ttl=10, fails=1))
    there.fail(world.take_this(there, job))
    world.advance(10 - A_LITTLE)
    world.between()
    world.job_is(job, "failed", attempts=1, fails=1)
    world.result_is(job, False)
    world.advance(2 * A_LITTLE)
    world.job_is_gone(job)
    world.between()
    world.job_is_gone(job)
    world.sees()
