"""Which pool runs the tasks of an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from taskyard.client.source import Verdict
from taskyard.tasks.context import Note
from taskyard.tasks.running import Execute, ExecuteAsync, limits_of
from taskyard.worker.pools import Pool, ThreadPool

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.worker.processes import Notes

PoolKind: TypeAlias = Literal["threads", "processes", "async"]
POOLS: Final = ("threads", "processes", "async")


class Attachable(Protocol):
    def attach(self, note: Note) -> None:
        """Where what tasks say of their progress goes."""


def make_pool(
    app: App, kind: PoolKind, size: int, notes: Notes
) -> tuple[Attachable, Pool[Verdict]]:
    """`notes`: what is told of processes; for others it is attached."""
    sizes = app.row_counts()
    if not sizes:
        return _plain_pool(app, kind, size, notes)
    from taskyard.worker.bundles import BundlingPool

    execute, pool = _pool_of_bundles(app, kind, size, notes)
    return execute, BundlingPool(pool, sizes)


def _plain_pool(
    app: App, kind: PoolKind, size: int, notes: Notes
) -> tuple[Attachable, Pool[Verdict]]:
    # Those that are not used are not imported: a pool of processes imports this in each.
    limits = limits_of(app.tasks)
    if kind == "async":
        from taskyard.worker.coroutines import AsyncPool

        asynchronous = ExecuteAsync(app)
        return asynchronous, AsyncPool(asynchronous, size, limits)
    execute = Execute(app)
    if kind == "processes":
        from taskyard.worker.processes import ProcessPool

        return execute, ProcessPool(execute, size, limits, notes)
    return execute, ThreadPool(execute, size, limits)


def _pool_of_bundles(
    app: App, kind: PoolKind, size: int, notes: Notes
) -> tuple[Attachable, Pool[Any]]:
    from taskyard.tasks.bundling import ExecuteBundles, ExecuteBundlesAsync

    limits = limits_of(app.tasks)
    if kind == "async":
        from taskyard.worker.coroutines import AsyncPool

        asynchronous = ExecuteBundlesAsync(ExecuteAsync(app))
        return asynchronous, AsyncPool(asynchronous, size, limits)
    execute = ExecuteBundles.of(Execute(app))
    if kind == "processes":
        from taskyard.worker.processes import ProcessPool

        return execute, ProcessPool(execute, size, limits, notes)
    return execute, ThreadPool(execute, size, limits)
