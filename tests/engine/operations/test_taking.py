"""Delivering jobs: fetch, pop, and waiting."""

from collections import Counter

import pytest
from engine.harness import ORIGIN, OWNER, START, Bench

from taskyard.engine.model.events import FetchRequest, InvalidOption
from taskyard.engine.model.job import FOREVER, GONE, LEASED, READY, SECOND, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings


def test_an_empty_queue_gives_nothing(bench: Bench) -> None:
    bench.push("other")
    assert bench.engine.fetch(bench.fetch_request("q", "unknown"), bench.now) is None


def test_queues_are_looked_at_in_the_order_given(bench: Bench) -> None:
    first, second = bench.push("a", priority=0), bench.push("b", priority=9)
    assert bench.take("a", "b") is first
    assert bench.take("a", "b") is second


def test_uniform_means_over_the_queues_that_have_work(bench: Bench) -> None:
    for _ in range(300):
        bench.push("a")
        bench.push("b")
        bench.push("c", run_at=START + SECOND)
    taken: Counter[str] = Counter()
    for _ in range(300):
        job = bench.engine.fetch(
            bench.fetch_request("a", "b", "c", "unknown", uniform=True), bench.now
        )
        assert job is not None
        taken[job.queue.name] += 1
    assert set(taken) == {"a", "b"}
    assert min(taken.values()) > 100


def test_the_same_seed_makes_the_same_choices() -> None:
    def choices(seed: int) -> list[int]:
        bench = Bench(seed=seed)
        for _ in range(20):
            bench.push("a")
            bench.push("b")
        wish = bench.fetch_request("a", "b", uniform=True)
        jobs = [bench.engine.fetch(wish, bench.now) for _ in range(20)]
        return [job.id for job in jobs if job is not None]

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)


def test_a_paused_queue_hands_out_nothing(bench: Bench) -> None:
    bench.push("q")
    other = bench.push("other")
    bench.configure("q", QueueSettings(paused=True))
    assert bench.take("q", "other") is other
    assert bench.engine.fetch(bench.fetch_request("q", uniform=True), bench.now) is None
    assert bench.engine.pop(b"q", False, ORIGIN, bench.now) is None


def test_a_lease_says_who_has_the_job_and_counts_an_attempt(bench: Bench) -> None:
    bench.push()
    job = bench.take(owner=7)
    lease = job.lease
    assert lease is not None
    assert (job.state, job.attempts) == (LEASED, 1)
    assert (lease.owner, lease.holder, lease.since) == (7, "worker-1", bench.now)
    assert (lease.epoch, lease.attempt) == (1, 1)
    assert bench.queue().leases == 1


@pytest.mark.parametrize(
    ("job_ttr", "taker_ttr", "bound", "lasts"),
    [
        (5, 0, False, 5),
        (0, 7, False, 7),
        (5, 7, False, 5),
        (7, 5, False, 5),
        (0, 0, False, 60),  # the configured default
        (0, 0, True, 0),  # until the connection is gone
        (5, 0, True, 5),
        (0, 7, True, 7),
    ],
)
def test_a_lease_lasts_as_long_as_job_and_taker_allow(
    bench: Bench, job_ttr: int, taker_ttr: int, bound: bool, lasts: int
) -> None:
    bench.push(policy=Policy(ttr=job_ttr * SECOND))
    lease = bench.take(bound=bound, ttr=taker_ttr * SECOND).lease
    assert lease is not None
    assert lease.deadline == (START + lasts * SECOND if lasts else 0)


def test_the_longest_time_is_for_ever(bench: Bench) -> None:
    bench.push()
    lease = bench.take(ttr=FOREVER).lease
    assert lease is not None
    assert lease.deadline == FOREVER


def test_a_negative_time_is_refused(bench: Bench) -> None:
    job = bench.push()
    with pytest.raises(InvalidOption):
        bench.take(ttr=-1)
    assert job.state == READY


# Pops


def test_a_pop_takes_either_end_and_finishes(bench: Bench) -> None:
    first, middle, last = bench.push(), bench.push(), bench.push()
    assert bench.engine.pop(b"q", False, ORIGIN, bench.now) is first
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is last
    assert bench.ids() == [middle.id]
    assert bench.engine.recent(first.id) is first
    assert bench.queue().finished == 2


def test_the_last_of_the_delivery_order_has_the_lowest_priority(bench: Bench) -> None:
    low, high = bench.push(priority=-1), bench.push(priority=1)
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is low
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is high
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is None


def test_a_pop_is_no_attempt(bench: Bench) -> None:
    job = bench.push()
    assert bench.engine.fetch(bench.fetch_request(pop=True), bench.now) is job
    assert job.attempts == 0


# Waiting


def test_a_waiter_gets_the_job_that_comes(bench: Bench) -> None:
    waiter = bench.wait("a", "b")
    job = bench.push("b")
    assert bench.effects() == [("assigned", waiter.number, job.id)]
    assert job.state == LEASED
    assert bench.engine.waiters == {}
    assert not waiter.waiting


def test_waiters_are_served_in_order_of_arrival(bench: Bench) -> None:
    first, second = bench.wait("a", "b"), bench.wait("b")
    one, two = bench.push("b"), bench.push("b")
    assert bench.effects() == [
        ("assigned", first.number, one.id),
        ("assigned", second.number, two.id),
    ]


def test_one_job_goes_to_one_waiter(bench: Bench) -> None:
    bench.wait()
    second = bench.wait()
    bench.push()
    assert len(bench.effects()) == 1
    assert second.waiting


def test_each_waiter_takes_on_its_own_terms(bench: Bench) -> None:
    bench.wait(owner=5, bound=True)
    bench.wait(pop=True)
    leased, popped = bench.push(), bench.push()
    assert leased.lease is not None
    assert (leased.lease.owner, leased.lease.bound) == (5, True)
    assert bench.engine.recent(popped.id) is popped


def test_a_waiter_gives_up_when_its_time_is_over(bench: Bench) -> None:
    waiter = bench.wait(seconds=5)
    bench.advance_clock(5 * SECOND - 1)
    assert bench.effects() == []
    bench.advance_clock(1)
    assert bench.effects() == [("gave up", waiter.number)]
    job = bench.push()
    assert job.state == READY


def test_who_stops_waiting_is_given_nothing(bench: Bench) -> None:
    gone, there = bench.wait("a", "b"), bench.wait("b")
    bench.engine.stop_waiting(gone)
    bench.engine.stop_waiting(gone)
    job = bench.push("b")
    bench.push("a")
    assert bench.effects() == [("assigned", there.number, job.id)]
    bench.advance_clock(60 * SECOND)
    assert bench.effects() == []


def test_naming_a_queue_twice_is_waiting_once(bench: Bench) -> None:
    waiter = bench.wait("q", "q")
    first, second = bench.push(), bench.push()
    assert bench.effects() == [("assigned", waiter.number, first.id)]
    assert second.state == READY


def test_nobody_is_served_while_the_queue_is_paused(bench: Bench) -> None:
    bench.push()
    bench.take()
    bench.configure("q", QueueSettings(paused=True))
    waiter = bench.wait()
    job = bench.push()
    assert bench.effects() == []
    bench.configure("q", QueueSettings())
    assert bench.effects() == [("assigned", waiter.number, job.id)]


def test_a_waiter_gets_a_job_that_wakes_comes_back_or_is_released(bench: Bench) -> None:
    delayed = bench.push(run_at=START + SECOND)
    returned = bench.push()
    bench.take(owner=9)
    blocker = bench.push("other")
    blocked = bench.push(blocked_by=[blocker.id])
    waiters = [bench.wait() for _ in range(3)]
    bench.engine.release_lease(returned.id, 9, ORIGIN, bench.now)
    bench.advance_clock(SECOND)
    bench.engine.pop(b"other", False, ORIGIN, bench.now)
    numbers = [waiter.number for waiter in waiters]
    assert bench.effects() == [
        ("assigned", numbers[0], returned.id),
        ("assigned", numbers[1], delayed.id),
        ("assigned", numbers[2], blocked.id),
    ]


def test_the_default_time_to_run_is_a_setting() -> None:
    bench = Bench(EngineSettings(default_ttr=3 * SECOND))
    bench.push()
    lease = bench.take().lease
    assert lease is not None
    assert lease.deadline == START + 3 * SECOND


# From the end, and into another queue


def test_a_take_of_the_last_leases_the_end_of_the_delivery_order(bench: Bench) -> None:
    low, high = bench.push(priority=-1), bench.push(priority=1)
    plain = bench.push()
    taken = [bench.engine.fetch(last_of("q"), bench.now) for _ in range(4)]
    assert taken == [low, plain, high, None]
    assert {job.state for job in (low, plain, high)} == {LEASED}


def test_a_pop_of_the_last_looks_at_queues_in_their_order(bench: Bench) -> None:
    bench.push("a")
    second, other = bench.push("a"), bench.push("b")
    wish = FetchRequest([b"none", b"a", b"b"], OWNER, ORIGIN, pop=True, last=True)
    assert bench.engine.fetch(wish, bench.now) is second
    assert bench.ids("b") == [other.id]


def last_of(queue: str) -> FetchRequest:
    return FetchRequest([queue.encode()], OWNER, ORIGIN, last=True)


def moving(source: str, to: str, *, last: bool = False, front: bool = False) -> FetchRequest:
    return FetchRequest([source.encode()], OWNER, ORIGIN, last=last, move_to=to, front=front)


@pytest.mark.parametrize(
    ("last", "front", "source", "target"),
    [
        (False, False, [2, 3], [4, 5, 1]),
        (False, True, [2, 3], [1, 4, 5]),
        (True, False, [1, 2], [4, 5, 3]),
        (True, True, [1, 2], [3, 4, 5]),
    ],
)
def test_a_take_may_move_a_job_to_either_end_of_another_queue(
    bench: Bench, last: bool, front: bool, source: list[int], target: list[int]
) -> None:
    for queue in ("a", "a", "a", "b", "b"):
        bench.push(queue)
    job = bench.engine.fetch(moving("a", "b", last=last, front=front), bench.now)
    assert job is not None
    assert (job.state, job.attempts, job.lease, job.queue.name) == (READY, 0, None, "b")
    assert (bench.ids("a"), bench.ids("b")) == (source, target)
    bench.restart()
    assert (bench.ids("a"), bench.ids("b")) == (source, target)


def test_a_queue_may_be_turned_round_by_moves(bench: Bench) -> None:
    ids = [bench.push().id for _ in range(3)]
    bench.engine.fetch(moving("q", "q"), bench.now)
    assert bench.ids() == [ids[1], ids[2], ids[0]]
    bench.engine.fetch(moving("q", "q", last=True, front=True), bench.now)
    assert bench.ids() == ids


def test_a_moved_job_keeps_what_it_is(bench: Bench) -> None:
    job = bench.push("a", b"body", Policy(max_fails=3), name="n", priority=4, uid=b"u" * 16)
    assert bench.engine.fetch(moving("a", "b"), bench.now) is job
    assert (job.name, job.priority, job.policy.max_fails) == ("n", 4, 3)
    assert bench.engine.uid_of(job) == b"u" * 16
    assert bench.read(job.payload_at, job.payload_size) == b"body"


def test_a_moved_job_goes_to_who_waits_at_the_other_queue(bench: Bench) -> None:
    waiter = bench.wait("b")
    job = bench.push("a")
    bench.engine.fetch(moving("a", "b"), bench.now)
    assert bench.effects() == [("assigned", waiter.number, job.id)]
    assert job.state == LEASED


def test_who_waits_to_move_moves_what_comes(bench: Bench) -> None:
    mover = bench.engine.wait_for_job(moving("a", "b", front=True), bench.now + SECOND)
    there = bench.push("b")
    job = bench.push("a")
    assert bench.effects() == [("assigned", mover.number, job.id)]
    assert bench.ids("b") == [job.id, there.id]


def test_moves_may_go_round_through_those_who_wait(bench: Bench) -> None:
    one = bench.engine.wait_for_job(moving("a", "b"), bench.now + SECOND)
    two = bench.engine.wait_for_job(moving("b", "a"), bench.now + SECOND)
    job = bench.push("a")
    assert sorted(bench.effects()) == sorted(
        [("assigned", one.number, job.id), ("assigned", two.number, job.id)]
    )
    assert (bench.ids("a"), bench.ids("b")) == ([job.id], [])


def test_a_pop_that_waits_behind_a_move_releases_dependents(bench: Bench) -> None:
    bench.wait("b", pop=True)
    blocker = bench.push("a")
    blocked = bench.push("c", blocked_by=[blocker.id])
    bench.engine.fetch(moving("a", "b"), bench.now)
    assert (blocker.state, blocked.state) == (GONE, READY)


@pytest.mark.parametrize("name", ["a b", "\n", "x" * 256])
def test_a_job_is_moved_to_a_queue_with_a_name(bench: Bench, name: str) -> None:
    job = bench.push("a")
    with pytest.raises(InvalidOption):
        bench.engine.fetch(moving("a", name), bench.now)
    with pytest.raises(InvalidOption):
        bench.engine.wait_for_job(moving("other", name), bench.now + SECOND)
    assert (job.state, job.queue.name) == (READY, "a")
    assert bench.engine.waiters == {}


def test_nothing_is_moved_out_of_a_paused_queue(bench: Bench) -> None:
    bench.push("a")
    bench.configure("a", QueueSettings(paused=True))
    assert bench.engine.fetch(moving("a", "b"), bench.now) is None
    assert bench.engine.queue(b"b") is None
