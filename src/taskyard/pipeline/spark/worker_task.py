"""What a Spark task does with its part of a batch: it runs the jobs in the common worker runtime.

Verdicts go to the broker as those of any worker do. Leases of a batch have no end: a worker only
looks whether somebody has taken a job away. The second time that Spark tries a part, its jobs run
in processes of their own: what ended the first try then ends only itself.
"""

from __future__ import annotations

import logging
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from taskyard.client.commands import Command, Reply
from taskyard.client.connection import Connection
from taskyard.client.errors import Refused, StaleBatch
from taskyard.client.source import Job, Source, Success, Verdict
from taskyard.client.url import DEFAULT_TIMEOUT_S, Address, first_given
from taskyard.tasks import logs
from taskyard.tasks.execution import decide_verdict, find_app
from taskyard.tasks.logs import LogSetup
from taskyard.tasks.worker import (
    PoolKind,
    QueueOrder,
    TaskSource,
    make_pool,
    raise_if_unavailable,
    read_job,
)
from taskyard.toq.backends.taskyard import TaskyardSource
from taskyard.toq.consumer import VerdictRules
from taskyard.toq.consumer import make_pool as make_toq_pool
from taskyard.worker.runtime import Runtime

log: Final = logging.getLogger("taskyard.worker")

PART_RESULT_COLUMNS: Final = "done long, failed long, retried long, error string"

_MAX_READ_JOBS: Final = 1000  # jobs at a time
# seconds by which toq's source extends a lease, when it checks whether it holds
_LEASE_S: Final = 30.0
_HELD_CHECK_S: Final = 2.0  # seconds between two checks whether jobs were taken away


@dataclass(slots=True)
class PartResult:
    """The outcomes of the jobs of a part."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    error: str = ""  # why the run ended before its end

    def count_failure(self, final: bool) -> None:
        if final:
            self.failed += 1
        else:
            self.retried += 1


@dataclass(frozen=True, slots=True)
class BatchPart:
    """The jobs at the places from `start` up to, but not including, `end` of a batch."""

    consumer: str
    number: int
    start: int
    end: int


class BatchSource:
    """Reads the jobs of a part, each once, and has another source tell what came of them.

    Jobs that were settled before, by an executor that died for instance, are not read.
    """

    def __init__(
        self,
        source: Source,
        address: Address,
        part: BatchPart,
        tally: PartResult,
        max_checked_jobs: int,
        prepare: Callable[[list[Job]], None] | None = None,
    ) -> None:
        """`max_checked_jobs`: how many jobs `extend_leases` checks: the oldest, which are those
        that run. Those that only wait need not be read again and again. `prepare` is called with
        the jobs that were read; if it raises, they are read again.
        """
        self._source = source
        self._connection = Connection(
            address, timeout=first_given(address.timeout, DEFAULT_TIMEOUT_S)
        )
        self._part = part
        self._tally = tally
        self._max_checked_jobs = max_checked_jobs
        self._prepare = prepare
        self._next_place = part.start
        self._place_by_ref: dict[str, int] = {}  # by ref

    def fetch_jobs(self, count: int, wait: float) -> list[Job]:
        """Return the next jobs; none when there are no more."""
        while self._next_place < self._part.end:
            count = min(count, _MAX_READ_JOBS, self._part.end - self._next_place)
            [reply] = self._connection.pipeline(
                [self._read_command(self._next_place, count)], repeat=True
            )
            found = _read_entries(reply)
            if not found:
                break  # the batch is over, or not as long as it was
            now = time.time()
            jobs = {
                self._next_place + place: read_job(one, now)
                for place, one in enumerate(found)
                if one is not None
            }
            if self._prepare is not None:
                self._prepare(list(jobs.values()))
            self._next_place += len(found)
            self._place_by_ref |= {job.ref: place for place, job in jobs.items()}
            if jobs:
                return list(jobs.values())
        return []

    def finish_jobs(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        lost = self._source.finish_jobs(verdicts)
        lost_refs = {job.ref for job in lost}
        for job, verdict in verdicts:
            self._place_by_ref.pop(job.ref, None)
            self._tally.done += isinstance(verdict, Success) and job.ref not in lost_refs
        return lost

    def extend_leases(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that the batch does not hold any more."""
        known = [job for job in jobs if job.ref in self._place_by_ref][: self._max_checked_jobs]
        commands = [self._read_command(self._place_by_ref[job.ref], 1) for job in known]
        replies = self._connection.pipeline(commands, repeat=True)
        return [
            job for job, reply in zip(known, replies, strict=True) if not _is_still_held(reply, job)
        ]

    def close(self) -> None:
        self._connection.close()
        self._source.close()

    def _read_command(self, start: int, count: int) -> Command:
        return ("BATCH.READ", self._part.consumer, self._part.number, start, count)


def _read_entries(reply: Reply) -> list[Any]:
    raise_if_unavailable([reply])
    if isinstance(reply, StaleBatch):
        return []  # the consumer was dropped: the jobs belong to others by now
    if isinstance(reply, Refused):
        raise reply
    assert isinstance(reply, list)
    return reply


def _is_still_held(reply: Reply, job: Job) -> bool:
    found = _read_entries(reply)
    return bool(found) and found[0] is not None and found[0][0] == job.ref.encode()


# Runs what there is, and ends.
_run_once_runtime: Final = partial(
    Runtime[Any], wait=0.0, prefetch=None, interval=_HELD_CHECK_S, burst=True
)


@dataclass(frozen=True)
class WorkSpec:
    """What runs the jobs; it is sent to the executors."""

    url: str
    concurrency: int
    pool: PoolKind
    paths: list[str]  # where the driver finds modules
    log_setup: LogSetup | None

    def create_runtime(self, part: BatchPart, tally: PartResult, isolated: bool) -> Runtime[Any]:
        """`isolated`: each job in a process of its own."""
        raise NotImplementedError

    def pool_size(self, part: BatchPart) -> int:
        return min(self.concurrency, part.end - part.start)


@dataclass(frozen=True)
class AppWorkSpec(WorkSpec):
    """The tasks of an app, which executors import by its name."""

    location: str

    def create_runtime(self, part: BatchPart, tally: PartResult, isolated: bool) -> Runtime[Any]:
        app = find_app(self.location)
        app.set_location(self.location)
        if app.url != self.url:
            app.connect_to(self.url)

        def on_failure(job: Job, error: str, final: bool) -> None:
            tally.count_failure(final)
            (app.hooks.run_on_failure if final else app.hooks.run_on_retry)(job, error)

        def note(job: Job, said: Any) -> None:
            runtime.report_progress(job, said)

        tasks = TaskSource(app.address, QueueOrder({}), _LEASE_S, on_failure)
        source = BatchSource(
            tasks, app.address, part, tally, self.concurrency, prepare=tasks.fetch_inputs
        )
        kind: PoolKind = "processes" if isolated else self.pool
        execute, pool = make_pool(app, kind, self.pool_size(part), note)
        runtime = _run_once_runtime(source, pool, decide_verdict, send_progress=tasks.send_progress)
        execute.report_progress_to(note)
        return runtime


@dataclass(frozen=True)
class ToqWorkSpec(WorkSpec):
    """Workers of toq: they are sent to the executors as they are."""

    workers: Mapping[str, Any]
    settle: VerdictRules
    result_ttl: float

    def create_runtime(self, part: BatchPart, tally: PartResult, isolated: bool) -> Runtime[Any]:
        tasks = TaskyardSource(self.url, [], _LEASE_S, self.result_ttl, tally.count_failure)
        source = BatchSource(tasks, Address.parse(self.url), part, tally, self.concurrency)
        kind: PoolKind = "processes" if isolated and self._can_be_pickled() else self.pool
        pool = make_toq_pool(self.workers, kind, self.pool_size(part))
        return _run_once_runtime(source, pool, self.settle)

    def _can_be_pickled(self) -> bool:
        """Functions of modules can. Spark's own pickle can do more, that of processes cannot."""
        try:
            pickle.dumps(dict(self.workers))
        except Exception:
            return False
        return True


def make_part_runner(
    work: WorkSpec, consumer: str, number: int, isolated: bool
) -> Callable[[Iterable[int]], Iterator[PartResult]]:
    """What a Spark task runs: it gets the places of its part of a batch."""
    from pyspark import cloudpickle

    # Pickled by itself: modules that it needs are found when the paths are known.
    dumps: Callable[[Any], bytes] = cloudpickle.dumps
    paths, pickled = work.paths, dumps(work)

    def run(some: Iterable[int]) -> Iterator[PartResult]:
        from pyspark import TaskContext

        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        places = list(some)
        tally = PartResult()
        if places:
            part = BatchPart(consumer, number, places[0], places[-1] + 1)
            sys.path += [path for path in paths if path not in sys.path]
            run_part(pickled, part, tally, isolated or again)
        yield tally

    return run


def adapt_to_arrow(
    run: Callable[[Iterable[int]], Iterator[PartResult]],
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The same for `mapInArrow`, which gets and gives record batches."""

    def run_batches(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        places = (place for batch in batches for place in batch.column(0).to_pylist())
        yield from (pa.RecordBatch.from_pylist([asdict(tally)]) for tally in run(places))

    return run_batches


def run_part(pickled: bytes, part: BatchPart, tally: PartResult, isolated: bool) -> None:
    """An error is noted and not raised, so that the driver can tell it in one sentence."""
    try:
        work: WorkSpec = pickle.loads(pickled)
        before = logs.configured()
        if work.log_setup is not None and (before is None or before.level != work.log_setup.level):
            logs.configure(*work.log_setup)
        work.create_runtime(part, tally, isolated).run()
    except Exception as error:
        log.error("jobs %d to %d: %s", part.start, part.end - 1, traceback.format_exc())
        text = f"{type(error).__name__}: {error}"
        tally.error = text.encode(errors="replace").decode()  # Arrow takes no other text
