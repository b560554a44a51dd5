"""Running a bundle: the rows of its jobs in one table, and one verdict for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from taskyard.client.source import Job, Verdict
from taskyard.tasks.batch import BatchTask
from taskyard.tasks.context import Note
from taskyard.tasks.errors import GiveUp, TryAgain
from taskyard.tasks.running import Execute, ExecuteAsync, Prepared, Running
from taskyard.worker.bundles import Bundle
from taskyard.worker.coroutines import run_in_thread
from taskyard.worker.interrupts import Cancelled, SoftTimeLimit

_MEANT_FOR_ALL: Final = (GiveUp, TryAgain, SoftTimeLimit, Cancelled)


class Bundles(Running):
    """What becomes of the jobs of a bundle."""

    def __call__(self, bundle: Bundle) -> list[Verdict]:
        verdicts: dict[str, Verdict] = {}  # by ref
        rows: list[Prepared] = []
        with ExitStack() as surroundings:
            for job in bundle.jobs:
                prepared = self._prepare(job)
                if not isinstance(prepared, Prepared):
                    verdicts[job.ref] = prepared
                    continue
                try:
                    surroundings.enter_context(self._hooks.enter(prepared.current))
                except BaseException as error:
                    verdicts[job.ref] = self._failure(prepared, error)
                    continue
                rows.append(prepared)
            results = self._results(bundle.name, rows)
        for prepared, result in zip(rows, results, strict=True):
            verdicts[prepared.current.job.ref] = self._verdict(prepared, result)
        return [verdicts[job.ref] for job in bundle.jobs]

    def _results(self, name: str, rows: Sequence[Prepared]) -> list[Any]:
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
            if len(rows) == 1 or not task.split or isinstance(error, _MEANT_FOR_ALL):
                return [error] * len(rows)
        half = len(rows) // 2
        return self._results(name, rows[:half]) + self._results(name, rows[half:])

    def _verdict(self, prepared: Prepared, result: Any) -> Verdict:
        if isinstance(result, BaseException):
            return self._failure(prepared, result)
        try:
            verdict = prepared.done(result)
        except Exception as error:  # it has no JSON
            return self._failure(prepared, error)
        self._hooks.after(prepared.current, result)
        return verdict


class ExecuteBundles:
    """Bundles, and all else as without them; in any thread or process."""

    def __init__(self, execute: Execute, bundles: Bundles) -> None:
        self._execute = execute
        self._bundles = bundles

    @classmethod
    def of(cls, execute: Execute) -> ExecuteBundles:
        return cls(execute, Bundles(execute.app))

    def __reduce__(self) -> tuple[Callable[[Execute], ExecuteBundles], tuple[Execute]]:
        return ExecuteBundles.of, (self._execute,)

    def __call__(self, job: Job) -> Verdict | list[Verdict]:
        return self._bundles(job) if isinstance(job, Bundle) else self._execute(job)

    def attach(self, note: Note) -> None:
        self._execute.attach(note)

    def depart(self) -> None:
        self._execute.depart()


class ExecuteBundlesAsync:
    """The same beside an event loop: a bundle is run in a thread."""

    def __init__(self, execute: ExecuteAsync) -> None:
        self._execute = execute
        self._bundles = Bundles(execute.app)

    def attach(self, note: Note) -> None:
        self._execute.attach(note)

    async def __call__(self, job: Job) -> Verdict | list[Verdict]:
        if isinstance(job, Bundle):
            return await run_in_thread(lambda: self._bundles(job))
        return await self._execute(job)
