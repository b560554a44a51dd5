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
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.failure import DONE, UNREACHABLE, USAGE, Failure
from taskyard.cli.lake import add_command, add_master, add_ui
from taskyard.cli.progress import Progress
from taskyard.cli.style import is_terminal
from taskyard.cli.title import hide_password
from taskyard.cli.units import seconds_of

if TYPE_CHECKING:
    from taskyard.pipeline.lake.run import Options
    from taskyard.pipeline.lake.store import Store
    from taskyard.pipeline.ranges import Journal

_LINES: Final = 10.0  # seconds between lines where there is no terminal
_LEASE: Final = 7 * 86_400.0  # how long the server keeps records for a lake that is not running
_SIGNALLED: Final = 128  # and the signal's number: the exit code of one that was cut short


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
    add_ui(made)
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
        help="the name under which the server keeps records for it, with --url (default: lake- and "
        "the first digits of the lake's own id)",
    )
    made.add_argument(
        "--patience",
        metavar="TIME",
        default="10m",
        help="with --url: how long to wait for a server that has gone (default 10m)",
    )
    made.add_argument("--report-fd", type=int, help=argparse.SUPPRESS)  # see cli/lake_beside.py


def run(arguments: argparse.Namespace) -> int:
    if arguments.batch is not None and arguments.batch < 1:
        raise Failure("--batch must be a number from 1 on.", USAGE)
    if arguments.retention is not None and arguments.retention < 1:
        raise Failure("--retention must be a number of days from 1 on.", USAGE)
    trigger = seconds_of(arguments.trigger, "--trigger")
    patience = seconds_of(arguments.patience, "--patience")
    from taskyard.pipeline.lake.run import BATCH, Options
    from taskyard.pipeline.ranges import open_journal
    from taskyard.pipeline.web import ServerUnreachable

    try:
        journal = open_journal(arguments.data or arguments.url)
    except ValueError as error:
        raise Failure(f"--url: {error}.", USAGE) from error
    if arguments.url is not None:
        hide_password(arguments.url)
    options = Options(
        arguments.follow,
        arguments.payloads,
        arguments.batch or BATCH,
        trigger,
        arguments.retention,
        patience,
    )
    if arguments.report_fd is None:  # else whoever has started this ends it, with all its children
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(_SIGNALLED + number))
    try:
        return _read_in(arguments, journal, options)
    except ServerUnreachable as error:
        raise Failure(f"{error}.", UNREACHABLE) from error


def _read_in(arguments: argparse.Namespace, journal: "Journal", options: "Options") -> int:
    """The exit code."""
    from pathlib import Path

    from taskyard.pipeline.lake.place import check_same, start_of
    from taskyard.pipeline.lake.run import Run
    from taskyard.pipeline.lake.spark_tasks import SparkTasks
    from taskyard.pipeline.lake.store import Store
    from taskyard.spark import announce, session

    view = journal.view()
    store = Store(Path(arguments.lake))
    try:
        start = start_of(view, store.watermark)
        check_same(view, store.watermark)
        committed = _committed(arguments, store)
        spark = session(arguments.master, name=f"taskyard lake {arguments.lake}", ui=arguments.ui)
        announce(spark)
        try:
            stop = _Stop()
            with _Teller(max(view.durable_seq + 1 - start, 0), arguments.follow) as teller:
                is_all = Run(
                    SparkTasks(spark),
                    store,
                    journal,
                    options,
                    committed=committed,
                    stopped=stop.wait,
                    tell=teller.tell,
                    report=_reporter(arguments.report_fd),
                    say=teller.say,
                ).run()
        finally:
            spark.stop()
    finally:
        store.close()
    if is_all:
        return DONE
    print("stopped before the end; it goes on from here when it is run again", file=sys.stderr)
    return _SIGNALLED + stop.number


def _committed(arguments: argparse.Namespace, store: "Store") -> Callable[[int, bool], None]:
    """Tells the server, if there is one to tell, how far the lake is."""
    if arguments.url is None:
        return lambda next_seq, last: None
    from taskyard.pipeline.lake.reader import drop_shared, reader_name
    from taskyard.pipeline.readers import Commits
    from taskyard.pipeline.web import RegisteredReader, Web

    web = Web(arguments.url)
    commits = Commits(RegisteredReader(web, arguments.reader or reader_name(store), _LEASE))
    next_seq = store.watermark.next_seq if store.watermark else 0
    commits.begin(next_seq or None)
    if not arguments.reader:
        drop_shared(web, next_seq)
    return commits.note


def _reporter(number: int | None) -> Callable[[dict[str, Any]], None]:
    """Writes what status.json says as a line to this file."""
    if number is None:
        return lambda told: None
    return lambda told: _write_line(number, told)


def _write_line(number: int, told: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the server has gone, and so will this process
        os.write(number, json.dumps(told).encode() + b"\n")


class _Stop:
    """What the signals say: the batch that is under way is finished first.

    A second Ctrl-C does not wait for it. Not to be made before Spark has started, which takes
    Ctrl-C over.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self.wait = self._event.wait
        self.number = 0  # of the signal
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: Any) -> None:
        if self._event.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        self._event.set()


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

    def say(self, line: str) -> None:
        """Something that is not about records."""
        gap = "\r\x1b[K" if is_terminal(sys.stderr) else ""
        print(f"{gap}{line}", file=sys.stderr, flush=True)

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
