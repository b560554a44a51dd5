"""What happens by itself: in order of time, in chunks, and also when the disk is gone."""

from engine.harness import ORIGIN, START, Bench
from support.model_invariants import check_invariants
from support.snapshot import snapshot

from taskyard.engine.model.events import WATCH_TIMEOUT
from taskyard.engine.model.job import DELAYED, FAILED, LEASED, SECOND, Policy
from taskyard.engine.records.entities import ValueGone
from taskyard.engine.records.job_changes import ReleaseRecord, RemoveRecord, WakeRecord


def ticks(bench: Bench, budget: int) -> int:
    """How many calls it takes until nothing is due any more."""
    count = 1
    while bench.engine.tick(bench.now, budget):
        count += 1
        assert count < 100_000
    return count


def test_nothing_is_planned_at_first(bench: Bench) -> None:
    assert bench.engine.next_deadline(bench.now) == 0
    assert not bench.engine.tick(bench.now)


def test_the_next_deadline_is_the_earliest(bench: Bench) -> None:
    bench.push(run_at=START + 9 * SECOND)
    assert bench.engine.next_deadline(bench.now) == START + 9 * SECOND
    bench.push("other", ttl_ms=3000)
    assert bench.engine.next_deadline(bench.now) == START + 3 * SECOND
    bench.take("other", ttr=SECOND)
    assert bench.engine.next_deadline(bench.now) == START + SECOND


def test_a_tick_before_its_time_does_nothing(bench: Bench) -> None:
    bench.push(run_at=START + SECOND)
    bench.collect()
    bench.now += SECOND - 1
    assert not bench.engine.tick(bench.now)
    assert bench.collect() == []


def test_what_is_due_happens_in_order_of_time(bench: Bench) -> None:
    bench.push("a", run_at=START + 2 * SECOND)
    bench.push("b", ttl_ms=1000)
    bench.push("c")
    bench.take("c", ttr=4 * SECOND)
    bench.engine.set_value(b"v", b"", START + 3 * SECOND, ORIGIN, bench.now)
    bench.collect()
    bench.now += 10 * SECOND
    bench.engine.tick(bench.now)
    kinds = [type(record) for record in bench.collect()]
    assert kinds == [RemoveRecord, WakeRecord, ValueGone, ReleaseRecord]


def test_a_tick_keeps_to_its_budget_and_says_that_there_is_more(bench: Bench) -> None:
    for _ in range(10):
        bench.push(run_at=START + SECOND)
    bench.now += SECOND
    assert bench.engine.tick(bench.now, 4)
    assert len(bench.ids(state=DELAYED)) == 6
    assert bench.engine.next_deadline(bench.now) <= bench.now
    assert bench.engine.tick(bench.now, 4)
    assert not bench.engine.tick(bench.now, 4)
    assert bench.ids() == list(range(1, 11))


def test_a_great_many_delayed_jobs_wake_in_portions(bench: Bench) -> None:
    for number in range(5000):
        bench.push(run_at=START + SECOND + number % 7)
    bench.now += 2 * SECOND
    assert ticks(bench, 100) >= 50
    expected = sorted(range(1, 5001), key=lambda id: ((id - 1) % 7, id))
    assert bench.ids() == expected
    check_invariants(bench.engine)


def test_a_great_many_leases_expire_in_portions(bench: Bench) -> None:
    ids = [bench.push(policy=Policy(ttr=SECOND)).id for _ in range(3000)]
    for _ in ids:
        bench.take()
    bench.now += SECOND
    assert ticks(bench, 100) >= 30
    assert bench.ids() == ids
    assert bench.engine.state.timers.heap == []


def test_a_great_many_ttls_and_dead_letters_end_in_portions(bench: Bench) -> None:
    for _ in range(1000):
        bench.push("kept", ttl_ms=1000)
        job = bench.push("dead", policy=Policy())
        bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    bench.now += 8 * 86_400 * SECOND
    assert ticks(bench, 50) >= 40
    assert bench.ids("kept") == bench.ids("dead", FAILED) == []
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)


def test_a_restart_in_between_does_the_rest(bench: Bench) -> None:
    for _ in range(1000):
        bench.push(run_at=START + SECOND)
    bench.now += SECOND
    bench.engine.tick(bench.now, 300)
    bench.restart()
    assert len(bench.ids(state=DELAYED)) == 700
    while bench.engine.tick(bench.now):
        pass
    assert bench.ids() == list(range(1, 1001))


def test_the_timer_of_a_job_that_left_is_no_reason_to_wake_another(bench: Bench) -> None:
    early, late = bench.push(run_at=START + SECOND), bench.push(run_at=START + 9 * SECOND)
    bench.delete(early)
    bench.advance_clock(SECOND)
    assert bench.ids(state=DELAYED) == [late.id]
    assert bench.engine.next_deadline(bench.now) == START + 9 * SECOND


def test_a_job_that_wakes_can_go_to_a_waiter_and_expire_there(bench: Bench) -> None:
    waiter = bench.wait(owner=3)
    job = bench.push(run_at=START + SECOND, policy=Policy(ttr=SECOND))
    bench.advance_clock(SECOND)
    assert bench.effects() == [("assigned", waiter.number, job.id)]
    assert job.state == LEASED
    bench.advance_clock(SECOND)
    assert bench.ids() == [job.id]


# Without a journal


def test_without_a_journal_only_waits_end(bench: Bench) -> None:
    job = bench.push("a", ttl_ms=1000)
    waiter = bench.wait("q", seconds=1)
    hasty = bench.engine.watch_job(job.id, 1, bench.now + SECOND)
    bench.engine.watch_job(job.id, 1)
    bench.engine.read_only_reason = "disk failed"
    bench.collect()
    bench.now += 5 * SECOND
    assert not bench.engine.tick(bench.now)
    assert bench.effects() == [
        ("gave up", waiter.number),
        ("watched", hasty.number, WATCH_TIMEOUT, job.id),
    ]
    assert bench.ids("a") == [job.id]
    assert bench.collect() == []


def test_without_a_journal_what_cannot_happen_is_not_due_for_ever(bench: Bench) -> None:
    """Else the server would do nothing but look at it."""
    job = bench.push(ttl_ms=1000)
    bench.wait("other", seconds=7)
    bench.engine.watch_job(job.id, 1, bench.now + 3 * SECOND)
    bench.engine.watch_job(job.id, 1)
    bench.engine.read_only_reason = "disk failed"
    assert bench.engine.next_deadline(bench.now) == START + 3 * SECOND
    bench.now += 3 * SECOND
    bench.engine.tick(bench.now)
    assert bench.engine.next_deadline(bench.now) == START + 7 * SECOND
    bench.now += 4 * SECOND
    bench.engine.tick(bench.now)
    assert bench.engine.next_deadline(bench.now) == 0
