"""Taskyard on Spark: the journal and the queues as data sources, sinks and workers.

Names are imported when they are first used, so that `import taskyard.spark` is cheap and works
in the broker's environment too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from taskyard.pipeline.readers import CommitListener, commit_reader
    from taskyard.pipeline.spark.acknowledging import acknowledge
    from taskyard.pipeline.spark.crew import WorkersFailed
    from taskyard.pipeline.spark.sessions import announce, register, session, ui_address
    from taskyard.pipeline.spark.workers import SparkWorkers, run_workers

_PLACES: Final = {
    "acknowledge": "taskyard.pipeline.spark.acknowledging",
    "session": "taskyard.pipeline.spark.sessions",
    "register": "taskyard.pipeline.spark.sessions",
    "ui_address": "taskyard.pipeline.spark.sessions",
    "announce": "taskyard.pipeline.spark.sessions",
    "commit_reader": "taskyard.pipeline.readers",
    "CommitListener": "taskyard.pipeline.readers",
    "run_workers": "taskyard.pipeline.spark.workers",
    "SparkWorkers": "taskyard.pipeline.spark.workers",
    "WorkersFailed": "taskyard.pipeline.spark.crew",
}
_NEEDED: Final = ("numpy", "pandas", "pyarrow", "pyspark")

__all__ = [
    "CommitListener",
    "SparkWorkers",
    "WorkersFailed",
    "acknowledge",
    "announce",
    "commit_reader",
    "register",
    "run_workers",
    "session",
    "ui_address",
]


class PipelineMissing(ImportError):
    """A package that the data pipeline needs is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the data pipeline needs `pip install taskyard[spark]` ({name} is not installed)",
            name=name,
        )


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _NEEDED:
            raise PipelineMissing(missing) from error
        raise
    found = globals()[name] = getattr(module, name)
    return found
