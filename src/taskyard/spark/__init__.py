"""Taskyard on Spark: the journal and the queues as sources, sinks, workers and tables.

Names are imported when they are first used, so that `import taskyard.spark` is cheap and works
in the broker's environment too.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from taskyard.pipeline.journal_http import commit_reader
    from taskyard.pipeline.lake.build import build_tables
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.stream import start_lake
    from taskyard.pipeline.spark.events_source import CommitListener
    from taskyard.pipeline.spark.queue_source import acknowledge
    from taskyard.pipeline.spark.session import announce, register, session, ui_address
    from taskyard.pipeline.spark.workers import SparkWorkers, WorkersFailed, run_workers

_PLACES: Final = {
    "acknowledge": "taskyard.pipeline.spark.queue_source",
    "session": "taskyard.pipeline.spark.session",
    "register": "taskyard.pipeline.spark.session",
    "ui_address": "taskyard.pipeline.spark.session",
    "announce": "taskyard.pipeline.spark.session",
    "commit_reader": "taskyard.pipeline.journal_http",
    "CommitListener": "taskyard.pipeline.spark.events_source",
    "run_workers": "taskyard.pipeline.spark.workers",
    "SparkWorkers": "taskyard.pipeline.spark.workers",
    "WorkersFailed": "taskyard.pipeline.spark.workers",
    "build_tables": "taskyard.pipeline.lake.build",
    "start_lake": "taskyard.pipeline.lake.stream",
    "open_lake": "taskyard.pipeline.lake.snapshot",
}
_NEEDED: Final = ("deltalake", "duckdb", "numpy", "pandas", "plotly", "pyarrow", "pyspark")

__all__ = [
    "CommitListener",
    "SparkWorkers",
    "WorkersFailed",
    "acknowledge",
    "announce",
    "build_tables",
    "commit_reader",
    "open_lake",
    "register",
    "run_workers",
    "session",
    "start_lake",
    "ui_address",
]


class PipelineMissing(ImportError):
    """A package that the data pipeline needs is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the data pipeline needs `pip install taskyard[spark]` ({name} is not installed)",
            name=name,
        )


def check_installed() -> None:
    """Raise PipelineMissing if there is reason to, without importing any of the packages."""
    for name in _NEEDED:
        if importlib.util.find_spec(name) is None:
            raise PipelineMissing(name)


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
