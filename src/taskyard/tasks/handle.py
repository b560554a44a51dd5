"""A task that was pushed: whether it has ended, and its result."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from taskyard.client.errors import JobNotFound
from taskyard.client.views import JobInfo, Outcome, Pushed
from taskyard.tasks.errors import NotDone, ResultGone, TaskFailed
from taskyard.tasks.foreign import HANDLE_HINTS, KnowsForeignNames
from taskyard.worker.coroutines import run_in_detached_thread

if TYPE_CHECKING:
    from taskyard.client.commands import NewJob

T = TypeVar("T")

BLOCKER_FAILED: Final = "a job it waited for failed"
_POLL_S: Final = 30.0  # seconds of one request, when there is no timeout
_COROUTINE_POLL_S: Final = 2.0  # of a coroutine, which can be cancelled when its thread cannot


class TaskBroker(Protocol):
    """What tasks need: the server, or what runs them inline."""

    def push(self, job: NewJob) -> Pushed: ...

    def push_many(self, jobs: Sequence[NewJob]) -> list[Pushed]: ...

    def push_payloads(self, job: NewJob, payloads: Iterable[bytes]) -> list[Pushed]:
        """Any number of jobs that are like this one but for their payloads."""

    def push_all(self, jobs: Sequence[NewJob]) -> list[Pushed]:
        """All of them or none; -1 in blocked_by is the job before."""

    def result(self, job: str, wait: float) -> Outcome | None:
        """None if it has not ended after so many seconds; JobNotFound."""

    def cancel(self, job: str) -> bool:
        """False if the job does not exist, or no longer."""

    def inspect(self, job: str) -> JobInfo: ...


class Handle(KnowsForeignNames, Generic[T]):
    """Of one job."""

    _foreign_names = HANDLE_HINTS

    def __init__(
        self,
        broker: TaskBroker,
        pushed: Pushed,
        name: str,
        decode: Callable[[bytes | None], T],
        before: Sequence[Handle[Any]] = (),
    ) -> None:
        self._broker = broker
        self._decode = decode
        self.name = name
        """Of the task."""
        self.id = pushed.id
        self.uid = pushed.uid
        self.new = pushed.new
        """False if the task is unique and was waiting already: this is the job that was there."""
        self.before = tuple(before)
        """Of the jobs that must succeed first, where it is part of a chain."""

    def __repr__(self) -> str:
        return f"<Handle of {self.name}, job {self.id}>"

    @property
    def job(self) -> str:
        """What names the job."""
        return self.uid or str(self.id)

    def result(self, wait: float | None = None) -> T:
        """What the task gave, as its annotation says.

        Waits until the task has ended, or for so many seconds: NotDone then. TaskFailed if it has
        failed for good; ResultGone if the server has forgotten it.
        """
        outcome = self._outcome(wait)
        if outcome is None:
            raise NotDone(f"{self.name} (job {self.job}) has not ended")
        if not outcome.success:
            raise self._task_failed(outcome)
        return self._decode(outcome.result)

    async def aresult(self, wait: float | None = None) -> T:
        """The same for coroutines. It may be cancelled, and there may be any number of waiters."""
        until = math.inf if wait is None else time.monotonic() + wait
        while True:
            left = min(max(until - time.monotonic(), 0.0), _COROUTINE_POLL_S)
            try:
                return await run_in_detached_thread(partial(self.result, left))
            except NotDone:
                if time.monotonic() >= until:
                    raise

    def is_done(self) -> bool:
        """Whether it has succeeded, or failed for good; ResultGone as above."""
        return self._outcome(0.0) is not None

    def cancel(self) -> bool:
        """Delete the job, whatever its state; a worker that runs it notices soon and ends the run.

        Later jobs of its chain fail. False if it had ended already.
        """
        return self._broker.cancel(self.job)

    async def acancel(self) -> bool:
        return await asyncio.to_thread(self.cancel)

    def info(self) -> JobInfo:
        """All that the server knows about the job, its progress too."""
        try:
            return self._broker.inspect(self.job)
        except JobNotFound as error:
            raise self._result_gone() from error

    def _outcome(self, wait: float | None) -> Outcome | None:
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = _POLL_S if until is None else min(max(until - time.monotonic(), 0.0), _POLL_S)
            try:
                outcome = self._broker.result(self.job, left)
            except JobNotFound as error:
                raise self._result_gone() from error
            if outcome is not None or (until is not None and time.monotonic() >= until):
                return outcome

    def _result_gone(self) -> ResultGone:
        return ResultGone(
            f"the server does not know job {self.job} ({self.name}) any more: it was cancelled, or "
            "has ended and its result was not kept for so long"
        )

    def _task_failed(self, outcome: Outcome) -> TaskFailed:
        """That of the first step that failed, as far as it is known."""
        handle: Handle[Any] = self
        while outcome.error_text.startswith(BLOCKER_FAILED):
            found = next(handle._failed_before(), None)
            if found is None:
                break
            handle, outcome = found
        failed = TaskFailed(handle.name, handle.job, outcome.error_text)
        failed.__cause__ = handle._cause()
        return failed

    def _failed_before(self) -> Iterator[tuple[Handle[Any], Outcome]]:
        for handle in self.before:
            try:
                outcome = handle._broker.result(handle.job, 0.0)
            except JobNotFound:
                continue
            if outcome is not None and not outcome.success:
                yield handle, outcome

    def _cause(self) -> BaseException | None:
        """What was raised, if the task ran in this process."""
        causes: dict[str, BaseException] = getattr(self._broker, "causes", {})
        return causes.get(self.job)
