"""Workers on Spark: the tasks of an app run on executors, a batch of jobs at a time.

The driver leases numbered batches, has a Spark job run each, and sees to it that no job of one is
left before it asks for the next. No checkpoint is needed: the broker remembers the batch, and which
of its jobs are settled, so that another driver with the same consumer goes on where this one was.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskyard.client.signals import calling_on
from taskyard.names import NAME_RULE, valid_name
from taskyard.pipeline.spark.crew import Crew, Plan, Progress
from taskyard.pipeline.spark.partition import AppWork, ToqWork, Work
from taskyard.tasks import logs
from taskyard.tasks.app import App
from taskyard.tasks.pools import POOLS, PoolKind
from taskyard.tasks.source import Queues
from taskyard.tasks.worker import weights_of
from taskyard.toq.consumer import Consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("taskyard.worker")

BATCH: Final = 10_000
LANES: Final = 2
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class SparkWorkers:
    """Of one app, or of toq's workers. `run` it once."""

    def __init__(
        self,
        spark: SparkSession,
        app: App | Consumer,
        queues: Sequence[str] | Mapping[str, float] | None = None,
        *,
        consumer: str | None = None,
        concurrency: int = 4,
        pool: PoolKind = "threads",
        batch: int = BATCH,
        lanes: int = LANES,
        burst: bool = False,
        poll: float = 1.0,
        ttr: float | None = None,
        schedules: bool = True,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> None:
        """`queues`: looked at in this order, or with weights; else those of the app's tasks.
        `consumer`: the name under which batches are leased. One that is started again under the
        same name goes on with them, so no two may have it at once; else that of the app.
        `concurrency`: how many tasks run at once in each task of Spark. `batch`: the most jobs of
        a batch; it has fewer when they take long. `lanes`: how many batches may be out at once,
        so that nobody waits for the last jobs of one. `burst`: end when nothing is ready and
        nothing runs. `poll`: seconds between two looks for jobs when there are none. `ttr`:
        seconds after which a batch is given back if it is not done, whatever is the matter; else
        never. `schedules`: tell the server of the app's at the start. `on_progress`: called about
        once a second.
        """
        if concurrency < 1 or lanes < 1 or not 1 <= batch <= 1_000_000:
            raise ValueError("concurrency and lanes must be at least 1, batch 1 to 1,000,000")
        if poll < 0.01 or (ttr is not None and ttr < 1):
            raise ValueError("poll needs 0.01 seconds or more, and ttr 1")
        if pool not in POOLS:
            raise ValueError(f"pool must be threads, processes or async, not {pool!r}")
        work = _work(app, concurrency, pool)
        names = Queues(weights_of(_queues_of(app) if queues is None else queues))
        if not names.names:
            raise ValueError("workers need at least one queue")
        if consumer is None:
            consumer = f"spark-{app.name}" if isinstance(app, App) else f"spark-{names.names[0]}"
        if not valid_name(f"{consumer}.{lanes}"):
            raise ValueError(f"consumer {NAME_RULE}")
        self.queues = names
        self.consumer = consumer
        self._app = app
        self._schedules = schedules
        plan = Plan(work, names, consumer, batch, lanes, burst, poll, ttr)
        self._crew = Crew(spark, plan, on_progress)

    def run(self) -> bool:
        """Until stopped: by SIGTERM or SIGINT (in the main thread), or `stop`.

        The batches that are out are finished first. A second signal ends their runs at once; what
        is not settled is given back, and False returned. A server that is away is waited for.
        Refused if the server does not want these workers, WorkersFailed if executors cannot run
        them.
        """
        if isinstance(self._app, App) and self._schedules and self._app.schedules.declared:
            try:
                self._app.sync_schedules()
            except Exception as error:
                log.error("the schedules of %s cannot be set: %s", self._app.name, error)
        with calling_on(_STOP_SIGNALS, self._crew.stop_or_kill):
            return self._crew.run()

    def stop(self) -> None:
        """From any thread: finish the batches that are out, and have `run` return."""
        self._crew.stop()

    def kill(self) -> None:
        """From any thread: end at once, give back what is not settled, and have `run` return."""
        self._crew.kill()

    @property
    def progress(self) -> Progress:
        return self._crew.progress


def run_workers(
    spark: SparkSession,
    app: App | Consumer,
    queues: Sequence[str] | Mapping[str, float] | None = None,
    **options: Any,
) -> bool:
    """Run the tasks of an app, or workers of toq, on the executors of this session, until stopped;
    see SparkWorkers for the options and what is returned.
    """
    return SparkWorkers(spark, app, queues, **options).run()


def _queues_of(app: App | Consumer) -> list[str]:
    return app.queues() if isinstance(app, App) else app.queues


def _work(app: App | Consumer, concurrency: int, pool: PoolKind) -> Work:
    # As absolute ones: an executor has another working directory.
    paths, log_setup = [os.path.abspath(path) for path in sys.path], logs.configured()
    if isinstance(app, App):
        location = app.location()
        if location.startswith("__main__:"):
            raise TypeError("executors import the app by its name: put it into a module")
        return AppWork(location, app.address.url, concurrency, pool, paths, log_setup)
    if not isinstance(app, Consumer):
        raise TypeError(f"{app!r} is neither an App nor a Consumer of toq")
    if not app.url.startswith(("taskyard://", "taskyards://")):
        raise ValueError("workers on Spark need taskyard://: Redis has no batches")
    return ToqWork(
        app.url, dict(app.workers), app.settle, app.result_ttl, concurrency, pool, paths, log_setup
    )
