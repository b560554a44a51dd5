"""Looking after queues: create, configure, pause, purge, delete."""

import pytest
from engine.harness import ORIGIN, Bench

from taskyard.engine.model.events import InvalidOption, QueueExists, QueueNotFound, WrongState
from taskyard.engine.model.job import FAILED, GONE, LEASED, READY, SECOND, Policy
from taskyard.engine.model.queue import QueueSettings


def create(bench: Bench, name: str = "q", settings: QueueSettings | None = None) -> None:
    bench.engine.create_queue(name, settings or QueueSettings(), ORIGIN, bench.now)


def purge(bench: Bench, state: int = READY, count: int = 100) -> int:
    return bench.engine.purge_queue(b"q", state, count, ORIGIN, bench.now)


def test_a_created_queue_is_there_and_empty(bench: Bench) -> None:
    create(bench, "q", QueueSettings(retries=5))
    queue = bench.queue()
    assert queue.is_empty()
    assert queue.settings.created
    assert queue.settings.retries == 5


def test_a_name_can_be_created_once(bench: Bench) -> None:
    bench.push("pushed")
    create(bench, "q")
    for name in ("q", "pushed"):
        with pytest.raises(QueueExists):
            create(bench, name)


@pytest.mark.parametrize("name", ["", "two words", "x" * 256, "\ud800", "\n"])
def test_a_name_that_is_none_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(InvalidOption):
        create(bench, name)


def test_queues_are_numbered_in_order_of_creation(bench: Bench) -> None:
    create(bench, "b")
    bench.push("a")
    create(bench, "c")
    records = bench.collect()[1:]  # the first is the boot
    queues = bench.engine.state.queues.values()
    assert [queue.name for queue in queues] == ["b", "a", "c"]
    assert [queue.created_seq for queue in queues] == [record.seq for record in records]


def test_a_queue_that_is_not_there_cannot_be_looked_after(bench: Bench) -> None:
    with pytest.raises(QueueNotFound):
        bench.configure("unknown")
    with pytest.raises(QueueNotFound):
        purge(bench)
    with pytest.raises(QueueNotFound):
        bench.engine.delete_queue(b"unknown", ORIGIN, bench.now)
    assert bench.engine.state.queues == {}


def test_other_settings_hold_from_now_on_and_after_a_restart(bench: Bench) -> None:
    bench.push()
    bench.configure("q", QueueSettings(paused=True, max_jobs=7))
    bench.restart()
    settings = bench.queue().settings
    assert settings.paused
    assert settings.max_jobs == 7


def test_a_queue_stays_when_its_jobs_are_gone(bench: Bench) -> None:
    bench.push()
    bench.engine.pop(b"q", False, ORIGIN, bench.now)
    assert bench.queue().is_empty()


def test_a_purge_removes_the_first_jobs_of_one_state(bench: Bench) -> None:
    jobs = [bench.push() for _ in range(5)]
    bench.take()
    assert purge(bench, READY, 3) == 3
    assert bench.ids() == [jobs[4].id]
    assert bench.ids(state=LEASED) == [jobs[0].id]
    assert bench.queue().removed == 3


def test_a_purge_may_find_less_than_it_was_told(bench: Bench) -> None:
    bench.push()
    assert purge(bench, READY, 3) == 1
    assert purge(bench, READY, 3) == 0
    assert purge(bench, READY, 0) == 0


def test_a_purge_of_leased_jobs_ends_their_leases(bench: Bench) -> None:
    job = bench.push()
    bench.take(bound=True)
    assert purge(bench, LEASED) == 1
    assert job.state == GONE
    assert bench.engine.state.bound_jobs_by_owner == {}


@pytest.mark.parametrize(("state", "count"), [(GONE, 1), (-1, 1), (99, 1), (READY, -1)])
def test_a_purge_of_no_state_or_a_negative_number_is_refused(
    bench: Bench, state: int, count: int
) -> None:
    bench.push()
    with pytest.raises(InvalidOption):
        purge(bench, state, count)
    assert len(bench.ids()) == 1


def test_a_deleted_queue_is_forgotten(bench: Bench) -> None:
    create(bench, "q", QueueSettings(paused=True))
    create(bench, "other")
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    assert bench.engine.queue(b"q") is None
    bench.push("q")
    assert not bench.queue().settings.paused
    assert bench.queue().pushed == 1
    assert bench.queue().created_seq > bench.queue("other").created_seq


@pytest.mark.parametrize("state", ["ready", "leased", "failed"])
def test_a_queue_with_jobs_cannot_be_deleted(bench: Bench, state: str) -> None:
    job = bench.push(policy=Policy())
    if state == "leased":
        bench.take()
    elif state == "failed":
        bench.engine.fail(job.id, b"", ORIGIN, bench.now)
    with pytest.raises(WrongState):
        bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    purge(bench, {"ready": READY, "leased": LEASED, "failed": FAILED}[state])
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)


def test_a_deleted_queue_leaves_no_timers(bench: Bench) -> None:
    delayed = bench.push(run_at=bench.now + SECOND)
    dead = bench.push(policy=Policy())
    bench.engine.fail(dead.id, b"", ORIGIN, bench.now)
    for job in (delayed, dead):
        bench.delete(job)
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    assert bench.engine.state.timers.heap == []


def test_who_waits_at_a_deleted_queue_goes_on_waiting_for_its_name(bench: Bench) -> None:
    create(bench)
    waiter = bench.wait()
    bench.engine.delete_queue(b"q", ORIGIN, bench.now)
    job = bench.push()
    assert bench.effects() == [("assigned", waiter.number, job.id)]


def test_counters_count_since_the_queue_exists(bench: Bench) -> None:
    for _ in range(6):
        bench.push(policy=Policy(max_fails=2))
    bench.ack(bench.take())
    bench.nack(bench.take())
    bench.nack(bench.take())
    bench.engine.release_lease(bench.take().id, 1, ORIGIN, bench.now)
    bench.delete(bench.take())
    queue = bench.queue()
    assert (queue.pushed, queue.leases, queue.finished) == (6, 5, 1)
    assert (queue.retried, queue.failed, queue.released, queue.removed) == (1, 1, 1, 1)
    bench.restart()
    again = bench.queue()
    assert (again.pushed, again.leases, again.finished) == (6, 5, 1)


def test_a_queue_is_not_empty_while_it_has_a_job_of_any_state(bench: Bench) -> None:
    other = bench.push("other")
    bench.push("blocked", blocked_by=[other.id])
    bench.push("delayed", run_at=bench.now + SECOND)
    bench.push("leased")
    bench.take("leased")
    bench.push("dead", policy=Policy(max_fails=1))
    bench.nack(bench.take("dead"))
    bench.push("done", ttl_ms=60_000)
    bench.ack(bench.take("done"))
    for name in ("other", "blocked", "delayed", "leased", "dead", "done"):
        assert not bench.queue(name).is_empty(), name
        with pytest.raises(WrongState):
            bench.engine.delete_queue(name.encode(), ORIGIN, bench.now)
