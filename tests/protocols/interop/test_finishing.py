"""Push in one protocol, take and finish in another, and look from everywhere."""

from itertools import cycle, islice

import pytest
from protocols.interop.adapters.base import Adapter, AlreadyEnded, Can, NotFound, NotHeld, Options
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World, able

Dialect = type[Adapter]


def refusal(pusher: Dialect, holder: Dialect) -> type[Exception]:
    """What a holder hears whose job has been ended by somebody else."""
    if Can.FINISH_ANY not in holder.can:
        return NotHeld
    return AlreadyEnded if pusher.result_outlives_job else NotFound


def nothing_for_any(world: World) -> None:
    """Whoever comes to take a job, there is none."""
    for adapter in able(Can.TAKE):
        with world.visit(adapter) as visitor:
            world.nothing_for(visitor)


@cases("done")
def test_a_job_is_taken_and_finished(any_world: World, pusher: Dialect, taker: Dialect) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    world.sees(ready=1)
    world.job_is(job, "waiting", attempts=0, fails=0)
    world.between()
    taken = world.take_this(there, job)
    world.sees(leased=1)
    world.job_is(job, "leased", attempts=1, fails=0)
    nothing_for_any(world)
    there.finish(taken)
    world.sees()
    world.succeeded(job)
    world.between()
    world.sees()
    world.succeeded(job)
    world.nothing_for(there)
    nothing_for_any(world)


@cases("shown")
def test_queue_and_name_are_shown_as_far_as_the_dialect_has_them(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(name="resize"))
    world.between()
    taken = world.take_this(there, job)
    assert taken.queue == world.queue
    assert taken.name == ("resize" if Can.NAME in taker.can else world.queue)


@cases("done")
def test_the_name_of_a_job_that_was_given_none_is_its_queue(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    world.between()
    taken = world.take_this(there, job)
    assert taken.queue == taken.name == world.queue


@cases("done with a result")
def test_a_result_is_kept_or_goes_to_those_who_wait(
    any_world: World, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    world.between()
    waiters = world.result_waiters(job)
    taken = world.take_this(there, job)
    there.finish(taken, b"\x00 42\r\n")
    world.all_hear(waiters, job, True, b"\x00 42\r\n")
    world.succeeded(job, b"\x00 42\r\n")
    world.between()
    world.succeeded(job, b"\x00 42\r\n")


@cases("waited for")
def test_those_who_wait_for_a_result_hear_of_the_success(
    any_world: World, pusher: Dialect, taker: Dialect
) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    waiters = world.result_waiters(job) + world.result_waiters(job)
    taken = world.take_this(there, job)
    for waiter in waiters:
        waiter.still_waits()
    there.finish(taken)
    world.all_hear(waiters, job, True)


@cases("many")
def test_a_queue_of_many_is_worked_off_in_order_over_interruptions(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    jobs = [world.push(here) for _ in range(12)]
    for left, job in enumerate(jobs, -len(jobs)):
        world.between()
        world.sees(ready=-left)
        there.finish(world.take_this(there, job))
    world.between()
    world.sees()
    for job in jobs:
        world.succeeded(job)


@cases("ended by another")
def test_finishing_by_uid_ends_the_lease_of_whoever_holds_the_job(
    any_world: World, pusher: Dialect, holder: Dialect, other: Dialect
) -> None:
    world = any_world
    here, there, third = world.open(pusher), world.open(holder), world.open(other)
    job = world.push(here)
    world.between()
    taken = world.take_this(there, job)
    waiters = world.result_waiters(job)
    third.finish_any(job, b"done elsewhere")
    world.all_hear(waiters, job, True, b"done elsewhere")
    world.sees()
    with pytest.raises(refusal(pusher, holder)):
        there.finish(taken)
    if Can.FAIL in holder.can:
        with pytest.raises(refusal(pusher, holder)):
            there.fail(taken)
    world.succeeded(job, b"done elsewhere")
    world.nothing_for(there)


@cases("failed by another")
def test_failing_by_uid_ends_the_lease_of_whoever_holds_the_job(
    world: TimedWorld, pusher: Dialect, holder: Dialect, other: Dialect
) -> None:
    here, there, third = world.open(pusher), world.open(holder), world.open(other)
    job = world.push(here, Options(fails=2))
    taken = world.take_this(there, job)
    third.fail_any(job, b"broken")
    world.job_is(job, "waiting", attempts=1, fails=1)
    pause = pusher.pause_after_fail(1)
    world.sees(delayed=1) if pause else world.sees(ready=1)
    if Can.FINISH_ANY not in holder.can:
        with pytest.raises(NotHeld):
            there.finish(taken)
        with pytest.raises(NotHeld):
            there.fail(taken)
    world.between()
    world.advance(pause)
    there.finish(world.take_this(there, job))
    world.sees()


@cases("deleted by another")
def test_a_job_that_is_deleted_while_it_is_held_is_gone_for_everybody(
    any_world: World, pusher: Dialect, holder: Dialect, other: Dialect
) -> None:
    world = any_world
    here, there, third = world.open(pusher), world.open(holder), world.open(other)
    job = world.push(here)
    world.between()
    taken = world.take_this(there, job)
    waiters = world.result_waiters(job)
    third.delete(job)
    for waiter in waiters:
        with pytest.raises(NotFound):
            waiter.result()
    with pytest.raises(NotFound if Can.FINISH_ANY in holder.can else NotHeld):
        there.finish(taken)
    with pytest.raises(NotFound):
        third.delete(job)
    world.job_is_gone(job)
    world.sees()
    world.between()
    world.job_is_gone(job)
    world.nothing_for(there)


@cases("finished unheld")
def test_a_job_that_nobody_holds_can_be_finished_by_uid(
    any_world: World, pusher: Dialect, other: Dialect
) -> None:
    world = any_world
    here, third = world.open(pusher), world.open(other)
    job = world.push(here)
    world.between()
    third.finish_any(job, b"no need")
    world.sees()
    world.succeeded(job, b"no need", attempts=0)
    world.between()
    world.nothing_for(third)
    nothing_for_any(world)


@cases("finished before its time")
def test_a_delayed_job_can_be_finished_by_uid(
    world: TimedWorld, pusher: Dialect, other: Dialect
) -> None:
    here, third = world.open(pusher), world.open(other)
    job = world.push(here, Options(run_at=world.now() + 10))
    world.between()
    third.finish_any(job, b"no need")
    world.sees()
    world.succeeded(job, b"no need", attempts=0)
    world.between()
    world.advance(11)
    world.sees()
    world.nothing_for(third)


@cases("failed before its time")
def test_a_failure_does_not_bring_a_delayed_job_sooner(
    world: TimedWorld, pusher: Dialect, other: Dialect, taker: Dialect
) -> None:
    here, third, there = world.open(pusher), world.open(other), world.open(taker)
    due = world.now() + 10
    job = world.push(here, Options(run_at=due, fails=2))
    world.between()
    third.fail_any(job, b"in advance")
    world.between()
    world.job_is(job, "waiting", attempts=0, fails=1)
    world.advance(due - 0.1 - world.now())
    world.sees(delayed=1)
    world.nothing_for(there)
    world.advance(0.2)
    world.sees(ready=1)
    world.take_this(there, job)


@cases("second result")
def test_the_first_result_wins(
    any_world: World, pusher: Dialect, taker: Dialect, other: Dialect
) -> None:
    world = any_world
    here, there, third = world.open(pusher), world.open(taker), world.open(other)
    job = world.push(here)
    there.finish(world.take_this(there, job))
    world.between()
    for end in (third.finish_any, third.fail_any):
        with pytest.raises(refusal(pusher, other)):
            end(job, b"too late")
    world.succeeded(job)
    world.sees()


def test_jobs_of_all_dialects_share_one_queue(any_world: World) -> None:
    world = any_world
    jobs = [world.push(world.open(adapter)) for adapter in able(Can.PUSH)]
    world.between()
    world.sees(ready=len(jobs))
    adapters = list(islice(cycle(reversed(able(Can.TAKE))), len(jobs)))
    takers = [world.open(adapter) for adapter in adapters]
    taken = [world.take_this(taker, job) for taker, job in zip(takers, jobs, strict=True)]
    world.sees(leased=len(jobs))
    for taker, delivery in zip(takers, taken, strict=True):
        taker.finish(delivery)
    world.sees()
