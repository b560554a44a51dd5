"""Taskyard: one durable job queue that speaks several queue protocols.

What programs import from here is loaded when it is first used, so that `import taskyard` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from taskyard.client.aio import AsyncClient as AsyncClient
    from taskyard.client.commands import NewJob as NewJob
    from taskyard.client.errors import Claimed as Claimed
    from taskyard.client.errors import ClientError as ClientError
    from taskyard.client.errors import Closed as Closed
    from taskyard.client.errors import Denied as Denied
    from taskyard.client.errors import Draining as Draining
    from taskyard.client.errors import Duplicate as Duplicate
    from taskyard.client.errors import Incomplete as Incomplete
    from taskyard.client.errors import JobNotFound as JobNotFound
    from taskyard.client.errors import NotNow as NotNow
    from taskyard.client.errors import Problem as Problem
    from taskyard.client.errors import QueueFull as QueueFull
    from taskyard.client.errors import QueueNotFound as QueueNotFound
    from taskyard.client.errors import Refused as Refused
    from taskyard.client.errors import ScheduleNotFound as ScheduleNotFound
    from taskyard.client.errors import StaleBatch as StaleBatch
    from taskyard.client.errors import StaleLease as StaleLease
    from taskyard.client.errors import UidTaken as UidTaken
    from taskyard.client.errors import Unavailable as Unavailable
    from taskyard.client.errors import Untrusted as Untrusted
    from taskyard.client.source import Job as Job
    from taskyard.client.sync import Client as Client
    from taskyard.client.views import DeadLetter as DeadLetter
    from taskyard.client.views import JobInfo as JobInfo
    from taskyard.client.views import Outcome as Outcome
    from taskyard.client.views import Pushed as Pushed
    from taskyard.client.views import QueueInfo as QueueInfo
    from taskyard.client.views import Rate as Rate
    from taskyard.client.views import ScheduleInfo as ScheduleInfo
    from taskyard.client.views import ServerInfo as ServerInfo
    from taskyard.tasks import App as App
    from taskyard.tasks import BadArguments as BadArguments
    from taskyard.tasks import BadResult as BadResult
    from taskyard.tasks import Cancelled as Cancelled
    from taskyard.tasks import CurrentJob as CurrentJob
    from taskyard.tasks import GiveUp as GiveUp
    from taskyard.tasks import Handle as Handle
    from taskyard.tasks import Middleware as Middleware
    from taskyard.tasks import NotDone as NotDone
    from taskyard.tasks import ResultGone as ResultGone
    from taskyard.tasks import Retry as Retry
    from taskyard.tasks import SoftTimeLimit as SoftTimeLimit
    from taskyard.tasks import TaskError as TaskError
    from taskyard.tasks import TaskFailed as TaskFailed
    from taskyard.tasks import TryAgain as TryAgain
    from taskyard.tasks import Worker as Worker
    from taskyard.tasks import chain as chain
    from taskyard.tasks import current_job as current_job
    from taskyard.tasks import group as group

__version__ = "0.1.0"

_NAMES: Final = {
    "client.aio": ("AsyncClient",),
    "client.sync": ("Client",),
    "client.errors": (
        "Claimed",
        "ClientError",
        "Closed",
        "Denied",
        "Draining",
        "Duplicate",
        "Incomplete",
        "JobNotFound",
        "NotNow",
        "Problem",
        "QueueFull",
        "QueueNotFound",
        "Refused",
        "ScheduleNotFound",
        "StaleBatch",
        "StaleLease",
        "UidTaken",
        "Unavailable",
        "Untrusted",
    ),
    "client.commands": ("NewJob",),
    "client.source": ("Job",),
    "client.views": (
        "DeadLetter",
        "JobInfo",
        "Outcome",
        "Pushed",
        "QueueInfo",
        "Rate",
        "ScheduleInfo",
        "ServerInfo",
    ),
    "tasks": (
        "App",
        "BadArguments",
        "BadResult",
        "Cancelled",
        "CurrentJob",
        "GiveUp",
        "Handle",
        "Middleware",
        "NotDone",
        "ResultGone",
        "Retry",
        "SoftTimeLimit",
        "TaskError",
        "TaskFailed",
        "TryAgain",
        "Worker",
        "chain",
        "current_job",
        "group",
    ),
}
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # else every name would pass for one of the package's

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
