"""Rates and numbers of leases: what is held back, what comes when, and what frees a place."""

from typing import Any

import pytest
from engine.harness import ORIGIN, OWNER, START, Bench
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.effects import Take
from taskyard.engine.errors import InvalidOption
from taskyard.engine.gates import SET_ASIDE_AT_ONCE
from taskyard.engine.job import LEASED, LIMITED, READY, SECOND, Policy
from taskyard.engine.queue import QueueSettings
from taskyard.engine.state import EngineSettings

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
    bench.pass_time(2 * SECOND)
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
        engine.delete(first, ORIGIN, now)
    elif end == "complete":
        engine.complete(first, b"", ORIGIN, now)
    else:
        engine.give_back(first, OWNER, ORIGIN, now)
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
    wish = bench.wish("q", "other", uniform=True)
    assert bench.engine.fetch(wish, bench.now) is other


# How fast


def test_a_burst_may_start_and_then_one_at_a_time() -> None:
    bench = limited(rate_count=4, rate_period=SECOND)
    fill(bench, 10)
    assert len(take_all(bench)) == 4
    starts = []
    for _ in range(100):
        bench.pass_time(10_000)
        starts += [bench.now - START] * len(take_all(bench))
    assert starts == [250_000, 500_000, 750_000, 1_000_000]


def test_after_a_rest_the_burst_is_there_again_and_no_more() -> None:
    bench = limited(rate_count=3, rate_period=SECOND)
    fill(bench, 20)
    assert len(take_all(bench)) == 3
    bench.pass_time(60 * SECOND)
    assert len(take_all(bench)) == 3


def test_those_in_line_get_their_jobs_when_the_rate_allows_it() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    ids = fill(bench, 3)
    assert take_all(bench) == ids[:1]
    waiters = [bench.wait(owner=owner, seconds=10) for owner in (2, 3)]
    bench.pass_time(SECOND - 1)
    assert bench.effects() == []
    bench.pass_time(1)
    assert bench.effects() == [("assigned", waiters[0].number, ids[1])]
    bench.pass_time(SECOND)
    assert bench.effects() == [("assigned", waiters[1].number, ids[2])]


def test_pops_count_and_wait() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    fill(bench, 2)
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is not None
    assert bench.engine.pop(b"q", True, ORIGIN, bench.now) is None
    assert bench.try_to_take() is None
    bench.pass_time(SECOND)
    assert bench.try_to_take() is not None


def test_a_job_that_comes_back_counts_again_when_it_is_started() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    job = bench.push()
    bench.take()
    bench.engine.give_back(job.id, OWNER, ORIGIN, bench.now)
    assert bench.try_to_take() is None
    bench.pass_time(SECOND)
    assert bench.try_to_take() is job


def test_a_move_is_no_start() -> None:
    bench = limited(rate_count=1, rate_period=SECOND)
    fill(bench, 3)
    bench.take()
    take = Take([b"q"], OWNER, ORIGIN, move_to="other")
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
        bench.pass_time(step)
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
    bench.pass_time(5 * SECOND)
    assert len(take_all(bench)) == 1


def test_another_rate_begins_anew() -> None:
    bench = limited(rate_count=1, rate_period=86_400 * SECOND)
    fill(bench, 3)
    assert len(take_all(bench)) == 1
    bench.configure(settings=QueueSettings(rate_count=1, rate_period=SECOND))
    assert len(take_all(bench)) == 1
    assert bench.rebuild().queues[b"q"].tat == bench.queue().tat


# Keys


def test_each_key_has_its_own_places() -> None:
    bench = limited(key_concurrency=1)
    x1, x2 = fill(bench, 2, b"x")
    (y1,) = fill(bench, 1, b"y")
    (free,) = fill(bench, 1)
    assert take_all(bench) == [x1, y1, free]
    assert bench.ids(state=LIMITED) == [x2]
    assert bench.ids(state=READY) == []
    bench.engine.ack(x1, OWNER, ORIGIN, bench.now)
    assert bench.ids(state=READY) == [x2]
    assert take_all(bench) == [x2]


def test_each_key_has_its_own_rate() -> None:
    bench = limited(key_rate_count=1, key_rate_period=SECOND)
    x1, x2, x3 = fill(bench, 3, b"x")
    (y1,) = fill(bench, 1, b"y")
    assert take_all(bench) == [x1, y1]
    waiter = bench.wait(owner=2)
    bench.pass_time(SECOND)
    assert bench.effects() == [("assigned", waiter.number, x2)]
    assert bench.ids(state=LIMITED) == [x3]


def test_the_rate_of_a_key_lets_the_next_go_as_soon_as_it_may() -> None:
    bench = limited(key_rate_count=2, key_rate_period=SECOND)
    ids = fill(bench, 4, b"x")
    assert take_all(bench) == ids[:2]
    waiters = [bench.wait(owner=owner) for owner in (2, 3)]
    bench.pass_time(SECOND // 2 - 1)
    assert bench.effects() == []
    bench.pass_time(1)
    assert bench.effects() == [("assigned", waiters[0].number, ids[2])]
    bench.pass_time(SECOND // 2)
    assert bench.effects() == [("assigned", waiters[1].number, ids[3])]


def test_a_job_set_aside_comes_back_to_its_place() -> None:
    bench = limited(key_concurrency=1)
    first = bench.push(limit_key=b"x")
    aside = bench.push(limit_key=b"x")
    bench.take()
    later = bench.push()
    assert bench.try_to_take() is later  # which met the one set aside
    behind = bench.push()
    bench.ack(first)
    assert [bench.take().id, bench.take().id] == [aside.id, behind.id]


def test_keys_of_other_queues_are_other_keys() -> None:
    bench = limited(key_concurrency=1)
    fill(bench, 1, b"x")
    bench.take()
    other = bench.push("other", limit_key=b"x")
    assert bench.take("other") is other


def test_a_key_without_limits_means_nothing() -> None:
    bench = Bench()
    ids = fill(bench, 3, b"x")
    assert take_all(bench) == ids
    assert bench.queue().gates is not None
    for id in ids:
        bench.engine.ack(id, OWNER, ORIGIN, bench.now)
    assert bench.queue().gates is None


def test_a_lease_that_runs_out_lets_the_next_of_its_key_go_in_the_same_tick() -> None:
    bench = limited(key_concurrency=1)
    first = bench.push(limit_key=b"x", policy=BRIEF, ttl_ms=2000)
    aside = bench.push(limit_key=b"x")
    bench.push()
    bench.take()
    bench.take()
    assert bench.ids(state=LIMITED) == [aside.id]
    bench.now += 2 * SECOND
    bench.engine.tick(bench.now)
    assert bench.engine.state.live(first.id) is None
    assert bench.take() is aside


def test_what_is_out_counts_when_a_limit_comes() -> None:
    bench = Bench()
    ids = fill(bench, 3, b"x")
    bench.take()
    bench.configure(settings=QueueSettings(key_concurrency=1))
    assert take_all(bench) == []
    bench.engine.ack(ids[0], OWNER, ORIGIN, bench.now)
    assert take_all(bench) == ids[1:2]


def test_when_a_limit_goes_all_are_let_go() -> None:
    bench = limited(key_concurrency=1)
    ids = fill(bench, 2 * SET_ASIDE_AT_ONCE, b"x")
    bench.take()
    while bench.queue().ready.size:
        assert bench.try_to_take() is None
    bench.configure(settings=QueueSettings())
    while bench.engine.is_pending():
        bench.engine.tick(bench.now)
    assert bench.ids() == ids[1:]


def test_the_last_one_that_may_go_is_popped_from_the_end() -> None:
    bench = limited(key_concurrency=1)
    (free,) = fill(bench, 1)
    fill(bench, 2, b"x")
    assert bench.engine.fetch(Take([b"q"], OWNER, ORIGIN, last=True), bench.now) is not None
    popped = bench.engine.pop(b"q", True, ORIGIN, bench.now)
    assert popped is not None
    assert popped.id == free


def test_a_long_row_of_a_closed_key_is_set_aside_in_portions() -> None:
    bench = limited(key_concurrency=1)
    fill(bench, 3 * SET_ASIDE_AT_ONCE + 10, b"x")
    free = bench.push()
    bench.take()
    assert bench.try_to_take() is None
    assert bench.queue().limited.size == SET_ASIDE_AT_ONCE
    waiter = bench.wait(owner=2)
    turns = 0
    while bench.engine.is_pending():
        bench.engine.tick(bench.now)
        turns += 1
    assert turns >= 3
    assert bench.effects() == [("assigned", waiter.number, free.id)]


def test_nothing_is_kept_of_keys_that_are_done() -> None:
    bench = limited(key_concurrency=1, key_rate_count=1, key_rate_period=SECOND)
    before = bench.engine.state.weight()
    for number in range(500):
        bench.push(limit_key=b"%d" % number)
        bench.ack(bench.take())
    gates = bench.queue().gates
    assert gates is not None
    assert len(gates) == 500
    bench.pass_time(SECOND)
    assert bench.queue().gates is None
    assert bench.engine.state.first_timer() is None
    assert bench.engine.state.weight() == before


def test_a_queue_with_remembered_keys_can_be_deleted() -> None:
    bench = limited(key_rate_count=1, key_rate_period=SECOND)
    bench.push(limit_key=b"x")
    bench.ack(bench.take())
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    assert bench.engine.state.first_timer() is None
    check_invariants(bench.engine)


# Jobs that are set aside


@pytest.fixture
def aside() -> Bench:
    """Job 1 is leased, jobs 2 and 3 of the same key are set aside."""
    bench = limited(key_concurrency=1)
    fill(bench, 3, b"x")
    bench.take()
    assert bench.try_to_take() is None
    assert bench.ids(state=LIMITED) == [2, 3]
    return bench


def test_they_can_be_purged(aside: Bench) -> None:
    assert aside.engine.purge(b"q", LIMITED, 10, ORIGIN, aside.now) == 2
    assert aside.queue().waiting() == 1
    check_invariants(aside.engine)


def test_they_can_be_deleted_and_moved(aside: Bench) -> None:
    aside.engine.delete(2, ORIGIN, aside.now)
    aside.engine.move(3, "other", False, ORIGIN, aside.now)
    assert aside.ids("other") == [3]
    check_invariants(aside.engine)


def test_their_priority_can_change(aside: Bench) -> None:
    aside.engine.rescore(3, 5, ORIGIN, aside.now)
    aside.engine.ack(1, OWNER, ORIGIN, aside.now)
    assert aside.take().id == 3


def test_one_that_is_ready_instead_of_a_removed_one_does_not_wait_for_ever(aside: Bench) -> None:
    aside.engine.ack(1, OWNER, ORIGIN, aside.now)
    assert (aside.ids(), aside.ids(state=LIMITED)) == ([2], [3])
    aside.engine.delete(2, ORIGIN, aside.now)
    assert aside.ids() == [3]


def test_their_time_to_live_ends() -> None:
    bench = limited(key_concurrency=1)
    bench.push(limit_key=b"x", policy=Policy(ttr=100 * SECOND))
    bench.push(limit_key=b"x", ttl_ms=500)
    bench.take()
    assert bench.try_to_take() is None
    bench.pass_time(SECOND)
    assert bench.ids(state=LIMITED) == []
    check_invariants(bench.engine)


def test_for_the_journal_they_are_ready(aside: Bench) -> None:
    assert snapshot(aside.rebuild()) == snapshot(aside.engine.state)
    aside.restart()
    assert aside.ids() == [2, 3]
    assert aside.ids(state=LEASED) == [1]
    assert aside.try_to_take() is None


# Batches


def test_a_batch_has_no_more_than_may_be_out() -> None:
    bench = limited(concurrency=4, key_concurrency=1)
    x = fill(bench, 3, b"x")
    y = fill(bench, 2, b"y")
    free = fill(bench, 5)
    jobs = bench.engine.lease_batch("c", 1, [b"q"], 100, 0, ORIGIN, bench.now)
    assert [job.id for job in jobs] == [x[0], y[0], *free[:2]]
    assert bench.engine.lease_batch("d", 1, [b"q"], 100, 0, ORIGIN, bench.now) == []
    bench.engine.ack_batch("c", 1, ORIGIN, bench.now)
    jobs = bench.engine.lease_batch("c", 2, [b"q"], 100, 0, ORIGIN, bench.now)
    assert [job.id for job in jobs] == [x[1], y[1], *free[2:4]]


def test_a_batch_has_no_more_than_may_start() -> None:
    bench = limited(rate_count=3, rate_period=SECOND)
    ids = fill(bench, 5)
    jobs = bench.engine.lease_batch("c", 1, [b"q"], 100, 0, ORIGIN, bench.now)
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
