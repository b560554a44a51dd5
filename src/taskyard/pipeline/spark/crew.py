"""The driver's side of workers on Spark: lanes that lease batches and have Spark jobs run them."""

from __future__ import annotations

import enum
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from taskyard.client.backoff import Backoff
from taskyard.client.client import Client
from taskyard.client.errors import ClientError, StaleBatch, Unavailable
from taskyard.pipeline.spark.claim import claim
from taskyard.pipeline.spark.partition import Work, run_places
from taskyard.pipeline.spark.places import Places, Tally
from taskyard.tasks.source import Queues

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")

log: Final = logging.getLogger("taskyard.worker")

# A batch is to take a few seconds: a stop waits for it, and its last jobs may hold up others.
_SHORT: Final = 2.0
_LONG: Final = 8.0
_FIRST: Final = 8  # jobs for each place where one can run, in the first batch
_IN_VAIN: Final = 3  # runs of a batch in which nothing was settled
_PAGE: Final = 1000
_TICK: Final = 1.0  # seconds between two words of progress
# Spark ends the Python of a task whose job has failed two seconds later.
_AFTERMATH: Final = 3.0


class WorkersFailed(Exception):
    """Executors cannot run these workers; what they held was given back."""


class Ended(Exception):
    """Told to end at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """See SparkWorkers."""

    work: Work
    queues: Queues
    consumer: str
    batch: int
    lanes: int
    burst: bool
    poll: float
    ttr: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What has come of it so far."""

    done: int
    failed: int
    retried: int
    batches: int
    out: int  # jobs of the batches that are out
    seconds: float


class _Order(enum.Enum):
    STOP = "stop"
    KILL = "kill"
    LOOK = "look"


class Crew:
    """Some lanes, and the thread that calls `run`, which only waits for orders."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        self.context = _context(spark)
        self.plan = plan
        self.client = Client(plan.work.url)
        self.stopping = threading.Event()
        self.killed = threading.Event()
        self._on_progress = on_progress
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._signals = 0
        self._error: BaseException | None = None
        self._began = time.monotonic()
        self._tally = Tally()
        self._batches = 0
        self._out: dict[str, int] = {}
        self._busy = 0
        self._at_work = 0  # lanes
        self._changed = threading.Condition()

    # Orders: a SimpleQueue is all that signal handlers touch.

    def stop(self) -> None:
        self._orders.put(_Order.STOP)

    def kill(self) -> None:
        self._orders.put(_Order.KILL)

    def stop_or_kill(self) -> None:
        self._signals += 1
        self._orders.put(_Order.STOP if self._signals == 1 else _Order.KILL)

    def run(self) -> bool:
        with claim(self.client.address, self.plan.consumer):
            return self._run()

    def _run(self) -> bool:
        from pyspark import InheritableThread

        self._began = time.monotonic()
        lanes = [Lane(self, number) for number in range(1, self.plan.lanes + 1)]
        # Threads whose counterparts in the JVM end with them.
        threads = [InheritableThread(target=self._guard, args=(lane,)) for lane in lanes]
        self._at_work = len(lanes)
        for thread in threads:
            thread.daemon = True
            thread.start()
        try:
            while self._at_work:
                self._obey()
                if self.killed.is_set():  # again and again: a lane may have been about to start one
                    for lane in lanes:
                        lane.cancel()
                if self._on_progress is not None:
                    self._on_progress(self.progress)
        finally:
            self._give_back(lanes)
            self.client.close()
        if self._on_progress is not None:
            self._on_progress(self.progress)
        if self._error is not None:
            raise self._error
        return not self.killed.is_set()

    def _obey(self) -> None:
        try:
            order = self._orders.get(timeout=_TICK)
        except queue.Empty:
            return
        if order is _Order.STOP and not self.stopping.is_set():
            log.info("stopping: the batches that are out are finished, nothing new is leased")
            self._stop()
        elif order is _Order.KILL and not self.killed.is_set():
            log.warning("ending at once: jobs that are not settled are given back")
            self.killed.set()
            self._stop()

    def _stop(self) -> None:
        self.stopping.set()
        with self._changed:
            self._changed.notify_all()

    def _guard(self, lane: Lane) -> None:
        try:
            lane.run()
        except Ended:
            pass
        except BaseException as error:
            if not self.killed.is_set():
                self._error = self._error or error
            self._stop()
        finally:
            with self._changed:
                self._at_work -= 1
            self._orders.put(_Order.LOOK)

    def _give_back(self, lanes: list[Lane]) -> None:
        """Also the names: those who look at consumers see only such as are at work."""
        for lane in lanes:
            try:
                self.client.drop_consumer(lane.name)
            except StaleBatch:
                continue  # it never had a batch
            except ClientError as error:
                log.error("what %s holds cannot be given back now: %s", lane.name, error)

    # What lanes tell

    @property
    def progress(self) -> Progress:
        tally = self._tally
        return Progress(
            tally.done,
            tally.failed,
            tally.retried,
            self._batches,
            sum(self._out.values()),
            time.monotonic() - self._began,
        )

    def leased(self, lane: Lane, count: int) -> None:
        with self._changed:
            self._out[lane.name] = count
            self._batches += count > 0

    def count(self, tally: Tally) -> None:
        with self._changed:
            self._tally += tally

    def begin(self) -> None:
        """A lane is about to ask for a batch."""
        with self._changed:
            self._busy += 1

    def rest(self, found: bool) -> None:
        """A lane has done its batch, or found none; then it waits. In a burst the lane that finds
        none while no other has one is the last.
        """
        with self._changed:
            self._busy -= 1
            self._changed.notify_all()
            if found or self.stopping.is_set():
                return
            if not self.plan.burst:
                self._changed.wait(self.plan.poll)
            elif self._busy:
                self._changed.wait()  # what runs may push more
            else:
                self.stopping.set()

    def patiently(self, call: Callable[[], T]) -> T:
        """Until the server is there, or everything is to end."""
        away = False
        for delay in Backoff().delays():
            try:
                found = call()
            except Unavailable as error:
                log.log(logging.DEBUG if away else logging.WARNING, "waiting: %s", error)
                away = True
            else:
                return found
            if self.killed.wait(delay):
                break
        raise Ended


class Lane:
    """Leases one batch after the other, as a consumer of its own."""

    def __init__(self, crew: Crew, number: int) -> None:
        plan = crew.plan
        self.name = f"{plan.consumer}.{number}"
        self._crew = crew
        self._plan = plan
        self._client = crew.client
        self._group = f"taskyard {self.name}"
        self._slots = max(crew.context.defaultParallelism, 1)
        self._least = self._slots * plan.work.concurrency
        self._limit = min(self._least * _FIRST, plan.batch)

    def run(self) -> None:
        crew = self._crew
        number = crew.patiently(self._next_number)
        while not crew.stopping.is_set():
            found = True  # who fails does not wait for others
            crew.begin()
            try:
                leased, count = crew.patiently(lambda: self._lease(number))  # noqa: B023
                found = count > 0
                if found:
                    self._work_off(leased, count)
                    number = crew.patiently(lambda: self._done_with(leased))  # noqa: B023
            finally:
                crew.rest(found)

    def cancel(self) -> None:
        self._crew.context.cancelJobGroup(self._group)

    def _next_number(self) -> int:
        """The batch that a driver before has left, or the one to come."""
        for known in self._client.consumers():
            if known.name == self.name and known.expired:
                log.warning("batch %d of %s was out for too long", known.batch, self.name)
                self._client.drop_consumer(self.name)
            elif known.name == self.name:
                return known.batch if known.open else known.batch + 1
        return 1

    def _lease(self, number: int) -> tuple[int, int]:
        order = self._plan.queues.order()
        try:
            return self._client.lease_batch(self.name, number, self._limit, order, self._plan.ttr)
        except StaleBatch as error:
            raise WorkersFailed(
                f"{error}; if another driver has this consumer, give this one another name"
            ) from error

    def _work_off(self, number: int, count: int) -> None:
        """Until no job of the batch is left, for asking for the next one says that it is done."""
        self._crew.leased(self, count)
        left, in_vain, isolated = count, 0, False
        while True:
            began = time.monotonic()
            tally = self._run_job(number, count, isolated)
            self._crew.count(tally)
            before, left = left, self._crew.patiently(lambda: self._left(number, count))
            if not left:
                break
            in_vain = in_vain + 1 if left == before else 0
            if in_vain == _IN_VAIN:
                raise WorkersFailed(tally.error or "a batch comes to no end")
            log.warning("%d jobs of batch %d are run again: %s", left, number, tally.error)
            isolated = True
            if self._crew.killed.wait(_AFTERMATH):
                raise Ended
        self._crew.leased(self, 0)
        self._suit(count, time.monotonic() - began)

    def _run_job(self, number: int, count: int, isolated: bool) -> Tally:
        context = self._crew.context
        parts = min(self._slots, -(-count // self._plan.work.concurrency))
        places = [
            Places(self.name, number, count * at // parts, count * (at + 1) // parts)
            for at in range(parts)
        ]
        context.setJobGroup(self._group, f"batch {number}: {count} jobs", interruptOnCancel=True)
        run = run_places(self._plan.work, isolated)
        try:
            return sum(context.parallelize(places, parts).mapPartitions(run).collect(), Tally())
        except Exception as error:  # of whatever kind: the jobs tell what is left to do
            if self._crew.killed.is_set():
                raise Ended from error
            if _is_over(context):
                raise WorkersFailed("the Spark session has ended") from error
            return Tally(error=summary(error))

    def _left(self, number: int, count: int) -> int:
        """How many jobs have no verdict."""
        left = 0
        try:
            for start in range(0, count, _PAGE):
                left += len(self._client.read_batch(self.name, number, start, _PAGE))
        except StaleBatch:
            return 0  # somebody has dropped the consumer, and others have its jobs
        return left

    def _done_with(self, number: int) -> int:
        """Gives the number of the next batch."""
        try:
            self._client.ack_batch(self.name, number)
        except StaleBatch:  # the consumer was dropped, or the batch was out for too long
            return self._next_number()
        return number + 1

    def _suit(self, count: int, seconds: float) -> None:
        if seconds < _SHORT and count == self._limit:
            self._limit = min(self._limit * 4, self._plan.batch)
        elif seconds > _LONG:
            self._limit = min(max(self._limit // 2, self._least), self._plan.batch)


def _context(spark: SparkSession) -> SparkContext:
    try:
        context = spark.sparkContext
    except Exception as error:
        raise TypeError("workers need a Spark session of this process, not Connect") from error
    if context.getConf().get("spark.speculation", "false") == "true":
        raise ValueError("spark.speculation would run jobs twice: turn it off for workers")
    return context


def _is_over(context: Any) -> bool:
    return context._jsc is None or bool(context._jsc.sc().isStopped())


def summary(error: Exception) -> str:
    """The line of a long trace that tells what it is about."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Exception" in line or "Error" in line]
    line = (told or lines or [type(error).__name__])[0]
    # Spark puts one behind the other; the last is where it began.
    return line.rpartition("Exception: ")[2].partition(". ")[0][:500]
