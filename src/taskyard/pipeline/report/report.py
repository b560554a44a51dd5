"""`taskyard lake report`: one page about what the queues did."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from taskyard.pipeline.lake.disk import make_file
from taskyard.pipeline.lake.snapshot import Lake
from taskyard.pipeline.report.data import STEPS, gather
from taskyard.pipeline.report.page import page
from taskyard.pipeline.report.scope import Options, Target

__all__ = ["STEPS", "Options", "Target", "write_report"]

TITLE = "Taskyard report"


def write_report(
    spark: SparkSession,
    lake: Lake,
    out: Path,
    options: Options | None = None,
    step: Callable[[], object] = lambda: None,
) -> None:
    """`step` is called STEPS times. The file is there whole, or as it was."""
    found = gather(spark, lake, options or Options(), step)
    text = page(found, TITLE, datetime.now(UTC))
    half = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        if out.parent.resolve() == lake.path.resolve():
            make_file(half)  # elsewhere, it is for whom the user says
        half.write_text(text, encoding="utf-8")
        half.replace(out)
    finally:
        half.unlink(missing_ok=True)
