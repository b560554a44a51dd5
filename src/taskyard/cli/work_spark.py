"""`taskyard work --spark`: runs the tasks of an app on Spark executors."""

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.explain import explain
from taskyard.cli.failure import CommandFailed
from taskyard.cli.style import is_terminal
from taskyard.cli.work import configure_logs, import_object
from taskyard.shared.exit_codes import DONE, INTERRUPTED, REFUSED, USAGE

if TYPE_CHECKING:
    from taskyard.pipeline.spark.workers import SparkWorkers, WorkersProgress

_LINE_INTERVAL_S: Final = 10.0  # seconds between two lines that do not overwrite each other


def work_on_spark(options: argparse.Namespace) -> int:
    from taskyard.client.errors import Claimed, ClientError

    for name in ("prefetch", "lease"):
        if getattr(options, name) is not None:
            raise CommandFailed(
                f"--{name} has no meaning with --spark: jobs come in batches.", USAGE
            )
    target = _find_target(options)
    try:
        from taskyard.spark import WorkersFailed, session
    except ImportError as error:
        raise CommandFailed(f"{error}.", USAGE) from error
    from taskyard.pipeline.spark.workers import WorkersProgress, summarize_spark_error

    configure_logs(options)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    try:
        # Executors on this machine find the modules by it, those elsewhere need them installed.
        spark = session(options.master, name=f"taskyard work {options.app}", ui=options.ui)
    except Exception as error:  # of whatever kind: Java, the gateway to it, or Spark
        raise CommandFailed(
            f"Spark cannot be started: {summarize_spark_error(error)}.", REFUSED
        ) from error
    try:
        line = ProgressLine(WorkersProgress())
        workers = _make_workers(spark, target, options, line)
        print(_describe_workers(workers, spark, options), file=sys.stderr)
        try:
            finished = workers.run()
        finally:
            line.print_last(workers.progress)
    except Claimed as error:
        raise CommandFailed(f"{error}.", USAGE) from error
    except WorkersFailed as error:
        raise CommandFailed(f"{error}.", REFUSED) from error
    except (ClientError, OSError) as error:
        raise explain(error) or CommandFailed(f"{error}.", REFUSED) from error
    finally:
        spark.stop()
    return DONE if finished else INTERRUPTED


def _find_target(options: argparse.Namespace) -> Any:
    from taskyard.tasks.app import App
    from taskyard.toq.consumer import Consumer

    found = import_object(options.app)
    if isinstance(found, App):
        found.set_location(options.app)
        if options.url:
            found.connect_to(options.url)
        try:
            _ = found.address
        except ValueError as error:
            raise CommandFailed(f"{error}.", USAGE) from error
    elif not isinstance(found, Consumer):
        kind = type(found).__name__
        raise CommandFailed(f"{options.app} is a {kind}, not an App or a Consumer of toq.", USAGE)
    elif options.url:
        raise CommandFailed("--url is for an App: a Consumer of toq has its own.", USAGE)
    return found


def _make_workers(
    spark: Any, target: Any, options: argparse.Namespace, line: "ProgressLine"
) -> "SparkWorkers":
    from taskyard.pipeline.spark.workers import BATCH
    from taskyard.spark import SparkWorkers

    try:
        return SparkWorkers(
            spark,
            target,
            options.queues,
            consumer=options.consumer,
            concurrency=options.concurrency,
            pool=options.pool,
            batch=options.batch or BATCH,
            burst=options.burst,
            poll=options.poll,
            on_progress=line,
        )
    except (ValueError, TypeError) as error:
        raise CommandFailed(f"{error}.", USAGE) from error


def _describe_workers(workers: "SparkWorkers", spark: Any, options: argparse.Namespace) -> str:
    from taskyard.spark import ui_address

    address = ui_address(spark)
    shown = f"Spark's own page: {address}" if address else "no page of Spark"
    master = spark.conf.get("spark.master", options.master)
    return (
        f"{options.app} runs {', '.join(workers.queues.names)} on {master} "
        f"as consumer {workers.consumer} (pid {os.getpid()}); {shown}"
    )


class ProgressLine:
    """How far it is, on stderr: one line that changes on a terminal, else one every few seconds."""

    def __init__(self, nothing: "WorkersProgress") -> None:
        self._is_live = is_terminal(sys.stderr)
        self._nothing = self._shown = nothing

    def __call__(self, progress: "WorkersProgress") -> None:
        is_news = progress.settled != self._shown.settled
        if self._is_live or (
            is_news and progress.seconds >= self._shown.seconds + _LINE_INTERVAL_S
        ):
            self._print(progress, self._shown, "" if self._is_live else "\n")
            self._shown = progress

    def print_last(self, progress: "WorkersProgress") -> None:
        self._print(progress, self._nothing, "\n")

    def _print(self, progress: "WorkersProgress", since: "WorkersProgress", end: str) -> None:
        rate = (progress.settled - since.settled) / max(progress.seconds - since.seconds, 0.001)
        more = f", {progress.retried:,} to be tried again" if progress.retried else ""
        print(
            "\r\x1b[K" if self._is_live else "",
            f"{progress.done:,} done, {progress.failed:,} failed{more}; {rate:,.0f}/s; "
            f"batch {progress.batches:,}, {progress.out:,} jobs out",
            sep="",
            end=end,
            file=sys.stderr,
            flush=True,
        )
