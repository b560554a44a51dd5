"""Takes tasks from queues and has workers run them.

The task runners run the worker of a task; VerdictRules say what its outcome means, and whether the
task is tried again.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import logging
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, overload

import msgspec

from taskyard.client.source import Failed, Job, Released, RetryLater, Success, Verdict
from taskyard.toq.backends import RESULT_KEY, open_source
from taskyard.toq.messages import (
    FAILED,
    RESULT_FAILED,
    RETRYING,
    RUNNING,
    SUCCEEDED,
    Countdown,
    NotATask,
    Result,
    Task,
    encode_retry_state,
    read_id,
)
from taskyard.worker.pools import Pool, RunFailure, ThreadPool
from taskyard.worker.runtime import Runtime, handle_signals

log: Final = logging.getLogger("taskyard.toq")

Worker: TypeAlias = Callable[[Task], Any]  # gives a Result, or a value that has JSON
AsyncWorker: TypeAlias = Callable[[Task], Awaitable[Any]]
Observer: TypeAlias = Callable[[Task, Result], None]

PoolKind: TypeAlias = Literal["threads", "processes", "async"]
W = TypeVar("W", bound=Worker | AsyncWorker)

NOT_FOUND: Final = "worker not found"
_MAX_MESSAGE_CHARS: Final = 1 << 16  # characters
_RETRY_MARK: Final = "retry_time_"

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


# The consumer


class Consumer:
    """Register workers, then `run`. It connects when it runs."""

    def __init__(
        self,
        url: str,
        queues: str | Sequence[str],
        *,
        concurrency: int = 4,
        pool: PoolKind = "threads",
        prefetch: int = 0,
        countdown: Countdown | None = None,
        result_ttl: float = 500.0,
        lease: float = 30.0,
        poll: float = 1.0,
        on_result: Observer | None = None,
    ) -> None:
        """`queues` are looked at in this order. `concurrency`: how many tasks run at once, and
        `prefetch`: how many more are held ready. `countdown`: the pauses before retries.
        `result_ttl`: seconds for which results are stored. `lease`: seconds after which the tasks
        of a consumer that was killed are run by another; it does not limit how long a task may run.
        `poll`: seconds for which the server is asked to wait for a task, and which a stop may take.
        `on_result` is called with each task and its result, after every try.
        """
        if concurrency < 1 or prefetch < 0:
            raise ValueError("concurrency must be at least 1, and prefetch not negative")
        if lease < 0.1 or poll < 0.01 or result_ttl < 1:
            raise ValueError("lease needs 0.1 seconds or more, poll 0.01, and result_ttl 1")
        if pool not in ("threads", "processes", "async"):
            raise ValueError(f"pool must be threads, processes or async, not {pool!r}")
        self._url = url
        self._queues = [queues] if isinstance(queues, str) else list(dict.fromkeys(queues))
        if not self._queues:
            raise ValueError("a consumer needs at least one queue")
        self._concurrency = concurrency
        self._kind = pool
        self._prefetch = prefetch
        self._settle = VerdictRules(countdown or Countdown(), on_result)
        self._result_ttl = result_ttl
        self._lease = lease
        self._poll = poll
        self._workers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._runtime: Runtime[Result] | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @overload
    def register(self, key: str, worker: W) -> W: ...
    @overload
    def register(self, key: str) -> _Registration: ...

    def register(self, key: str, worker: W | None = None) -> W | _Registration:
        """Have tasks with this key run by this function; also as a decorator.

        It gets the Task, and gives a Result or any value that has JSON, which then is the result
        of a success. What it raises is a failure that is worth a retry. With `pool="processes"` it
        must be a function at the top level of a module; coroutine functions need `pool="async"`.
        """
        if worker is None:
            return _Registration(self, key)
        if inspect.iscoroutinefunction(worker) and self._kind != "async":
            raise TypeError(f"the worker of {key!r} is a coroutine function: use pool='async'")
        self._workers[key] = worker
        return worker

    def run(self) -> bool:
        """Work until stopped: by SIGTERM, SIGINT, SIGUSR1 (in the main thread) or `stop`.

        What runs is finished first, and nothing new taken. A second signal ends the run at once;
        what it held is given back, and False returned. A server that is away is waited for.
        Refused if the server does not want this consumer.
        """
        runtime = Runtime(
            open_source(self._url, self._queues, self._lease, self._result_ttl),
            make_pool(self._workers, self._kind, self._concurrency),
            self._settle,
            lease=self._lease,
            wait=self._poll,
            prefetch=self._prefetch,
        )
        with self._lock:
            if self._runtime is not None:
                raise RuntimeError("this consumer runs already")
            self._runtime = runtime
            if self._stopped:
                runtime.stop()
        try:
            with handle_signals(_STOP_SIGNALS, runtime.stop_or_kill):
                return runtime.run()
        finally:
            with self._lock:
                self._runtime = None

    def stop(self) -> None:
        """From any thread: finish what runs, take nothing new, and have `run` return.

        A `run` that has not begun yet will return at once.
        """
        with self._lock:
            self._stopped = True
            if self._runtime is not None:
                self._runtime.stop()

    @property
    def url(self) -> str:
        return self._url

    @property
    def queues(self) -> list[str]:
        return list(self._queues)

    @property
    def workers(self) -> Mapping[str, Worker | AsyncWorker]:
        """Those that are registered, by key."""
        return self._workers

    @property
    def settle(self) -> VerdictRules:
        """From what came of a task to what becomes of its job."""
        return self._settle

    @property
    def result_ttl(self) -> float:
        return self._result_ttl


def make_pool(workers: Mapping[str, Any], kind: PoolKind, size: int) -> Pool[Result]:
    # Those that are not used are not imported: a pool of processes imports this in each.
    if kind == "async":
        from taskyard.worker.coroutines import AsyncPool

        return AsyncPool(AsyncToqTaskRunner(workers), size)
    if kind == "processes":
        from taskyard.worker.processes import ProcessPool

        return ProcessPool(ToqTaskRunner(workers), size)
    return ThreadPool(ToqTaskRunner(workers), size)


class _Registration:
    """What `register` gives when it is used as a decorator."""

    def __init__(self, consumer: Consumer, key: str) -> None:
        self._consumer = consumer
        self._key = key

    def __call__(self, worker: W) -> W:
        return self._consumer.register(self._key, worker)


# Running a task


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


# What an outcome means


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


def failure_result(task: Task, message: str) -> Result:
    # Names of files and the like may hold what UTF-8 has no bytes for. What matters is at the end.
    message = message[-_MAX_MESSAGE_CHARS:].encode(errors="replace").decode()
    return Result(task_id=task.id, wanna_retry=True, state=RESULT_FAILED, message=message)


def _make_result(task: Task, value: Any) -> Result:
    if not isinstance(value, Result):
        value = Result.of(value)
    checked = msgspec.convert(msgspec.to_builtins(value), Result)
    checked.task_id = task.id
    return checked


def _unreadable_verdict(job: Job, message: str) -> Failed:
    """Give a waiter for the result an answer if so much as the id can be read."""
    task_id = read_id(job.payload) or job.uid
    result = Result(task_id=task_id, state=RESULT_FAILED, message=message)
    key = RESULT_KEY + task_id if task_id else ""
    return Failed(message.encode(errors="replace"), result.to_json(), key, unreadable=True)


def _last_line(message: str) -> str:
    return message.rstrip().rpartition("\n")[2]
