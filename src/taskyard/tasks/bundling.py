"""Runs a group of jobs: their rows in one table, and one verdict for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from taskyard.client.source import Job, Verdict
from taskyard.tasks.batch import BatchTask
from taskyard.tasks.context import ProgressReporter
from taskyard.tasks.errors import GiveUp, TryAgain
from taskyard.tasks.running import AsyncTaskRunner, PreparedCall, SyncTaskRunner, TaskRunner
from taskyard.worker.bundles import JobGroup
from taskyard.worker.coroutines import run_in_thread
from taskyard.worker.interrupts import Cancelled, SoftTimeLimit

_FAILS_ALL_ROWS: Final = (GiveUp, TryAgain, SoftTimeLimit, Cancelled)


class GroupRunner(TaskRunner):
    """Turns the result of a group into outcomes of its jobs."""

    def __call__(self, bundle: JobGroup) -> list[Verdict]:
        verdicts: dict[str, Verdict] = {}  # by ref
        rows: list[PreparedCall] = []
        with ExitStack() as surroundings:
            for job in bundle.jobs:
                prepared = self._prepare(job)
                if not isinstance(prepared, PreparedCall):
                    verdicts[job.ref] = prepared
                    continue
                try:
                    surroundings.enter_context(self._hooks.enter_contexts(prepared.current))
                except BaseException as error:
                    verdicts[job.ref] = self._failure_verdict(prepared, error)
                    continue
                rows.append(prepared)
            results = self._run_rows(bundle.name, rows)
        for prepared, result in zip(rows, results, strict=True):
            verdicts[prepared.current.job.ref] = self._result_verdict(prepared, result)
        return [verdicts[job.ref] for job in bundle.jobs]

    def _run_rows(self, name: str, rows: Sequence[PreparedCall]) -> list[Any]:
        """One for each row; where one row spoils it for others, it is tried with fewer of them
        until that one is alone.
        """
        if not rows:
            return []
        task = self._tasks[name]
        assert isinstance(task, BatchTask)
        try:
            return task.run(
                [task.row(row.args, row.kwargs) for row in rows],
                [row.current.id for row in rows],
            )
        except BaseException as error:
            if len(rows) == 1 or not task.split or isinstance(error, _FAILS_ALL_ROWS):
                return [error] * len(rows)
        half = len(rows) // 2
        return self._run_rows(name, rows[:half]) + self._run_rows(name, rows[half:])

    def _result_verdict(self, prepared: PreparedCall, result: Any) -> Verdict:
        if isinstance(result, BaseException):
            return self._failure_verdict(prepared, result)
        try:
            verdict = prepared.success(result)
        except Exception as error:  # it has no JSON
            return self._failure_verdict(prepared, error)
        self._hooks.run_after(prepared.current, result)
        return verdict


class GroupingTaskRunner:
    """Runs groups, and all other tasks as without them; in any thread or process."""

    def __init__(self, execute: SyncTaskRunner, bundles: GroupRunner) -> None:
        self._task_runner = execute
        self._group_runner = bundles

    @classmethod
    def from_task_runner(cls, execute: SyncTaskRunner) -> GroupingTaskRunner:
        return cls(execute, GroupRunner(execute.app))

    def __reduce__(
        self,
    ) -> tuple[Callable[[SyncTaskRunner], GroupingTaskRunner], tuple[SyncTaskRunner]]:
        return GroupingTaskRunner.from_task_runner, (self._task_runner,)

    def __call__(self, job: Job) -> Verdict | list[Verdict]:
        return self._group_runner(job) if isinstance(job, JobGroup) else self._task_runner(job)

    def report_progress_to(self, note: ProgressReporter) -> None:
        self._task_runner.report_progress_to(note)

    def on_thread_end(self) -> None:
        self._task_runner.on_thread_end()


class AsyncGroupingTaskRunner:
    """The same beside an event loop: a group runs in a thread."""

    def __init__(self, execute: AsyncTaskRunner) -> None:
        self._task_runner = execute
        self._group_runner = GroupRunner(execute.app)

    def report_progress_to(self, note: ProgressReporter) -> None:
        self._task_runner.report_progress_to(note)

    async def __call__(self, job: Job) -> Verdict | list[Verdict]:
        if isinstance(job, JobGroup):
            return await run_in_thread(lambda: self._group_runner(job))
        return await self._task_runner(job)
