"""Looking after single jobs: look, delete, move, re-score, wake, take out by payload."""

import pytest
from engine.harness import ORIGIN, START, Bench

from taskyard.engine.model.events import InvalidOption, JobNotFound, WrongState
from taskyard.engine.model.job import (
    BLOCKED,
    DELAYED,
    FAILED,
    GONE,
    LEASED,
    MAX_PRIORITY,
    MIN_PRIORITY,
    READY,
    SECOND,
    SUCCEEDED,
    Job,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings

ENDED = ("succeeded", "failed")


def in_state(bench: Bench, state: str) -> Job:
    """A job of queue `q` in that state."""
    blocker = bench.push("other")
    job = bench.push(
        policy=Policy(),
        ttl_ms=60_000,
        run_at=START + 9 * SECOND if state == "delayed" else 0,
        blocked_by=[blocker.id] if state == "blocked" else None,
    )
    if state == "leased":
        bench.take(bound=True)
    elif state == "succeeded":
        bench.engine.complete(job.id, b"", ORIGIN, bench.now)
    elif state == "failed":
        bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    return job


ALL = ("blocked", "delayed", "ready", "leased", "succeeded", "failed")


# Looking


def test_peeking_takes_nothing(bench: Bench) -> None:
    bench.push()
    best = bench.push(priority=1)
    assert bench.engine.peek(b"q") is best
    assert bench.engine.peek(b"q") is best
    assert bench.engine.peek(b"unknown") is None


def test_a_range_by_position(bench: Bench) -> None:
    jobs = [bench.push(priority=priority) for priority in (0, 5, 0, 5)]
    ordered = [jobs[1], jobs[3], jobs[0], jobs[2]]
    for start in range(5):
        found = bench.engine.jobs_from(bench.queue(), READY, start, 2)
        assert found == ordered[start : start + 2]


@pytest.mark.parametrize("state", [BLOCKED, DELAYED, READY, LEASED, SUCCEEDED, FAILED])
def test_a_walk_with_a_cursor_through_any_state(bench: Bench, state: int) -> None:
    jobs = [in_state(bench, ALL[state]) for _ in range(5)]
    queue = bench.queue()
    seen: list[Job] = []
    priority, position, id = queue.ready.walk_start_priority(), MIN_PRIORITY, 0
    while part := bench.engine.jobs_after(queue, state, priority, position, id, 2):
        seen += part
        priority, position, id = part[-1].priority, part[-1].order_key, part[-1].id
        bench.delete(part[-1])
    assert seen == jobs


# Deleting


@pytest.mark.parametrize("state", ALL)
def test_a_job_can_be_deleted_in_any_state(bench: Bench, state: str) -> None:
    job = in_state(bench, state)
    bench.delete(job)
    assert job.state == GONE
    assert bench.queue().is_empty()
    assert bench.engine.state.bound_jobs_by_owner == {}
    assert bench.engine.state.dependents == {}
    assert bench.queue().removed == (state not in ENDED)
    with pytest.raises(JobNotFound):
        bench.delete(job)


def test_what_was_never_there_cannot_be_deleted(bench: Bench) -> None:
    with pytest.raises(JobNotFound):
        bench.engine.delete_job(99, ORIGIN, bench.now)


# Moving


@pytest.mark.parametrize("state", ["ready", "delayed", "failed"])
@pytest.mark.parametrize("front", [False, True])
def test_a_moved_job_is_the_same_and_ready_there(bench: Bench, state: str, front: bool) -> None:
    job = in_state(bench, state)
    there = bench.push("to")
    bench.engine.move_job(job.id, "to", front, ORIGIN, bench.now)
    assert bench.ids("to") == ([job.id, there.id] if front else [there.id, job.id])
    assert bench.ids("q") == []
    assert bench.engine.job(job.id) is job


@pytest.mark.parametrize("state", ["blocked", "leased", "succeeded"])
def test_a_job_in_another_state_cannot_be_moved(bench: Bench, state: str) -> None:
    job = in_state(bench, state)
    with pytest.raises(WrongState):
        bench.engine.move_job(job.id, "to", False, ORIGIN, bench.now)
    assert bench.engine.queue(b"to") is None


def test_a_job_can_go_to_the_other_end_of_its_queue(bench: Bench) -> None:
    first, second = bench.push(), bench.push()
    bench.engine.move_job(second.id, "q", True, ORIGIN, bench.now)
    assert bench.ids() == [second.id, first.id]
    bench.engine.move_job(second.id, "q", False, ORIGIN, bench.now)
    assert bench.ids() == [first.id, second.id]


def test_a_moved_job_keeps_its_priority(bench: Bench) -> None:
    job = bench.push(priority=5)
    bench.push("to", priority=3)
    bench.engine.move_job(job.id, "to", False, ORIGIN, bench.now)
    assert bench.engine.peek(b"to") is job


def test_a_moved_job_goes_to_who_waits(bench: Bench) -> None:
    job = bench.push()
    waiter = bench.wait("to")
    bench.engine.move_job(job.id, "to", False, ORIGIN, bench.now)
    assert bench.effects() == [("assigned", waiter.number, job.id)]


@pytest.mark.parametrize("name", ["", "two words", "x" * 256, "\ud800"])
def test_a_job_cannot_be_moved_to_a_name_that_is_none(bench: Bench, name: str) -> None:
    job = bench.push()
    with pytest.raises(InvalidOption):
        bench.engine.move_job(job.id, name, False, ORIGIN, bench.now)
    assert bench.ids() == [job.id]


# Re-scoring


def test_a_rescored_job_joins_the_back_of_its_new_priority(bench: Bench) -> None:
    jobs = [bench.push(priority=priority) for priority in (1, 2, 2)]
    bench.engine.rescore(jobs[0].id, 2, ORIGIN, bench.now)
    assert bench.ids() == [jobs[1].id, jobs[2].id, jobs[0].id]


@pytest.mark.parametrize("state", ["blocked", "delayed", "leased"])
def test_another_priority_holds_once_the_job_is_ready(bench: Bench, state: str) -> None:
    job = in_state(bench, state)
    bench.engine.rescore(job.id, MAX_PRIORITY, ORIGIN, bench.now)
    bench.push()
    if state == "leased":
        bench.engine.release_lease(job.id, 1, ORIGIN, bench.now)
    elif state == "delayed":
        bench.advance_clock(9 * SECOND)
    else:
        bench.engine.pop(b"other", False, ORIGIN, bench.now)
    assert bench.engine.peek(b"q") is job


@pytest.mark.parametrize("state", ENDED)
def test_an_ended_job_has_its_priority(bench: Bench, state: str) -> None:
    job = in_state(bench, state)
    with pytest.raises(WrongState):
        bench.engine.rescore(job.id, 5, ORIGIN, bench.now)


@pytest.mark.parametrize("priority", [2**63, -(2**63) - 1, 2**100])
def test_a_priority_has_64_bits(bench: Bench, priority: int) -> None:
    job = bench.push()
    with pytest.raises(InvalidOption):
        bench.engine.rescore(job.id, priority, ORIGIN, bench.now)


# Waking


def test_a_delayed_job_can_be_woken(bench: Bench) -> None:
    job, other = in_state(bench, "delayed"), bench.push()
    bench.engine.wake_job(job.id, ORIGIN, bench.now)
    assert bench.ids() == [other.id, job.id]
    assert job.run_at == START + 9 * SECOND
    bench.advance_clock(20 * SECOND)
    assert bench.ids() == [other.id, job.id]


@pytest.mark.parametrize("state", ["ready", "leased", "blocked", "failed", "succeeded"])
def test_only_a_delayed_job_can_be_woken(bench: Bench, state: str) -> None:
    job = in_state(bench, state)
    with pytest.raises(WrongState):
        bench.engine.wake_job(job.id, ORIGIN, bench.now)


# Taken out of a list


def test_a_job_that_is_taken_out_counts_as_done(bench: Bench) -> None:
    first, second = bench.push(), bench.push()
    bench.engine.remove_from_list(first.id, ORIGIN, bench.now)
    assert bench.ids() == [second.id]
    assert bench.queue().finished == 1


def test_only_ready_jobs_are_taken_out(bench: Bench) -> None:
    leased = bench.push()
    bench.take()
    delayed = bench.push(run_at=START + SECOND)
    for job in (leased, delayed):
        with pytest.raises(WrongState):
            bench.engine.remove_from_list(job.id, ORIGIN, bench.now)
    assert (leased.state, delayed.state) == (LEASED, DELAYED)


def test_a_paused_queue_can_still_be_looked_after(bench: Bench) -> None:
    job = bench.push()
    bench.configure("q", QueueSettings(paused=True))
    bench.engine.remove_from_list(job.id, ORIGIN, bench.now)
    assert bench.ids() == []
