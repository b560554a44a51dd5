"""The worker's runtime: fetches jobs from a source, has a pool run them, reports the verdicts to
the source.

Four parties, joined by queues: the fetching thread, the pool, the finishing thread, the extending
thread. The thread that calls `run` only waits for orders, so that a signal takes effect at once,
whatever the network does.
"""

from __future__ import annotations

import enum
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from taskyard.client.backoff import Backoff
from taskyard.client.errors import Unavailable
from taskyard.client.source import Failed, Job, Released, Source, Verdict
from taskyard.worker.held import LeasedJobs
from taskyard.worker.pools import Pool, RunFailure

T = TypeVar("T")

log: Final = logging.getLogger("taskyard.worker")

FETCH: Final = "fetch jobs"
REPORT: Final = "report finished jobs"
EXTEND: Final = "extend leases"
PROGRESS: Final = "report progress"

# Returns the jobs whose lease is over.
SendProgress: TypeAlias = Callable[[Sequence[tuple[Job, Any]]], list[Job]]

_MAX_VERDICTS: Final = 4000  # reported to the source together
_PROGRESS_INTERVAL_S: Final = 0.25  # seconds between two progress reports
# seconds between two checks whether others could run sooner what waits here
_SURPLUS_CHECK_S: Final = 1.0
_ORDER_POLL_S: Final = 0.5  # seconds between two checks for signals
_JOIN_TIMEOUT_S: Final = 2.0  # seconds for each party to end


class _Order(enum.Enum):
    STOP = "stop"
    KILL = "kill"
    WAKE = "look"  # something ended: see whether that was all


class Runtime(Generic[T]):
    """`run` once. `stop` and `kill` may be called from any thread and from signal handlers."""

    def __init__(
        self,
        source: Source,
        pool: Pool[T],
        decide_verdict: Callable[[Job, T | RunFailure], Verdict],
        *,
        lease: float = 30.0,
        wait: float = 1.0,
        prefetch: int | None = 0,
        patience: float = 30.0,
        backoff: Backoff | None = None,
        interval: float | None = None,
        burst: bool = False,
        send_progress: SendProgress | None = None,
    ) -> None:
        """`decide_verdict`: what an outcome means for its job. `lease`: seconds that one lasts; it
        is extended while the job is here. `wait`: how long one fetch waits; a stop may take as
        long. `prefetch`: how many jobs to have at hand beyond those that run; None: as many as are
        done in a moment. `patience`: for how long a stop waits for an unreachable server.
        `interval`: seconds between two extensions, by default a third of the lease. `burst`: stop
        when the source has nothing and nothing runs. `send_progress`: sends progress reports to the
        source, and returns the jobs whose lease is over, as `extend_leases` does.
        """
        self._source = source
        self._pool = pool
        self._decide_verdict = decide_verdict
        self._wait = wait
        self._patience = patience
        self._backoff = backoff or Backoff()
        self._leased = LeasedJobs(pool.size, prefetch, lease / 3 if interval is None else interval)
        self._releases_surplus = prefetch is None
        self._burst = burst
        self._send_progress = send_progress
        self._progress: dict[str, tuple[Job, Any]] = {}  # by ref, the last one of each
        self._progress_sent_at = 0.0
        self._verdicts: queue.SimpleQueue[tuple[Job, Verdict] | None] = queue.SimpleQueue()
        # The one thing that signal handlers touch: a SimpleQueue can be put to from within itself.
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._killed = threading.Event()
        self._ended = threading.Event()
        self._fetching = True
        self._signals = 0
        self._give_up_at = 0.0
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Take nothing new, finish what runs, end."""
        self._orders.put(_Order.STOP)

    def kill(self) -> None:
        """Stop at once, and release all jobs."""
        self._orders.put(_Order.KILL)

    def stop_or_kill(self) -> None:
        """For signals: the first one stops, the second one kills."""
        self._signals += 1
        self._orders.put(_Order.STOP if self._signals == 1 else _Order.KILL)

    def run(self) -> bool:
        """Work until stopped; false if a job was released unfinished.

        An error of the source for which a retry does not help ends the run and is raised.
        """
        self._pool.start(self._on_outcome)
        threads = [
            threading.Thread(target=self._run_thread, args=(target,), name=f"taskyard-{name}")
            for name, target in (
                ("take", self._fetch_jobs),
                ("finish", self._finish_jobs),
                ("keep", self._extend_leases),
            )
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        try:
            finished = self._handle_orders()
        finally:
            self._ended.set()
            self._leased.wake_waiters()
            self._verdicts.put(None)
            threads[1].join(_JOIN_TIMEOUT_S)
            # In a thread, since it may wait for a server that does not answer.
            closing = threading.Thread(target=self._source.close, daemon=True)
            closing.start()
            closing.join(_JOIN_TIMEOUT_S)
        for thread in threads:
            thread.join(_JOIN_TIMEOUT_S)
        if self._error is not None:
            raise self._error
        return finished

    def report_progress(self, job: Job, what: Any) -> None:
        """Report the progress of a job, from any thread: its last report is sent, and not too
        often.
        """
        self._progress[job.ref] = (job, what)
        self._leased.wake_by(max(self._progress_sent_at + _PROGRESS_INTERVAL_S, time.monotonic()))

    # Orders

    def _handle_orders(self) -> bool:
        while True:
            order = self._next_order()
            if order is _Order.KILL:
                self._kill_now()
                return False
            if order is _Order.STOP and not self._stopping.is_set():
                log.info("stopping: running jobs will finish, no new jobs are fetched")
                self._give_up_at = time.monotonic() + self._patience
                self._stopping.set()
                self._leased.wake_waiters()
                self._release_jobs(self._pool.withdraw())
            if self._stopping.is_set() and not self._fetching and self._leased.is_empty():
                self._pool.close()
                return True

    def _next_order(self) -> _Order:
        """Wait with a limit: a signal just before a wait begins is noticed after it."""
        try:
            return self._orders.get(timeout=_ORDER_POLL_S)
        except queue.Empty:
            return _Order.WAKE

    def _kill_now(self) -> None:
        self._stopping.set()
        self._killed.set()
        self._leased.wake_waiters()
        self._pool.kill()
        held = self._leased.unfinished_jobs()
        if held:
            log.warning("forced shutdown: releasing %d unfinished jobs", len(held))
        self._release_jobs(held)

    def _run_thread(self, target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            if not self._ended.is_set():
                self._error = self._error or error
                self.stop()

    # The fetching thread

    def _fetch_jobs(self) -> None:
        try:
            while room := self._leased.wait_for_capacity(self._stopping):
                idle = self._leased.is_empty()
                jobs = self._retry_while_away(
                    FETCH, partial(self._source.fetch_jobs, room, self._wait)
                )
                self._leased.add(jobs)
                if self._stopping.is_set():
                    self._release_jobs(jobs)
                    break
                if jobs:
                    self._pool.submit(*jobs)
                elif self._burst and idle:
                    self.stop()
                    break
                elif self._burst:
                    # Running jobs may push more, and a retry may be due at once.
                    self._leased.wait_until_empty(self._stopping)
        finally:
            self._fetching = False
            # An order to stop may have found the pool empty just before these were fetched.
            self._release_jobs(self._pool.withdraw())
            self._orders.put(_Order.WAKE)

    # The pool's outcomes

    def _on_outcome(self, job: Job, outcome: T | RunFailure) -> None:
        try:
            verdict = self._decide_verdict(job, outcome)
        except Exception as error:
            log.exception("job %s has no verdict", job.ref)
            verdict = Failed(str(error).encode())
        self._add_verdict(job, verdict)

    def _add_verdict(self, job: Job, verdict: Verdict) -> None:
        if self._leased.mark_finished(job, not isinstance(verdict, Released)):
            self._verdicts.put((job, verdict))

    def _release_jobs(self, jobs: list[Job]) -> None:
        # The last one first: a source that puts each at the front has their old order then.
        for job in reversed(jobs):
            self._add_verdict(job, Released())

    # The finisher

    def _finish_jobs(self) -> None:
        while batch := self._next_verdicts():
            try:
                lost = self._retry_while_away(REPORT, partial(self._source.finish_jobs, batch))
            except Exception:
                # Their leases will end, and the jobs be run again. Others must not suffer for it.
                log.exception("cannot %s; these jobs will be run again", REPORT)
                lost = []
            for job in lost:
                if not job.lost:
                    log.warning(
                        "the lease of job %s of %s had expired when the job ended", *_log_names(job)
                    )
            self._leased.remove([job for job, _ in batch])
            if self._stopping.is_set():
                self._orders.put(_Order.WAKE)

    def _next_verdicts(self) -> list[tuple[Job, Verdict]]:
        """Whatever is there, at least one; none when the run is over."""
        first = self._verdicts.get()
        batch = [] if first is None else [first]
        while batch and len(batch) < _MAX_VERDICTS:
            try:
                following = self._verdicts.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._verdicts.put(None)
                break
            batch.append(following)
        return batch

    # The extending thread

    def _extend_leases(self) -> None:
        while not self._ended.is_set():
            jobs = self._leased.collect_due()
            if jobs is not None:
                self._on_leases_lost(
                    self._retry_or_log(EXTEND, partial(self._source.extend_leases, jobs))
                )
            if self._progress and self._send_progress is not None:
                self._progress_sent_at = time.monotonic()
                notes = [self._progress.pop(ref) for ref in list(self._progress)]
                self._on_leases_lost(
                    self._retry_or_log(PROGRESS, partial(self._send_progress, notes))
                )
            if self._releases_surplus:
                # Short jobs may have been followed by long ones: others can do some of those.
                excess = self._leased.surplus()
                if excess and not self._stopping.is_set():
                    self._release_jobs(self._pool.withdraw(excess))
                self._leased.wake_by(time.monotonic() + _SURPLUS_CHECK_S)
            self._leased.wait_until_due(self._ended)

    def _retry_or_log(self, what: str, call: Callable[[], list[Job]]) -> list[Job]:
        try:
            return self._retry_while_away(what, call)
        except Exception:
            log.exception("cannot %s", what)
            return []

    def _on_leases_lost(self, lost: list[Job]) -> None:
        for job in lost:
            if self._leased.mark_lost(job):
                log.warning(
                    "the lease of job %s of %s was lost: cancelling its run", *_log_names(job)
                )
                self._pool.cancel(job)

    # A server that is away

    def _retry_while_away(self, what: str, call: Callable[[], list[Job]]) -> list[Job]:
        """Retry until it works, or retries are of no use."""
        away = False
        for delay in self._backoff.delays():
            try:
                jobs = call()
            except Unavailable as error:
                quiet = away or self._ended.is_set()  # then this side has ended
                log.log(logging.DEBUG if quiet else logging.WARNING, "cannot %s: %s", what, error)
                away = True
            else:
                if away:
                    log.info("server reachable again")
                return jobs
            if self._should_give_up(what):
                break
            (self._ended if self._stopping.is_set() else self._stopping).wait(delay)
        return []

    def _should_give_up(self, what: str) -> bool:
        if self._killed.is_set() or self._ended.is_set():
            return True
        if not self._stopping.is_set():
            return False
        if what == FETCH:
            return True
        if time.monotonic() < self._give_up_at:
            return False
        log.error("server unreachable until the stop timeout: jobs finished here will run again")
        return True


def _log_names(job: Job) -> tuple[str, str]:
    return job.ref, job.queue if job.name in ("", job.queue) else f"{job.queue} ({job.name})"
