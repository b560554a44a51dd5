"""What an executor does with its part of a batch: the common worker runtime over some places.

The second time that a partition is tried, its jobs run in processes of their own: whatever ended
the first try then ends only itself.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from taskyard.client.runtime import Runtime
from taskyard.client.source import Job
from taskyard.pipeline.spark.places import Places, PlacesOfTasks, PlacesOfToq, Tally
from taskyard.tasks import logs
from taskyard.tasks.logs import Logging
from taskyard.tasks.pools import PoolKind, make_pool
from taskyard.tasks.running import find_app, settle
from taskyard.toq.work import Settle

log: Final = logging.getLogger("taskyard.worker")

_LOOK: Final = 2.0  # seconds between two looks whether jobs were taken away


class Work(Protocol):
    """What runs the jobs; it is sent to the executors."""

    @property
    def url(self) -> str: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def paths(self) -> list[str]: ...

    @property
    def log_setup(self) -> Logging | None: ...

    def runtime(self, places: Places, tally: Tally, isolated: bool) -> Runtime[Any]:
        """Of the jobs at these places; `isolated`: each in a process."""


@dataclass(frozen=True, slots=True)
class AppWork:
    """The tasks of an app, which executors import by its name."""

    location: str
    url: str
    concurrency: int
    pool: PoolKind
    paths: list[str]
    log_setup: Logging | None

    def runtime(self, places: Places, tally: Tally, isolated: bool) -> Runtime[Any]:
        app = find_app(self.location)
        app.located_at(self.location)
        if app.url != self.url:
            app.connect_to(self.url)

        def ended(job: Job, error: str, final: bool) -> None:
            (app.hooks.failure if final else app.hooks.retry)(job, error)

        def note(job: Job, said: Any) -> None:
            runtime.note(job, said)

        source = PlacesOfTasks(app.address, places, tally, ended, self.concurrency)
        kind: PoolKind = "processes" if isolated else self.pool
        execute, pool = make_pool(app, kind, min(self.concurrency, places.count), note)
        runtime = Runtime(
            source,
            pool,
            settle,
            wait=0.0,
            prefetch=None,
            interval=_LOOK,
            burst=True,
            tell=source.tell,
        )
        execute.attach(note)
        return runtime


@dataclass(frozen=True, slots=True)
class ToqWork:
    """Workers of toq: they are sent to the executors as they are."""

    url: str
    workers: Mapping[str, Any]
    settle: Settle
    result_ttl: float
    concurrency: int
    pool: PoolKind
    paths: list[str]
    log_setup: Logging | None

    def runtime(self, places: Places, tally: Tally, isolated: bool) -> Runtime[Any]:
        from taskyard.toq.consumer import make_pool as make_toq_pool

        source = PlacesOfToq(self.url, places, tally, self.result_ttl, self.concurrency)
        kind: PoolKind = "processes" if isolated and _can_be_sent(self.workers) else self.pool
        pool = make_toq_pool(self.workers, kind, min(self.concurrency, places.count))
        return Runtime(
            source, pool, self.settle, wait=0.0, prefetch=None, interval=_LOOK, burst=True
        )


def _can_be_sent(workers: Mapping[str, Any]) -> bool:
    """To a process, where the plain pickle is used: functions of modules can."""
    import pickle

    try:
        pickle.dumps(dict(workers))
    except Exception:
        return False
    return True


def run_places(work: Work, isolated: bool) -> Callable[[Iterable[Places]], Iterator[Tally]]:
    """What a task of Spark runs."""

    def run(partition: Iterable[Places]) -> Iterator[Tally]:
        from pyspark import TaskContext

        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        for places in partition:
            yield run_here(work, places, isolated or again)

    return run


def run_here(work: Work, places: Places, isolated: bool) -> Tally:
    """An error is given back and not raised, so that the driver can tell it in one sentence."""
    _settle_in(work.paths, work.log_setup)
    tally = Tally()
    try:
        work.runtime(places, tally, isolated).run()
    except Exception as error:
        log.error("places %d to %d: %s", places.start, places.end, traceback.format_exc())
        tally.error = f"{type(error).__name__}: {error}"
    return tally


_levels: Final[set[int]] = set()


def _settle_in(paths: list[str], log_setup: Logging | None) -> None:
    """Modules are found where the driver finds them."""
    sys.path += [path for path in paths if path not in sys.path]
    if log_setup is not None and log_setup.level not in _levels:
        _levels.add(log_setup.level)
        logs.configure(*log_setup)
