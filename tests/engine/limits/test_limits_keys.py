"""Limits for each key of a queue, and the jobs that are parked until their key is open."""

import pytest
from engine.harness import ORIGIN, OWNER, Bench
from engine.limits.test_limits import BRIEF, fill, limited, take_all
from support.batches import lease_all
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.gates import MAX_PARKED_AT_ONCE
from taskyard.engine.model.events import FetchRequest
from taskyard.engine.model.job import LEASED, LIMITED, READY, SECOND, Policy
from taskyard.engine.model.queue import QueueSettings

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
    bench.advance_clock(SECOND)
    assert bench.effects() == [("assigned", waiter.number, x2)]
    assert bench.ids(state=LIMITED) == [x3]


def test_the_rate_of_a_key_lets_the_next_go_as_soon_as_it_may() -> None:
    bench = limited(key_rate_count=2, key_rate_period=SECOND)
    ids = fill(bench, 4, b"x")
    assert take_all(bench) == ids[:2]
    waiters = [bench.wait(owner=owner) for owner in (2, 3)]
    bench.advance_clock(SECOND // 2 - 1)
    assert bench.effects() == []
    bench.advance_clock(1)
    assert bench.effects() == [("assigned", waiters[0].number, ids[2])]
    bench.advance_clock(SECOND // 2)
    assert bench.effects() == [("assigned", waiters[1].number, ids[3])]


def test_a_job_set_aside_comes_back_to_its_place() -> None:
    bench = limited(key_concurrency=1)
    first = bench.push(limit_key=b"x")
    aside = bench.push(limit_key=b"x")
    bench.take()
    later = bench.push()
    assert bench.try_to_take() is later  # which met the one parked
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
    assert bench.queue().key_limits is not None
    for id in ids:
        bench.engine.ack(id, OWNER, ORIGIN, bench.now)
    assert bench.queue().key_limits is None


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
    assert bench.engine.state.live_job(first.id) is None
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
    ids = fill(bench, 2 * MAX_PARKED_AT_ONCE, b"x")
    bench.take()
    while bench.queue().ready.size:
        assert bench.try_to_take() is None
    bench.configure(settings=QueueSettings())
    while bench.engine.has_pending_work():
        bench.engine.tick(bench.now)
    assert bench.ids() == ids[1:]


def test_the_last_one_that_may_go_is_popped_from_the_end() -> None:
    bench = limited(key_concurrency=1)
    (free,) = fill(bench, 1)
    fill(bench, 2, b"x")
    assert bench.engine.fetch(FetchRequest([b"q"], OWNER, ORIGIN, last=True), bench.now) is not None
    popped = bench.engine.pop(b"q", True, ORIGIN, bench.now)
    assert popped is not None
    assert popped.id == free


def test_a_long_row_of_a_closed_key_is_set_aside_in_portions() -> None:
    bench = limited(key_concurrency=1)
    fill(bench, 3 * MAX_PARKED_AT_ONCE + 10, b"x")
    free = bench.push()
    bench.take()
    assert bench.try_to_take() is None
    assert bench.queue().limited.size == MAX_PARKED_AT_ONCE
    waiter = bench.wait(owner=2)
    turns = 0
    while bench.engine.has_pending_work():
        bench.engine.tick(bench.now)
        turns += 1
    assert turns >= 3
    assert bench.effects() == [("assigned", waiter.number, free.id)]


def test_nothing_is_kept_of_keys_that_are_done() -> None:
    bench = limited(key_concurrency=1, key_rate_count=1, key_rate_period=SECOND)
    before = bench.engine.state.compacted_size()
    for number in range(500):
        bench.push(limit_key=b"%d" % number)
        bench.ack(bench.take())
    gates = bench.queue().key_limits
    assert gates is not None
    assert len(gates) == 500
    bench.advance_clock(SECOND)
    assert bench.queue().key_limits is None
    assert bench.engine.state.first_timer() is None
    assert bench.engine.state.compacted_size() == before


def test_a_queue_with_remembered_keys_can_be_deleted() -> None:
    bench = limited(key_rate_count=1, key_rate_period=SECOND)
    bench.push(limit_key=b"x")
    bench.ack(bench.take())
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    assert bench.engine.state.first_timer() is None
    check_invariants(bench.engine)


# Jobs that are parked


@pytest.fixture
def aside() -> Bench:
    """Job 1 is leased, jobs 2 and 3 of the same key are parked."""
    bench = limited(key_concurrency=1)
    fill(bench, 3, b"x")
    bench.take()
    assert bench.try_to_take() is None
    assert bench.ids(state=LIMITED) == [2, 3]
    return bench


def test_they_can_be_purged(aside: Bench) -> None:
    assert aside.engine.purge_queue(b"q", LIMITED, 10, ORIGIN, aside.now) == 2
    assert aside.queue().unfinished_count() == 1
    check_invariants(aside.engine)


def test_they_can_be_deleted_and_moved(aside: Bench) -> None:
    aside.engine.delete_job(2, ORIGIN, aside.now)
    aside.engine.move_job(3, "other", False, ORIGIN, aside.now)
    assert aside.ids("other") == [3]
    check_invariants(aside.engine)


def test_their_priority_can_change(aside: Bench) -> None:
    aside.engine.rescore(3, 5, ORIGIN, aside.now)
    aside.engine.ack(1, OWNER, ORIGIN, aside.now)
    assert aside.take().id == 3


def test_one_that_is_ready_instead_of_a_removed_one_does_not_wait_for_ever(aside: Bench) -> None:
    aside.engine.ack(1, OWNER, ORIGIN, aside.now)
    assert (aside.ids(), aside.ids(state=LIMITED)) == ([2], [3])
    aside.engine.delete_job(2, ORIGIN, aside.now)
    assert aside.ids() == [3]


def test_their_time_to_live_ends() -> None:
    bench = limited(key_concurrency=1)
    bench.push(limit_key=b"x", policy=Policy(ttr=100 * SECOND))
    bench.push(limit_key=b"x", ttl_ms=500)
    bench.take()
    assert bench.try_to_take() is None
    bench.advance_clock(SECOND)
    assert bench.ids(state=LIMITED) == []
    check_invariants(bench.engine)


def test_for_the_journal_they_are_ready(aside: Bench) -> None:
    assert snapshot(aside.rebuild()) == snapshot(aside.engine.state)
    aside.restart()
    assert aside.ids() == [2, 3]
    assert aside.ids(state=LEASED) == [1]
    assert aside.try_to_take() is None


def test_another_rate_of_keys_begins_anew() -> None:
    bench = limited(key_rate_count=1, key_rate_period=60 * SECOND)
    for _ in range(3):
        bench.push(limit_key=b"x")
    bench.take()
    assert bench.try_to_take() is None
    bench.configure("q", QueueSettings(key_rate_count=1, key_rate_period=30 * SECOND))
    bench.engine.tick(bench.now)
    bench.take()
    assert bench.try_to_take() is None


def test_a_rate_of_keys_goes_on_when_only_their_leases_get_another_limit() -> None:
    bench = limited(key_rate_count=1, key_rate_period=60 * SECOND, key_concurrency=5)
    for _ in range(2):
        bench.push(limit_key=b"x")
    bench.take()
    rules = QueueSettings(key_rate_count=1, key_rate_period=60 * SECOND, key_concurrency=6)
    bench.configure("q", rules)
    assert bench.try_to_take() is None
    bench.advance_clock(60 * SECOND)
    bench.take()


@pytest.mark.parametrize("places", [1, 2, 3, 4])
def test_a_batch_has_as_many_of_a_key_as_there_are_places(places: int) -> None:
    bench = limited(key_concurrency=places)
    x = fill(bench, 5, b"x")
    y = fill(bench, 5, b"y")
    jobs = lease_all(bench.engine, "c", 1, [b"q"], 100, 0, ORIGIN, bench.now)
    assert [job.id for job in jobs] == x[:places] + y[:places]
