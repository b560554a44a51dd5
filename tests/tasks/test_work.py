"""`taskyard work` against a real server: what becomes of tasks in each kind of pool."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from tasks import yard
from tasks.workers import WorkerProcess, marks
from toq.brokers import Running

import taskyard
from taskyard import TaskFailed, chain, group

KINDS = ("threads", "processes", "async")


@pytest.fixture(scope="module", params=KINDS)
def worker(
    request: pytest.FixtureRequest, server: Running, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    directory = tmp_path_factory.mktemp(f"work-{request.param}")
    # Its leases are not short: they end while a disk stands still, and then tasks are run again.
    options = ("--pool", request.param, "--concurrency", "2", "--lease", "30")
    with WorkerProcess(directory, server.url, *options) as found:
        yield found


pytestmark = pytest.mark.usefixtures("app")


def test_tasks_are_run_and_give_results(worker: WorkerProcess) -> None:
    sent = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert yard.add.push(1, 2).result(HANG_GUARD) == 3
    assert yard.double.push(21).result(HANG_GUARD) == 42
    parcel = yard.Parcel("ann", sent)
    assert yard.arrival.push(parcel, days=2).result(HANG_GUARD) == sent + timedelta(days=2)


def test_a_task_that_fails_is_tried_again(worker: WorkerProcess) -> None:
    assert yard.fail_until.push("comes", 3).result(HANG_GUARD) == 3
    assert len(marks(worker.directory, "comes")) == 3


def test_a_task_that_keeps_failing_is_a_dead_letter(worker: WorkerProcess) -> None:
    handle = yard.fail_until.push("never", 9)
    with pytest.raises(TaskFailed, match="ValueError: attempt 3") as caught:
        handle.result(HANG_GUARD)
    assert 'raise ValueError(f"attempt {found}")' in caught.value.error
    assert len(marks(worker.directory, "never")) == 3
    assert handle.info().state == "failed"


def test_arguments_that_do_not_fit_fail_at_once(worker: WorkerProcess) -> None:
    handle = yard.fail_until.push("unfit", "many")  # type: ignore[arg-type]
    with pytest.raises(TaskFailed, match="argument 2 does not fit: Expected `int`, got `str`"):
        handle.result(HANG_GUARD)
    assert marks(worker.directory, "unfit") == []


def test_jobs_of_unknown_tasks_fail_clearly(worker: WorkerProcess) -> None:
    pushed = yard.app.client.push("default", b"[]", name="nothing-of-ours")
    outcome = yard.app.client.result(pushed, HANG_GUARD)
    assert outcome is not None
    assert outcome.error == b"UnknownTask: yard has no task named 'nothing-of-ours'"


def test_any_dialect_can_push_tasks(worker: WorkerProcess, server: Running) -> None:
    for payload, expected in ((b"[3, 4]", b"7"), (b'{"a": 1, "b": 1}', b"2")):
        id = server.ask("JOB.PUSH", "default", payload, "NAME", "add")
        assert isinstance(id, int)
        outcome = yard.app.client.result(id, HANG_GUARD)
        assert outcome is not None
        assert outcome.result == expected


def test_chains_and_groups(worker: WorkerProcess) -> None:
    assert chain(yard.add.s(1, 2), yard.add.s(3), yard.double.s()).push().result(HANG_GUARD) == 12
    members = group(yard.double.s(value) for value in range(20))
    assert members.push().results(HANG_GUARD) == [2 * value for value in range(20)]
    assert (members | yard.total.s()).push().result(HANG_GUARD) == 380


def test_a_join_of_more_jobs_than_one_can_wait_for(worker: WorkerProcess) -> None:
    members = group(yard.double.s(value) for value in range(300))
    assert (members | yard.total.s()).push().result(HANG_GUARD) == 2 * sum(range(300))


def test_a_step_that_fails_fails_those_after_it(worker: WorkerProcess) -> None:
    handle = chain(yard.add.s(1, 2), yard.fail_until.s(9), yard.double.s(), yard.double.s()).push()
    with pytest.raises(TaskFailed, match=r"^fail_until .*BadArguments"):
        handle.result(HANG_GUARD)


def test_progress_can_be_seen(worker: WorkerProcess) -> None:
    name = "progress"
    handle = yard.tell_progress.push(name)
    wait_for(lambda: handle.info().progress is not None)
    progress = handle.info().progress
    assert progress is not None
    assert (progress.fraction, progress.message) == (0.25, "a quarter")
    (worker.directory / f"{name}-may-end").touch()
    handle.result(HANG_GUARD)


@pytest.mark.parametrize(
    "task", [yard.hold_shortly, yard.hold_shortly_async], ids=lambda task: task.name
)
def test_a_task_that_is_cancelled_is_ended(
    worker: WorkerProcess, task: taskyard.tasks.Task[[str], str]
) -> None:
    name = f"cancelled-{task.name}"
    handle = task.push(name)
    worker.wait_for_file(f"{name}-runs")
    assert handle.cancel()
    worker.wait_for_file(f"{name}-cancelled")
    with pytest.raises(taskyard.ResultGone):
        handle.result(HANG_GUARD)
    assert not handle.cancel()
    assert yard.add.push(1, 1).result(HANG_GUARD) == 2


def test_soft_time_limits_are_raised_in_the_task(worker: WorkerProcess) -> None:
    assert yard.tidy_up.push().result(HANG_GUARD) == "tidied up"
    assert yard.tidy_up_async.push().result(HANG_GUARD) == "tidied up"


def test_hard_time_limits_fail_the_task_whatever_it_does(worker: WorkerProcess) -> None:
    with pytest.raises(TaskFailed, match=r"still running after its time limit of 0\.05 seconds"):
        yard.stubborn.push().result(HANG_GUARD)
    assert yard.add.push(1, 1).result(HANG_GUARD) == 2


def test_a_task_can_be_delayed(worker: WorkerProcess) -> None:
    begun = datetime.now(UTC)
    assert yard.add.push_in(0.2, 1, 2).result(HANG_GUARD) == 3
    assert datetime.now(UTC) - begun >= timedelta(seconds=0.2)
    assert yard.add.push_at(datetime.now(UTC), 1, 2).result(HANG_GUARD) == 3


def test_a_lease_is_extended_while_its_task_runs(worker: WorkerProcess) -> None:
    for number in range(20):
        name = f"extended-{number}"
        losses = hold_until_extended(worker, name)
        if losses == 0:
            assert len(marks(worker.directory, f"{name}-runs")) == 1
            return
        # Something stood still for longer than its lease, which was rightly over: once more.
    pytest.fail("its lease was over each time")


def hold_until_extended(worker: WorkerProcess, name: str) -> int:
    """How often the lease of the task was over."""
    handle = yard.hold_shortly.push(name)
    worker.wait_for_file(f"{name}-runs")
    deadlines: set[datetime] = set()

    def extended() -> bool:
        lease = handle.info().lease
        if lease is not None and lease.deadline is not None:
            deadlines.add(lease.deadline)
        return len(deadlines) > 3

    wait_for(extended)
    (worker.directory / f"{name}-may-end").touch()
    assert handle.result(HANG_GUARD) == name
    return handle.info().losses


@pytest.mark.parametrize("kind", KINDS)
def test_each_task_is_run_exactly_once(server: Running, tmp_path: Path, kind: str) -> None:
    queue = f"once-{kind}"
    handles = yard.note.with_options(queue=queue).map(range(500))
    # Its leases are not short: they end while a disk stands still, and then tasks are run again.
    options = ("--queues", queue, "--pool", kind, "--concurrency", "2", "--burst")
    with WorkerProcess(tmp_path, server.url, *options) as found:
        assert [handle.result(HANG_GUARD) for handle in handles] == [None] * 500
        assert found.wait() == 0
    assert sorted(map(int, marks(tmp_path, "noted"))) == list(range(500))


def test_unique_tasks_wait_once(server: Running, tmp_path: Path) -> None:
    nobody = yard.only_once.with_options(queue="nobody")
    first, second, other = nobody.push("a"), nobody.push("a"), nobody.push("b")
    assert (first.new, second.new, other.new) == (True, False, True)
    assert second.id == first.id != other.id
    with WorkerProcess(tmp_path, server.url, "--queues", "nobody", "--burst") as found:
        assert second.result(HANG_GUARD) == "a"
        assert found.wait() == 0
