"""A function that can be pushed: what its decorator makes of it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeAlias, TypeVar
from uuid import UUID

from taskyard.client.commands import NewJob
from taskyard.client.source import Job
from taskyard.tasks.canvas import Signature
from taskyard.tasks.codec import Codec, Envelope, arguments_key, encode_arguments
from taskyard.tasks.foreign import TASK_HINTS, KnowsForeignNames
from taskyard.tasks.handle import Handle
from taskyard.tasks.options import Options

if TYPE_CHECKING:
    from taskyard.tasks.app import App

P = ParamSpec("P")
T = TypeVar("T")


# The job that a task runs for, as the task sees it

# The progress of a job: a fraction and a message.
ProgressReporter: TypeAlias = Callable[[Job, tuple[float, str]], None]


class CurrentJob:
    """What a task can know and say about the job it runs for."""

    __slots__ = ("_report_progress", "job")

    def __init__(self, job: Job, report_progress: ProgressReporter) -> None:
        self.job = job
        self._report_progress = report_progress

    @property
    def id(self) -> int:
        return self.job.id

    @property
    def uid(self) -> str:
        return self.job.uid

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def name(self) -> str:
        """Of the task."""
        return self.job.name

    @property
    def attempt(self) -> int:
        """Which delivery of the job this is, from 1."""
        return self.job.attempt

    @property
    def fails(self) -> int:
        """How many of those before ended in a failure."""
        return self.job.fails

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how much is done, from 0 to 1.

        Costs next to nothing: the last report is sent a few times a second at most. If it turns out
        that the job was cancelled, Cancelled is raised in the task soon after.
        """
        if not 0.0 <= fraction <= 1.0:
            raise ValueError("the fraction that is done must be between 0 and 1")
        self._report_progress(self.job, (fraction, message))


_current: Final[contextvars.ContextVar[CurrentJob]] = contextvars.ContextVar("taskyard-job")


def current_job() -> CurrentJob:
    """Of the task that runs here; RuntimeError outside of one.

    Threads that a task starts do not know it: hand it to them.
    """
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError("no task runs here: current_job() is for the code of tasks") from None


def set_current_job(job: CurrentJob) -> contextvars.Token[CurrentJob]:
    return _current.set(job)


def reset_current_job(token: contextvars.Token[CurrentJob]) -> None:
    _current.reset(token)


class Task(KnowsForeignNames, Generic[P, T]):
    """Push it, or call it: that runs the function here and now, as if it were no task."""

    is_async = False
    _foreign_names = TASK_HINTS

    def __init__(self, app: App, function: Callable[..., Any], name: str, options: Options) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self.app = app
        self.name = name
        self.function = function
        self.options = options
        self.codec = Codec(function, name, CurrentJob)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def push(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Have a worker run it; when this returns, the job is safe."""
        return self._push_job(self.new_job(args, kwargs))

    def push_at(self, when: datetime | float, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Not before this time: with a zone, or seconds since 1970."""
        return self._push_job(self.new_job(args, kwargs, run_at=when))

    def push_in(self, delay: timedelta | float, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """Not before so long from now."""
        return self._push_job(self.new_job(args, kwargs, delay=delay))

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> Handle[T]:
        """`push` for coroutines: it does not hold up the event loop."""
        return await asyncio.to_thread(self.push, *args, **kwargs)

    async def apush_at(
        self, when: datetime | float, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]:
        return await asyncio.to_thread(self.push_at, when, *args, **kwargs)

    async def apush_in(
        self, delay: timedelta | float, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[T]:
        return await asyncio.to_thread(self.push_in, delay, *args, **kwargs)

    def map(self, values: Iterable[Any]) -> list[Handle[T]]:
        """Push it once for each value, which is its one argument; many at full speed."""
        return self.starmap((value,) for value in values)

    def starmap(self, arguments: Iterable[Sequence[Any]]) -> list[Handle[T]]:
        """The same with several arguments each."""
        broker = self.app.broker
        decode = self.codec.decode_result
        if self.options.has_keys or self.app.hooks.has_push_hooks:
            pushed = broker.push_many([self.new_job(args, {}) for args in arguments])
        else:
            like = self.new_job((), {}, envelope=Envelope((), {}))
            pushed = broker.push_payloads(like, (self._payload(args) for args in arguments))
        return [Handle(broker, one, self.name, decode) for one in pushed]

    def _payload(self, args: Sequence[Any]) -> bytes:
        self.codec.check_arguments(args, {})
        return encode_arguments(Envelope(args, {}))

    async def amap(self, values: Iterable[Any]) -> list[Handle[T]]:
        return await asyncio.to_thread(self.map, values)

    def s(self, *args: Any, **kwargs: Any) -> Signature[T]:
        """Make a call for later, as a step of a chain or group.

        The result of the step before comes before these arguments.
        """
        return Signature(self, args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature[T]:
        """The same, but immutable: it gets these arguments and no others."""
        return Signature(self, args, kwargs, immutable=True)

    def with_options(self, **changes: Any) -> Self:
        """The same task with other options, for what is pushed with it.

        What the worker decides goes by the task's own: time limits, which errors are worth a retry,
        how long the result is kept.
        """
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found.options = self.options.changed(changes)
        return found

    def handle(self, job: int | str | UUID) -> Handle[T]:
        """Of a job that was pushed before, by its id or uid."""
        from taskyard.client.views import Pushed

        known = Pushed(job, "") if isinstance(job, int) else Pushed(0, str(job))
        return Handle(self.app.broker, known, self.name, self.codec.decode_result)

    def new_job(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        envelope: Envelope | None = None,
        **more: Any,
    ) -> NewJob:
        """BadArguments if the function cannot be called so. `envelope`: the arguments of a step,
        to which others are added when it runs.
        """
        options = self.options
        if envelope is None:
            self.codec.check_arguments(args, kwargs)
            envelope = Envelope(args, dict(kwargs))
        retry = options.retry
        new = NewJob(
            options.queue,
            encode_arguments(envelope),
            name=self.name,
            priority=options.priority,
            ttr=options.ttr,
            ttl=options.ttl,
            retries=None if retry is None else retry.times,
            backoff=None if retry is None or not retry.times else retry.backoff,
            dead_queue=options.dead_queue,
            unique=self.key(args, kwargs),
            limit_key=self.limit_key(args, kwargs),
            **more,
        )
        return self.app.hooks.run_on_push(new)

    def key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """What makes its jobs unique, if they are."""
        unique = self.options.unique
        if callable(unique):
            return f"{self.name}:{unique(*args, **kwargs)}"
        return arguments_key(self.name, args, kwargs) if unique else None

    def limit_key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """What the limits of its queue for each key go by, if they do."""
        key = self.options.limit_key
        return key(*args, **kwargs) if callable(key) else key

    def _push_job(self, job: NewJob) -> Handle[T]:
        broker = self.app.broker
        return Handle(broker, broker.push(job), self.name, self.codec.decode_result)


class PlainTask(Task[P, T]):
    """Of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        value: T = self.function(*args, **kwargs)
        return value


class AsyncTask(Task[P, T]):
    """Of a coroutine function."""

    is_async = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        value: Coroutine[Any, Any, T] = self.function(*args, **kwargs)
        return value
