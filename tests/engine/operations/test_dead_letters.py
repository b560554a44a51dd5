"""Where jobs go that failed for good, for how long, and how they come back."""

import pytest
from engine.harness import NO_LIMIT, ORIGIN, START, Bench

from taskyard.engine.model.events import JobNotFound, WrongState
from taskyard.engine.model.job import FAILED, READY, SECOND, Job, Policy
from taskyard.engine.model.queue import QueueSettings
from taskyard.engine.model.state import EngineSettings

ONCE = Policy(max_fails=1)
LETTER = 512  # bytes that each counts for besides its payload and error


def kill(bench: Bench, job: Job, error: bytes = b"") -> None:
    bench.engine.fail(job.id, error, ORIGIN, bench.now)


def dead(bench: Bench, count: int = 1, payload: bytes = b"") -> list[Job]:
    jobs = [bench.push(policy=ONCE, payload=payload) for _ in range(count)]
    for job in jobs:
        kill(bench, job)
        bench.now += 1
    return jobs


# The dead letters of a queue


def test_a_job_that_finally_fails_is_kept_with_the_reason(bench: Bench) -> None:
    job = bench.push(policy=ONCE)
    bench.take()
    bench.nack(job, error=b"boom")
    assert bench.ids(state=FAILED) == [job.id]
    extra = job.ensure_extras()
    assert extra.reason == "failures used up"
    assert bench.read(extra.error_at, extra.error_size) == b"boom"
    assert job.finished_at == START
    assert bench.queue().failed == 1


def test_dead_letters_are_listed_oldest_first(bench: Bench) -> None:
    jobs = [bench.push(policy=ONCE, priority=priority) for priority in (0, 9, -9)]
    for job in reversed(jobs):
        kill(bench, job)
    assert bench.ids(state=FAILED) == [job.id for job in reversed(jobs)]


def test_dead_letters_are_kept_for_a_week(bench: Bench) -> None:
    job = dead(bench)[0]
    week = 7 * 86_400 * SECOND
    bench.advance_clock(START + week - bench.now - 1)
    assert job.state == FAILED
    bench.advance_clock(1)
    with pytest.raises(JobNotFound):
        bench.engine.job(job.id)


def test_each_is_kept_for_its_own_time(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(dead_retention=10 * SECOND), ORIGIN, bench.now)
    first = dead(bench)[0]
    bench.advance_clock(4 * SECOND)
    second = dead(bench)[0]
    bench.advance_clock(6 * SECOND)
    assert bench.ids(state=FAILED) == [second.id]
    assert bench.engine.recent(first.id) is first


def test_a_queue_can_keep_them_longer_or_shorter_at_any_time(bench: Bench) -> None:
    dead(bench)
    bench.configure("q", QueueSettings(dead_retention=5 * SECOND))
    bench.advance_clock(5 * SECOND)
    assert bench.ids(state=FAILED) == []


def test_a_new_retention_holds_for_those_that_come_after_a_replay(bench: Bench) -> None:
    """The timer of the letter that left must not make the next one stay."""
    job = dead(bench)[0]
    bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    bench.configure("q", QueueSettings(dead_retention=SECOND))
    kill(bench, job)
    bench.advance_clock(SECOND)
    assert bench.ids(state=FAILED) == []


def test_a_retention_of_nothing_keeps_nothing(bench: Bench) -> None:
    bench.engine.create_queue("q", QueueSettings(dead_retention=0), ORIGIN, bench.now)
    dead(bench)
    bench.advance_clock(1)
    assert bench.ids(state=FAILED) == []


def test_a_dead_letter_is_not_kept_beyond_its_ttl(bench: Bench) -> None:
    job = bench.push(policy=ONCE, ttl_ms=3000)
    kill(bench, job)
    bench.advance_clock(3 * SECOND)
    assert bench.ids(state=FAILED) == []
    assert bench.queue().dead_bytes == 0


def test_they_are_bounded_in_bytes_and_the_oldest_go_first() -> None:
    bench = Bench(EngineSettings(dead_bytes=2 * LETTER + 20))
    jobs = dead(bench, 3, b"x" * 10)
    assert bench.ids(state=FAILED) == [jobs[1].id, jobs[2].id]
    assert bench.queue().dead_bytes == 2 * LETTER + 20
    kill(bench, bench.push(policy=ONCE, payload=b"x" * 10), b"e")
    assert len(bench.ids(state=FAILED)) == 1


def test_one_that_is_too_large_is_not_kept_at_all() -> None:
    bench = Bench(EngineSettings(dead_bytes=LETTER))
    job = dead(bench, 1, b"x")[0]
    assert bench.engine.recent(job.id) is job
    assert bench.queue().dead_bytes == 0


# Coming back


def test_a_replayed_job_starts_anew_at_the_back(bench: Bench) -> None:
    job = bench.push(policy=ONCE)
    bench.take()
    bench.nack(job, error=b"boom")
    other = bench.push()
    bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    assert bench.ids() == [other.id, job.id]
    assert (job.attempts, job.fails, job.losses, job.finished_at) == (0, 0, 0, 0)
    assert job.ensure_extras().reason == ""
    assert not job.ensure_extras().has_result
    bench.engine.complete(job.id, b"", ORIGIN, bench.now)


def test_only_dead_letters_can_be_replayed(bench: Bench) -> None:
    job = bench.push()
    with pytest.raises(WrongState):
        bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    with pytest.raises(JobNotFound):
        bench.engine.replay_dead_letter(99, ORIGIN, bench.now)


def test_a_replayed_job_goes_to_who_waits(bench: Bench) -> None:
    job = dead(bench)[0]
    waiter = bench.wait()
    bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    assert bench.effects() == [("assigned", waiter.number, job.id)]


def test_a_dead_letter_that_is_moved_starts_anew_too(bench: Bench) -> None:
    job = bench.push(policy=ONCE)
    bench.take()
    bench.nack(job)
    bench.engine.move_job(job.id, "other", False, ORIGIN, bench.now)
    assert bench.ids("other") == [job.id]
    assert (job.attempts, job.fails, job.finished_at, job.ensure_extras().reason) == (0, 0, 0, "")
    assert not job.ensure_extras().has_result


def test_dead_letters_can_be_purged_in_portions(bench: Bench) -> None:
    jobs = dead(bench, 3)
    assert bench.engine.purge_queue(b"q", FAILED, 2, ORIGIN, bench.now) == 2
    assert bench.ids(state=FAILED) == [jobs[2].id]
    assert bench.engine.purge_queue(b"q", FAILED, 2, ORIGIN, bench.now) == 1


# Dead queues


def test_a_job_can_name_the_queue_it_goes_to(bench: Bench) -> None:
    policy = Policy(ttr=5, max_attempts=9, max_fails=2, max_losses=4, dead_queue="dead")
    job = bench.push("q", policy=policy, name="name", payload=b"payload", key=b"k")
    for _ in range(2):
        bench.take()
        bench.nack(job, error=b"boom")
    assert bench.ids("dead") == [job.id]
    assert bench.ids("q", FAILED) == []
    assert (job.name, job.attempts, job.fails, job.losses) == ("name", 0, 0, 0)
    assert bench.read(job.payload_at, job.payload_size) == b"payload"
    assert job.policy.dead_queue == ""
    assert job.policy.ttr == 5
    assert job.policy.max_fails == 2
    assert job.ensure_extras().reason == "failures used up"
    assert job.ensure_extras().key is None
    assert bench.queue("q").failed == 1


def test_what_fails_in_the_dead_queue_is_a_dead_letter_there(bench: Bench) -> None:
    job = bench.push("q", policy=Policy(max_fails=1, dead_queue="dead"))
    kill(bench, job)
    kill(bench, job)
    assert bench.ids("dead", FAILED) == [job.id]


def test_a_job_whose_attempts_or_holders_are_used_up_goes_there_too(bench: Bench) -> None:
    bench.push("q", policy=Policy(ttr=SECOND, max_attempts=1, dead_queue="dead"))
    bench.push("q", policy=Policy(ttr=SECOND, max_losses=1, dead_queue="dead"))
    bench.take()
    bench.take()
    bench.advance_clock(SECOND)
    assert bench.ids("dead") == [1, 2]


def test_who_waits_at_the_dead_queue_gets_it(bench: Bench) -> None:
    waiter = bench.wait("dead")
    job = bench.push("q", policy=Policy(max_fails=1, dead_queue="dead"))
    kill(bench, job)
    assert bench.effects() == [("assigned", waiter.number, job.id)]


def test_the_dead_queue_can_be_its_own(bench: Bench) -> None:
    job = bench.push("q", policy=Policy(max_fails=1, dead_queue="q"))
    other = bench.push("q")
    kill(bench, job)
    assert bench.ids("q") == [other.id, job.id]
    kill(bench, job)
    assert bench.ids("q", FAILED) == [job.id]


# Dependents


def test_dependents_fail_when_the_blocker_does_whatever_happens_to_it_later(
    bench: Bench,
) -> None:
    blocker = bench.push(policy=Policy(max_fails=1, dead_queue="dead"))
    blocked = bench.push(policy=NO_LIMIT, blocked_by=[blocker.id])
    kill(bench, blocker)
    assert blocked.state == FAILED
    assert blocked.ensure_extras().reason == "a job it waited for failed"
    bench.engine.complete(blocker.id, b"", ORIGIN, bench.now)
    assert blocked.state == FAILED


def test_a_job_in_the_dead_queue_can_be_waited_for_anew(bench: Bench) -> None:
    blocker = bench.push(policy=Policy(max_fails=1, dead_queue="dead"))
    kill(bench, blocker)
    blocked = bench.push(blocked_by=[blocker.id])
    bench.engine.complete(blocker.id, b"", ORIGIN, bench.now)
    assert blocked.state == READY


def test_a_dead_letter_does_not_block(bench: Bench) -> None:
    job = dead(bench)[0]
    assert bench.push(blocked_by=[job.id]).state == READY


def test_the_bytes_that_wait_are_those_of_jobs_that_have_not_ended(bench: Bench) -> None:
    job = bench.push(payload=b"12345", policy=Policy(max_fails=1))
    other = bench.push(payload=b"123")
    queue = bench.queue()
    assert queue.unfinished_bytes == 8
    bench.nack(bench.take())
    assert queue.unfinished_bytes == 3
    bench.engine.replay_dead_letter(job.id, ORIGIN, bench.now)
    assert queue.unfinished_bytes == 8
    bench.engine.move_job(other.id, "elsewhere", False, ORIGIN, bench.now)
    assert (queue.unfinished_bytes, bench.queue("elsewhere").unfinished_bytes) == (5, 3)
    bench.delete(job)
    assert queue.unfinished_bytes == 0


def test_a_job_comes_to_its_dead_queue_as_if_nobody_had_tried_it(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=1, dead_queue="dead", ttr=SECOND))
    bench.take()
    bench.advance_clock(SECOND)
    assert (job.attempts, job.losses) == (1, 1)
    bench.nack(bench.take())
    assert (job.queue.name, job.attempts, job.fails, job.losses) == ("dead", 0, 0, 0)
