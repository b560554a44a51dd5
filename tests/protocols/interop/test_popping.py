"""Pops: what was handed over is finished, whoever pushed it and whoever else wanted it."""

import pytest
from protocols.interop.adapters.base import Adapter, Can, Options, Taken
from protocols.interop.adapters.pqueue import QUEUE, PqueueClient
from protocols.interop.cases import cases
from protocols.interop.world import TimedWorld, World, able
from support.simulated import SimulatedServer

Dialect = type[Adapter]

NO_LEASE = 0  # a pop is none, so that it counts as no attempt
LONG = 30.0  # less than Masenko's heartbeat


@cases("popped")
def test_a_job_that_was_popped_is_done(any_world: World, pusher: Dialect, popper: Dialect) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(popper)
    job = world.push(here)
    waiters = world.result_waiters(job)
    world.take_this(there, job)
    world.all_hear(waiters, job, True)
    world.sees()
    world.succeeded(job, attempts=NO_LEASE)
    for waiter in waiters:
        world.close(waiter)
    world.between()
    world.sees()
    world.succeeded(job, attempts=NO_LEASE)
    world.nothing_for(there)


@cases("popped")
def test_a_job_that_was_popped_outlives_nobodys_connection(
    world: TimedWorld, pusher: Dialect, popper: Dialect
) -> None:
    here, there = world.open(pusher), world.open(popper)
    job, behind = world.push(here), world.push(here)
    world.take_this(there, job)
    world.close(there)
    world.between()
    world.sees(ready=1)
    world.take_this(world.open(popper), behind)
    world.sees()


@cases("popped by one who waits")
def test_a_push_serves_who_waits_to_pop(any_world: World, pusher: Dialect, popper: Dialect) -> None:
    world = any_world
    here, there = world.open(pusher), world.open(popper)
    there.ask(world.queue, LONG)
    there.still_waits()
    job = world.push(here, goes_at_once=True)
    world.is_delivery_of(job, there.arrived())
    world.between()
    world.sees()


@cases("popped in line")
def test_takers_and_poppers_stand_in_one_line(
    any_world: World, pusher: Dialect, taker: Dialect, popper: Dialect
) -> None:
    world = any_world
    here = world.open(pusher)
    line = [world.open(adapter) for adapter in (popper, taker, taker, popper)]
    for client in line:
        client.ask(world.queue, LONG)
        client.still_waits()
    for client in line:
        job = world.push(here, goes_at_once=True)
        world.is_delivery_of(job, client.arrived())
    world.sees(leased=2)


@cases("popped in order")
def test_pops_come_in_the_order_of_arrival(
    any_world: World, first: Dialect, second: Dialect, popper: Dialect
) -> None:
    world = any_world
    one, other, there = world.open(first), world.open(second), world.open(popper)
    jobs = [world.push(client) for client in (one, other, other, one)]
    world.between()
    for job in jobs:
        world.take_this(there, job)
    world.sees()


@cases("popped by priority")
def test_pops_heed_priorities(
    any_world: World, pusher: Dialect, plain: Dialect, popper: Dialect
) -> None:
    world = any_world
    here, other, there = world.open(pusher), world.open(plain), world.open(popper)
    low = world.push(here, Options(priority=-5))
    zero = world.push(other)
    high = world.push(here, Options(priority=10))
    world.between()
    for job in (high, zero, low):
        world.take_this(there, job)


@cases("popped for others")
def test_a_pop_releases_those_who_waited_for_the_job(
    any_world: World, blocker: Dialect, pusher: Dialect, popper: Dialect
) -> None:
    world = any_world
    here, other, there = world.open(blocker), world.open(pusher), world.open(popper)
    first = world.push(here)
    then = world.queue + "-then"
    second = world.push(other, Options(blocked_by=(first.number,)), queue=then)
    world.between()
    world.take_this(there, first)
    world.take_this(there, second, then)
    world.sees()
    world.sees(queue=then)


# Items with scores, which are in a queue of their own


@pytest.mark.parametrize("taker", able(Can.TAKE), ids=lambda adapter: adapter.dialect)
def test_an_item_is_a_job_to_others(taker: Dialect) -> None:
    yard = SimulatedServer()
    world, items = TimedWorld(yard), PqueueClient(yard.connect)
    assert items.update(b'{"number":1}', 5) == 5
    assert items.update(b'{"number":2}', 7) == 7
    there = world.open(taker)
    taken = world.take(there, QUEUE)
    assert taken.payload == b'{"number":2}'
    assert items.score(b'{"number":2}') is None
    assert items.update(b'{"number":2}', 1) == 1
    there.finish(taken)
    assert items.score(b'{"number":2}') == 1
    assert [items.next(), items.next(), items.next()] == [
        Taken(QUEUE, b'{"number":1}'),
        Taken(QUEUE, b'{"number":2}'),
        None,
    ]


@pytest.mark.parametrize("pusher", able(Can.PUSH), ids=lambda adapter: adapter.dialect)
def test_a_job_among_items_leaves_by_its_priority_and_is_no_item(pusher: Dialect) -> None:
    yard = SimulatedServer()
    world, items = TimedWorld(yard), PqueueClient(yard.connect)
    job = world.push(world.open(pusher), queue=QUEUE)
    assert items.update(b"high", 1) == 1
    assert items.update(b"low", -1) == -1
    assert items.score(job.payload) is None
    left = [items.next() for _ in range(4)]
    assert [taken and taken.payload for taken in left] == [b"high", job.payload, b"low", None]
    world.succeeded(job, attempts=NO_LEASE)
