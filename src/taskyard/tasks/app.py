"""The app: a server, and the tasks that run on its workers."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, overload

from taskyard.client.sync import Client
from taskyard.client.url import Address, resolve_address
from taskyard.tasks.execution import DEFAULT_ROWS, BatchTask, Hooks, Middleware, TableKind
from taskyard.tasks.handle import TaskBroker
from taskyard.tasks.options import Options, normalize_options
from taskyard.tasks.schedules import Schedules
from taskyard.tasks.task import AsyncTask, PlainTask, Task

if TYPE_CHECKING:
    from taskyard.tasks.inline import InlineBroker
    from taskyard.tasks.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")

_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]+")
_MAX_NAME_BYTES: Final = 255  # bytes


class App:
    """Declare tasks with `@app.task`, push them, and run them with `taskyard work module:app`.

    It connects when something is first pushed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        queue: str = "default",
        middleware: Sequence[Middleware] = (),
        inline: bool = False,
        client: Client | None = None,
        **defaults: Any,
    ) -> None:
        """`url`: as for Client; else the variable TASKYARD_URL, else localhost. `name`: what the
        app is called in messages, and the first part of the names of its schedules; else that of
        the module. `queue`: of tasks that name none. `inline`: run tasks where they are pushed,
        with no server. `defaults`: options of all tasks that say nothing else.
        """
        module = sys._getframe(1).f_globals.get("__name__", "app")
        self.url = url
        self.name = name or module.rpartition(".")[2]
        self.queue = queue
        self.tasks: dict[str, Task[..., Any]] = {}
        self._row_counts: dict[str, int] = {}
        self.hooks = Hooks(middleware)
        self.schedules = Schedules(self)
        self._middleware = list(middleware)
        self._defaults = normalize_options({"queue": queue, **defaults})
        self._module = module
        self._location = ""
        self._client = client
        self._lock = threading.Lock()
        self._broker: TaskBroker | None = None
        if inline:
            self._broker = self._create_inline_broker()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<App {self.name}>"

    @property
    def client(self) -> Client:
        """For all that tasks do not do."""
        with self._lock:
            if self._client is None:
                self._client = Client(self.url)
            return self._client

    @property
    def address(self) -> Address:
        """Where its server is; ValueError if the URL cannot be used."""
        client = self._client
        return resolve_address(self.url) if client is None else client.address

    @property
    def broker(self) -> TaskBroker:
        if self._broker is None:
            from taskyard.tasks.broker import TaskClient

            self._broker = TaskClient(self.client)
        return self._broker

    def connect_to(self, url: str | None) -> None:
        """Another server from now on, whatever client it had."""
        self.close()
        self.url = url

    def close(self) -> None:
        """End its connections; the next push makes others."""
        with self._lock:
            client, self._client = self._client, None
            if not self._is_inline():
                self._broker = None
        if client is not None:
            client.close()

    # Tasks

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTask[P, T]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, T], /) -> PlainTask[P, T]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Any) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Any,
    ) -> Any:
        """Make a task of a function; see Options for what can be said.

        `name`: under which its jobs are pushed; else the function's own.
        """
        if function is None:
            return TaskDecorator(self, name, options)
        return self.add(function, name, options)

    def add(
        self, function: Callable[..., Any], name: str | None, options: dict[str, Any]
    ) -> Task[..., Any]:
        name = self._check_name(function, name)
        kind = AsyncTask if inspect.iscoroutinefunction(function) else PlainTask
        fields = {**self._defaults, **normalize_options(options)}
        task: Task[..., Any] = kind(self, function, name, Options(**fields))
        if "result" not in fields and task.codec.returns_nothing:
            task.options = task.options.changed({"result": False})
        self.tasks[name] = task
        self._row_counts.pop(name, None)
        return task

    def batch_task(
        self,
        *,
        table: TableKind,
        columns: Mapping[str, Any] | None = None,
        rows: int = DEFAULT_ROWS,
        split: bool = True,
        name: str | None = None,
        **options: Any,
    ) -> Callable[[Callable[[Any], Any]], BatchTask]:
        """Make a task of a function that takes many jobs at once, as a table of `pandas` or
        `arrow` with a row for each, and gives a series or table of their results.

        `columns`: what a job is pushed with, by name, with types as annotations have them; else
        anything that has names. `rows`: the most of one table. `split`: when it raises, run it
        again with one half of the rows and with the other, until only those that are to blame
        fail; else all of them have failed. The other options are those of `task`.
        """

        def decorate(function: Callable[[Any], Any]) -> BatchTask:
            fields = {**self._defaults, **normalize_options(options)}
            task = BatchTask(
                self,
                function,
                self._check_name(function, name),
                Options(**fields),
                columns=columns,
                table=table,
                rows=rows,
                split=split,
            )
            self.tasks[task.name] = task
            self._row_counts[task.name] = rows
            return task

        return decorate

    def row_counts(self) -> Mapping[str, int]:
        """The most rows of a table, of tasks that take many jobs at once."""
        return self._row_counts

    def _check_name(self, function: Callable[..., Any], name: str | None) -> str:
        """Under which its jobs are pushed; TypeError and ValueError if there can be none."""
        if not hasattr(function, "__name__"):
            raise TypeError(f"@app.task is for functions, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__} is a generator, of which a worker runs nothing")
        name = name or function.__name__
        if not _NAME.fullmatch(name) or len(name.encode()) > _MAX_NAME_BYTES:
            raise ValueError(f"a task cannot be named {name!r}: no spaces, at most 255 bytes")
        known = self.tasks.get(name)
        if known is not None and known.function.__module__ != function.__module__:
            raise ValueError(
                f"there is a task {name!r} already, of {known.function.__module__}: "
                "give one of them another name"
            )
        return name

    def queues(self) -> list[str]:
        """Of its tasks, in the order in which they were declared."""
        return list(dict.fromkeys(task.options.queue for task in self.tasks.values())) or [
            self.queue
        ]

    def use(self, middleware: Middleware) -> None:
        """Add a middleware behind those there are."""
        self._middleware.append(middleware)
        self.hooks = Hooks(self._middleware)

    # Schedules

    def periodic(
        self, cron: str | None = None, *, every: float | None = None, **options: Any
    ) -> PeriodicDecorator:
        """Have the server push the task by this cron expression, or every so many seconds.

        Above `@app.task`, or alone: then the function becomes a task with default options. See
        Schedules.add for the options.
        """
        return PeriodicDecorator(self, {"cron": cron, "every": every, **options})

    def sync_schedules(self, client: Client | None = None, *, prune: bool = False) -> None:
        """Tell the server of the schedules that were declared; workers do that when they start.

        `prune`: remove those that begin with the app's name and are not declared any more.
        """
        self.schedules.sync(client or self.client, prune=prune)

    # Running

    def worker(self, **options: Any) -> Worker:
        """A worker of this app, for programs that run one themselves; see Worker."""
        from taskyard.tasks.worker import Worker

        return Worker(self, **options)

    @contextlib.contextmanager
    def inline(self) -> Iterator[InlineBroker]:
        """For tests: until the end of the block, tasks run where they are pushed."""
        before = self._broker
        broker = self._create_inline_broker()
        self._broker = broker
        try:
            yield broker
        finally:
            self._broker = before

    def _create_inline_broker(self) -> InlineBroker:
        from taskyard.tasks.inline import InlineBroker

        return InlineBroker(self)

    def _is_inline(self) -> bool:
        if self._broker is None:
            return False
        from taskyard.tasks.inline import InlineBroker

        return isinstance(self._broker, InlineBroker)

    def set_location(self, location: str) -> None:
        self._location = location

    def location(self) -> str:
        """`module:name`, for processes that import it; TypeError if it cannot be found there."""
        if self._location:
            return self._location
        module = sys.modules.get(self._module)
        for name, value in vars(module).items() if module is not None else ():
            if value is self:
                return f"{self._module}:{name}"
        raise TypeError(
            f"processes cannot find the app: it must be a global variable of {self._module}"
        )


class TaskDecorator:
    """What `task` gives when it is used with options."""

    def __init__(self, app: App, name: str | None, options: dict[str, Any]) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTask[P, T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, T], /) -> PlainTask[P, T]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._app.add(function, self._name, self._options)


A = TypeVar("A", bound="Task[..., Any]")


class PeriodicDecorator:
    """What `periodic` gives."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(self, task: A, /) -> A: ...
    @overload
    def __call__(self, task: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTask[P, T]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, task: Callable[P, T], /) -> PlainTask[P, T]: ...

    def __call__(self, task: Any, /) -> Any:
        if not isinstance(task, Task):
            task = self._app.add(task, None, {})
        self._app.schedules.add(task, **self._options)
        return task
