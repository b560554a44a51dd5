"""Tasks that run where they are pushed, with no server: same JSON, hooks, retries and chains."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import taskyard
from taskyard import App, BadArguments, Middleware, Retry, TaskFailed, chain, group
from taskyard.client.commands import NewJob
from taskyard.client.source import Job
from taskyard.tasks.canvas import MAX_JOBS


@dataclass
class Pair:
    left: int
    right: int


app = App(inline=True)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def swap(pair: Pair) -> Pair:
    return Pair(pair.right, pair.left)


@app.task
async def double(value: int) -> int:
    await asyncio.sleep(0)
    return 2 * value


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task
def constant() -> str:
    return "constant"


@app.task
def fail(*values: Any) -> None:
    raise ValueError("why")


def test_the_result_is_there_at_once() -> None:
    handle = add.push(1, b=2)
    assert handle.is_done()
    assert handle.result() == 3


def test_a_task_can_be_called_as_the_function_it_was() -> None:
    assert add(1, 2) == 3
    assert asyncio.run(double(4)) == 8


def test_values_go_through_json() -> None:
    found = swap.push(Pair(1, 2)).result()
    assert found == Pair(2, 1)
    with app.inline() as runs:
        swap.push(Pair(1, 2))
    assert runs.runs[0].payload == b'{"args":[{"left":1,"right":2}],"kwargs":{}}'


def test_coroutines_run_also_while_a_loop_does() -> None:
    async def main() -> int:
        return await (await double.apush(21)).aresult()

    assert double.push(2).result() == 4
    assert asyncio.run(main()) == 42


def test_what_a_task_raises_is_the_cause_of_the_failure() -> None:
    with app.inline() as runs:
        handle = fail.push()
        with pytest.raises(TaskFailed, match=r"^fail \(job .*\): ValueError: why$") as caught:
            handle.result()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "Traceback" in caught.value.error
    assert [str(failure) for failure in runs.failures] == [str(caught.value)]


def test_delays_are_not_waited_for() -> None:
    assert add.push_in(3600, 1, 2).result() == 3
    assert add.push_at(datetime.now(UTC) + timedelta(days=1), 1, 2).result() == 3


def test_map_pushes_one_for_each() -> None:
    assert [handle.result() for handle in double.map(range(3))] == [0, 2, 4]
    assert [handle.result() for handle in add.starmap([(1, 2), (3, 4)])] == [3, 7]


def test_arguments_that_do_not_fit_are_refused_by_the_push() -> None:
    with pytest.raises(BadArguments, match="add: missing a required argument: 'b'"):
        add.push(1)  # type: ignore[call-arg]


def test_arguments_of_a_wrong_type_fail_without_a_retry() -> None:
    runs: list[int] = []
    seen: list[str] = []
    hooked = App(inline=True, middleware=[Recorder("a", seen)])

    @hooked.task(retry=5)
    def count(value: int) -> None:
        runs.append(value)

    with pytest.raises(TaskFailed, match="argument 1 does not fit: Expected `int`, got `str`"):
        count.push("one").result()  # type: ignore[arg-type]
    assert runs == []
    assert [one.split()[1] for one in seen] == ["push", "failure"]


class Attempts:
    """A task that fails until its number of attempts is reached."""

    def __init__(self, succeeds_at: int, error: type[Exception] = ValueError) -> None:
        self.count = 0
        self._succeeds_at = succeeds_at
        self._error = error

    def __call__(self) -> int:
        self.count += 1
        if self.count < self._succeeds_at:
            raise self._error(f"attempt {self.count}")
        return taskyard.current_job().attempt


@pytest.mark.parametrize(
    ("retry", "error", "runs"),
    [
        (None, ValueError, 4),
        (0, ValueError, 1),
        (2, ValueError, 3),
        (-1, ValueError, 5),
        (Retry(2), ValueError, 3),
        (Retry(2, on=(KeyError,)), ValueError, 1),
        (Retry(2, on=(KeyError,)), KeyError, 3),
        (Retry(2, never=(ValueError,)), ValueError, 1),
        (9, taskyard.GiveUp, 1),
        (Retry(2, on=()), taskyard.TryAgain, 3),
    ],
)
def test_retries(retry: Any, error: type[Exception], runs: int) -> None:
    attempts = Attempts(5, error)
    task = App(inline=True).task(name="attempts", retry=retry)(attempts.__call__)
    handle = task.push()
    assert attempts.count == runs
    if runs == 5:
        assert handle.result() == 5
    else:
        with pytest.raises(TaskFailed, match=f"attempt {runs}"):
            handle.result()


def test_each_step_of_a_chain_gets_what_the_one_before_gave() -> None:
    assert chain(add.s(1, 2), add.s(3), double.s()).push().result() == 12
    assert (add.s(1, 2) | double.s() | constant.si()).push().result() == "constant"
    assert chain([swap.s(Pair(1, 2)), swap.s()]).push().result() == Pair(1, 2)


def test_a_step_that_fails_fails_the_rest_and_is_named() -> None:
    with app.inline() as runs:
        handle = chain(add.s(1, 2), fail.s(), double.s(), double.s()).push()
        with pytest.raises(TaskFailed, match=r"^fail .*ValueError: why"):
            handle.result()
    assert [failure.name for failure in runs.failures] == ["fail", "double", "double"]


def test_a_group_gives_its_results_in_order() -> None:
    assert group(add.s(1, 1), double.s(4), constant.s()).push().results() == [2, 8, "constant"]
    assert len(group(double.s(value) for value in range(3)).push()) == 3


def test_a_step_after_a_group_gets_the_list() -> None:
    members = group(double.s(value) for value in range(5))
    assert (members | total.s()).push().result() == 20
    assert members.then(total.s()).push().result() == 20
    assert chain(add.s(1, 2), group(double.s(), add.s(10)), total.s()).push().result() == 19
    assert (members | total.s() | double.s()).push().result() == 40
    one = group(double.s(21)) | total.s()
    assert one.push().result() == 42


def test_a_chain_that_ends_in_a_group() -> None:
    found = chain(add.s(1, 2), group(double.s(), add.s(10)))
    assert found.push_group().results() == [6, 13]
    with app.inline() as runs, pytest.raises(ValueError, match="ends in a group"):
        found.push()
    assert runs.runs == []


def test_the_failure_in_a_chain_of_any_length_is_found() -> None:
    with pytest.raises(TaskFailed, match="ValueError: why") as caught:
        chain(fail.s(1), *(fail.s() for _ in range(900))).push().result()
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_group_may_be_larger_than_what_one_job_can_wait_for() -> None:
    with app.inline() as runs:
        members = group(double.s(value) for value in range(600))
        assert (members | total.s()).push().result() == 2 * sum(range(600))
    assert max(len(run.blocked_by) for run in runs.runs) == 255
    with pytest.raises(ValueError, match="at most 1000 jobs"):
        group(double.s(1) for _ in range(MAX_JOBS + 1)).push()


def test_arguments_of_steps_are_checked_when_they_run() -> None:
    with pytest.raises(TaskFailed, match="add: too many positional arguments"):
        chain(add.s(1, 2), add.s(3, 4)).push().result()
    with pytest.raises(BadArguments):
        chain(add.s(1), double.s()).push()


class Recorder(Middleware):
    def __init__(self, name: str, seen: list[str]) -> None:
        self._name = name
        self._seen = seen

    def on_push(self, job: NewJob) -> NewJob:
        self._seen.append(f"{self._name} push {job.name}")
        return job

    def before(self, job: taskyard.CurrentJob) -> None:
        self._seen.append(f"{self._name} before {job.attempt}")

    @contextlib.contextmanager
    def around(self, job: taskyard.CurrentJob) -> Iterator[None]:
        self._seen.append(f"{self._name} begins")
        try:
            yield
        finally:
            self._seen.append(f"{self._name} ends")

    def after(self, job: taskyard.CurrentJob, value: Any) -> None:
        self._seen.append(f"{self._name} after {value}")

    def on_retry(self, job: Job, error: str) -> None:
        self._seen.append(f"{self._name} retry {error.partition(chr(10))[0]}")

    def on_failure(self, job: Job, error: str) -> None:
        self._seen.append(f"{self._name} failure {error.partition(chr(10))[0]}")


def test_hooks_are_called_in_their_order() -> None:
    seen: list[str] = []
    hooked = App(inline=True, middleware=[Recorder("a", seen)])
    hooked.use(Recorder("b", seen))

    @hooked.task
    async def task() -> int:
        seen.append("task")
        return 1

    assert task.push().result() == 1
    assert seen == [
        "a push task",
        "b push task",
        "a before 1",
        "b before 1",
        "a begins",
        "b begins",
        "task",
        "b ends",
        "a ends",
        "b after 1",
        "a after 1",
    ]


def test_hooks_are_told_of_retries_and_failures() -> None:
    seen: list[str] = []
    hooked = App(inline=True, middleware=[Recorder("a", seen)])

    @hooked.task(retry=1)
    def task() -> None:
        raise ValueError("why")

    assert task.push().is_done()
    assert [one for one in seen if "ValueError" in one] == [
        "a retry ValueError: why",
        "a failure ValueError: why",
    ]


class Broken(Middleware):
    """Fails in one of its hooks."""

    def __init__(self, where: str) -> None:
        self._where = where

    def _check(self, where: str) -> None:
        if where == self._where:
            raise RuntimeError(f"broken {where}")

    def on_push(self, job: NewJob) -> NewJob:
        self._check("push")
        return job

    def before(self, job: taskyard.CurrentJob) -> None:
        self._check("before")

    def after(self, job: taskyard.CurrentJob, value: Any) -> None:
        self._check("after")

    def on_failure(self, job: Job, error: str) -> None:
        self._check("failure")


def test_errors_of_hooks_lose_no_job(caplog: pytest.LogCaptureFixture) -> None:
    def push(where: str) -> taskyard.Handle[int]:
        broken = App(inline=True, middleware=[Broken(where)])
        return broken.task(name="task")(lambda: 1).push()

    with pytest.raises(RuntimeError, match="broken push"):
        push("push")
    with pytest.raises(TaskFailed, match="RuntimeError: broken before"):
        push("before").result()
    assert push("after").result() == 1
    assert "broken after" in caplog.text
    failing = App(inline=True, middleware=[Broken("failure")])

    @failing.task
    def fails() -> None:
        raise ValueError("why")

    with pytest.raises(TaskFailed, match="ValueError: why"):
        fails.push().result()


def test_a_task_knows_its_job() -> None:
    @app.task
    def who(job: taskyard.CurrentJob | None = None) -> list[Any]:
        assert job is not None
        assert job is taskyard.current_job()
        job.progress(0.5, "half")
        return [job.name, job.queue, job.attempt]

    handle = who.push()
    assert handle.result() == ["who", "default", 1]
    progress = handle.info().progress
    assert progress is not None
    assert (progress.fraction, progress.message) == (0.5, "half")
    with pytest.raises(RuntimeError, match="no task runs here"):
        taskyard.current_job()


def test_results_that_are_not_wanted_are_not_kept() -> None:
    silent = App(inline=True)

    @silent.task(result=False)
    def task() -> int:
        return 1

    assert task.push().result() is None
    assert chain(task.s(), silent.task(name="again")(lambda value: value).s()).push().result() == 1


def test_an_unknown_job_has_no_result() -> None:
    with pytest.raises(taskyard.ResultGone):
        add.handle(4711).result()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"retry": -2}, "retry must be -1"),
        ({"backoff": 1}, "backoff needs retry"),
        ({"queue": ""}, "queue must not be empty"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        App(inline=True).task(**options)(lambda: None)


def test_what_is_no_function_is_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    for wrong in (generator, asynchronous):
        with pytest.raises(TypeError, match="is a generator"):
            app.task(wrong)
    with pytest.raises(TypeError, match="is for functions"):
        app.task(functools.partial(int, "7"))


def test_options_that_there_are_not_are_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        App(inline=True).task(colour="red")(lambda: None)


def test_options_can_be_changed_for_a_push() -> None:
    with app.inline() as runs:
        add.with_options(priority=7, queue="other", retry=4).push(1, 2)
        add.push(1, 2)
    assert [(run.priority, run.queue, run.retries) for run in runs.runs] == [
        (7, "other", 4),
        (0, "default", None),
    ]


def test_keys_of_unique_tasks_and_limits_come_from_the_arguments() -> None:
    keyed = App(inline=True)

    @keyed.task(unique=True, limit_key=lambda user, text: user)
    def mail(user: str, text: str) -> None: ...

    @keyed.task(unique=lambda user, text: user, limit_key="all")
    def ring(user: str, text: str) -> None: ...

    with keyed.inline() as runs:
        mail.push("ann", "one")
        mail.push("ann", "two")
        mail.push("ann", "one")
        ring.push("ann", "one")
        ring.push("ann", text="two")
    keys = [run.unique for run in runs.runs]
    assert keys[0] == keys[2] != keys[1]
    assert keys[3:] == ["ring:ann", "ring:ann"]
    assert [run.limit_key for run in runs.runs] == ["ann", "ann", "ann", "all", "all"]
