"""Rates and numbers of leases: what is held back, what comes when, and what frees a place."""

from typing import Any

import pytest
from engine.harness import ORIGIN, OWNER, START, Bench
from support.batches import ack_all, lease_all

from taskyard.engine.model.events import FetchRequest, InvalidOption
from taskyard.engine.model.job import LEASED, SECOND, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings

BRIEF = Policy(ttr=2 * SECOND, max_fails=-1)


def limited(**settings: Any) -> Bench:
    bench = Bench()
    bench.engine.create_queue("q", QueueSettings(**settings), ORIGIN, bench.now)
    return bench


def fill(bench: Bench, count: int, key: bytes | None = None) -> list[int]:
    return [bench.push(limit_key=key).id for _ in range(count)]


def take_all(bench: Bench) -> list[int]:
    found = []
    while (job := bench.try_to_take()) is not None:
        found.append(job.id)
    return found


# How many at once


def test_no_more_are_leased_than_may_be() -> None:
    bench = limited(concurrency=2)
    ids = fill(bench, 3)
    assert take_all(bench) == ids[:2]
    bench.engine.ack(ids[0], OWNER, ORIGIN, bench.now)
    assert take_all(bench) == ids[2:]


def test_a_lease_that_runs_out_frees_its_place() -> None:
    bench = limited(concurrency=1)
    first, _ = bench.push(policy=BRIEF), bench.push(policy=BRIEF)
    bench.take()
    assert bench.try_to_take() is None
    waiter = bench.wait(owner=2)
    bench.advance_clock(2 * SECOND)
    assert bench.effects() == [("assigned", waiter.number, first.id)]


def test_a_worker_that_is_gone_frees_its_places() -> None:
    bench = limited(concurrency=2)
    ids = fill(bench, 3)
    for _ in range(2):
        bench.take(owner=7, bound=True)
    waiters = [bench.wait(owner=8), bench.wait(owner=9)]
    bench.engine.disconnect(7, ORIGIN, bench.now)
    assert bench.effects() == [
        ("assigned", waiter.number, id) for waiter, id in zip(waiters, ids[:2], strict=True)
    ]
    assert bench.ids(state=LEASED) == ids[:2]


@pytest.mark.parametrize("end", ["ack", "nack", "delete", "complete", "give_back"])
def test_those_in_line_are_served_when_a_lease_ends(end: str) -> None:
    bench = limited(concurrency=1)
    first, second = fill(bench, 2)
    bench.take()
    waiter = bench.wait(owner=2)
    assert bench.effects() == []
    engine, now = bench.engine, bench.now
    if end == "ack":
        engine.ack(first, OWNER, ORIGIN, now)
    elif end == "nack":
        engine.nack(first, OWNER, b"", ORIGIN, now, SECOND)
    elif end == "delete":
        engine.delete_job(first, ORIGIN, now)
    elif end == "complete":
        engine.complete(first, b"", ORIGIN, now)
    else:
        engine.release_lease(first, OWNER, ORIGIN, now)
        second = first  # it is before the others again
    assert bench.effects() == [("assigned", waiter.number, second)]


def test_who_pops_holds_no_place() -> None:
    bench = limited(concurrency=1)
    ids = fill(bench, 3)
    bench.take()
    popped = bench.engine.pop(b"q", False, ORIGIN, bench.now)
    assert popped is not None
    assert popped.id == ids[1]


def test_a_fetch_from_several_queues_passes_by_a_full_one() -> None:
    bench = limited(concurrency=1)
    fill(bench, 2)
    bench.take()
    other = bench.push("other")
    assert bench.take("q", "other") is other


def test_a_draw_among_queues_passes_by_a_full_one() -> None:
    bench = limited(concurrency=1)
    fill(bench, 2)
    bench.take()
    other = bench.push("other")
    wish = bench.fetch_request("q", "other", uniform=True)
    assert bench.engine.fetch(wish, bench.now) is other


# How fast


def test_a_burst_may_start_and_then_one_at_a_time() -> None:
    bench = limited(rate_count=4, rate_period=SECOND)
    fill(bench, 10)
    assert len(take_all(bench)) == 4
    starts = []
    for _ in range(100):
        bench.advance_clock(10_000)
        starts += [bench.now - START] * len(take_all(bench))
    assert starts == [250_000, 500_000, 750_000, 1_000_000]


def test_after_a_rest_the_burst_is_there_again_and_no_more() -> None:
    bench = limited(rate_count=3, rate_period=SECOND)
    fill(bench, 20)
    assert len(take_all(bench)) == 3
    bench.advance_clock(60 * SECOND)
    assert len(take_all(bench)) == 3


def test_those_in_line_get_their_jobs_when_the_rate_allows_it() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    ids = fill(bench, 3)
    assert take_all(bench) == ids[:1]
    waiters = [bench.wait(owner=owner, seconds=10) for owner in (2, 3)]
    bench.advance_clock(SECOND - 1)
    assert bench.effects() == []
    bench.advance_clock(1)
    assert bench.effects() == [("assigned", waiters[0].number, ids[1])]
    bench.advance_clock(SECOND)
    assert bench.effects() == [("assigned", waiters[1].number, ids[2])]


def test_pops_count_and_wait() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    fill(bench, 2)
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is not None
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is None
    assert bench.try_to_take() is None
    bench.advance_clock(SECOND)
    assert bench.try_to_take() is not None


def test_a_job_that_comes_back_counts_again_when_it_is_started() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    job = bench.push()
    bench.take()
    bench.engine.release_lease(job.id, OWNER, ORIGIN, bench.now)
    assert bench.try_to_take() is None
    bench.advance_clock(SECOND)
    assert bench.try_to_take() is job


def test_a_move_is_no_start() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    fill(bench, 3)
    bench.take()
    take = FetchRequest([b"q"], OWNER, ORIGIN, move_to="other")
    assert bench.engine.fetch(take, bench.now) is not None


@pytest.mark.parametrize(
    ("count", "period"), [(3, SECOND), (7, 1_300_000), (60, SECOND), (1, 60 * SECOND)]
)
def test_no_window_has_more_starts_than_rate_and_burst(count: int, period: int) -> None:
    bench = limited(rate_count=count, rate_period=period)
    fill(bench, 4 * count + 8)
    starts: list[int] = []
    step = max(1, period // count // 3)
    for _ in range(12 * count + 12):
        starts += [bench.now] * len(take_all(bench))
        bench.advance_clock(step)
    assert len(starts) > 3 * count
    for at, first in enumerate(starts):
        for behind in range(at, len(starts)):
            window = starts[behind] - first
            assert behind - at + 1 <= count + window * count / period + 1e-6


def test_the_rate_holds_over_a_restart() -> None:
    bench = limited(rate_count=2, rate_period=10 * SECOND)
    fill(bench, 5)
    assert len(take_all(bench)) == 2
    bench.restart()
    assert take_all(bench) == []
    bench.advance_clock(5 * SECOND)
    assert len(take_all(bench)) == 1


def test_another_rate_begins_anew() -> None:
    bench = limited(rate_count=1, rate_period=86_400 * SECOND)
    fill(bench, 3)
    assert len(take_all(bench)) == 1
    bench.configure(settings=QueueSettings(rate_count=1, rate_period=SECOND))
    assert len(take_all(bench)) == 1
    assert (
        bench.rebuild().queues[b"q"].theoretical_arrival_ns == bench.queue().theoretical_arrival_ns
    )


# Batches


def test_a_batch_has_no_more_than_may_be_out() -> None:
    bench = limited(concurrency=4, key_concurrency=1)
    x = fill(bench, 3, b"x")
    y = fill(bench, 2, b"y")
    free = fill(bench, 5)
    jobs = lease_all(bench.engine, "c", 1, [b"q"], 100, 0, ORIGIN, bench.now)
    assert [job.id for job in jobs] == [x[0], y[0], *free[:2]]
    assert lease_all(bench.engine, "d", 1, [b"q"], 100, 0, ORIGIN, bench.now) == []
    ack_all(bench.engine, "c", 1, ORIGIN, bench.now)
    jobs = lease_all(bench.engine, "c", 2, [b"q"], 100, 0, ORIGIN, bench.now)
    assert [job.id for job in jobs] == [x[1], y[1], *free[2:4]]


def test_a_batch_has_no_more_than_may_start() -> None:
    bench = limited(rate_count=3, rate_period=SECOND)
    ids = fill(bench, 5)
    jobs = lease_all(bench.engine, "c", 1, [b"q"], 100, 0, ORIGIN, bench.now)
    assert [job.id for job in jobs] == ids[:3]
    assert bench.try_to_take() is None


# Time to run, and failures


def test_the_queue_says_how_long_a_lease_lasts_where_the_job_does_not() -> None:
    bench = Bench(EngineSettings(default_ttr=60 * SECOND))
    bench.engine.create_queue("q", QueueSettings(ttr=5 * SECOND), ORIGIN, bench.now)
    own = Policy(ttr=9 * SECOND)
    for policy in (Policy(), own, Policy(), Policy()):
        bench.push(policy=policy)
    taken = [bench.take(), bench.take(), bench.take(ttr=3 * SECOND), bench.take(bound=True)]
    leases = [job.lease for job in taken]
    deadlines = [lease.deadline for lease in leases if lease is not None]
    assert [deadline and deadline - bench.now for deadline in deadlines] == [
        5 * SECOND,
        9 * SECOND,
        3 * SECOND,
        0,  # it lasts as long as the connection
    ]


# What is refused


@pytest.mark.parametrize(
    ("option", "settings"),
    [
        ("ttr", {"ttr": 86_400 * SECOND + 1}),
        ("ttr", {"ttr": -2}),
        ("concurrency", {"concurrency": -2}),
        ("concurrency", {"concurrency": 2**40}),
        ("key_concurrency", {"key_concurrency": -2}),
        ("rate", {"rate_count": -2}),
        ("rate", {"rate_count": 1}),
        ("rate", {"rate_count": 2**40, "rate_period": SECOND}),
        ("rate", {"rate_count": 1, "rate_period": 999}),
        ("rate", {"rate_count": 1, "rate_period": 367 * 86_400 * SECOND}),
        ("key_rate", {"key_rate_count": 1, "key_rate_period": -SECOND}),
        ("idle_expiry", {"idle_expiry": -2}),
        ("idle_expiry", {"idle_expiry": 1}),
        ("idle_expiry", {"idle_expiry": SECOND - 1}),
    ],
)
def test_settings_out_of_range_are_refused(option: str, settings: dict[str, Any]) -> None:
    bench = Bench()
    with pytest.raises(InvalidOption) as refusal:
        bench.engine.create_queue("q", QueueSettings(**settings), ORIGIN, bench.now)
    assert refusal.value.option == option


@pytest.mark.parametrize("key", [b"", b"x" * 256])
def test_a_limit_key_has_1_to_255_bytes(bench: Bench, key: bytes) -> None:
    with pytest.raises(InvalidOption, match="limit_key"):
        bench.push(limit_key=key)
    bench.push(limit_key=b"x" * 255)


def test_the_end_of_a_job_is_no_start() -> None:
    bench = limited(rate_count=2, rate_period=60 * SECOND)
    fill(bench, 3)
    bench.ack(bench.take())
    bench.ack(bench.take())
    assert bench.try_to_take() is None
    bench.advance_clock(60 * SECOND)
    assert bench.try_to_take() is not None
