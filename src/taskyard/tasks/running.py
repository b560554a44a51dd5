"""Running a job: which task, with which arguments, and what its end means."""

from __future__ import annotations

import asyncio
import importlib
import random
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from taskyard.client.causes import Cause, describe, trimmed
from taskyard.client.source import BY_POLICY, Again, Done, Failed, Job, Returned, Verdict
from taskyard.tasks import logs
from taskyard.tasks.canvas import JOIN
from taskyard.tasks.codec import (
    Envelope,
    asks_for_results,
    decode_plain,
    encode_result,
    read_envelope,
)
from taskyard.tasks.context import CurrentJob, Note, enter, leave
from taskyard.tasks.errors import BadArguments, GiveUp, TryAgain
from taskyard.tasks.logs import Logging
from taskyard.worker.coroutines import run_coroutine, run_in_thread
from taskyard.worker.interrupts import NO_LIMITS, Limits
from taskyard.worker.pools import Crash

if TYPE_CHECKING:
    from taskyard.tasks.app import App
    from taskyard.tasks.task import Task

_DONE: Final = Done()


def nowhere(job: Job, said: tuple[float, str]) -> None:
    """Where notes go when nobody is told."""


class Prepared:
    """A job whose task and arguments are known."""

    __slots__ = ("args", "current", "keep", "kwargs", "pauses", "task")

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
        self.keep = keep
        self.pauses = pauses

    def done(self, value: Any) -> Done:
        options = self.task.options
        if options.result:
            return Done(encode_result(value), "", max(options.result_ttl, self.keep))
        if self.keep:
            return Done(encode_result(value), "", self.keep)
        return _DONE


class Running:
    """What threads, processes and event loops have in common."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: Mapping[str, Task[..., Any]] = app.tasks
        self._hooks = app.hooks
        self._note: Note = nowhere

    @property
    def app(self) -> App:
        return self._app

    def attach(self, note: Note) -> None:
        """Where what tasks say of their progress goes."""
        self._note = note

    def _prepare(self, job: Job) -> Prepared | Verdict:
        task = self._tasks.get(job.name)
        if task is None:
            return _DONE if job.name == JOIN else _unknown(job, self._app)
        try:
            envelope = read_envelope(job.payload)
            inputs: list[Any] = []
            if envelope.results_of:
                if not job.inputs and asks_for_results(job.payload):
                    return Returned()  # they could not be fetched: the server is away
                inputs = _inputs(envelope, job.inputs)
            args, kwargs = task.codec.decode(envelope, inputs)
        except BadArguments as error:
            told = f"BadArguments: {error}".encode(errors="replace")
            return Failed(told, cause=Cause(error.with_traceback(None)))
        current = CurrentJob(job, self._note)
        if task.codec.context_name:
            kwargs = {**kwargs, task.codec.context_name: current}
        return Prepared(task, current, args, kwargs, envelope.keep, envelope.pauses)

    def _failure(self, prepared: Prepared, error: BaseException) -> Verdict:
        verdict = failure(prepared.task, error)
        if prepared.pauses and isinstance(verdict, Again) and verdict.delay == BY_POLICY:
            verdict.delay = _pause(*prepared.pauses, prepared.current.fails)
        return verdict


class Execute(Running):
    """In any thread or process; coroutines get an event loop, one for each thread."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self._own = threading.local()

    def __reduce__(self) -> tuple[Callable[..., Execute], tuple[str, Logging | None, str | None]]:
        app = self._app
        return _execute_there, (app.location(), logs.configured(), app.url)

    def __call__(self, job: Job) -> Verdict:
        prepared = self._prepare(job)
        if not isinstance(prepared, Prepared):
            return prepared
        token = enter(prepared.current)
        try:
            if self._hooks.surround:
                with self._hooks.enter(prepared.current):
                    value = self._call(prepared)
                verdict = prepared.done(value)
                self._hooks.after(prepared.current, value)
                return verdict
            return prepared.done(self._call(prepared))
        except BaseException as error:  # SystemExit in a task is its failure, not our end
            return self._failure(prepared, error)
        finally:
            leave(token)

    def _call(self, prepared: Prepared) -> Any:
        task = prepared.task
        if not task.is_async:
            return task.function(*prepared.args, **prepared.kwargs)
        return run_coroutine(task.function(*prepared.args, **prepared.kwargs), self._runner())

    def _runner(self) -> asyncio.Runner:
        runner: asyncio.Runner | None = getattr(self._own, "runner", None)
        if runner is None:
            runner = self._own.runner = asyncio.Runner()
        return runner

    def depart(self) -> None:
        """In a thread that ends."""
        runner: asyncio.Runner | None = getattr(self._own, "runner", None)
        if runner is not None:
            runner.close()


class ExecuteAsync(Running):
    """In an event loop. Tasks that are plain functions run in threads beside it."""

    async def __call__(self, job: Job) -> Verdict:
        prepared = self._prepare(job)
        if not isinstance(prepared, Prepared):
            return prepared
        token = enter(prepared.current)
        try:
            if self._hooks.surround:
                with self._hooks.enter(prepared.current):
                    value = await self._call(prepared)
                verdict = prepared.done(value)
                self._hooks.after(prepared.current, value)
                return verdict
            return prepared.done(await self._call(prepared))
        except asyncio.CancelledError:
            raise  # the worker ends
        except BaseException as error:
            return self._failure(prepared, error)
        finally:
            leave(token)

    async def _call(self, prepared: Prepared) -> Any:
        task = prepared.task
        if task.is_async:
            return await task.function(*prepared.args, **prepared.kwargs)
        return await run_in_thread(lambda: task.function(*prepared.args, **prepared.kwargs))


def limits_of(tasks: Mapping[str, Task[..., Any]]) -> Callable[[Job], Limits]:
    found = {name: task.options.limits for name, task in tasks.items()}

    def limits(job: Job) -> Limits:
        return found.get(job.name, NO_LIMITS)

    return limits


def settle(job: Job, outcome: Verdict | Crash) -> Verdict:
    """A run that ended without an outcome is one failure, which the job's policy judges."""
    if isinstance(outcome, Crash):
        if not outcome.begun:
            return Returned()
        told = outcome.reason.strip().encode(errors="replace")
        return Again(told, cause=outcome.cause)
    return outcome


def failure(task: Task[..., Any], error: BaseException) -> Verdict:
    cause = Cause(trimmed(error))
    text = describe(error).encode(errors="replace")
    if isinstance(error, GiveUp):
        return Failed(text, cause=cause)
    if isinstance(error, TryAgain):
        delay = BY_POLICY if error.delay is None else max(error.delay, 0.0)
        return Again(text, delay, cause=cause)
    retry = task.options.retry
    worth_it = isinstance(error, Exception) if retry is None else retry.wants(error)
    return Again(text, cause=cause) if worth_it else Failed(text, cause=cause)


def _pause(first: float, most: float, fails: int) -> float:
    """As the server reckons those of other jobs."""
    pause = first * 2.0 ** min(fails, 60)
    return (min(pause, most) if most else pause) * random.uniform(0.5, 1.0)


def _unknown(job: Job, app: App) -> Again:
    """One failure: a worker that has the task may get it at the next attempt, if there is one."""
    return Again(f"UnknownTask: {app.name} has no task named {job.name!r}".encode())


def _inputs(envelope: Envelope, results: tuple[bytes | None, ...]) -> list[Any]:
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


def _execute_there(location: str, logging: Logging | None, url: str | None) -> Execute:
    if logging is not None:
        logs.configure(*logging)
    app = find_app(location)
    if app.url != url:  # the worker was told another: tasks push there too
        app.connect_to(url)
    return Execute(app)


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
