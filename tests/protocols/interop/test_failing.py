"""Failures: the retry policy travels with the job, whoever takes it."""

from protocols.interop.adapters.base import Adapter, Can, Handle, Options, Taken
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld

Dialect = type[Adapter]


def fail_next(world: TimedWorld, client: Adapter, job: Handle, error: bytes = b"") -> Taken:
    """Take this job, which must be the next, and fail it."""
    taken = world.take_this(client, job)
    client.fail(taken, error)
    return taken


def shows_fails(client: Adapter, taken: Taken, fails: int) -> None:
    assert taken.fails == (fails if Can.SHOW_FAILS in client.can else None)


@cases("retried")
def test_a_failed_job_comes_back_by_the_rules_of_its_pusher(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(fails=3))
    for fails in (1, 2):
        taken = fail_next(world, there, job)
        shows_fails(there, taken, fails - 1)
        world.job_is(job, "waiting", attempts=fails, fails=fails)
        world.between()
        pause = pusher.pause_after_fail(fails)
        if pause:
            world.sees(delayed=1)
            world.advance(pause - 1)
            world.nothing_for(there)
            world.advance(1)
        world.sees(ready=1)
    taken = world.take_this(there, job)
    shows_fails(there, taken, 2)
    there.finish(taken)
    world.between()
    world.sees()
    if pusher.result_outlives_job:
        world.job_is(job, "succeeded", attempts=3, fails=2)
        world.result_is(job, True)
    else:
        world.job_is_gone(job)


@cases("exhausted")
def test_the_last_failure_is_final(world: TimedWorld, pusher: Dialect, taker: Dialect) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(fails=2))
    fail_next(world, there, job)
    world.between()
    world.advance(pusher.pause_after_fail(1))
    waiters = world.result_waiters(job)
    taken = world.take_this(there, job)
    for waiter in waiters:
        waiter.still_waits()
    there.fail(taken)
    world.all_hear(waiters, job, False)
    for _ in range(2):
        world.job_is(job, "failed", attempts=2, fails=2)
        world.result_is(job, False)
        world.sees()
        world.between()
    world.advance(100)
    world.nothing_for(there)


@cases("exhausted")
def test_without_a_word_about_it_the_default_of_the_pusher_holds(
    steady_world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    world = steady_world
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here)
    for fails in range(1, min(pusher.default_fails, 4)):
        fail_next(world, there, job)
        world.job_is(job, "waiting", attempts=fails, fails=fails)
        world.advance(pusher.pause_after_fail(fails))
    if pusher.default_fails < 4:
        fail_next(world, there, job)
        world.job_is(job, "failed", pusher.default_fails, pusher.default_fails)
        world.sees()
    else:
        world.sees(ready=1)


@cases("retried elsewhere")
def test_failures_are_counted_over_all_dialects(
    world: TimedWorld, pusher: Dialect, first: Dialect, second: Dialect
) -> None:
    here, one, other = world.open(pusher), world.open(first), world.open(second)
    job = world.push(here, Options(fails=3))
    for fails, client in enumerate((one, other), 1):
        fail_next(world, client, job)
        world.job_is(job, "waiting", attempts=fails, fails=fails)
        world.between()
        world.advance(pusher.pause_after_fail(fails))
    taken = world.take_this(one, job)
    shows_fails(one, taken, 2)
    one.fail(taken)
    world.job_is(job, "failed", attempts=3, fails=3)
    world.sees()


@cases("error kept")
def test_the_bytes_of_the_last_failure_are_the_result(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(fails=2))
    waiters = world.result_waiters(job)
    fail_next(world, there, job, b"not yet")
    for waiter in waiters:
        waiter.still_waits()
    world.advance(pusher.pause_after_fail(1))
    fail_next(world, there, job, b"never\xff")
    world.all_hear(waiters, job, False, b"never\xff")
    world.between()
    world.result_is(job, False, b"never\xff")


@cases("dead queue")
def test_a_job_that_failed_for_good_is_ready_in_its_dead_queue(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    dead = f"{world.queue}.dead"
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(fails=1, dead_queue=dead))
    waiters = world.result_waiters(job)
    fail_next(world, there, job)
    world.all_hear(waiters, job, False)
    world.between()
    world.sees()
    world.sees(ready=1, queue=dead)
    world.job_is(job, "waiting", attempts=0, fails=0, queue=dead)
    taken = world.take_this(there, job, dead)
    assert taken.queue == dead
    shows_fails(there, taken, 0)
    there.finish(taken)
    world.sees(queue=dead)
    world.job_is_gone(job)


@cases("dead queue")
def test_a_job_that_fails_in_its_dead_queue_too_goes_no_further(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    dead = f"{world.queue}.dead"
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(fails=1, dead_queue=dead))
    fail_next(world, there, job)
    world.between()
    there.fail(world.take_this(there, job, dead))
    world.between()
    world.sees(queue=dead)
    world.job_is(job, "failed", attempts=1, fails=1, queue=dead)


@cases("attempts used up by a fail")
def test_a_failure_is_final_when_the_attempts_are_used_up(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(fails=9, attempts=2))
    fail_next(world, there, job)
    world.between()
    world.job_is(job, "waiting", attempts=1, fails=1)
    fail_next(world, there, job)
    world.job_is(job, "failed", attempts=2, fails=2)
    world.result_is(job, False)
    world.sees()
