"""A worker: takes the jobs of some queues and runs their tasks, until it is told to stop.

Its source takes the jobs from the server; execution.py runs them.
"""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from taskyard.client.commands import Command, Reply, Word, encode_commands
from taskyard.client.connection import Connection
from taskyard.client.errors import NotNow, Refused, StaleLease, Unavailable
from taskyard.client.source import BY_POLICY, Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.client.url import DEFAULT_TIMEOUT_S, Address, first_given
from taskyard.tasks.codec import may_need_results, read_envelope
from taskyard.tasks.errors import BadArguments
from taskyard.tasks.execution import AsyncTaskRunner, SyncTaskRunner, decide_verdict, limits_of
from taskyard.tasks.task import ProgressReporter
from taskyard.worker.pools import Pool, ThreadPool
from taskyard.worker.runtime import Runtime, handle_signals

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.worker.processes import ProgressHandler


log: Final = logging.getLogger("taskyard.worker")

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_MAX_EXTEND_INTERVAL_S: Final = 5.0  # seconds between two extensions of a lease, at most

_MAX_FETCH: Final = 1000
_COMMANDS_PER_SEND: Final = 1000  # commands that are put together at a time
_MAX_DURATION_S: Final = 100 * 365 * 86_400.0  # seconds that the server keeps a result, or waits
_OK: Final = b"OK"

PoolKind: TypeAlias = Literal["threads", "processes", "async"]
POOLS: Final = ("threads", "processes", "async")


# The worker


class Worker:
    """Of one app. `run` it once."""

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] | Mapping[str, float] | None = None,
        concurrency: int = 4,
        pool: PoolKind = "threads",
        prefetch: int | None = None,
        lease: float = 30.0,
        burst: bool = False,
        poll: float = 1.0,
        schedules: bool = True,
    ) -> None:
        """`queues`: looked at in this order, or with weights; else those of the app's tasks.
        `concurrency`: how many tasks run at once. `prefetch`: how many more jobs are held ready;
        None: as many as are done in a tenth of a second, at most 1,000. `lease`: seconds after
        which the jobs of a worker that was killed are run by others. `burst`: end when nothing is
        ready and nothing runs here. `poll`: seconds for which the server is asked to wait for a
        job, and which a stop may take. `schedules`: tell the server of the app's at the start.
        """
        if concurrency < 1 or (prefetch is not None and prefetch < 0):
            raise ValueError("concurrency must be at least 1, and prefetch not negative")
        if lease < 0.1 or poll < 0.01:
            raise ValueError("lease needs 0.1 seconds or more, and poll 0.01")
        if pool not in POOLS:
            raise ValueError(f"pool must be threads, processes or async, not {pool!r}")
        self.app = app
        self.queues = QueueOrder(weights_of(queues if queues is not None else app.queues()))
        if not self.queues.names:
            raise ValueError("a worker needs at least one queue")
        self.concurrency = concurrency
        self.kind = pool
        self._prefetch = prefetch
        self._lease = lease
        self._burst = burst
        self._poll = poll
        self._schedules = schedules
        self._runtime: Runtime[Verdict] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def run(self) -> bool:
        """Until stopped: by SIGTERM or SIGINT (in the main thread), or `stop`.

        What runs is finished first, and what was only held ready is given back. A second signal
        ends the run at once; what was running is given back, and False returned. A server that is
        away is waited for. Refused if the server does not want this worker.
        """
        address = self.app.address
        source = TaskSource(
            address, self.queues, self._lease, self._run_failure_hooks, self._task_leases()
        )
        execute, pool = make_pool(self.app, self.kind, self.concurrency, self._on_progress)
        runtime = Runtime(
            source,
            pool,
            decide_verdict,
            lease=self._lease,
            wait=0.0 if self._burst else self._poll,
            prefetch=self._prefetch,
            interval=min(self._lease / 3, _MAX_EXTEND_INTERVAL_S),
            burst=self._burst,
            send_progress=source.send_progress,
        )
        execute.report_progress_to(runtime.report_progress)
        with self._lock:
            if self._runtime is not None:
                raise RuntimeError("this worker runs already")
            self._runtime = runtime
            if self._stopped:
                runtime.stop()
        if self._schedules and self.app.schedules.declared:
            threading.Thread(
                target=self._sync_schedules, name="taskyard-schedules", daemon=True
            ).start()
        with handle_signals(_STOP_SIGNALS, runtime.stop_or_kill):
            return runtime.run()

    def stop(self) -> None:
        """From any thread: finish what runs, take nothing new, and have `run` return."""
        with self._lock:
            self._stopped = True
            if self._runtime is not None:
                self._runtime.stop()

    def _task_leases(self) -> dict[str, float]:
        ttrs = ((task.name, task.options.ttr) for task in self.app.tasks.values())
        return {name: ttr for name, ttr in ttrs if ttr is not None and ttr < self._lease}

    def _sync_schedules(self) -> None:
        """Beside the work, which must not wait for it."""
        try:
            self.app.sync_schedules()
        except Exception as error:
            log.error("the schedules of %s cannot be set: %s", self.app.name, error)

    def _on_progress(self, job: Job, said: Any) -> None:
        """Of the processes."""
        if self._runtime is not None:
            self._runtime.report_progress(job, said)

    def _run_failure_hooks(self, job: Job, error: str, final: bool) -> None:
        if final:
            self.app.hooks.run_on_failure(job, error)
        else:
            self.app.hooks.run_on_retry(job, error)


def weights_of(queues: Sequence[str] | Mapping[str, float]) -> dict[str, float | None]:
    if isinstance(queues, Mapping):
        return dict(queues)
    if isinstance(queues, str):
        raise TypeError("queues is a list of names, or a dictionary of weights")
    return dict.fromkeys(queues)


# The pool that runs the tasks


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
    from taskyard.worker.pools import GroupingPool

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
    from taskyard.tasks.execution import AsyncGroupingTaskRunner, GroupingTaskRunner

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


# The server as a source of jobs


class QueueOrder:
    """The order in which queues are searched."""

    def __init__(self, weights: dict[str, float | None]) -> None:
        """Either all have a weight or none has; those without are searched in their order."""
        self.names = list(weights)
        self._weights = [weight for weight in weights.values() if weight is not None]
        if self._weights and len(self._weights) != len(self.names):
            raise ValueError("give all queues a weight, or none")
        if any(weight <= 0 for weight in self._weights):
            raise ValueError("the weight of a queue must be above 0")

    def next_order(self) -> list[str]:
        """With weights: a random order, each time anew.

        The chance to be the first is in proportion to the weight, so that none has to wait for
        ever.
        """
        if not self._weights:
            return self.names
        # The smallest of exponential variates is the i-th with a chance that goes by its rate.
        keys = [random.expovariate(weight) for weight in self._weights]
        return [name for _, name in sorted(zip(keys, self.names, strict=True))]


class TaskSource:
    """The server as a worker of tasks sees it: JOB.TAKE, JOB.DONE and their kin, many at a time.

    Leases are taken on one connection, and all else said on another.
    """

    def __init__(
        self,
        address: Address,
        queues: QueueOrder,
        lease: float,
        on_failed_attempt: Callable[[Job, str, bool], None] | None = None,
        task_leases: Mapping[str, float] | None = None,
    ) -> None:
        """`on_failed_attempt`: called with each failure that the server has recorded: the error,
        and whether the job is retried. `task_leases`: of tasks whose leases are shorter than
        others, by name.
        """
        self._queues = queues
        self._lease_ms = round(lease * 1000)
        self._on_failed_attempt = on_failed_attempt
        self._task_leases = task_leases or {}
        timeout = first_given(address.timeout, DEFAULT_TIMEOUT_S)
        self._fetch_connection = Connection(address, timeout=timeout)
        self._finish_connection = Connection(address, timeout=timeout)
        self._extend_connection = Connection(address, timeout=timeout)

    def fetch_jobs(self, count: int, wait: float) -> list[Job]:
        names = self._queues.next_order()
        words: list[Word] = ["JOB.TAKE", len(names), *names]
        words += ["COUNT", min(count, _MAX_FETCH), "TTR", self._lease_ms]
        if wait:
            words += ["WAIT", round(wait * 1000)]
        [reply] = self._fetch_connection.pipeline([words], wait=wait)
        raise_if_unavailable([reply])
        if isinstance(reply, Refused):
            raise reply
        assert isinstance(reply, list)
        now = time.time()
        jobs = [read_job(one, now) for one in reply]
        if self._task_leases:
            for job in jobs:
                job.span = self._task_leases.get(job.name, 0.0)
        with contextlib.suppress(Unavailable):  # those that wait for something are released
            self.fetch_inputs(jobs)
        return jobs

    def fetch_inputs(self, taken: list[Job]) -> None:
        """The results that steps of a chain get from those before them."""
        jobs = [job for job in taken if may_need_results(job.payload)]
        if not jobs:
            return
        wanted: list[tuple[Job, list[str]]] = []
        for job in jobs:
            try:
                wanted.append((job, read_envelope(job.payload).results_of))
            except BadArguments:
                continue  # which will be reported when it is run
        commands: list[Command] = [("JOB.RESULT", uid) for _, uids in wanted for uid in uids]
        replies = iter(self._fetch_connection.pipeline(commands, repeat=True))
        for job, uids in wanted:
            job.inputs = tuple(_decode_result(next(replies)) for _ in uids)

    def finish_jobs(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        sending = _CommandList([_finish_command(job, verdict) for job, verdict in verdicts])
        self._finish_connection.stream(sending)
        replies = sending.replies
        lost: list[Job] = []
        second: list[Command] = []
        tells = log.isEnabledFor(logging.INFO)
        for (job, verdict), reply in zip(verdicts, replies, strict=True):
            if reply == _OK:
                if tells and isinstance(verdict, Success):
                    words = (job.name, job.id, job.seconds)
                    log.info("%s (job %s) succeeded in %.3f s", *words, extra=_log_fields(job))
                continue
            if isinstance(reply, StaleLease):
                lost.append(job)
            elif isinstance(reply, NotNow):
                raise Unavailable(str(reply))
            elif isinstance(reply, Refused):
                # Because of a large result, for instance: else it would be run again for ever.
                log.error("job %s (%s): the server refused its end: %s", job.ref, job.name, reply)
                second.append(("JOB.FAIL", job.ref, f"the server refused: {reply}", "FINAL"))
            else:
                self._report_failure(job, verdict, reply)
        if second:
            raise_if_unavailable(self._finish_connection.pipeline(second))
        return lost

    def _report_failure(self, job: Job, verdict: Verdict, reply: Reply) -> None:
        error = verdict.error if isinstance(verdict, RetryLater | Failed) else b""
        text = error.decode(errors="replace")
        final = reply == b"failed" or isinstance(verdict, Failed)
        cause = verdict.cause if isinstance(verdict, RetryLater | Failed) else None
        log.log(
            logging.ERROR if final else logging.WARNING,
            "%s (job %s) failed after %.3f s%s: %s",
            *(job.name, job.id, job.seconds),
            "" if final else " and will be tried again",
            text.partition("\n")[0],
            exc_info=None if cause is None else cause.error,
            extra=_log_fields(job),
        )
        if self._on_failed_attempt is not None:
            self._on_failed_attempt(job, text, final)

    def extend_leases(self, jobs: Sequence[Job]) -> list[Job]:
        if not jobs:
            return []
        return self._send_and_find_lost(
            jobs, [("JOB.EXTEND", job.ref, self._extension_ms(job)) for job in jobs]
        )

    def _extension_ms(self, job: Job) -> int:
        return min(self._lease_ms, _milliseconds(job.span)) if job.span else self._lease_ms

    def send_progress(self, notes: Sequence[tuple[Job, Any]]) -> list[Job]:
        """Send the progress of jobs."""
        commands: list[Command] = []
        for job, (fraction, message) in notes:
            text = str(message)[:1024].encode(errors="replace")
            commands.append(("JOB.PROGRESS", job.ref, round(fraction * 1000), text))
        return self._send_and_find_lost([job for job, _ in notes], commands)

    def _send_and_find_lost(self, jobs: Sequence[Job], commands: list[Command]) -> list[Job]:
        replies = self._extend_connection.pipeline(commands)
        raise_if_unavailable(replies)
        pairs = zip(jobs, replies, strict=True)
        return [job for job, reply in pairs if isinstance(reply, StaleLease)]

    def close(self) -> None:
        for connection in (
            self._fetch_connection,
            self._finish_connection,
            self._extend_connection,
        ):
            connection.close()


class _CommandList:
    """Commands that are all sent before the first is answered: the server then waits for its disk
    once, and not for every few of them.
    """

    def __init__(self, commands: list[Command]) -> None:
        self._commands = commands
        self._sent = 0
        self.replies: list[Reply] = []

    def next_commands(self) -> bytes:
        some = self._commands[self._sent : self._sent + _COMMANDS_PER_SEND]
        self._sent += len(some)
        return encode_commands(some)

    def on_replies(self, replies: Sequence[Reply]) -> None:
        self.replies += replies

    @property
    def done(self) -> bool:
        return len(self.replies) == len(self._commands)


def read_job(reply: Any, now: float) -> Job:
    ref, id, uid, queue, name, attempt, fails, deadline, payload = reply[:9]
    # By position: this is made for each job, and so takes 0.3 microseconds less.
    return Job(
        ref.decode(),
        queue.decode(),
        payload,
        name.decode(),
        uid.decode(),
        attempt,
        fails,
        # Measured with our clock, which need not be the server's: see LeasedJobs.add.
        max(deadline / 1000 - now, 0.001) if deadline else 0.0,
        id,
        deadline / 1000,
    )


def raise_if_unavailable(replies: Sequence[Reply]) -> None:
    """Unavailable if the server cannot do such things now, so that they are tried again."""
    for reply in replies:
        if isinstance(reply, NotNow):
            raise Unavailable(str(reply))


def _finish_command(job: Job, verdict: Verdict) -> Command:
    if isinstance(verdict, Success):
        if verdict.result_ttl:
            return ("JOB.DONE", job.ref, verdict.result, "KEEP", _milliseconds(verdict.result_ttl))
        return ("JOB.DONE", job.ref)
    if isinstance(verdict, Released):
        return ("JOB.RETURN", job.ref)
    if isinstance(verdict, Failed):
        return ("JOB.FAIL", job.ref, verdict.error, "FINAL")
    if verdict.delay == BY_POLICY:
        return ("JOB.FAIL", job.ref, verdict.error)
    return ("JOB.FAIL", job.ref, verdict.error, "IN", _milliseconds(verdict.delay))


def _milliseconds(seconds: float) -> int:
    """What a payload or a task says may be anything; it must not spoil the reports of others."""
    return round(min(max(0.001, seconds), _MAX_DURATION_S) * 1000) if seconds else 0


def _log_fields(job: Job) -> dict[str, dict[str, object]]:
    """What a structured log has beside the message."""
    found = {
        "task": job.name,
        "job": job.id,
        "uid": job.uid,
        "queue": job.queue,
        "attempt": job.attempt,
        "seconds": round(job.seconds, 6),
    }
    return {"fields": found}


def _decode_result(reply: Reply) -> bytes | None:
    """Return the result of a job before; b"" if it had none, None if it is not known any more."""
    if isinstance(reply, list) and len(reply) >= 4 and reply[2] == 1:
        return reply[3] if isinstance(reply[3], bytes) else b""
    return None
