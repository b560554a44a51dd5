"""The recomputation itself: on lives whose tables were worked out by hand, and on random ones."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pipeline.histories import HOUR, MINUTE, START, WORKERS, History, Walk
from pipeline.oracle import Tables, class_of, compute, message_of, read_records

from taskyard.engine.model.job import GONE, SECOND, STATE_NAMES, SUCCEEDED, NewJob, Policy
from taskyard.pipeline.lake.failures import classes, messages

DEAD = Policy(max_fails=1, dead_queue="dead")
ONCE = Policy(max_fails=1)
EVER = Policy(max_fails=-1)
WORKER = WORKERS[0]


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path, Random(1))


def tables_of(history: History, from_seq: int = 0) -> Tables:
    """With the minute that was the last one so far."""
    history.pass_time(MINUTE)
    history.restart()
    history.close()
    return compute(read_records(history.data, from_seq))


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(START / SECOND, UTC) + timedelta(seconds=seconds)


def take(history: History, queue: str = "q") -> int:
    job = history.lease(queue, WORKER, 1)
    assert job is not None
    return job.id


def test_a_job_that_succeeds_at_once(history: History) -> None:
    history.push("q", "task", EVER)
    history.pass_time(2 * SECOND)
    job = history.lease("q", WORKER, 1)
    assert job is not None
    history.pass_time(3 * SECOND)
    history.ack(job, WORKER)
    tables = tables_of(history)
    assert tables.open_jobs == []
    assert tables.failures == []
    (row,) = tables.jobs
    assert row["outcome"] == "succeeded"
    assert row["way"] == "ack"
    assert (row["pushed_at"], row["ready_at"], row["started_at"]) == (at(0), at(0), at(2))
    assert row["finished_at"] == at(5)
    assert (row["wait_seconds"], row["run_seconds"], row["total_seconds"]) == (2, 3, 5)
    assert (row["attempts"], row["retries"], row["releases"]) == (1, 0, 0)
    (attempt,) = tables.attempts
    assert attempt["worker"] == "worker-1"
    assert (attempt["attempt"], attempt["outcome"], attempt["reason"]) == (1, "succeeded", "ack")
    assert sum(row["arrivals"] for row in tables.queue_minutes) == 1
    assert sum(row["finishes"] for row in tables.queue_minutes) == 1


def test_a_job_that_goes_to_its_dead_queue_begins_a_new_run_there(history: History) -> None:
    job = history.push("q", "task", DEAD)
    history.pass_time(SECOND)
    take(history)
    history.pass_time(4 * SECOND)
    history.nack(job, WORKER, b"ValueError: 17")
    history.pass_time(10 * SECOND)
    take(history, "dead")
    history.pass_time(SECOND)
    history.ack(job, WORKER)
    tables = tables_of(history)
    first, second = tables.jobs
    assert (first["queue"], first["run"], first["outcome"]) == ("q", 1, "failed")
    assert (first["error"], first["error_class"]) == ("ValueError: 17", "ValueError")
    assert (second["queue"], second["first_queue"], second["run"]) == ("dead", "q", 2)
    assert (second["wait_seconds"], second["total_seconds"]) == (10, 11)
    assert second["pushed_at"] == at(0)
    assert [row["attempt"] for row in tables.attempts] == [1, 1]
    (group,) = tables.failures
    assert (group["count"], group["final"], group["message"]) == (1, 1, "ValueError: <n>")
    assert group["sample_jobs"] == [job.id]


def test_a_dead_letter_is_open_and_closed_until_it_is_replayed(history: History) -> None:
    job = history.push("q", "task", ONCE)
    take(history)
    history.nack(job, WORKER, b"no")
    dead = compute_so_far(history)
    assert [row["state"] for row in dead.open_jobs] == ["failed"]
    assert [row["outcome"] for row in dead.jobs] == ["failed"]
    history.engine.replay_dead_letter(job.id, WORKER, history.now)
    revived = compute_so_far(history)
    (row,) = revived.open_jobs
    assert (row["state"], row["run"], row["attempts"]) == ("ready", 2, 0)
    assert len(revived.jobs) == 1


def compute_so_far(history: History) -> Tables:
    history.restart()
    return compute(read_records(history.data))


def test_a_job_waits_for_all_its_blockers_and_then_for_its_time(history: History) -> None:
    blockers = [history.push("a", "task", EVER).id, history.push("a", "task", EVER).id]
    new = NewJob("q", "late", b"", EVER, run_at=START + HOUR, blocked_by=blockers)
    late = history.engine.push(new, WORKER, history.now)
    states = []
    for id in blockers:
        history.engine.complete(id, b"", WORKER, history.now)
        found = {row["job_id"]: row for row in compute_so_far(history).open_jobs}
        states.append((found[late.id]["state"], found[late.id]["blockers_left"]))
    history.pass_time(HOUR)
    history.write()
    found = {row["job_id"]: row for row in compute_so_far(history).open_jobs}
    states.append((found[late.id]["state"], found[late.id]["blockers_left"]))
    assert states == [("blocked", 1), ("delayed", 0), ("ready", 0)]
    assert found[late.id]["ready_since"] == at(3600)


def test_the_minutes_of_a_queue(history: History) -> None:
    """It starts 20 seconds into a minute."""
    for _ in range(3):
        history.push("q", "task", EVER)
    history.pass_time(10 * SECOND)
    first = take(history)
    history.pass_time(5 * SECOND)
    take(history)
    history.pass_time(10 * MINUTE)  # the leases run out after five
    tables = tables_of(history)
    begin, expired = tables.queue_minutes
    assert begin["minute"] == at(-START / SECOND % -60)
    assert (begin["arrivals"], begin["starts"], begin["depth"], begin["in_flight"]) == (3, 2, 1, 2)
    assert (begin["wait_p50"], begin["workers"]) == (12.5, 1)
    assert begin["run_p50"] is None
    assert (expired["releases"], expired["depth"], expired["in_flight"]) == (2, 3, 0)
    assert (expired["run_p50"], expired["workers"]) == (300, 1)
    assert [row["outcome"] for row in tables.attempts] == ["released", "released"]
    assert {row["state"] for row in tables.open_jobs} == {"ready"}
    assert first in {row["job_id"] for row in tables.attempts}


def test_a_journal_that_begins_in_the_middle(history: History) -> None:
    history.push("q", "task", EVER)
    history.push("q", "task", EVER)
    before = history.journal.records.next_seq
    one = history.lease("q", WORKER, 1)
    assert one is not None
    history.pass_time(2 * SECOND)
    history.ack(one, WORKER)
    history.engine.pop(b"q", False, WORKER, history.now)
    tables = tables_of(history, before)
    leased, popped = tables.jobs
    assert (leased["name"], leased["pushed_at"], leased["wait_seconds"]) == (None, None, None)
    assert (leased["run_seconds"], popped["run_seconds"]) == (2, 0)
    assert [row["reason"] for row in tables.attempts] == ["ack", "pop"]
    assert [(row["depth"], row["in_flight"]) for row in tables.queue_minutes] == [(0, 0)]


@given(random=st.randoms(use_true_random=False), steps=st.integers(1, 80))
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_it_ends_where_the_engine_does(
    tmp_path_factory: pytest.TempPathFactory, random: Random, steps: int
) -> None:
    history = History(tmp_path_factory.mktemp("data"), random)
    walk = Walk(history, random)
    for _ in range(steps):
        walk.step()
    history.write()
    there = {
        job.id: (STATE_NAMES[job.state], job.queue.name, job.attempts, job.priority)
        for job in history.engine.state.jobs
        if job.state not in (SUCCEEDED, GONE)
    }
    history.close()
    tables = compute(read_records(history.data))
    found = {
        row["job_id"]: (row["state"], row["queue"], row["attempts"], row["priority"])
        for row in tables.open_jobs
    }
    assert found == there
    arrived = Counter(row["run"] == 1 for row in tables.jobs + tables.open_jobs)
    dead = sum(row["state"] == "failed" and row["run"] == 1 for row in tables.open_jobs)
    pushed = history.engine.state.next_id - 1
    assert arrived[True] - dead == pushed


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        ("ValueError: 1", "ValueError", "ValueError: <n>"),
        ("a.b.C: 1: 2", "a.b.C", "a.b.C: <n>: <n>"),
        ("Traceback (most recent call last):\n  File\nx.Y: 1", "x.Y", "x.Y: <n>"),
        ("17 no such file", "no", "<n> no such file"),
        ("no job 17\nmore", "no", "no job <n>"),
        ("at 0xDEADbeef, deadbeef01, face", "at", "at <hex>, <hex>, face"),
        ("id 6f1c2d3e-0a1b-4c5d-8e9f-001122334455.", "id", "id <uuid>."),
        ("x" * 300, "x" * 300, "x" * 200),
        ("?!", "unknown", "?!"),
        ("", "unknown", ""),
    ],
)
def test_the_class_and_the_message_of_an_error(error: str, name: str, message: str) -> None:
    """Also as the lake itself has them."""
    assert (class_of(error), message_of(error)) == (name, message)
    assert classes(pa.array([error, error])).to_pylist() == [name] * 2
    assert messages(pa.array([error])).to_pylist() == [message]
