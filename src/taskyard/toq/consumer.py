"""Takes tasks from queues and has workers run them."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar, overload

from taskyard.toq.backends import open_source
from taskyard.toq.messages import Result
from taskyard.toq.retry import Countdown
from taskyard.toq.work import (
    AsyncToqTaskRunner,
    AsyncWorker,
    Observer,
    ToqTaskRunner,
    VerdictRules,
    Worker,
)
from taskyard.worker.pools import Pool, ThreadPool
from taskyard.worker.runtime import Runtime
from taskyard.worker.signals import handle_signals

PoolKind: TypeAlias = Literal["threads", "processes", "async"]
W = TypeVar("W", bound=Worker | AsyncWorker)

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


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
