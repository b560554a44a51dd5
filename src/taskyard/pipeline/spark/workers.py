"""Workers on Spark: the driver leases batches of jobs, and Spark tasks run their functions.

No checkpoint is needed: the broker remembers which batch a consumer has and which of its jobs are
settled, so a driver that is started again under the same consumer goes on with what is left. It
asks for the next batch when no job of the one before is left. All of it works with a session of
this process and with one of Spark Connect.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from taskyard.client.errors import Claimed, ClientError, StaleBatch, Unavailable
from taskyard.client.sync import Client
from taskyard.pipeline.spark.worker_task import (
    PART_RESULT_COLUMNS,
    AppWorkSpec,
    ToqWorkSpec,
    WorkSpec,
    adapt_to_arrow,
    make_part_runner,
)
from taskyard.shared.text import NAME_RULE, valid_name
from taskyard.tasks import logs
from taskyard.tasks.app import App
from taskyard.tasks.worker import POOLS, PoolKind, QueueOrder, weights_of
from taskyard.toq.consumer import Consumer
from taskyard.worker.runtime import handle_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

log: Final = logging.getLogger("taskyard.worker")

BATCH: Final = 10_000
LANES: Final = 2
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# A batch is to take a few seconds: a stop waits for it, and its last jobs may hold up others.
_MIN_BATCH_S: Final = 2.0
_MAX_BATCH_S: Final = 8.0
_FIRST_BATCH_JOBS: Final = 16  # jobs for each function that runs at once, in the first batch
_MAX_GROWTH: Final = 16.0
_MAX_FRUITLESS_RUNS: Final = 3  # runs of a batch in which no job got a verdict
_PAGE_JOBS: Final = 1000
_PROGRESS_INTERVAL_S: Final = 1.0  # seconds between two calls of `on_progress`
_SERVER_POLL_S: Final = 1.0  # seconds, after the client has lost its own patience with the server
# Spark ends the Python of a task whose job has failed two seconds later.
_TASK_EXIT_S: Final = 3.0
_SPECULATION: Final = "spark.speculation"


class WorkersFailed(Exception):
    """Executors cannot run these workers; their jobs were released."""


@dataclass(frozen=True, slots=True)
class WorkersProgress:
    """What was done so far."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    batches: int = 0
    out: int = 0  # jobs of the batches that are out
    seconds: float = 0.0

    @property
    def settled(self) -> int:
        return self.done + self.failed + self.retried


class _Killed(Exception):
    """The run has to end at once. The leased batch must not be acknowledged."""


class _Order(enum.Enum):
    STOP = "stop"
    KILL = "kill"
    WAKE = "look"  # a batch loop has ended


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
        on_progress: Callable[[WorkersProgress], object] | None = None,
    ) -> None:
        """`queues`: looked at in this order, or with weights; else those of the app's tasks.
        `consumer`: the name under which batches are leased. One that is started again under the
        same name goes on with them, so no two may have it at once; else that of the app.
        `concurrency`: how many functions run at once in each task of Spark. `batch`: the most jobs
        of a batch; it has fewer when they take long. `lanes`: how many batches may be out at once,
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
        if spark.conf.get(_SPECULATION, "false") == "true":
            raise ValueError(f"{_SPECULATION} would run jobs twice: turn it off for workers")
        self.work = _make_work_spec(app, concurrency, pool)
        names = app.queues() if isinstance(app, App) else app.queues
        self.queues = QueueOrder(weights_of(names if queues is None else queues))
        if not self.queues.names:
            raise ValueError("workers need at least one queue")
        default = app.name if isinstance(app, App) else self.queues.names[0]
        self.consumer = consumer or f"spark-{default}"
        if not valid_name(f"{self.consumer}.{lanes}"):
            raise ValueError(f"consumer {NAME_RULE}")
        self.spark = spark
        self.context = context = getattr(spark, "sparkContext", None)  # None over Connect
        if context is None:
            self._set_job_tag, self.cancel_jobs = spark.addTag, spark.interruptTag
        else:
            # Tags of its session are known only to the thread that has set them.
            self._set_job_tag, self.cancel_jobs = context.addJobTag, context.cancelJobsWithTag
        self.batch = batch
        self.ttr = ttr
        consumers = [f"{self.consumer}.{number + 1}" for number in range(lanes)]
        self.client = Client(self.work.url, claims=consumers)
        self.stopping = threading.Event()
        self.killed = threading.Event()
        self._app = app
        self._schedules = schedules
        self._burst = burst
        self._poll = poll
        self._on_progress = on_progress
        self._batch_loops = [_BatchLoop(self, name) for name in consumers]
        # All that signal handlers touch: a SimpleQueue can be put to from within itself.
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._signals = 0
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._running_loops = 0  # batch loops that have not ended
        self._busy_loops = 0  # batch loops that have a batch, or request one
        self._counts: Counter[str] = Counter()  # by field of Progress
        self._changed = threading.Condition()

    def run(self) -> bool:
        """Until stopped: by SIGTERM or SIGINT (in the main thread), or `stop`.

        The batches that are out are finished first. A second signal ends their runs at once; what
        is not settled is given back, and False returned. A server that is away is waited for.
        Refused if the server does not want these workers, and Claimed if another driver has the
        consumer; WorkersFailed if executors cannot run them.
        """
        if isinstance(self._app, App) and self._schedules and self._app.schedules.declared:
            try:
                self._app.sync_schedules()
            except Exception as error:
                log.error("the schedules of %s cannot be set: %s", self._app.name, error)
        with handle_signals(_STOP_SIGNALS, self._on_signal):
            return self._run()

    def stop(self) -> None:
        """From any thread: finish the batches that are out, and have `run` return."""
        self._orders.put(_Order.STOP)

    def kill(self) -> None:
        """From any thread: end at once, release unfinished jobs, and have `run` return."""
        self._orders.put(_Order.KILL)

    @property
    def progress(self) -> WorkersProgress:
        with self._changed:
            return WorkersProgress(**self._counts, seconds=time.monotonic() - self._began)

    def _run(self) -> bool:
        from pyspark import InheritableThread

        self._began = time.monotonic()
        self._running_loops = len(self._batch_loops)
        for lane in self._batch_loops:
            # It has what the caller has set for its Spark jobs: their tags and scheduler pool.
            InheritableThread(
                target=self._run_loop, session=self.spark, args=(lane,), daemon=True
            ).start()
        try:
            while self._running_loops:
                self._handle_order()
                if (
                    self.killed.is_set()
                ):  # again and again: a batch loop may have been about to start one
                    for lane in self._batch_loops:
                        self.cancel_jobs(lane.tag)
                if self._on_progress is not None:
                    self._on_progress(self.progress)
        finally:
            self._release_batches()
            self.client.close()
        if self._on_progress is not None:
            self._on_progress(self.progress)
        if self._error is not None:
            raise self._error
        return not self.killed.is_set()

    def _on_signal(self) -> None:
        self._signals += 1
        self._orders.put(_Order.STOP if self._signals == 1 else _Order.KILL)

    def _handle_order(self) -> None:
        try:
            order = self._orders.get(timeout=_PROGRESS_INTERVAL_S)
        except queue.Empty:
            return
        if order is _Order.STOP and not self.stopping.is_set():
            log.info("stopping: open batches will finish, nothing new is leased")
            self._stop()
        elif order is _Order.KILL and not self.killed.is_set():
            log.warning("forced shutdown: releasing unfinished jobs")
            self.killed.set()
            self._stop()

    def _stop(self) -> None:
        self.stopping.set()
        with self._changed:
            self._changed.notify_all()

    def _run_loop(self, lane: _BatchLoop) -> None:
        try:
            self._set_job_tag(lane.tag)
            if self.context is not None:
                self.context.setInterruptOnCancel(True)
            lane.run()
        except BaseException as error:
            if not self.killed.is_set():
                self._error = self._error or error
            self._stop()
        finally:
            with self._changed:
                self._running_loops -= 1
            self._orders.put(_Order.WAKE)

    def _release_batches(self) -> None:
        """Also the names: those who look at consumers see only such as are at work."""
        for lane in self._batch_loops:
            try:
                self.client.drop_consumer(lane.name)
            except (StaleBatch, Claimed):
                continue  # it never had a batch, or another driver has what it had
            except ClientError as error:
                log.error("cannot release the batch of %s: %s", lane.name, error)

    # For the batch loops

    def begin_lease(self) -> None:
        """A batch loop is about to request a batch."""
        with self._changed:
            self._busy_loops += 1

    def wait_for_work(self, found: bool) -> None:
        """A batch loop that has found no batch waits. In a burst it is the last if no other has
        one.
        """
        with self._changed:
            self._busy_loops -= 1
            self._changed.notify_all()
            if self._burst and not (found or self._busy_loops):
                self.stopping.set()
            elif not (found or self.stopping.is_set()):
                # In a burst: until another batch loop has done its batch, whose jobs may push more.
                self._changed.wait(None if self._burst else self._poll)

    def add_counts(self, **changes: int) -> None:
        with self._changed:
            self._counts.update(changes)

    def retry_until_available(self, call: Callable[[], T]) -> T:
        """For as long as the server is away, or until everything is to end."""
        while True:
            try:
                return call()
            except Unavailable as error:
                log.warning("waiting for the server: %s", error)
                if self.killed.wait(_SERVER_POLL_S):
                    raise _Killed from error


class _BatchLoop:
    """Leases one batch after the other, as a consumer of its own, and has Spark run it."""

    def __init__(self, workers: SparkWorkers, name: str) -> None:
        self.name = name
        self.tag = f"taskyard {name.replace(',', ' ')}"  # of its Spark jobs
        self._workers = workers
        self._concurrency = workers.work.concurrency
        self._parallel_tasks = 1  # tasks that Spark runs at once, as far as is known
        self._batch_size = min(self._concurrency * _FIRST_BATCH_JOBS, workers.batch)

    def run(self) -> None:
        workers = self._workers
        number = workers.retry_until_available(self._next_number)
        while not workers.stopping.is_set():
            found = True  # a batch loop that fails does not wait for others
            workers.begin_lease()
            try:
                leased, count = workers.retry_until_available(lambda: self._lease_batch(number))  # noqa: B023
                found = count > 0
                if found:
                    self._run_batch(leased, count)
                    number = workers.retry_until_available(lambda: self._acknowledge(leased))  # noqa: B023
                else:
                    # A Connect server forgets a session that asks it nothing for an hour.
                    workers.spark.conf.get(_SPECULATION, "false")
            finally:
                workers.wait_for_work(found)

    def _next_number(self) -> int:
        """The batch that a driver before has left, or the one to come."""
        for known in self._workers.client.consumers():
            if known.name == self.name and known.expired:
                log.warning("batch %d of %s was out for too long", known.batch, self.name)
                self._workers.client.drop_consumer(self.name)
            elif known.name == self.name:
                return known.batch if known.open else known.batch + 1
        return 1

    def _lease_batch(self, number: int) -> tuple[int, int]:
        workers = self._workers
        order = workers.queues.next_order()
        try:
            return workers.client.lease_batch(
                self.name, number, self._batch_size, order, workers.ttr
            )
        except StaleBatch as error:
            raise WorkersFailed(str(error)) from error

    def _run_batch(self, number: int, count: int) -> None:
        """Until no job of the batch is left, for asking for the next one says that it is done."""
        self._workers.add_counts(batches=1, out=count)
        left, in_vain, isolated = count, 0, False
        while True:
            began = time.monotonic()
            error = self._run_spark_job(number, count, isolated)
            before, left = (
                left,
                self._workers.retry_until_available(lambda: self._count_left(number, count)),
            )
            if not left:
                break
            in_vain = in_vain + 1 if left == before else 0
            if in_vain == _MAX_FRUITLESS_RUNS:
                raise WorkersFailed(error or "a batch comes to no end")
            log.warning("%d jobs of batch %d are run again: %s", left, number, error)
            isolated = True
            if self._workers.killed.wait(_TASK_EXIT_S):
                raise _Killed
        self._workers.add_counts(out=-count)
        self._adjust_batch_size(count, time.monotonic() - began)

    def _run_spark_job(self, number: int, count: int, isolated: bool) -> str:
        """Give why it ended before its end, if it did."""
        workers = self._workers
        needed = -(-count // self._concurrency)  # more tasks would have nothing to do
        # None: as many as Spark runs at once
        tasks = needed if needed < self._parallel_tasks else None
        run = make_part_runner(workers.work, self.name, number, isolated)
        try:
            if workers.context is None:
                places = workers.spark.range(0, count, numPartitions=tasks)
                tallies = places.mapInArrow(adapt_to_arrow(run), PART_RESULT_COLUMNS).collect()
            else:  # an RDD takes half of the time, and executors need no Arrow
                workers.context.setJobDescription(f"batch {number} of {self.name}: {count} jobs")
                tallies = workers.context.range(count, numSlices=tasks).mapPartitions(run).collect()
        except Exception as error:  # of whatever kind: the jobs tell what is left to do
            if workers.killed.is_set():
                raise _Killed from error
            with contextlib.suppress(Exception):  # a Connect server may run it on
                workers.cancel_jobs(self.tag)
            return summarize_spark_error(error)
        if tasks is None:
            self._parallel_tasks = len(tallies)
        for tally in tallies:
            workers.add_counts(done=tally.done, failed=tally.failed, retried=tally.retried)
        return next((tally.error for tally in tallies if tally.error), "")

    def _count_left(self, number: int, count: int) -> int:
        """Return how many jobs have no verdict."""
        client = self._workers.client
        try:
            return sum(
                len(client.read_batch(self.name, number, start, _PAGE_JOBS))
                for start in range(0, count, _PAGE_JOBS)
            )
        except StaleBatch:
            return 0  # the consumer was dropped, and others have its jobs

    def _acknowledge(self, number: int) -> int:
        """Give the number of the next batch."""
        try:
            self._workers.client.ack_batch(self.name, number)
        except StaleBatch:  # the consumer was dropped, or the batch was leased for too long
            return self._next_number()
        return number + 1

    def _adjust_batch_size(self, count: int, seconds: float) -> None:
        if seconds < _MIN_BATCH_S and count == self._batch_size:
            self._batch_size = int(self._batch_size * min(_MIN_BATCH_S / seconds, _MAX_GROWTH))
        elif seconds > _MAX_BATCH_S:
            self._batch_size //= 2
        least = self._parallel_tasks * self._concurrency
        self._batch_size = min(max(self._batch_size, least), self._workers.batch)


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


def _make_work_spec(app: App | Consumer, concurrency: int, pool: PoolKind) -> WorkSpec:
    # As absolute ones: an executor has another working directory.
    paths, log_setup = [os.path.abspath(path) for path in sys.path], logs.configured()
    if isinstance(app, App):
        location = app.location()
        if location.startswith("__main__:"):
            raise TypeError("executors import the app by its name: put it into a module")
        return AppWorkSpec(app.address.url, concurrency, pool, paths, log_setup, location)
    if not isinstance(app, Consumer):
        raise TypeError(f"{app!r} is neither an App nor a Consumer of toq")
    if not app.url.startswith(("taskyard://", "taskyards://")):
        raise ValueError("workers on Spark need taskyard://: Redis has no batches")
    workers = dict(app.workers)
    return ToqWorkSpec(
        app.url, concurrency, pool, paths, log_setup, workers, app.settle, app.result_ttl
    )


def summarize_spark_error(error: Exception) -> str:
    """The line of a long trace that tells what it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Exception" in line or "Error" in line]
    line = (told or lines or [type(error).__name__])[0]
    # Spark puts one behind the other; the last is where it began.
    return line.rpartition("Exception: ")[2].partition(". ")[0][:500]
