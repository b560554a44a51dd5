"""Jobs that wait for others: success releases, failure fails, through any number of levels."""

from collections.abc import Callable

import pytest
from engine.harness import NO_LIMIT, ORIGIN, START, Bench
from support.model_invariants import check_invariants
from support.snapshot import pending_followups, snapshot

from taskyard.engine.model.job import BLOCKED, DELAYED, FAILED, GONE, READY, SECOND, Job, Policy
from taskyard.engine.operations.facade import MAX_DEPENDENTS_RESOLVED_AT_ONCE


def complete(bench: Bench, job: Job) -> None:
    bench.engine.complete(job.id, b"", ORIGIN, bench.now)


def ack(bench: Bench, job: Job) -> None:
    bench.take("first")
    bench.ack(job)


def pop(bench: Bench, _: Job) -> None:
    bench.engine.pop(b"first", False, ORIGIN, bench.now)


def take_out(bench: Bench, job: Job) -> None:
    bench.engine.remove_from_list(job.id, ORIGIN, bench.now)


def finish_with_token(bench: Bench, job: Job) -> None:
    bench.take("first")
    bench.engine.finish_with_token(job.id, 1, 1, b"", ORIGIN, bench.now)


@pytest.mark.parametrize("succeed", [complete, ack, pop, take_out, finish_with_token])
def test_a_blocker_that_succeeds_releases(
    bench: Bench, succeed: Callable[[Bench, Job], None]
) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id])
    assert blocked.state == BLOCKED
    succeed(bench, blocker)
    assert blocked.state == READY
    assert blocked.ensure_extras().blockers is None


def fail(bench: Bench, job: Job) -> None:
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)


def delete(bench: Bench, job: Job) -> None:
    bench.delete(job)


def purge(bench: Bench, _: Job) -> None:
    bench.engine.purge_queue(b"first", READY, 10, ORIGIN, bench.now)


def expire(bench: Bench, _: Job) -> None:
    bench.advance_clock(9 * SECOND)


@pytest.mark.parametrize("end", [fail, delete, purge, expire])
def test_a_blocker_that_fails_or_vanishes_fails_those_behind_it(
    bench: Bench, end: Callable[[Bench, Job], None]
) -> None:
    blocker = bench.push("first", policy=Policy(), ttl_ms=9000)
    blocked = bench.push(blocked_by=[blocker.id])
    end(bench, blocker)
    assert blocked.state == FAILED
    assert blocked.ensure_extras().reason == "a job it waited for failed"


def test_a_blocker_that_is_retried_keeps_blocking(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id])
    bench.take("first")
    bench.nack(blocker)
    assert blocked.state == BLOCKED


def test_all_blockers_must_succeed(bench: Bench) -> None:
    first, second = bench.push("first"), bench.push("first")
    blocked = bench.push(blocked_by=[first.id, second.id])
    complete(bench, second)
    assert blocked.state == BLOCKED
    complete(bench, first)
    assert blocked.state == READY


def test_one_failed_blocker_is_enough(bench: Bench) -> None:
    first, second = bench.push("first"), bench.push("first", policy=Policy())
    blocked = bench.push(blocked_by=[first.id, second.id])
    fail(bench, second)
    assert blocked.state == FAILED
    complete(bench, first)
    assert blocked.state == FAILED
    assert bench.engine.state.dependents == {}


def test_finished_and_unknown_jobs_do_not_block(bench: Bench) -> None:
    done, kept = bench.push(), bench.push(ttl_ms=60_000)
    complete(bench, done)
    complete(bench, kept)
    assert bench.push(blocked_by=[done.id, kept.id, 99, 2**62, 2**63, 2**200]).state == READY


def test_a_job_cannot_wait_for_itself_or_for_one_that_comes_later(bench: Bench) -> None:
    job = bench.push(blocked_by=[1, 2])
    assert (job.id, job.state) == (1, READY)
    assert bench.push().state == READY


def test_naming_a_blocker_twice_is_naming_it_once(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id, blocker.id])
    complete(bench, blocker)
    assert blocked.state == READY


def test_released_jobs_join_the_back_in_order_of_arrival(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = [bench.push(blocked_by=[blocker.id]) for _ in range(3)]
    other = bench.push()
    complete(bench, blocker)
    assert bench.ids() == [other.id, *[job.id for job in blocked]]


def test_a_released_job_still_waits_for_its_time(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id], run_at=START + SECOND)
    complete(bench, blocker)
    assert blocked.state == DELAYED
    bench.advance_clock(SECOND)
    assert blocked.state == READY


def test_a_job_that_is_released_when_its_time_comes_is_ready_at_once(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id], run_at=START + SECOND)
    bench.now = START + SECOND
    complete(bench, blocker)
    assert blocked.state == READY


def test_the_time_is_that_of_the_last_one_that_was_released(bench: Bench) -> None:
    blocker = bench.push("first")
    for _ in range(MAX_DEPENDENTS_RESOLVED_AT_ONCE + 5):
        bench.push(blocked_by=[blocker.id])
    complete(bench, blocker)
    bench.now += SECOND
    assert bench.ids(state=BLOCKED) != []
    bench.engine.tick(bench.now)
    assert bench.ids(state=BLOCKED) == []
    assert bench.engine.state.time == bench.rebuild().time == bench.now


def test_failure_goes_through_all_levels_each_into_its_own_dead_queue(bench: Bench) -> None:
    root = bench.push("first", policy=Policy())
    chain = [root]
    for level in range(1, 400):
        policy = Policy(max_fails=-1, dead_queue="dead") if level % 2 else NO_LIMIT
        chain.append(bench.push(policy=policy, blocked_by=[chain[-1].id]))
    fail(bench, root)
    while bench.engine.tick(bench.now):
        pass
    assert len(bench.ids("dead")) == 200
    assert len(bench.ids("q", FAILED)) == 199
    assert bench.engine.state.dependents == {}


def test_success_goes_one_level_at_a_time(bench: Bench) -> None:
    first = bench.push("first")
    second = bench.push(blocked_by=[first.id])
    third = bench.push(blocked_by=[second.id])
    complete(bench, first)
    assert (second.state, third.state) == (READY, BLOCKED)


def test_a_blocked_job_that_is_removed_is_not_waited_with(bench: Bench) -> None:
    first, second = bench.push("first"), bench.push("first")
    blocked = bench.push(blocked_by=[first.id, second.id])
    behind = bench.push(blocked_by=[blocked.id])
    bench.delete(blocked)
    assert behind.state == FAILED
    assert bench.engine.state.dependents == {}
    complete(bench, first)


def test_a_blocked_jobs_ttl_goes_on(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id], ttl_ms=1000)
    bench.advance_clock(SECOND)
    assert blocked.state == GONE
    assert bench.engine.state.dependents == {}


def test_a_restart_forgets_no_blocker(bench: Bench) -> None:
    blocker = bench.push("first")
    blocked = bench.push(blocked_by=[blocker.id])
    bench.restart()
    assert bench.ids(state=BLOCKED) == [blocked.id]
    bench.engine.complete(blocker.id, b"", ORIGIN, bench.now)
    assert bench.ids() == [blocked.id]


# A great many dependents


def fan_out(bench: Bench, count: int) -> tuple[Job, list[int]]:
    blocker = bench.push("first", policy=Policy(dead_queue="dead"))
    return blocker, [bench.push(blocked_by=[blocker.id]).id for _ in range(count)]


@pytest.mark.parametrize("end", [complete, fail])
def test_a_great_many_dependents_are_told_in_portions(
    bench: Bench, end: Callable[[Bench, Job], None]
) -> None:
    blocker, ids = fan_out(bench, 3000)
    state = READY if end is complete else FAILED
    end(bench, blocker)
    assert bench.ids(state=state) == ids[:MAX_DEPENDENTS_RESOLVED_AT_ONCE]
    assert bench.engine.next_deadline(bench.now) == bench.now
    assert bench.engine.tick(bench.now, 100)
    assert bench.ids(state=state) == ids[: MAX_DEPENDENTS_RESOLVED_AT_ONCE + 100]
    check_invariants(bench.engine)
    while bench.engine.tick(bench.now):
        pass
    assert bench.ids(state=state) == ids
    assert bench.engine.state.pending_dependents == {}


@pytest.mark.parametrize("end", [complete, fail])
def test_a_restart_in_between_tells_the_rest(
    bench: Bench, end: Callable[[Bench, Job], None]
) -> None:
    blocker, ids = fan_out(bench, 1000)
    state = READY if end is complete else FAILED
    end(bench, blocker)
    before = snapshot(bench.engine.state)
    assert snapshot(bench.rebuild()) == before
    bench.restart()
    assert len(bench.ids(state=BLOCKED)) == 1000 - 2 * MAX_DEPENDENTS_RESOLVED_AT_ONCE
    while bench.engine.tick(bench.now):
        check_invariants(bench.engine)
    assert bench.ids(state=state) == ids
    assert bench.engine.state.pending_dependents == {}


def test_some_may_leave_before_they_are_told(bench: Bench) -> None:
    blocker, ids = fan_out(bench, 600)
    complete(bench, blocker)
    for id in (*ids[300:310], *ids[598:]):
        bench.engine.delete_job(id, ORIGIN, bench.now)
    check_invariants(bench.engine)
    while bench.engine.tick(bench.now):
        pass
    assert bench.ids() == ids[:300] + ids[310:598]
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)


def test_a_second_end_of_the_same_job_does_not_forget_the_first(bench: Bench) -> None:
    """It failed into a dead queue and was finished there before all had heard of the failure."""
    blocker, ids = fan_out(bench, 2000)
    fail(bench, blocker)
    late = bench.push(blocked_by=[blocker.id]).id
    complete(bench, blocker)
    failed, succeeded = pending_followups(bench.engine.state)[blocker.id]
    assert failed
    assert succeeded == [late]
    check_invariants(bench.engine)
    while bench.engine.tick(bench.now):
        pass
    assert bench.ids(state=FAILED) == ids
    assert bench.ids() == [late]
    assert snapshot(bench.rebuild()) == snapshot(bench.engine.state)


def test_a_third_end_does_not_either(bench: Bench) -> None:
    blocker, ids = fan_out(bench, 2000)
    fail(bench, blocker)
    more = [bench.push(blocked_by=[blocker.id]).id for _ in range(600)]
    fail(bench, blocker)
    assert len(pending_followups(bench.engine.state)[blocker.id][0]) > 600
    while bench.engine.tick(bench.now):
        pass
    assert bench.ids(state=FAILED) == [*ids, *more]
