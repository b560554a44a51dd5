"""The worker's runtime: fetches jobs from a source, has a pool run them, reports the verdicts to
the source.

Four parties, joined by queues: the fetching thread, the pool, the finishing thread, the extending
thread. The thread that calls `run` only waits for orders, so that a signal takes effect at once,
whatever the network does. LeasedJobs knows how many more jobs this program may have. The pools are
in pools.py, processes.py and coroutines.py.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from taskyard.client.errors import Unavailable
from taskyard.client.retry import Backoff
from taskyard.client.source import Failed, Job, Released, Source, Verdict
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

_MAX_UNREPORTED: Final = 4000

# By default the number of jobs that are held ready is what is done in so many seconds at the recent
# rate: next to none of long ones, many of short ones.
_PREFETCH_S: Final = 0.1
_MAX_PREFETCH: Final = 1000
_LARGE_PREFETCH: Final = 8
_RATE_WINDOW_S: Final = 0.05  # seconds at least over which the pace is taken


# The runtime


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


class _Order(enum.Enum):
    STOP = "stop"
    KILL = "kill"
    WAKE = "look"  # something ended: see whether that was all


def _log_names(job: Job) -> tuple[str, str]:
    return job.ref, job.queue if job.name in ("", job.queue) else f"{job.queue} ({job.name})"


@contextlib.contextmanager
def handle_signals(numbers: Sequence[signal.Signals], call: Callable[[], None]) -> Iterator[None]:
    """Have signals end the run: the first one stops it, the second one ends it at once.

    Only the main thread may have handlers; in another one it is up to the program.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: call()) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Leased jobs


class LeasedJobs:
    """The jobs that are leased to this program: how many more it may have, which to extend and
    when.

    The threads of a runtime share it.
    """

    def __init__(self, size: int, prefetch: int | None, interval: float) -> None:
        """`size`: how many run at once. `prefetch`: how many more there may be; None: as many as
        are soon done. `interval`: seconds between two extensions of a lease.
        """
        self._size = size
        self._adapts_prefetch = prefetch is None
        self._prefetch = prefetch or 0
        self._interval = interval
        self._leases: dict[str, _Lease] = {}
        self._unfinished_count = 0
        self._finished_in_window = 0  # since the window began
        self._window_start = time.monotonic()
        self._has_waiter = False  # whether a thread waits for capacity
        self._next_extension = 0.0
        self._wake_at = math.inf
        lock = threading.Lock()
        self._capacity_freed = threading.Condition(lock)
        self._due_sooner = threading.Condition(
            lock
        )  # a lease must be extended before the next keep

    def add(self, jobs: Iterable[Job]) -> None:
        now = time.monotonic()
        interval = self._interval
        soonest = now + interval
        with self._capacity_freed:
            for job in jobs:
                # A lease may have begun long before we got it, or be shorter than those we
                # request, or be measured by another clock: rather too early than too late.
                due = now + (min(interval, job.lease / 3) if job.lease else interval)
                often = min(interval, job.span / 3) if job.span else interval
                self._leases[job.ref] = _Lease(job, due, often)
                self._unfinished_count += 1
                if due < soonest:
                    soonest = due
            if soonest < self._next_extension:
                self._due_sooner.notify()

    def mark_finished(self, job: Job, was_run: bool = True) -> bool:
        """Note its verdict; it is held until the source has that. False if it had one."""
        with self._capacity_freed:
            lease = self._leases.get(job.ref)
            if lease is None or lease.finished:
                return False
            lease.finished = True
            self._unfinished_count -= 1
            self._finished_in_window += was_run
            if self._has_waiter and self._has_capacity():
                self._has_waiter = False
                self._capacity_freed.notify()
            return True

    def remove(self, jobs: Iterable[Job]) -> None:
        """Remove jobs that have their verdict."""
        with self._capacity_freed:
            for job in jobs:
                del self._leases[job.ref]
            if self._has_waiter:
                self._capacity_freed.notify_all()

    def mark_lost(self, job: Job) -> bool:
        """Do not extend it any more.

        False if it has its verdict, which may have been reported meanwhile: then it is this program
        that has ended the lease.
        """
        with self._capacity_freed:
            lease = self._leases.get(job.ref)
            if lease is None or lease.finished:
                return False
            job.lose()
            lease.lost = True
            return True

    def is_empty(self) -> bool:
        return not self._leases

    def unfinished_jobs(self) -> list[Job]:
        with self._capacity_freed:
            return [lease.job for lease in self._leases.values() if not lease.finished]

    def wake_waiters(self) -> None:
        """Have waiting threads check whether they still should."""
        with self._capacity_freed:
            self._capacity_freed.notify_all()
            self._due_sooner.notify_all()

    def wait_for_capacity(self, stopping: threading.Event) -> int:
        """How many more jobs there may be, as soon as that is worth a take; 0 when stopping."""
        with self._capacity_freed:
            self._update_rate()
            while not stopping.is_set() and not self._has_capacity():
                self._has_waiter = True
                self._capacity_freed.wait()
                self._update_rate()
            return 0 if stopping.is_set() else self._size + self._prefetch - self._unfinished_count

    def wait_until_empty(self, stopping: threading.Event) -> None:
        with self._capacity_freed:
            while self._leases and not stopping.is_set():
                self._has_waiter = True
                self._capacity_freed.wait()

    def surplus(self) -> int:
        """Return how many there are that others could run sooner; none if the number is fixed."""
        with self._capacity_freed:
            if not self._adapts_prefetch:
                return 0
            self._update_rate()
            return max(self._unfinished_count - self._size - 2 * self._prefetch, 0)

    def _has_capacity(self) -> bool:
        # Those that were run take up none, so that reporting them delays no other; but there must
        # be a limit while the source is unreachable. Of those that are held ready many are taken at
        # a time, when half of them are gone.
        ahead = self._prefetch if self._prefetch < _LARGE_PREFETCH else self._prefetch // 2
        few_enough = self._unfinished_count < self._size + ahead
        return few_enough and len(self._leases) < self._size + self._prefetch + _MAX_UNREPORTED

    def _update_rate(self) -> None:
        if not self._adapts_prefetch:
            return
        now = time.monotonic()
        passed = now - self._window_start
        if passed < _RATE_WINDOW_S and self._finished_in_window < self._size + self._prefetch:
            return
        ahead = int(self._finished_in_window / max(passed, 1e-6) * _PREFETCH_S)
        self._prefetch = min(ahead, _MAX_PREFETCH, 4 * (self._prefetch + self._size))
        self._window_start, self._finished_in_window = now, 0

    def collect_due(self) -> list[Job] | None:
        """Return those whose time has come; they are due again after their interval.

        None if it is not even time to say that this program is alive.
        """
        now = time.monotonic()
        with self._capacity_freed:
            due = [one for one in self._leases.values() if one.extend_at <= now and not one.lost]
            if not due and now < self._next_extension:
                return None
            self._next_extension = now + self._interval
            for lease in due:
                lease.extend_at = now + lease.interval
            return [lease.job for lease in due]

    def wake_by(self, when: float) -> None:
        """Have `wait_until_due` return by then."""
        with self._due_sooner:
            if when < self._wake_at:
                self._wake_at = when
                self._due_sooner.notify()

    def wait_until_due(self, ended: threading.Event) -> None:
        """Wait until a lease is to be extended, or the program has to say that it is alive, or
        another time is due.
        """
        with self._due_sooner:
            while not ended.is_set():
                times = (lease.extend_at for lease in self._leases.values() if not lease.lost)
                pause = min(times, default=self._next_extension)
                pause = min(pause, self._next_extension, self._wake_at) - time.monotonic()
                if pause <= 0:
                    self._wake_at = math.inf
                    return
                self._due_sooner.wait(pause)


class _Lease:
    __slots__ = ("extend_at", "finished", "interval", "job", "lost")

    def __init__(self, job: Job, due: float, interval: float) -> None:
        self.job = job
        self.extend_at = due  # when to extend it
        self.interval = interval  # from one extension to the next
        self.lost = False
        self.finished = False
