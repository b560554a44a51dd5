"""Order under limits: nobody overtakes one who is in front and may go, whenever that became so."""

import pytest
from engine.harness import ORIGIN, OWNER, Bench
from engine.limits.test_limits import BRIEF, limited
from support.model_invariants import check_invariants

from taskyard.engine.model.job import LIMITED, SECOND
from taskyard.engine.records.job_lifecycle import LeaseRecord


def late(bench: Bench, duration: int) -> list[int]:
    """Let time pass without a tick, then one for all that was due; the jobs that were started."""
    bench.now += duration
    while bench.engine.tick(bench.now):
        pass
    return [record.id for record in bench.collect() if isinstance(record, LeaseRecord)]


def two_closed_keys() -> tuple[Bench, int, int]:
    """The job in front is of the key that opens last."""
    bench = limited(key_rate_count=1, key_rate_period=SECOND)
    bench.push(limit_key=b"early")
    bench.take()
    bench.now += 1000
    bench.push(limit_key=b"late")
    bench.take()
    front, behind = bench.push(limit_key=b"late"), bench.push(limit_key=b"early")
    assert bench.try_to_take() is None
    assert bench.ids(state=LIMITED) == [front.id, behind.id]
    bench.collect()
    return bench, front.id, behind.id


def test_the_first_in_order_goes_first_though_its_key_opened_later_in_the_same_tick() -> None:
    bench, front, _ = two_closed_keys()
    bench.wait()
    assert late(bench, SECOND) == [front]


def test_a_job_that_wakes_does_not_go_before_one_whose_key_opened_in_the_same_tick() -> None:
    bench, front, behind = two_closed_keys()
    bench.push(run_at=bench.now + 1000)
    bench.wait()
    bench.wait()
    assert late(bench, SECOND) == [front, behind]


@pytest.mark.parametrize("how", ["returned", "expired"])
def test_a_job_that_comes_back_does_not_take_the_place_of_one_in_front_of_it(how: str) -> None:
    """Both are of the key that it frees, and somebody waits."""
    bench = limited(key_concurrency=1)
    back = bench.push(limit_key=b"x", policy=BRIEF)
    bench.take()
    front = bench.push(limit_key=b"x", priority=1)
    assert bench.try_to_take() is None
    bench.wait(seconds=90)
    bench.collect()
    if how == "returned":
        bench.engine.release_lease(back.id, OWNER, ORIGIN, bench.now)
    assert late(bench, 0 if how == "returned" else 60 * SECOND)[:1] == [front.id]


def test_a_job_that_goes_to_the_back_lets_the_next_of_its_key_go_first() -> None:
    bench = limited(key_rate_count=1, key_rate_period=SECOND)
    bench.push(limit_key=b"x")
    bench.take()
    offered, next_one = bench.push(limit_key=b"x"), bench.push(limit_key=b"x")
    assert bench.try_to_take() is None
    bench.advance_clock(SECOND)
    assert bench.ids() == [offered.id]
    bench.engine.rescore(offered.id, -1, ORIGIN, bench.now)
    assert bench.take() is next_one


def test_one_of_a_key_that_has_rested_is_not_overtaken_by_what_is_behind_it() -> None:
    """Its key lets two go by now, but when the first was let go it was one."""
    bench = limited(key_rate_count=2, key_rate_period=SECOND)
    for _ in range(2):
        bench.push(limit_key=b"x")
        bench.take()
    first, second = bench.push(limit_key=b"x"), bench.push(limit_key=b"x")
    behind = bench.push()
    assert bench.take() is behind
    another = bench.push()
    bench.advance_clock(SECOND // 2)
    assert bench.ids(state=LIMITED) == [second.id]
    bench.advance_clock(SECOND)
    assert [bench.take(), bench.take(), bench.take()] == [first, second, another]


def test_a_job_in_line_that_gets_another_priority_is_in_one_place_only() -> None:
    bench = limited(key_concurrency=1)
    running = bench.push(limit_key=b"x")
    bench.take()
    first, second = bench.push(limit_key=b"x"), bench.push(limit_key=b"x")
    assert bench.try_to_take() is None
    assert bench.ids(state=LIMITED) == [first.id, second.id]

    bench.engine.rescore(second.id, 5, ORIGIN, bench.now)

    assert bench.ids(state=LIMITED) == [first.id]
    assert bench.ids() == [second.id]
    check_invariants(bench.engine)
    assert bench.try_to_take() is None
    bench.ack(running)
    assert bench.take() is second
