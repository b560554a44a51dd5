"""Taskyard on Spark: the journal and the queues as sources, sinks, workers and tables.

Names are imported when they are first used, so that `import taskyard.spark` is cheap and works
in the broker's environment too.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from taskyard.pipeline.journal_http import commit_reader as commit_reader
    from taskyard.pipeline.lake.build import build_tables as build_tables
    from taskyard.pipeline.lake.snapshot import open_lake as open_lake
    from taskyard.pipeline.lake.stream import start_lake as start_lake
    from taskyard.pipeline.spark.events_source import CommitListener as CommitListener
    from taskyard.pipeline.spark.queue_source import acknowledge as acknowledge
    from taskyard.pipeline.spark.session import announce as announce
    from taskyard.pipeline.spark.session import register as register
    from taskyard.pipeline.spark.session import session as session
    from taskyard.pipeline.spark.session import ui_address as ui_address
    from taskyard.pipeline.spark.workers import SparkWorkers as SparkWorkers
    from taskyard.pipeline.spark.workers import WorkersFailed as WorkersFailed
    from taskyard.pipeline.spark.workers import run_workers as run_workers

_NAMES: Final = {
    "journal_http": ("commit_reader",),
    "lake.build": ("build_tables",),
    "lake.snapshot": ("open_lake",),
    "lake.stream": ("start_lake",),
    "spark.events_source": ("CommitListener",),
    "spark.queue_source": ("acknowledge",),
    "spark.session": ("announce", "register", "session", "ui_address"),
    "spark.workers": ("SparkWorkers", "WorkersFailed", "run_workers"),
}
_NEEDED: Final = ("deltalake", "duckdb", "numpy", "pandas", "plotly", "pyarrow", "pyspark")

_PLACES: Final = {
    name: f"taskyard.pipeline.{module}" for module, names in _NAMES.items() for name in names
}
__all__ = list(_PLACES)


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
