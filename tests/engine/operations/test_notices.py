"""Who is told what: lifecycle notices, fast pops, and watchers."""

import pytest
from engine.harness import ORIGIN, START, Bench
from support.batches import ack_all, lease_all

from taskyard.engine.model.events import (
    WATCH_FAILED,
    WATCH_GONE,
    WATCH_LEASED,
    WATCH_SUCCEEDED,
    WATCH_TIMEOUT,
    JobNotFound,
    LifecycleNotice,
)
from taskyard.engine.model.job import (
    ALL_STAGES,
    READY,
    SECOND,
    STAGE_ASSIGN,
    STAGE_DROP,
    STAGE_FINISH,
    STAGE_READY,
    STAGE_RETRY,
    STAGE_SYNC,
    STAGE_WRITE,
    Job,
    Notify,
    Policy,
)
from taskyard.engine.model.queue import QueueSettings

SESSION = 5
LABEL = 2**64 - 1


def push(bench: Bench, stages: int = ALL_STAGES, policy: Policy | None = None) -> Job:
    return bench.push(policy=policy or Policy(), notify=Notify(SESSION, LABEL, stages))


def stages(bench: Bench) -> list[object]:
    """The stages that were told since the last time."""
    found = bench.effects()
    assert all(effect[:3] == ("notice", SESSION, LABEL) for effect in found)
    return [effect[3] for effect in found]


# Notices


def test_a_pushed_job_is_ready_written_and_synced(bench: Bench) -> None:
    push(bench)
    assert stages(bench) == [STAGE_READY, STAGE_WRITE, STAGE_SYNC]


def test_only_what_was_asked_for_is_told(bench: Bench) -> None:
    job = push(bench, STAGE_SYNC | STAGE_FINISH)
    bench.take()
    bench.ack(job)
    assert stages(bench) == [STAGE_SYNC, STAGE_FINISH]


def test_nobody_asked_so_nobody_is_told(bench: Bench) -> None:
    bench.push()
    bench.push(notify=Notify(SESSION, LABEL, 0))
    bench.ack(bench.take())
    assert bench.effects() == []


def test_the_life_of_a_job_in_notices(bench: Bench) -> None:
    job = push(bench, policy=Policy(ttr=SECOND, max_fails=2))
    stages(bench)
    bench.take()
    assert stages(bench) == [STAGE_ASSIGN]
    bench.advance_clock(SECOND)
    assert stages(bench) == [STAGE_RETRY]
    bench.take()
    bench.nack(job)
    assert stages(bench) == [STAGE_ASSIGN, STAGE_RETRY]
    bench.take()
    bench.nack(job)
    assert stages(bench) == [STAGE_ASSIGN, STAGE_DROP]


def test_a_batch_assigns_too(bench: Bench) -> None:
    push(bench, STAGE_ASSIGN | STAGE_FINISH)
    lease_all(bench.engine, "c", 1, [b"q"], 5, 0, ORIGIN, bench.now)
    assert stages(bench) == [STAGE_ASSIGN]
    ack_all(bench.engine, "c", 1, ORIGIN, bench.now)
    assert stages(bench) == [STAGE_FINISH]


def test_a_popped_job_is_finished_and_never_assigned(bench: Bench) -> None:
    push(bench)
    stages(bench)
    bench.engine.fetch(bench.fetch_request(pop=True), bench.now)
    assert stages(bench) == [STAGE_FINISH]


def test_a_notice_waits_for_the_record_it_speaks_of(bench: Bench) -> None:
    bench.collect()
    push(bench, STAGE_READY)
    push(bench, STAGE_READY)
    first, second = bench.engine.drain_effects()
    assert isinstance(first, LifecycleNotice)
    assert isinstance(second, LifecycleNotice)
    assert (
        bench.engine.records.start_position
        < first.durable_position
        < second.durable_position
        == bench.engine.records.end_position()
    )


# Fast pops


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (STAGE_READY, [STAGE_FINISH]),
        (STAGE_FINISH, [STAGE_FINISH]),
        (STAGE_READY | STAGE_FINISH, [STAGE_FINISH]),
        (ALL_STAGES, [STAGE_FINISH]),
        (STAGE_WRITE | STAGE_SYNC | STAGE_RETRY, []),
        (0, []),
    ],
)
def test_what_a_waiting_pop_takes_at_once_was_never_ready(
    bench: Bench, asked: int, told: list[int]
) -> None:
    waiter = bench.wait(pop=True)
    job = push(bench, asked)
    effects = bench.effects()
    assert [effect[3] for effect in effects if effect[0] == "notice"] == told
    assert ("assigned", waiter.number, job.id) in effects


def test_a_waiting_fetch_is_no_fast_pop(bench: Bench) -> None:
    bench.wait()
    push(bench)
    told = [effect[3] for effect in bench.effects() if effect[0] == "notice"]
    assert told == [STAGE_READY, STAGE_WRITE, STAGE_SYNC, STAGE_ASSIGN]


def test_only_the_first_in_line_can_pop_fast(bench: Bench) -> None:
    bench.wait()
    bench.wait(pop=True)
    push(bench, STAGE_READY)
    assert [effect[3] for effect in bench.effects() if effect[0] == "notice"] == [STAGE_READY]


def test_what_cannot_be_taken_at_once_is_ready_first(bench: Bench) -> None:
    bench.wait(pop=True)
    bench.push(run_at=START + SECOND, notify=Notify(SESSION, LABEL, STAGE_READY))
    assert stages(bench) == [STAGE_READY]
    bench.engine.create_queue("paused", QueueSettings(paused=True), ORIGIN, bench.now)
    bench.wait("paused", pop=True)
    bench.push("paused", notify=Notify(SESSION, LABEL, STAGE_READY))
    assert stages(bench) == [STAGE_READY]


# Watchers


def watch(bench: Bench, job: Job, seconds: int = 0) -> int:
    deadline = bench.now + seconds * SECOND if seconds else 0
    return bench.engine.watch_job(job.id, 1, deadline).number


def test_a_watcher_hears_that_a_job_is_leased_and_how_it_ends(bench: Bench) -> None:
    job = bench.push()
    number = watch(bench, job)
    bench.take()
    bench.nack(job)
    bench.take()
    bench.ack(job)
    assert bench.effects() == [
        ("watched", number, WATCH_LEASED, job.id),
        ("watched", number, WATCH_LEASED, job.id),
        ("watched", number, WATCH_SUCCEEDED, job.id),
    ]
    assert bench.engine.watchers == {}


def test_a_watcher_hears_that_a_job_has_failed_and_then_no_more(bench: Bench) -> None:
    job = bench.push(policy=Policy(max_fails=1))
    number = watch(bench, job)
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    assert bench.effects() == [("watched", number, WATCH_FAILED, job.id)]
    assert bench.engine.watchers == {}


def test_every_watcher_is_told(bench: Bench) -> None:
    job = bench.push(ttl_ms=60_000)
    numbers = [watch(bench, job) for _ in range(3)]
    bench.engine.complete(job.id, b"result", ORIGIN, bench.now)
    told = [("watched", number, WATCH_SUCCEEDED, job.id) for number in numbers]
    assert bench.effects() == told


@pytest.mark.parametrize("dead_queue", ["", "dead"])
def test_a_final_failure_is_heard(bench: Bench, dead_queue: str) -> None:
    job = bench.push(policy=Policy(dead_queue=dead_queue))
    number = watch(bench, job)
    bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    assert bench.effects() == [("watched", number, WATCH_FAILED, job.id)]


def test_a_job_that_is_deleted_or_expires_is_gone(bench: Bench) -> None:
    deleted, expiring = bench.push(), bench.push(ttl_ms=1000)
    first, second = watch(bench, deleted), watch(bench, expiring)
    bench.delete(deleted)
    bench.advance_clock(SECOND)
    assert bench.effects() == [
        ("watched", first, WATCH_GONE, deleted.id),
        ("watched", second, WATCH_GONE, expiring.id),
    ]


def test_a_watcher_may_have_a_time_limit(bench: Bench) -> None:
    job = bench.push()
    patient, hasty = watch(bench, job), watch(bench, job, 5)
    bench.advance_clock(5 * SECOND)
    assert bench.effects() == [("watched", hasty, WATCH_TIMEOUT, job.id)]
    bench.engine.pop(b"q", False, ORIGIN, bench.now)
    assert bench.effects() == [("watched", patient, WATCH_SUCCEEDED, job.id)]


def test_who_was_told_the_end_does_not_run_into_the_time_limit(bench: Bench) -> None:
    job = bench.push()
    watch(bench, job, 5)
    bench.engine.pop(b"q", False, ORIGIN, bench.now)
    bench.effects()
    bench.advance_clock(10 * SECOND)
    assert bench.effects() == []
    assert bench.engine.state.timers.heap == []


def test_who_stops_watching_hears_nothing(bench: Bench) -> None:
    job = bench.push()
    watcher = bench.engine.watch_job(job.id, 1, bench.now + SECOND)
    bench.engine.stop_watching(watcher)
    bench.engine.stop_watching(watcher)
    bench.delete(job)
    bench.advance_clock(2 * SECOND)
    assert bench.effects() == []


def test_what_is_not_there_cannot_be_watched(bench: Bench) -> None:
    with pytest.raises(JobNotFound):
        bench.engine.watch_job(99, 1)
    assert bench.engine.watchers == {}
    assert bench.ids(state=READY) == []
