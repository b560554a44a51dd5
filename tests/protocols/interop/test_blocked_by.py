"""Jobs that wait for jobs of other protocols: released, or failed with them."""

from protocols.interop.adapters.base import Adapter, Can, Options
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World, able

Dialect = type[Adapter]

A_LITTLE = 0.1


def behind(*numbers: int, dead: str | None = None) -> Options:
    return Options(blocked_by=numbers, dead_queue=dead)


@cases("released")
def test_a_job_is_released_when_the_one_before_it_is_done(
    any_world: World, blocker: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    then = f"{world.queue}.then"
    one, other, there = world.open(blocker), world.open(pusher), world.open(taker)
    first = world.push(one)
    second = world.push(other, behind(first.number), then)
    world.sees(delayed=1, queue=then)
    world.between()
    world.nothing_for(there, then)
    there.finish(world.take_this(there, first))
    world.between()
    world.sees(ready=1, queue=then)
    there.finish(world.take_this(there, second, then))
    world.sees(queue=then)


@cases("released by uid")
def test_a_job_is_released_by_whoever_finishes_the_one_before_it(
    any_world: World, blocker: Dialect, pusher: Dialect, other: Dialect
) -> None:
    world = any_world
    then = f"{world.queue}.then"
    one, two, third = world.open(blocker), world.open(pusher), world.open(other)
    first = world.push(one)
    world.push(two, behind(first.number), then)
    world.between()
    third.finish_any(first, b"done")
    world.sees(ready=1, queue=then)


@cases("still blocked")
def test_a_job_stays_blocked_while_the_one_before_it_is_retried(
    world: TimedWorld, blocker: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    then = f"{world.queue}.then"
    one, other, there = world.open(blocker), world.open(pusher), world.open(taker)
    first = world.push(one, Options(fails=2))
    second = world.push(other, behind(first.number), then)
    there.fail(world.take_this(there, first))
    world.between()
    world.sees(delayed=1, queue=then)
    world.advance(blocker.pause_after_fail(1))
    taken = world.take_this(there, first)
    world.nothing_for(there, then)
    there.finish(taken)
    world.take_this(there, second, then)


@cases("blocker failed")
def test_a_job_fails_with_the_one_before_it(
    world: TimedWorld, blocker: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    then, dead = f"{world.queue}.then", f"{world.queue}.dead"
    one, other, there = world.open(blocker), world.open(pusher), world.open(taker)
    first = world.push(one, Options(fails=1))
    second = world.push(other, behind(first.number, dead=dead), then)
    third = world.push(other, behind(first.number), then)
    world.sees(delayed=2, queue=then)
    world.between()
    waiters = world.result_waiters(third)
    there.fail(world.take_this(there, first))
    world.all_hear(waiters, third, False)
    world.between()
    world.job_is(third, "failed", attempts=0, fails=0)
    world.sees(queue=then)
    world.sees(ready=1, queue=dead)
    there.finish(world.take_this(there, second, dead))
    world.sees(queue=dead)


@cases("blocker deleted")
def test_a_job_fails_when_the_one_before_it_is_deleted(
    any_world: World, blocker: Dialect, pusher: Dialect, other: Dialect
) -> None:
    world = any_world
    then, dead = f"{world.queue}.then", f"{world.queue}.dead"
    one, two, third = world.open(blocker), world.open(pusher), world.open(other)
    first = world.push(one)
    second = world.push(two, behind(first.number, dead=dead), then)
    world.between()
    third.delete(first)
    world.between()
    world.sees()
    world.sees(queue=then)
    world.sees(ready=1, queue=dead)
    world.take_this(world.open(able(Can.TAKE)[0]), second, dead)


@cases("blocker expired")
def test_a_job_fails_when_the_ttl_of_the_one_before_it_is_over(
    world: TimedWorld, blocker: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    then, dead = f"{world.queue}.then", f"{world.queue}.dead"
    one, other, there = world.open(blocker), world.open(pusher), world.open(taker)
    first = world.push(one, Options(ttl=10))
    second = world.push(other, behind(first.number, dead=dead), then)
    world.between()
    world.advance(10 - A_LITTLE)
    world.sees(delayed=1, queue=then)
    world.advance(2 * A_LITTLE)
    world.sees(queue=then)
    world.sees(ready=1, queue=dead)
    world.between()
    world.take_this(there, second, dead)


@cases("blockers of many dialects")
def test_a_job_waits_for_the_last_of_those_before_it(
    any_world: World, first: Dialect, second: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    then = f"{world.queue}.then"
    one, other, last = world.open(first), world.open(second), world.open(pusher)
    there = world.open(taker)
    before = [world.push(one), world.push(other)]
    job = world.push(last, behind(*(handle.number for handle in before)), then)
    for handle in before:
        world.sees(delayed=1, queue=then)
        world.nothing_for(there, then)
        there.finish(world.take_this(there, handle))
        world.between()
    world.sees(ready=1, queue=then)
    world.take_this(there, job, then)


@cases("blocked in a chain")
def test_a_failure_goes_through_all_levels(
    world: TimedWorld, blocker: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    then, dead = f"{world.queue}.then", f"{world.queue}.dead"
    one, other, there = world.open(blocker), world.open(pusher), world.open(taker)
    first = world.push(one, Options(fails=1))
    chain = [first]
    for _ in range(3):
        chain.append(world.push(other, behind(chain[-1].number, dead=dead), then))
    world.between()
    there.fail(world.take_this(there, first))
    world.between()
    world.sees(queue=then)
    world.sees(ready=3, queue=dead)
    for job in chain[1:]:
        world.take_this(there, job, dead)
    world.nothing_for(there, dead)


@cases("released")
def test_a_finished_job_does_not_block(
    any_world: World, blocker: Dialect, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    one, other, there = world.open(blocker), world.open(pusher), world.open(taker)
    first = world.push(one)
    there.finish(world.take_this(there, first))
    world.between()
    second = world.push(other, behind(first.number))
    world.sees(ready=1)
    world.take_this(there, second)


@cases("ended while blocked")
def test_a_job_that_is_finished_while_it_is_blocked_releases_those_behind_it(
    any_world: World, blocker: Dialect, pusher: Dialect, other: Dialect, taker: Dialect
) -> None:
    world = any_world
    then = f"{world.queue}.then"
    one, two, third, there = (world.open(role) for role in (blocker, pusher, other, taker))
    first = world.push(one)
    second = world.push(two, behind(first.number), then)
    last = world.push(two, behind(second.number), then)
    world.between()
    waiters = world.result_waiters(second)
    third.finish_any(second, b"done by hand")
    world.all_hear(waiters, second, True, b"done by hand")
    world.between()
    world.sees(ready=1)
    world.sees(ready=1, queue=then)
    there.finish(world.take_this(there, last, then))
    there.finish(world.take_this(there, first))
    world.sees(queue=then)


@cases("ended while blocked")
def test_a_job_that_is_deleted_while_it_is_blocked_is_not_released_any_more(
    any_world: World, blocker: Dialect, pusher: Dialect, other: Dialect, taker: Dialect
) -> None:
    world = any_world
    then = f"{world.queue}.then"
    one, two, third, there = (world.open(role) for role in (blocker, pusher, other, taker))
    first = world.push(one)
    second = world.push(two, behind(first.number), then)
    world.between()
    third.delete(second)
    world.sees(queue=then)
    there.finish(world.take_this(there, first))
    world.between()
    world.sees(queue=then)
    world.job_is_gone(second)
