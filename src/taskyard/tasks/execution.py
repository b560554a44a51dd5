"""Running a job: which task, with which arguments, and what its end means."""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import inspect
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

from taskyard.client.causes import Cause, describe_error, trim_traceback
from taskyard.client.commands import NewJob
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
from taskyard.tasks.errors import BadArguments, BadResult, GiveUp, TryAgain
from taskyard.tasks.logs import LogSetup
from taskyard.tasks.options import Options
from taskyard.tasks.task import (
    CurrentJob,
    PlainTask,
    ProgressReporter,
    reset_current_job,
    set_current_job,
)
from taskyard.worker.coroutines import run_coroutine, run_in_thread
from taskyard.worker.pools import (
    NO_TIME_LIMITS,
    Cancelled,
    JobGroup,
    RunFailure,
    SoftTimeLimit,
    TimeLimits,
)

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


# Hooks around what happens to tasks

log: Final = logging.getLogger("taskyard.tasks")


class Middleware:
    """Override what you want. All are called in the order in which they were added, `after` in the
    opposite one; of `around` the first one is the outermost.
    """

    def on_push(self, job: NewJob) -> NewJob:
        """Before a job is pushed, by the program that pushes. What it gives is pushed; what it
        raises is raised by the push, and nothing is pushed.
        """
        return job

    def before(self, job: CurrentJob) -> None:
        """Before a task is run, where it is run. What it raises is a failure of the attempt."""

    def around(self, job: CurrentJob) -> AbstractContextManager[Any]:
        """A context in which the task is run, coroutines too. The same goes for what it raises."""
        return nullcontext()

    def after(self, job: CurrentJob, value: Any) -> None:
        """After a task has succeeded, where it ran. What it raises is logged."""

    def on_retry(self, job: Job, error: str) -> None:
        """In the worker's main process, when the server knows that an attempt failed and the job
        will be tried again. What it raises is logged.
        """

    def on_failure(self, job: Job, error: str) -> None:
        """The same when the job has failed for good."""


class Hooks:
    """Those of an app, each only where it was overridden."""

    def __init__(self, all_of_them: Sequence[Middleware]) -> None:
        self._push = _overridden_hooks(all_of_them, "on_push")
        self._before = _overridden_hooks(all_of_them, "before")
        self._around = _overridden_hooks(all_of_them, "around")
        self._after = _overridden_hooks(all_of_them, "after")[::-1]
        self._retry = _overridden_hooks(all_of_them, "on_retry")
        self._failure = _overridden_hooks(all_of_them, "on_failure")
        self.has_push_hooks = bool(self._push)
        self.has_run_hooks = bool(self._before or self._around or self._after)

    def run_on_push(self, job: NewJob) -> NewJob:
        for hook in self._push:
            job = hook(job)
        return job

    def enter_contexts(self, job: CurrentJob) -> ExitStack:
        """What comes before the task; the stack is what it runs in."""
        for hook in self._before:
            hook(job)
        with ExitStack() as stack:
            for hook in self._around:
                stack.enter_context(hook(job))
            return stack.pop_all()

    def run_after(self, job: CurrentJob, value: Any) -> None:
        for hook in self._after:
            _call_and_log(hook, job, value)

    def run_on_retry(self, job: Job, error: str) -> None:
        for hook in self._retry:
            _call_and_log(hook, job, error)

    def run_on_failure(self, job: Job, error: str) -> None:
        for hook in self._failure:
            _call_and_log(hook, job, error)


def _overridden_hooks(all_of_them: Sequence[Middleware], name: str) -> list[Callable[..., Any]]:
    plain = getattr(Middleware, name)
    return [getattr(one, name) for one in all_of_them if getattr(type(one), name) is not plain]


def _call_and_log(hook: Callable[..., Any], *arguments: Any) -> None:
    try:
        hook(*arguments)
    except Exception:
        log.exception("a hook of the middleware failed: %s", hook.__qualname__)


# Tasks whose function gets many jobs at once, as a table with a row for each

TableKind: TypeAlias = Literal["pandas", "arrow"]
TABLES: Final = get_args(TableKind)
JOB_ID: Final = "job_id"  # a column of tables of Arrow, and the index of those of pandas
DEFAULT_ROWS: Final = 1000
_ERROR: Final = "error"  # columns of results
_RESULT: Final = "result"


class RowFailed(Exception):
    """What a table of results says in its column `error`."""


class BatchTask(PlainTask[..., Any]):
    """Called or pushed it is a task of one row; `on_table` calls the function itself."""

    def __init__(
        self,
        app: App,
        function: Callable[[Any], Any],
        name: str,
        options: Options,
        *,
        columns: Mapping[str, Any] | None,
        table: TableKind,
        rows: int,
        split: bool,
    ) -> None:
        if table not in TABLES:
            raise ValueError(f"table must be pandas or arrow, not {table!r}")
        if rows < 1:
            raise ValueError("rows must be at least 1")
        if columns is not None and (not columns or JOB_ID in columns):
            raise ValueError(f"columns need a name or more, which is not {JOB_ID!r}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name}: a function of a table cannot be a coroutine function")
        self.on_table = function
        self.columns = columns
        self.table = table
        self.rows = rows
        self.split = split
        super().__init__(app, self._one_row_function(function), name, options)

    def run(self, rows: Sequence[Mapping[str, Any]], ids: Sequence[int]) -> list[Any]:
        """One result for each row; an exception in place of a result is the failure of that row."""
        table = make_table(self.table, rows, ids, self.columns)
        results = _read_results(self.on_table(table), table)
        if len(results) != len(rows):
            raise BadResult(f"{self.name} gave {len(results)} results for {len(rows)} jobs")
        return results

    def row(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """By the names of the columns."""
        return {**dict(zip(self.columns or (), args, strict=False)), **kwargs}

    def _one_row_function(self, function: Callable[[Any], Any]) -> Callable[..., Any]:
        def one_row(*args: Any, **kwargs: Any) -> Any:
            [result] = self.run([self.row(args, kwargs)], [0])
            if isinstance(result, BaseException):
                raise result
            return result

        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(one_row, name, getattr(function, name))
        columns = self.columns
        one_row.__annotations__ = dict(columns or {})
        one_row.__signature__ = _signature(columns)  # type: ignore[attr-defined]
        return one_row


def _signature(columns: Mapping[str, Any] | None) -> inspect.Signature:
    """What a push of one row may say."""
    if columns is None:
        return inspect.Signature([inspect.Parameter("row", inspect.Parameter.VAR_KEYWORD)])
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature(
        [inspect.Parameter(name, kind, annotation=wanted) for name, wanted in columns.items()]
    )


# Tables and results


def make_table(
    kind: TableKind,
    rows: Sequence[Mapping[str, Any]],
    ids: Sequence[int],
    columns: Mapping[str, Any] | None,
) -> Any:
    """A column for each name; where a row has no value there is none in the table."""
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    values = {name: [row.get(name) for row in rows] for name in names}
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(values, index=pd.Index(ids, dtype="int64", name=JOB_ID))
    import pyarrow as pa

    wanted = columns or {}
    arrays = {
        name: pa.array(column, _arrow_type(wanted.get(name))) for name, column in values.items()
    }
    return pa.table({JOB_ID: pa.array(ids, pa.int64()), **arrays})


def _arrow_type(wanted: Any) -> Any:
    """Of an annotation; None where the values shall decide."""
    import pyarrow as pa

    plain = {
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bool: pa.bool_(),
        bytes: pa.binary(),
        dt.datetime: pa.timestamp("us", "UTC"),
        dt.date: pa.date32(),
    }
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        others = [one for one in arguments if one is not NoneType]
        return _arrow_type(others[0]) if len(others) == 1 else None
    if origin is list:
        inner = _arrow_type(arguments[0])
        return None if inner is None else pa.list_(inner)
    return plain.get(wanted) if isinstance(wanted, type) else None


def _read_results(given: Any, table: Any) -> list[Any]:
    """The results in the order of the table's rows; exceptions for rows that have failed."""
    if given is None:
        return [None] * len(table)
    kind = type(given).__module__.partition(".")[0]
    if kind == "pandas":
        return _read_pandas(given, table)
    if kind == "pyarrow":
        return _read_arrow(given)
    if kind == "numpy" and getattr(given, "ndim", 0) == 1:
        return [_to_plain(value) for value in given.tolist()]
    if isinstance(given, list | tuple):
        return [_to_plain(value) for value in given]
    raise BadResult(
        f"the function of a table gives a table, a series or a list, not a {type(given).__name__}"
    )


def _read_pandas(given: Any, table: Any) -> list[Any]:
    import pandas as pd

    index = getattr(table, "index", None)
    if isinstance(given, pd.DataFrame | pd.Series):
        # Sorted by the function, perhaps: the ids tell which row belongs to which job.
        if index is not None and _same_ids(given.index, index):
            given = given.loc[index]
        if isinstance(given, pd.DataFrame):
            return _row_results(given.to_dict("records"), list(given.columns))
        return [_to_plain(value) for value in given.tolist()]
    if isinstance(given, pd.Index | pd.api.extensions.ExtensionArray):
        return [_to_plain(value) for value in given.tolist()]
    raise BadResult(f"a {type(given).__name__} of pandas has no result for each row")


def _same_ids(one: Any, other: Any) -> bool:
    return len(one) == len(other) and one.is_unique and bool(one.isin(other).all())


def _read_arrow(given: Any) -> list[Any]:
    import pyarrow as pa

    if isinstance(given, pa.Table | pa.RecordBatch):
        return _row_results(given.to_pylist(), given.schema.names)
    if isinstance(given, pa.Array | pa.ChunkedArray):
        return [_to_plain(value) for value in given.to_pylist()]
    raise BadResult(f"a {type(given).__name__} of pyarrow has no result for each row")


def _row_results(rows: Sequence[Mapping[Any, Any]], names: Sequence[Any]) -> list[Any]:
    """A row with an `error` has failed; its `result` is its result, or else what other columns
    have. The id of the job is no part of that.
    """
    found: list[Any] = []
    for row in rows:
        error = _to_plain(row.get(_ERROR))
        if isinstance(error, BaseException):
            found.append(error)
        elif error is not None:
            found.append(RowFailed(str(error)))
        elif _RESULT in names:
            found.append(_to_plain(row[_RESULT]))
        else:
            found.append(
                {str(key): _to_plain(row[key]) for key in names if key not in (_ERROR, JOB_ID)}
            )
    return found


def _to_plain(value: Any) -> Any:
    """What JSON can have of it."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":  # its float64 is a float, too
        return _to_plain(value.tolist())
    if isinstance(value, float):
        return None if value != value else value  # NaN is pandas's missing value
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _to_plain(each) for key, each in value.items()}
    if module == "pandas":
        import pandas as pd

        if value is pd.NA or value is pd.NaT:
            return None
        if isinstance(value, pd.Timestamp):
            return value.to_pydatetime()
        if isinstance(value, pd.Timedelta):
            return value.to_pytimedelta()
    return value


# Runs a group of jobs: their rows in one table, and one verdict for each

_FAILS_ALL_ROWS: Final = (GiveUp, TryAgain, SoftTimeLimit, Cancelled)


class GroupRunner(TaskRunner):
    """Turns the result of a group into outcomes of its jobs."""

    def __call__(self, bundle: JobGroup) -> list[Verdict]:
        verdicts: dict[str, Verdict] = {}  # by ref
        rows: list[PreparedCall] = []
        with ExitStack() as surroundings:
            for job in bundle.jobs:
                prepared = self._prepare(job)
                if not isinstance(prepared, PreparedCall):
                    verdicts[job.ref] = prepared
                    continue
                try:
                    surroundings.enter_context(self._hooks.enter_contexts(prepared.current))
                except BaseException as error:
                    verdicts[job.ref] = self._failure_verdict(prepared, error)
                    continue
                rows.append(prepared)
            results = self._run_rows(bundle.name, rows)
        for prepared, result in zip(rows, results, strict=True):
            verdicts[prepared.current.job.ref] = self._result_verdict(prepared, result)
        return [verdicts[job.ref] for job in bundle.jobs]

    def _run_rows(self, name: str, rows: Sequence[PreparedCall]) -> list[Any]:
        """One for each row; where one row spoils it for others, it is tried with fewer of them
        until that one is alone.
        """
        if not rows:
            return []
        task = self._tasks[name]
        assert isinstance(task, BatchTask)
        try:
            return task.run(
                [task.row(row.args, row.kwargs) for row in rows],
                [row.current.id for row in rows],
            )
        except BaseException as error:
            if len(rows) == 1 or not task.split or isinstance(error, _FAILS_ALL_ROWS):
                return [error] * len(rows)
        half = len(rows) // 2
        return self._run_rows(name, rows[:half]) + self._run_rows(name, rows[half:])

    def _result_verdict(self, prepared: PreparedCall, result: Any) -> Verdict:
        if isinstance(result, BaseException):
            return self._failure_verdict(prepared, result)
        try:
            verdict = prepared.success(result)
        except Exception as error:  # it has no JSON
            return self._failure_verdict(prepared, error)
        self._hooks.run_after(prepared.current, result)
        return verdict


class GroupingTaskRunner:
    """Runs groups, and all other tasks as without them; in any thread or process."""

    def __init__(self, execute: SyncTaskRunner, bundles: GroupRunner) -> None:
        self._task_runner = execute
        self._group_runner = bundles

    @classmethod
    def from_task_runner(cls, execute: SyncTaskRunner) -> GroupingTaskRunner:
        return cls(execute, GroupRunner(execute.app))

    def __reduce__(
        self,
    ) -> tuple[Callable[[SyncTaskRunner], GroupingTaskRunner], tuple[SyncTaskRunner]]:
        return GroupingTaskRunner.from_task_runner, (self._task_runner,)

    def __call__(self, job: Job) -> Verdict | list[Verdict]:
        return self._group_runner(job) if isinstance(job, JobGroup) else self._task_runner(job)

    def report_progress_to(self, note: ProgressReporter) -> None:
        self._task_runner.report_progress_to(note)

    def on_thread_end(self) -> None:
        self._task_runner.on_thread_end()


class AsyncGroupingTaskRunner:
    """The same beside an event loop: a group runs in a thread."""

    def __init__(self, execute: AsyncTaskRunner) -> None:
        self._task_runner = execute
        self._group_runner = GroupRunner(execute.app)

    def report_progress_to(self, note: ProgressReporter) -> None:
        self._task_runner.report_progress_to(note)

    async def __call__(self, job: Job) -> Verdict | list[Verdict]:
        if isinstance(job, JobGroup):
            return await run_in_thread(lambda: self._group_runner(job))
        return await self._task_runner(job)
