"""Which pool runs the tasks of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from taskyard.client.source import Verdict
from taskyard.tasks.context import ProgressReporter
from taskyard.tasks.running import AsyncTaskRunner, SyncTaskRunner, limits_of
from taskyard.worker.pools import Pool, ThreadPool

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.worker.processes import ProgressHandler

PoolKind: TypeAlias = Literal["threads", "processes", "async"]
POOLS: Final = ("threads", "processes", "async")


class ProgressSource(Protocol):
    def report_progress_to(self, note: ProgressReporter) -> None:
        """Send progress reports of tasks there."""


def make_pool(
    app: App, kind: PoolKind, size: int, on_progress: ProgressHandler
) -> tuple[ProgressSource, Pool[Verdict]]:
    """`on_progress`: called with the progress reports of processes; for others it is attached."""
    sizes = app.row_counts()
    if not sizes:
        return _plain_pool(app, kind, size, on_progress)
    from taskyard.worker.bundles import GroupingPool

    execute, pool = _grouping_pool(app, kind, size, on_progress)
    return execute, GroupingPool(pool, sizes)


def _plain_pool(
    app: App, kind: PoolKind, size: int, on_progress: ProgressHandler
) -> tuple[ProgressSource, Pool[Verdict]]:
    # Those that are not used are not imported: a pool of processes imports this in each.
    limits = limits_of(app.tasks)
    if kind == "async":
        from taskyard.worker.coroutines import AsyncPool

        asynchronous = AsyncTaskRunner(app)
        return asynchronous, AsyncPool(asynchronous, size, limits)
    execute = SyncTaskRunner(app)
    if kind == "processes":
        from taskyard.worker.processes import ProcessPool

        return execute, ProcessPool(execute, size, limits, on_progress)
    return execute, ThreadPool(execute, size, limits)


def _grouping_pool(
    app: App, kind: PoolKind, size: int, on_progress: ProgressHandler
) -> tuple[ProgressSource, Pool[Any]]:
    from taskyard.tasks.bundling import AsyncGroupingTaskRunner, GroupingTaskRunner

    limits = limits_of(app.tasks)
    if kind == "async":
        from taskyard.worker.coroutines import AsyncPool

        asynchronous = AsyncGroupingTaskRunner(AsyncTaskRunner(app))
        return asynchronous, AsyncPool(asynchronous, size, limits)
    execute = GroupingTaskRunner.from_task_runner(SyncTaskRunner(app))
    if kind == "processes":
        from taskyard.worker.processes import ProcessPool

        return execute, ProcessPool(execute, size, limits, on_progress)
    return execute, ThreadPool(execute, size, limits)
