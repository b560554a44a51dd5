"""Hooks around what happens to tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

from taskyard.client.pushing import NewJob
from taskyard.client.source import Job
from taskyard.tasks.context import CurrentJob

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
