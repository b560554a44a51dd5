"""For tests: tasks run where they are pushed, in the same thread, without a server.

Each push goes through the same JSON, the same checks and the same middleware as it would on its way
to a worker and back.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from taskyard.client.commands import NewJob, encode, job_ref_text
from taskyard.client.errors import JobNotFound
from taskyard.client.source import Failed, Job, RetryLater, Success, Verdict
from taskyard.client.views import JobInfo, Outcome, Progress, Pushed
from taskyard.shared.retries import DEFAULT_RETRIES
from taskyard.tasks.codec import read_envelope
from taskyard.tasks.errors import BadArguments, TaskFailed
from taskyard.tasks.execution import PreparedCall, SyncTaskRunner
from taskyard.tasks.handle import BLOCKER_FAILED
from taskyard.worker.coroutines import run_coroutine

if TYPE_CHECKING:
    from taskyard.tasks.app import App

_MAX_ATTEMPTS: Final = 1000  # attempts of a task that is to be retried for ever


class InlineBroker:
    """Runs each push at once, retries too, however long they and delays would have to wait.

    `runs` has the pushes, `failures` those that have failed for good, `causes` the exceptions.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._execute = _InlineTaskRunner(app, self)
        self._numbers = itertools.count(1)
        self._outcomes: dict[str, Outcome] = {}  # by uid and by id
        self._infos: dict[str, JobInfo] = {}
        self.runs: list[NewJob] = []
        self.causes: dict[str, BaseException] = {}
        self.failures: list[TaskFailed] = []

    def push(self, job: NewJob) -> Pushed:
        number = next(self._numbers)
        uid = str(job.uid or uuid.uuid4())
        self.runs.append(job)
        blockers = [self._outcomes[job_ref_text(one)] for one in job.blocked_by]
        if all(blocker.success for blocker in blockers):
            outcome, progress = self._run_job(job, number, uid)
        else:
            outcome, progress = _failed_outcome(number, BLOCKER_FAILED.encode()), None
        self._store_outcome(job, uid, outcome, progress)
        return Pushed(number, uid)

    def push_many(self, jobs: Sequence[NewJob]) -> list[Pushed]:
        return [self.push(job) for job in jobs]

    def push_payloads(self, job: NewJob, payloads: Iterable[bytes]) -> list[Pushed]:
        return [self.push(replace(job, payload=payload)) for payload in payloads]

    def push_all(self, jobs: Sequence[NewJob]) -> list[Pushed]:
        pushed: list[Pushed] = []
        for place, job in enumerate(jobs):
            before = [
                pushed[place + one].uid if isinstance(one, int) and one < 0 else one
                for one in job.blocked_by
            ]
            pushed.append(self.push(replace(job, blocked_by=before)))
        return pushed

    def result(self, job: str, wait: float) -> Outcome | None:
        try:
            return self._outcomes[job]
        except KeyError:
            raise JobNotFound(f"NOJOB there is no job {job}") from None

    def cancel(self, job: str) -> bool:
        return False  # whatever it is, it has ended

    def inspect(self, job: str) -> JobInfo:
        try:
            return self._infos[job]
        except KeyError:
            raise JobNotFound(f"NOJOB there is no job {job}") from None

    def _run_job(self, new: NewJob, number: int, uid: str) -> tuple[Outcome, Progress | None]:
        payload = encode(new.payload)
        retries = DEFAULT_RETRIES if new.retries is None else new.retries
        notes: list[tuple[float, str]] = []
        self._execute.report_progress_to(lambda job, said: notes.append(said))
        for attempt in range(1, (_MAX_ATTEMPTS if retries < 0 else retries + 1) + 1):
            job = Job(
                ref=f"{number}-1-{attempt}",
                queue=new.queue,
                payload=payload,
                name=new.name or new.queue,
                uid=uid,
                attempt=attempt,
                fails=attempt - 1,
                id=number,
                inputs=self._inputs(payload),
            )
            verdict = self._execute(job)
            progress = Progress(*notes[-1]) if notes else None
            if isinstance(verdict, Success):
                self.causes.pop(uid, None)
                return Outcome(number, "succeeded", True, verdict.result or None), progress
            assert isinstance(verdict, RetryLater | Failed)
            text = verdict.error.decode(errors="replace")
            if isinstance(verdict, Failed) or attempt > retries >= 0:
                self._app.hooks.run_on_failure(job, text)
                return _failed_outcome(number, verdict.error), progress
            self._app.hooks.run_on_retry(job, text)
        return _failed_outcome(number, b"it was tried too often"), None

    def _inputs(self, payload: bytes) -> tuple[bytes | None, ...]:
        try:
            wanted = read_envelope(payload).results_of
        except BadArguments:
            return ()
        return tuple(self._outcomes[uid].result or b"" for uid in wanted)

    def _store_outcome(
        self, new: NewJob, uid: str, outcome: Outcome, progress: Progress | None
    ) -> None:
        name = new.name or new.queue
        info = JobInfo(
            id=outcome.id,
            uid=uid,
            queue=new.queue,
            name=name,
            state=outcome.state,
            priority=new.priority,
            progress=progress,
        )
        for key in (uid, str(outcome.id)):
            self._outcomes[key] = outcome
            self._infos[key] = info
        if not outcome.success:
            failure = TaskFailed(name, uid, outcome.error_text)
            failure.__cause__ = self.causes.get(uid)
            self.failures.append(failure)


class _InlineTaskRunner(SyncTaskRunner):
    """Keeps what was raised, and runs coroutines also where an event loop runs already."""

    def __init__(self, app: App, broker: InlineBroker) -> None:
        super().__init__(app)
        self._broker = broker

    def __call__(self, job: Job) -> Verdict:
        self._hooks = self._app.hooks
        return super().__call__(job)

    def _failure_verdict(self, prepared: PreparedCall, error: BaseException) -> Verdict:
        self._broker.causes[prepared.current.uid] = error
        return super()._failure_verdict(prepared, error)

    def _call_function(self, prepared: PreparedCall) -> Any:
        task = prepared.task
        if not task.is_async:
            return super()._call_function(prepared)
        call = partial(_run_coroutine_function, task.function, prepared)
        return _run_in_other_thread(call) if _is_loop_running() else call()


def _run_coroutine_function(function: Callable[..., Any], prepared: PreparedCall) -> Any:
    with asyncio.Runner() as runner:
        return run_coroutine(function(*prepared.args, **prepared.kwargs), runner)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_other_thread(call: Callable[[], Any]) -> Any:
    found: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,))
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def _failed_outcome(number: int, error: bytes) -> Outcome:
    return Outcome(number, "failed", False, None, error)
