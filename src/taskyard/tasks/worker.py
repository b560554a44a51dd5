"""A worker: takes the jobs of some queues and runs their tasks, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from taskyard.client.source import Job, Verdict
from taskyard.tasks.pools import POOLS, PoolKind, make_pool
from taskyard.tasks.running import decide_verdict
from taskyard.tasks.source import QueueOrder, TaskSource
from taskyard.worker.runtime import Runtime
from taskyard.worker.signals import handle_signals

if TYPE_CHECKING:
    from taskyard.tasks.app import App

log: Final = logging.getLogger("taskyard.worker")

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_MAX_EXTEND_INTERVAL_S: Final = 5.0  # seconds between two extensions of a lease, at most


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
