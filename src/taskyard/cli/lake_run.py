"""`taskyard lake run`: reads the journal into the lake, once or for ever."""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from taskyard.cli.failure import USAGE, Failure
from taskyard.cli.lake import add_command, add_master
from taskyard.cli.progress import Progress
from taskyard.cli.style import is_terminal
from taskyard.cli.units import seconds_of

_LINES: Final = 10.0  # seconds between lines where there is no terminal
_LEASE: Final = 7 * 86_400.0  # how long the server keeps records for a lake that is not running


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "run",
        "Read the journal into the lake. It goes on where it was left off, whenever and however "
        "that was.",
        "taskyard lake run --data /var/lib/taskyard --lake /srv/lake",
        "taskyard lake run --url http://ann:secret@host:8080 --lake /srv/lake --follow",
        run=run,
    )
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", metavar="DIR", help="the server's data directory")
    source.add_argument("--url", metavar="URL", help="the server's HTTP listener")
    add_master(made)
    made.add_argument(
        "--follow", action="store_true", help="go on with what comes, until it is stopped"
    )
    made.add_argument(
        "--payloads", action="store_true", help="keep payloads and results (default: left out)"
    )
    made.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="how many records at a time, at most (default 3000000)",
    )
    made.add_argument(
        "--trigger",
        metavar="TIME",
        default="10s",
        help="with --follow: how long to wait for more when it has all there is (default 10s)",
    )
    made.add_argument(
        "--retention",
        type=int,
        metavar="DAYS",
        help="drop events, jobs and attempts that are older (default: kept)",
    )
    made.add_argument(
        "--reader",
        metavar="NAME",
        default="lake",
        help="the name under which the server keeps records for it, with --url (default lake)",
    )
    made.add_argument("--report-fd", type=int, help=argparse.SUPPRESS)  # see cli/lake_beside.py


def run(arguments: argparse.Namespace) -> None:
    if arguments.batch is not None and arguments.batch < 1:
        raise Failure("--batch must be a number from 1 on.", USAGE)
    if arguments.retention is not None and arguments.retention < 1:
        raise Failure("--retention must be a number of days from 1 on.", USAGE)
    trigger = seconds_of(arguments.trigger, "--trigger")
    from pathlib import Path

    from taskyard.lake.run import BATCH, Options, Run
    from taskyard.lake.spark_tasks import SparkTasks
    from taskyard.lake.store import Store
    from taskyard.spark import announce, session
    from taskyard.spark.ranges import open_journal

    try:
        journal = open_journal(arguments.data or arguments.url)
    except ValueError as error:
        raise Failure(f"--url: {error}.", USAGE) from error
    first_look = journal.view()
    store = Store(Path(arguments.lake))
    try:
        next_seq = store.watermark.next_seq if store.watermark else 0
        committed = _committed(arguments, next_seq)
        spark = session(arguments.master, name=f"taskyard lake {arguments.lake}")
        announce(spark)
        try:
            stop = _stop_on_signals()
            left = first_look.durable_seq + 1 - max(next_seq, first_look.first_seq)
            with _Teller(max(left, 0), arguments.follow) as teller:
                options = Options(
                    arguments.follow,
                    arguments.payloads,
                    arguments.batch or BATCH,
                    trigger,
                    arguments.retention,
                )
                Run(
                    SparkTasks(spark),
                    store,
                    journal,
                    options,
                    committed=committed,
                    stopped=stop.wait,
                    tell=teller.tell,
                    report=_reporter(arguments.report_fd),
                ).run()
        finally:
            spark.stop()
    finally:
        store.close()


def _committed(arguments: argparse.Namespace, next_seq: int) -> Callable[[int, bool], None]:
    """Tells the server, if there is one to tell, how far the lake is."""
    if arguments.url is None:
        return lambda next_seq, last: None
    from taskyard.spark.readers import Commits
    from taskyard.spark.web import RegisteredReader, Web

    commits = Commits(RegisteredReader(Web(arguments.url), arguments.reader, _LEASE))
    commits.begin(next_seq or None)
    return commits.note


def _reporter(number: int | None) -> Callable[[dict[str, Any]], None]:
    """Writes what status.json says as a line to this file."""
    if number is None:
        return lambda told: None
    return lambda told: _write_line(number, told)


def _write_line(number: int, told: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the server has gone, and so will this process
        os.write(number, json.dumps(told).encode() + b"\n")


def _stop_on_signals() -> threading.Event:
    """The batch that is under way is finished first; a second Ctrl-C does not wait for it."""
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    return stop


class _Teller:
    """How far it is: a bar on a terminal, else a line now and then."""

    def __init__(self, total: int, follow: bool) -> None:
        self._total = total
        self._done = 0
        self._began = self._last = time.monotonic()
        self._follow = follow
        self._bar = Progress("reading records", total)

    def __enter__(self) -> "_Teller":
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def tell(self, done: int, left: int) -> None:
        self._done += done
        self._total = self._done + left
        self._bar.done, self._bar.total = self._done, self._total
        now = time.monotonic()
        if not is_terminal(sys.stderr) and (now - self._last >= _LINES or not left):
            rate = self._done / max(now - self._began, 0.001)
            line = f"{self._done:,} of {self._total:,} records, {rate:,.0f}/s"
            if not (self._follow and not left and now - self._last < _LINES):
                print(line, file=sys.stderr, flush=True)
                self._last = now
