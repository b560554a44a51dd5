"""Tasks: functions that workers run, with retries, time limits, progress, chains and groups."""

from taskyard.tasks.app import App
from taskyard.tasks.canvas import Chain, Group, GroupHandle, Signature, chain, group
from taskyard.tasks.errors import (
    BadArguments,
    BadResult,
    GiveUp,
    NotDone,
    ResultGone,
    TaskError,
    TaskFailed,
    TryAgain,
)
from taskyard.tasks.execution import Middleware
from taskyard.tasks.handle import Handle
from taskyard.tasks.options import Options, Retry
from taskyard.tasks.task import CurrentJob, Task, current_job
from taskyard.tasks.worker import Worker
from taskyard.worker.pools import Cancelled, SoftTimeLimit

__all__ = [
    "App",
    "BadArguments",
    "BadResult",
    "Cancelled",
    "Chain",
    "CurrentJob",
    "GiveUp",
    "Group",
    "GroupHandle",
    "Handle",
    "Middleware",
    "NotDone",
    "Options",
    "ResultGone",
    "Retry",
    "Signature",
    "SoftTimeLimit",
    "Task",
    "TaskError",
    "TaskFailed",
    "TryAgain",
    "Worker",
    "chain",
    "current_job",
    "group",
]
