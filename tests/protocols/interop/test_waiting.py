"""Those who wait for a job are served by whoever brings one, in the order in which they came."""

from protocols.interop.adapters.base import Adapter, Can, Options
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World

Dialect = type[Adapter]

A_LITTLE = 0.1
LONG = 30.0  # less than Masenko's heartbeat


@cases("served")
def test_a_push_serves_whoever_waits(any_world: World, pusher: Dialect, taker: Dialect) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(taker)
    there.ask(world.queue, LONG)
    there.still_waits()
    job = world.push(here)
    taken = there.arrived()
    world.is_delivery_of(job, taken)
    world.sees(leased=1)
    there.finish(taken)
    world.between()
    world.sees()


@cases("line")
def test_a_mixed_line_is_served_in_its_order(
    any_world: World, pusher: Dialect, first: Dialect, second: Dialect
) -> None:
    world = any_world
    here = world.open(pusher)
    line = [world.open(adapter) for adapter in (first, second, second, first)]
    for client in line:
        client.ask(world.queue, LONG)
        client.still_waits()
    for served, client in enumerate(line, 1):
        job = world.push(here)
        world.is_delivery_of(job, client.arrived())
        for other in line[served:]:
            other.still_waits()
    world.sees(leased=len(line))


@cases("left the line")
def test_who_left_the_line_is_given_nothing(
    world: TimedWorld, pusher: Dialect, first: Dialect, second: Dialect
) -> None:
    here, gone, there = world.open(pusher), world.open(first), world.open(second)
    gone.ask(world.queue, LONG)
    there.ask(world.queue, LONG)
    world.close(gone)
    job = world.push(here)
    taken = there.arrived()
    world.is_delivery_of(job, taken)
    world.job_is(job, "leased", attempts=1, fails=0) if job.uid else world.sees(leased=1)
    there.finish(taken)
    world.between()
    world.sees()


@cases("left the line")
def test_a_place_in_the_line_is_not_kept_by_those_who_gave_up(
    world: TimedWorld, pusher: Dialect, first: Dialect, second: Dialect
) -> None:
    here, one, other = world.open(pusher), world.open(first), world.open(second)
    one.ask(world.queue, 2)
    other.ask(world.queue, LONG)
    world.advance(2 + A_LITTLE)
    one.came_to_nothing()
    one.ask(world.queue, LONG)
    job = world.push(here)
    world.is_delivery_of(job, other.arrived())
    one.still_waits()


@cases("gave up")
def test_who_waited_in_vain_has_taken_nothing(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    there.ask(world.queue, 2)
    world.advance(2 - A_LITTLE)
    there.still_waits()
    world.advance(2 * A_LITTLE)
    there.came_to_nothing()
    job = world.push(here)
    world.sees(ready=1)
    world.between()
    world.take_this(there, job)


@cases("served by a delay")
def test_a_job_whose_time_comes_serves_whoever_waits(
    world: TimedWorld, pusher: Dialect, taker: Dialect
) -> None:
    here, there = world.open(pusher), world.open(taker)
    job = world.push(here, Options(run_at=world.now() + 10))
    world.between()
    there.ask(world.queue, LONG)
    world.advance(10 - A_LITTLE)
    there.still_waits()
    world.advance(2 * A_LITTLE)
    world.is_delivery_of(job, there.arrived())
    world.sees(leased=1)


@cases("served by a fail")
def test_a_job_that_failed_serves_whoever_waits(
    world: TimedWorld, pusher: Dialect, holder: Dialect, taker: Dialect
) -> None:
    here, one, other = world.open(pusher), world.open(holder), world.open(taker)
    job = world.push(here, Options(fails=2))
    world.between()
    taken = world.take_this(one, job)
    other.ask(world.queue, LONG)
    one.fail(taken)
    pause = pusher.pause_after_fail(1)
    if pause:
        other.still_waits()
        world.advance(pause)
    again = other.arrived()
    world.is_delivery_of(job, again)
    assert again.fails == (1 if Can.SHOW_FAILS in taker.can else None)
    world.job_is(job, "leased", attempts=2, fails=1)


@cases("served by a lost lease")
def test_a_job_whose_holder_went_away_serves_whoever_waits(
    world: TimedWorld, pusher: Dialect, holder: Dialect, taker: Dialect
) -> None:
    here, one, other = world.open(pusher), world.open(holder), world.open(taker)
    job = world.push(here)
    world.between()
    world.take_this(one, job)
    other.ask(world.queue, LONG)
    other.still_waits()
    world.close(one)
    if pusher.loss_is_failure:
        other.still_waits()
        world.advance(pusher.pause_after_fail(1))
    world.is_delivery_of(job, other.arrived())
    world.job_is(job, "leased", attempts=2, fails=1 if pusher.loss_is_failure else 0)


@cases("served by the end of a ttr")
def test_a_job_whose_ttr_is_over_serves_whoever_waits(
    world: TimedWorld, pusher: Dialect, holder: Dialect, taker: Dialect
) -> None:
    here, one, other = world.open(pusher), world.open(holder), world.open(taker)
    job = world.push(here, Options(ttr=5))
    world.between()
    world.take_this(one, job)
    other.ask(world.queue, LONG)
    world.advance(5 - A_LITTLE)
    other.still_waits()
    world.advance(2 * A_LITTLE)
    world.is_delivery_of(job, other.arrived())
    world.job_is(job, "leased", attempts=2, fails=0)
    world.sees(leased=1)
