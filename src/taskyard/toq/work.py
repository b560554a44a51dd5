"""Running a task: which worker, what its outcome means, whether it is tried again."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from taskyard.client.source import Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.toq.backends import RESULT_KEY
from taskyard.toq.messages import (
    FAILED,
    RESULT_FAILED,
    RETRYING,
    RUNNING,
    SUCCEEDED,
    NotATask,
    Result,
    Task,
    encode_retry_state,
    read_id,
)
from taskyard.toq.retry import Countdown
from taskyard.worker.pools import RunFailure

log: Final = logging.getLogger("taskyard.toq")

Worker: TypeAlias = Callable[[Task], Any]  # gives a Result, or a value that has JSON
AsyncWorker: TypeAlias = Callable[[Task], Awaitable[Any]]
Observer: TypeAlias = Callable[[Task, Result], None]

NOT_FOUND: Final = "worker not found"
_MAX_MESSAGE_CHARS: Final = 1 << 16  # characters
_RETRY_MARK: Final = "retry_time_"


def read_running_task(job: Job) -> Task:
    """The task of a job that is about to run; NotATask if it is none.

    Taskyard counts the fails of a job, and its message stays as it was pushed. On Redis the message
    is rewritten for each retry and there are no such counts. The task comes out the same.
    """
    task = Task.from_json(job.payload)
    task.id = task.id or job.uid
    if not (task.state == RETRYING and task.road and task.road[-1].startswith(_RETRY_MARK)):
        task.road.append(job.queue)
    for _ in range(job.fails):
        _count_retry(task)
    task.state = RUNNING
    return task


def _count_retry(task: Task) -> None:
    task.tried += 1
    task.road.append(f"{_RETRY_MARK}{task.tried}")


class ToqTaskRunner:
    """Runs the worker of a task, in any thread or process: it is pickled for the latter."""

    def __init__(self, workers: Mapping[str, Worker]) -> None:
        self._workers = dict(workers)

    def __call__(self, job: Job) -> Result:
        task = read_running_task(job)
        worker = self._workers.get(task.key)
        if worker is None:
            return _not_found_result(task)
        try:
            return _make_result(task, worker(task))
        except BaseException:  # SystemExit in a worker is its failure, not our end
            return failure_result(task, traceback.format_exc())


class AsyncToqTaskRunner:
    """The same in an event loop. Workers that are plain functions run in threads beside it."""

    def __init__(self, workers: Mapping[str, Worker | AsyncWorker]) -> None:
        self._workers = dict(workers)

    async def __call__(self, job: Job) -> Result:
        task = read_running_task(job)
        worker = self._workers.get(task.key)
        if worker is None:
            return _not_found_result(task)
        try:
            if inspect.iscoroutinefunction(worker):
                value = await worker(task)
            else:
                value = await _run_in_thread(worker, task)
            return _make_result(task, value)
        except BaseException:
            return failure_result(task, traceback.format_exc())


async def _run_in_thread(worker: Worker, task: Task) -> Any:
    """Unlike those of asyncio, the thread does not keep a program from ending, and is not one of a
    few that are shared: the pool says how many run at once.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def tell(value: Any, error: BaseException | None) -> None:
        if not future.done():  # else it was cancelled
            future.set_result((value, error))  # a future takes not every exception as one

    def run() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = worker(task)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, value, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="taskyard-plain", daemon=True).start()
    value, error = await future
    if error is not None:
        raise error
    return value


def _not_found_result(task: Task) -> Result:
    return Result(task_id=task.id, state=RESULT_FAILED, message=NOT_FOUND)


def _make_result(task: Task, value: Any) -> Result:
    if not isinstance(value, Result):
        value = Result.of(value)
    checked = msgspec.convert(msgspec.to_builtins(value), Result)
    checked.task_id = task.id
    return checked


def failure_result(task: Task, message: str) -> Result:
    # Names of files and the like may hold what UTF-8 has no bytes for. What matters is at the end.
    message = message[-_MAX_MESSAGE_CHARS:].encode(errors="replace").decode()
    return Result(task_id=task.id, wanna_retry=True, state=RESULT_FAILED, message=message)


class VerdictRules:
    """From the outcome of a task to the verdict of its job."""

    def __init__(self, countdown: Countdown, observer: Observer | None) -> None:
        self._countdown = countdown
        self._observer = observer

    def __call__(self, job: Job, outcome: Result | RunFailure) -> Verdict:
        try:
            task = read_running_task(job)
        except NotATask as error:
            log.error("a message of %s is not a task: %s", job.queue, error)
            return _unreadable_verdict(job, str(error))
        if isinstance(outcome, RunFailure) and not outcome.begun:
            return Released()
        result = (
            failure_result(task, outcome.reason) if isinstance(outcome, RunFailure) else outcome
        )
        verdict = self._verdict(job, task, result)
        if self._observer is not None:
            try:
                self._observer(task, result)
            except Exception:
                log.exception("on_result failed for task %s", task.id)
        return verdict

    def _verdict(self, job: Job, task: Task, result: Result) -> Verdict:
        data = result.to_json()
        key = RESULT_KEY + task.id if task.id else ""
        error = (result.message or "failed").encode(errors="replace")
        if result.wanna_retry and task.retry and task.tried < task.max_retries:
            _count_retry(task)
            task.state = RETRYING
            delay = self._countdown.delay(task.tried)
            return RetryLater(error, delay, encode_retry_state(job.payload, task), data, key)
        if result.succeeded:
            task.state = SUCCEEDED
            return Success(data, key)
        task.state = FAILED
        log.warning("task %s (%s) failed: %s", task.id, task.key, _last_line(result.message))
        return Failed(error, data, key)


def _unreadable_verdict(job: Job, message: str) -> Failed:
    """Give a waiter for the result an answer if so much as the id can be read."""
    task_id = read_id(job.payload) or job.uid
    result = Result(task_id=task_id, state=RESULT_FAILED, message=message)
    key = RESULT_KEY + task_id if task_id else ""
    return Failed(message.encode(errors="replace"), result.to_json(), key, unreadable=True)


def _last_line(message: str) -> str:
    return message.rstrip().rpartition("\n")[2]
