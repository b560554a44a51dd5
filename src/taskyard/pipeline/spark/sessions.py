"""A Spark session that is ready for Taskyard: quiet, in UTC, with our sources known to it."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from taskyard.pipeline.spark.events_source import EventsDataSource
from taskyard.pipeline.spark.interpreter import quick_python
from taskyard.pipeline.spark.java import java_home

_QUEUE_SOURCE: Final = "taskyard.pipeline.spark.queue"
_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# Errors only. The gateway's own logger has the same level, or Spark says that it changes levels.
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n%xEx{short}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.shell.name = org.apache.spark.repl.Main
logger.shell.level = error
"""
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.ui.showConsoleProgress": "false",
}
_ON_ONE_MACHINE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


def session(
    master: str | None = None,
    *,
    name: str = "taskyard",
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """The session there is, or a new one on `master` (`local[*]`); our sources are known to it.

    `ui`: whether Spark shows what it does on a page, which asks nobody who they are.
    """
    spark = _present()
    if spark is None:
        spark = _build(master or "local[*]", name, {**_interface(ui), **(conf or {})})
        _log_no_queries()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `taskyard.events` and `taskyard` known as formats."""
    spark.dataSource.register(EventsDataSource)
    if importlib.util.find_spec(_QUEUE_SOURCE) is not None:
        spark.dataSource.register(importlib.import_module(_QUEUE_SOURCE).QueueDataSource)


def ui_address(spark: SparkSession) -> str | None:
    """Where Spark shows what it is doing; None if it does not."""
    return spark.sparkContext.uiWebUrl


def announce(spark: SparkSession) -> None:
    """Say on standard error where the UI is, for whoever looks at a terminal."""
    address = ui_address(spark)
    if address is not None:
        sys.stderr.write(f"Spark's UI is at {address}\n")


def _present() -> SparkSession | None:
    """That of this thread, or else of this process. With a builder that has settings Spark would
    give it to another thread, too, but with these in place of its own.
    """
    spark = SparkSession.getActiveSession()
    if spark is None and SparkContext._active_spark_context is not None:
        spark = SparkSession.Builder().getOrCreate()
    return spark


def _log_no_queries() -> None:
    """Else each error in SQL is printed as a line of JSON before it is raised."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _interface(ui: bool) -> dict[str, str]:
    return {"spark.ui.enabled": "true" if ui else "false"}


def _build(master: str, name: str, conf: dict[str, str]) -> SparkSession:
    here = _is_here(master)
    settings = {**_EVERYWHERE, **(_ON_ONE_MACHINE if here else {}), **_secret(master), **conf}
    options = settings.get("spark.driver.extraJavaOptions", "")
    quiet = f"-Dlog4j2.configurationFile=file://{_logging_file()}"
    settings["spark.driver.extraJavaOptions"] = f"{quiet} {options}".strip()
    settings.setdefault("spark.pyspark.python", sys.executable)
    if path := os.environ.get("PYTHONPATH"):
        # Executors run in directories of their own.
        places = [os.path.abspath(place) for place in path.split(os.pathsep) if place]
        settings.setdefault("spark.executorEnv.PYTHONPATH", os.pathsep.join(places))
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.Builder().master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if not here:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return builder.getOrCreate()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with quick_python():
        return builder.getOrCreate()


def _secret(master: str) -> dict[str, str]:
    """Have Java draw a secret, without which nobody may speak to its ports.

    What stands here would be among the arguments of Java, which everybody on the machine can read.
    Where Spark does not draw it by itself, a cluster's configuration must have it.
    """
    return {"spark.authenticate": "true"} if master.startswith("local") else {}


def _is_here(master: str) -> bool:
    """Whether driver and executors are on this machine."""
    return master.startswith(("local", "spark://127.", "spark://localhost"))


def _logging_file() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="taskyard-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / "log4j2.properties"
    file.write_text(_LOGGING)
    return file
