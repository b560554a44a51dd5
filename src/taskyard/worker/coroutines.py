"""A pool of coroutines, and how one of them is ended from outside with an exception of ours."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from taskyard.client.source import Job
from taskyard.worker.pools import (
    CANCEL_GRACE_S,
    NEVER,
    Cancelled,
    Reason,
    Report,
    RunFailure,
    SoftTimeLimit,
    ThreadSlot,
    TimeLimitsOf,
    current_slot,
    failure_of,
    no_time_limits,
    unset_reporter,
)

T = TypeVar("T")

log: Final = logging.getLogger("taskyard.worker")


class Interruptible(Generic[T]):
    """Awaits a coroutine, into which `interrupt` raises an exception where it waits.

    A cancellation of the task it runs in arrives here first, and continues as that exception.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[Any] | None = None
        self._reason: Reason | None = None
        self._early_interrupt: Reason | None = None  # that arrived before it had begun

    def interrupt(self, reason: Reason) -> None:
        """In the thread of the loop. If it has not begun yet it will not do anything else."""
        if self._task is None:
            self._early_interrupt = reason
        elif not self._task.done():
            underway, self._reason = self._reason is not None, reason
            if not underway:
                self._task.cancel()

    def __await__(self) -> Generator[Any, Any, T]:
        self._task = asyncio.current_task()
        coroutine = self._coroutine
        try:
            early = self._early_interrupt
            waiting = coroutine.send(None) if early is None else coroutine.throw(early())
            while True:
                try:
                    sent = yield waiting
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:
                    waiting = coroutine.throw(self._translate_cancellation(error))
                else:
                    if self._reason is not None:
                        self._forget_reason()  # what it waited for has caught the cancellation
                    waiting = coroutine.send(sent)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            self._task = None

    def _translate_cancellation(self, error: BaseException) -> BaseException:
        reason = self._reason
        if reason is None:
            return error
        self._forget_reason()
        return reason() if isinstance(error, asyncio.CancelledError) else error

    def _forget_reason(self) -> None:
        self._reason = None
        assert self._task is not None
        self._task.uncancel()  # that one was ours: the coroutine is not being cancelled


def run_coroutine(coroutine: Coroutine[Any, Any, T], runner: asyncio.Runner) -> T:
    """Run it in a thread that has a slot: an interruption is passed to the coroutine."""
    place = current_slot()
    loop = runner.get_loop()
    run = Interruptible(coroutine)

    async def main() -> T:
        return await run

    if place is not None:
        place.redirect_interrupts(lambda reason: _call_soon(loop, run.interrupt, reason))
    try:
        return runner.run(main())
    finally:
        if place is not None:
            place.redirect_interrupts(None)


def _call_soon(
    loop: asyncio.AbstractEventLoop, call: Callable[[Reason], None], reason: Reason
) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call, reason)


class _CallSlot(ThreadSlot):
    """The thread of one call. An interruption before it has begun is not lost: then the call is not
    made.
    """

    def __init__(self) -> None:
        super().__init__(lambda place, job, why: None)
        self._call = Job("", "", b"")
        self._early_interrupt: Reason | None = None

    def start_call(self) -> None:
        self.attach_thread()
        with self.lock:
            if self._early_interrupt is not None:
                raise self._early_interrupt
            self.job = self._call

    def forward_interrupt(self, reason: Reason) -> None:
        with self.lock:
            if self.job is self._call:
                self.interrupt_run(reason)
            else:
                self._early_interrupt = reason


async def run_in_thread(function: Callable[[], T]) -> T:
    """A plain function, in a thread of its own; an interruption of the caller is passed on.

    Unlike those of asyncio, the thread does not keep a program from ending, and is not one of a few
    that are shared: the pool says how many run at once.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    place = _CallSlot()

    def tell(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((value, error))  # a future takes not every exception as one

    def attempt() -> tuple[Any, BaseException | None]:
        try:
            place.start_call()
            value = function()
            place.end_run()
        except BaseException as raised:
            place.end_run_uninterrupted()
            return None, raised
        return value, None

    def run() -> None:
        try:
            value, error = attempt()
        except BaseException as raised:  # from outside, while that of the function was caught
            place.end_run_uninterrupted()
            value, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, value, error)

    context = contextvars.copy_context()
    _take_call_thread().put(lambda: context.run(run))
    while not future.done():
        try:
            await asyncio.shield(future)
        except (SoftTimeLimit, Cancelled) as reason:
            place.forward_interrupt(type(reason))
        except asyncio.CancelledError:
            place.forward_interrupt(Cancelled)
            raise
    found: T
    found, error = future.result()
    if error is not None:
        raise error
    return found


async def run_in_detached_thread(function: Callable[[], T]) -> T:
    """Run a slow plain function in such a thread.

    If the caller is cancelled the function continues to its end, without a waiter.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((value, error))

    def run() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = function()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, value, error)

    context = contextvars.copy_context()
    _take_call_thread().put(lambda: context.run(run))
    found: T
    found, error = await future
    if error is not None:
        raise error
    return found


_CallQueue: TypeAlias = queue.SimpleQueue[Callable[[], None]]

# Threads that have nothing to do: starting one takes 5 times as long as handing it a call. There
# are as many as ever ran at the same time.
_idle_threads: Final[deque[_CallQueue]] = deque()


def _take_call_thread() -> _CallQueue:
    try:
        return _idle_threads.pop()
    except IndexError:
        calls: _CallQueue = queue.SimpleQueue()
        thread = threading.Thread(target=_run_calls, args=(calls,), name="taskyard-plain")
        thread.daemon = True
        thread.start()
        return calls


def _run_calls(calls: _CallQueue) -> None:
    while True:
        call = calls.get()
        call()
        del call
        _idle_threads.append(calls)


class _RunningJob:
    """A job that runs in the loop."""

    __slots__ = ("abandoned", "inner", "job", "task", "timers")

    def __init__(self, job: Job, inner: Interruptible[Any]) -> None:
        self.job = job
        self.inner = inner
        self.abandoned = False
        self.task: asyncio.Task[None] | None = None
        self.timers: list[asyncio.TimerHandle] = []


class AsyncPool(Generic[T]):
    """One thread with an event loop, in which so many coroutines run at the same time."""

    def __init__(
        self,
        execute: Callable[[Job], Awaitable[T]],
        size: int,
        limits: TimeLimitsOf = no_time_limits,
    ) -> None:
        self.size = size
        self._execute = execute
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self._running: dict[str, _RunningJob] = {}  # by ref
        self._report: Report[T] = unset_reporter
        self._thread = threading.Thread(target=self._run_loop, name="taskyard-loop", daemon=True)
        self._killed = threading.Event()

    def start(self, report: Report[T]) -> None:
        self._report = report
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def submit(self, *jobs: Job) -> None:
        self._waiting.extend(jobs)
        self._loop.call_soon_threadsafe(self._start_waiting_jobs)

    def withdraw(self, most: int | None = None) -> list[Job]:
        found: list[Job] = []
        while most is None or len(found) < most:
            try:
                found.append(self._waiting.pop())
            except IndexError:
                break
        found.reverse()
        return found

    def cancel(self, job: Job) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._cancel_run, job)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def kill(self) -> None:
        self._killed.set()
        self._waiting.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = [run.task for run in self._running.values() if run.task is not None]
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _start_waiting_jobs(self) -> None:
        while len(self._running) < self.size:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            run = _RunningJob(job, Interruptible(self._execute_job(job)))
            self._running[job.ref] = run
            run.task = self._loop.create_task(self._run_job(run))
            limits = self._limits(job)
            if limits.soft < NEVER:
                self._schedule_call(run, limits.soft, run.inner.interrupt, SoftTimeLimit)
            if limits.hard < NEVER:
                why = f"it was still running after its time limit of {limits.hard:g} seconds"
                self._schedule_call(run, limits.hard, self._abandon_run, run, why)

    def _schedule_call(
        self, run: _RunningJob, delay: float, call: Callable[..., None], *args: object
    ) -> None:
        run.timers.append(self._loop.call_later(delay, call, *args))

    def _cancel_run(self, job: Job) -> None:
        run = self._running.get(job.ref)
        if run is not None:
            run.inner.interrupt(Cancelled)
            self._schedule_call(
                run, CANCEL_GRACE_S, self._abandon_run, run, "it was cancelled and did not end"
            )
            return
        try:
            self._waiting.remove(job)
        except ValueError:
            return
        self._report(job, RunFailure("it was cancelled before it began"))

    def _abandon_run(self, run: _RunningJob, why: str) -> None:
        """Abandon a run: a coroutine may catch whatever is raised in it."""
        if run.abandoned:
            return
        run.abandoned = True
        if run.task is not None:
            run.task.cancel()
        self._forget_run(run)
        if not self._killed.is_set():
            self._report(run.job, RunFailure(why))

    def _forget_run(self, run: _RunningJob) -> None:
        for timer in run.timers:
            timer.cancel()
        self._running.pop(run.job.ref, None)
        if not self._killed.is_set():
            self._loop.call_soon(self._start_waiting_jobs)

    async def _execute_job(self, job: Job) -> T:
        return await self._execute(job)

    async def _run_job(self, run: _RunningJob) -> None:
        outcome: T | RunFailure
        began = time.monotonic()
        try:
            outcome = await run.inner
        except BaseException as error:
            # A loop that these reach would end, and all jobs with it.
            outcome = failure_of(error)
        run.job.seconds = time.monotonic() - began
        if run.abandoned:
            return
        self._forget_run(run)
        if not self._killed.is_set():
            self._report(run.job, outcome)
