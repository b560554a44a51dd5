"""Running a job: which task, with which arguments, and what its end means."""

from __future__ import annotations

import asyncio
import importlib
import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from taskyard.client.causes import Cause, describe_error, trim_traceback
from taskyard.client.source import BY_POLICY, Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.tasks import logs
from taskyard.tasks.canvas import JOIN_TASK_NAME
from taskyard.tasks.codec import (
    Envelope,
    decode_plain,
    encode_result,
    may_need_results,
    read_envelope,
)
from taskyard.tasks.context import CurrentJob, ProgressReporter, reset_current_job, set_current_job
from taskyard.tasks.errors import BadArguments, GiveUp, TryAgain
from taskyard.tasks.logs import LogSetup
from taskyard.worker.coroutines import run_coroutine, run_in_thread
from taskyard.worker.interrupts import NO_TIME_LIMITS, TimeLimits
from taskyard.worker.pools import RunFailure

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.tasks.task import Task

_SUCCESS: Final = Success()


def ignore_progress(job: Job, said: tuple[float, str]) -> None:
    """Ignore progress reports."""


class PreparedCall:
    """A job with its task and arguments."""

    __slots__ = ("args", "current", "keep_result_s", "kwargs", "pauses", "task")

    def __init__(
        self,
        task: Task[..., Any],
        current: CurrentJob,
        args: list[Any],
        kwargs: dict[str, Any],
        keep: float,
        pauses: tuple[float, float] | None = None,
    ) -> None:
        self.task = task
        self.current = current
        self.args = args
        self.kwargs = kwargs
        self.keep_result_s = keep
        self.pauses = pauses

    def success(self, value: Any) -> Success:
        options = self.task.options
        if options.result:
            return Success(encode_result(value), "", max(options.result_ttl, self.keep_result_s))
        if self.keep_result_s:
            return Success(encode_result(value), "", self.keep_result_s)
        return _SUCCESS


class TaskRunner:
    """What threads, processes and event loops have in common."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: Mapping[str, Task[..., Any]] = app.tasks
        self._hooks = app.hooks
        self._report_progress: ProgressReporter = ignore_progress

    @property
    def app(self) -> App:
        return self._app

    def report_progress_to(self, note: ProgressReporter) -> None:
        """Send progress reports of tasks there."""
        self._report_progress = note

    def _prepare(self, job: Job) -> PreparedCall | Verdict:
        task = self._tasks.get(job.name)
        if task is None:
            return _SUCCESS if job.name == JOIN_TASK_NAME else _unknown_task(job, self._app)
        try:
            envelope = read_envelope(job.payload)
            inputs: list[Any] = []
            if envelope.results_of:
                if not job.inputs and may_need_results(job.payload):
                    return Released()  # they could not be fetched: the server is away
                inputs = _decode_inputs(envelope, job.inputs)
            args, kwargs = task.codec.decode_arguments(envelope, inputs)
        except BadArguments as error:
            told = f"BadArguments: {error}".encode(errors="replace")
            return Failed(told, cause=Cause(error.with_traceback(None)))
        current = CurrentJob(job, self._report_progress)
        if task.codec.context_name:
            kwargs = {**kwargs, task.codec.context_name: current}
        return PreparedCall(task, current, args, kwargs, envelope.keep, envelope.pauses)

    def _failure_verdict(self, prepared: PreparedCall, error: BaseException) -> Verdict:
        verdict = failure_verdict(prepared.task, error)
        if prepared.pauses and isinstance(verdict, RetryLater) and verdict.delay == BY_POLICY:
            verdict.delay = _retry_delay(*prepared.pauses, prepared.current.fails)
        return verdict


class SyncTaskRunner(TaskRunner):
    """In any thread or process; coroutines get an event loop, one for each thread."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._thread_state = threading.local()

    def __reduce__(
        self,
    ) -> tuple[Callable[..., SyncTaskRunner], tuple[str, LogSetup | None, str | None]]:
        app = self._app
        return _restore_task_runner, (app.location(), logs.configured(), app.url)

    def __call__(self, job: Job) -> Verdict:
        prepared = self._prepare(job)
        if not isinstance(prepared, PreparedCall):
            return prepared
        token = set_current_job(prepared.current)
        try:
            if self._hooks.has_run_hooks:
                with self._hooks.enter_contexts(prepared.current):
                    value = self._call_function(prepared)
                verdict = prepared.success(value)
                self._hooks.run_after(prepared.current, value)
                return verdict
            return prepared.success(self._call_function(prepared))
        except BaseException as error:  # SystemExit in a task is its failure, not our end
            return self._failure_verdict(prepared, error)
        finally:
            reset_current_job(token)

    def _call_function(self, prepared: PreparedCall) -> Any:
        task = prepared.task
        if not task.is_async:
            return task.function(*prepared.args, **prepared.kwargs)
        return run_coroutine(task.function(*prepared.args, **prepared.kwargs), self._runner())

    def _runner(self) -> asyncio.Runner:
        runner: asyncio.Runner | None = getattr(self._thread_state, "runner", None)
        if runner is None:
            runner = self._thread_state.runner = asyncio.Runner()
        return runner

    def on_thread_end(self) -> None:
        """In a thread that ends."""
        runner: asyncio.Runner | None = getattr(self._thread_state, "runner", None)
        if runner is not None:
            runner.close()


class AsyncTaskRunner(TaskRunner):
    """In an event loop. Tasks that are plain functions run in threads beside it."""

    async def __call__(self, job: Job) -> Verdict:
        prepared = self._prepare(job)
        if not isinstance(prepared, PreparedCall):
            return prepared
        token = set_current_job(prepared.current)
        try:
            if self._hooks.has_run_hooks:
                with self._hooks.enter_contexts(prepared.current):
                    value = await self._call_function(prepared)
                verdict = prepared.success(value)
                self._hooks.run_after(prepared.current, value)
                return verdict
            return prepared.success(await self._call_function(prepared))
        except asyncio.CancelledError:
            raise  # the worker ends
        except BaseException as error:
            return self._failure_verdict(prepared, error)
        finally:
            reset_current_job(token)

    async def _call_function(self, prepared: PreparedCall) -> Any:
        task = prepared.task
        if task.is_async:
            return await task.function(*prepared.args, **prepared.kwargs)
        return await run_in_thread(lambda: task.function(*prepared.args, **prepared.kwargs))


def limits_of(tasks: Mapping[str, Task[..., Any]]) -> Callable[[Job], TimeLimits]:
    found = {name: task.options.limits for name, task in tasks.items()}

    def limits(job: Job) -> TimeLimits:
        return found.get(job.name, NO_TIME_LIMITS)

    return limits


def decide_verdict(job: Job, outcome: Verdict | RunFailure) -> Verdict:
    """A run that ended without an outcome is one failure, which the job's policy judges."""
    if isinstance(outcome, RunFailure):
        if not outcome.begun:
            return Released()
        told = outcome.reason.strip().encode(errors="replace")
        return RetryLater(told, cause=outcome.cause)
    return outcome


def failure_verdict(task: Task[..., Any], error: BaseException) -> Verdict:
    cause = Cause(trim_traceback(error))
    text = describe_error(error).encode(errors="replace")
    if isinstance(error, GiveUp):
        return Failed(text, cause=cause)
    if isinstance(error, TryAgain):
        delay = BY_POLICY if error.delay is None else max(error.delay, 0.0)
        return RetryLater(text, delay, cause=cause)
    retry = task.options.retry
    worth_it = isinstance(error, Exception) if retry is None else retry.wants(error)
    return RetryLater(text, cause=cause) if worth_it else Failed(text, cause=cause)


def _retry_delay(first: float, most: float, fails: int) -> float:
    """As the server reckons those of other jobs."""
    pause = first * 2.0 ** min(fails, 60)
    return (min(pause, most) if most else pause) * random.uniform(0.5, 1.0)


def _unknown_task(job: Job, app: App) -> RetryLater:
    """Fail once: a worker that has the task may get it at the next attempt, if there is one."""
    return RetryLater(f"UnknownTask: {app.name} has no task named {job.name!r}".encode())


def _decode_inputs(envelope: Envelope, results: tuple[bytes | None, ...]) -> list[Any]:
    if not results:
        raise BadArguments("results_of must stand in the payload as it is, without escapes")
    if None in results:
        lost = envelope.results_of[results.index(None)]
        raise BadArguments(
            f"the result of job {lost}, which comes before it, is not there any more, or this "
            "worker may not inspect its queue"
        )
    values = [decode_plain(result) for result in results]
    return [values] if envelope.join else values


def _restore_task_runner(
    location: str, logging: LogSetup | None, url: str | None
) -> SyncTaskRunner:
    if logging is not None:
        logs.configure(*logging)
    app = find_app(location)
    if app.url != url:  # the worker has another: tasks push there too
        app.connect_to(url)
    return SyncTaskRunner(app)


def find_app(location: str) -> App:
    """Of `module:name`; ImportError and the like, as the module raises them."""
    from taskyard.tasks.app import App

    module, _, name = location.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, App):
        raise TypeError(f"{location} is no taskyard.App")
    return found
