"""`taskyard lake run`: reads the journal into the lake, once or for ever."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.failure import CommandFailed
from taskyard.cli.lake import open_storage
from taskyard.cli.progress import ProgressBar
from taskyard.cli.style import is_terminal
from taskyard.cli.units import seconds_of
from taskyard.shared.exit_codes import DONE, UNREACHABLE, USAGE

if TYPE_CHECKING:
    from taskyard.pipeline.lake.stream import LakeFiller

_LINE_INTERVAL_S: Final = 10.0  # seconds between lines where there is no terminal
_SIGNAL_EXIT_CODE: Final = 128  # and the signal's number: the exit code of one that was cut short


def run_run(arguments: argparse.Namespace) -> int:
    if (arguments.data is None) == (arguments.url is None):
        raise CommandFailed("one of --data and --url must be given.", USAGE)
    if arguments.batch is not None and arguments.batch < 1:
        raise CommandFailed("--batch must be a number from 1 on.", USAGE)
    if arguments.retention is not None and arguments.retention < 1:
        raise CommandFailed("--retention must be a number of days from 1 on.", USAGE)
    trigger = seconds_of(arguments.trigger, "--trigger")
    patience = seconds_of(arguments.patience, "--patience")
    from taskyard.pipeline.journal_http import ServerUnreachable

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(_SIGNAL_EXIT_CODE + number))
    try:
        return _run_lake(arguments, f"{trigger * 1000:.0f} milliseconds", patience)
    except ServerUnreachable as error:
        raise CommandFailed(f"{error}.", UNREACHABLE) from error


def _run_lake(arguments: argparse.Namespace, trigger: str, patience: float) -> int:
    """Give the exit code."""
    from taskyard.pipeline.lake.run import LakeRun
    from taskyard.spark import announce, session

    filler = _make_filler(arguments)
    spark = session(arguments.master, name=f"taskyard lake {arguments.lake}", ui=arguments.ui)
    spark.sparkContext.setLogLevel("OFF")  # errors are printed as a sentence
    announce(spark)
    logging.getLogger("taskyard.spark").setLevel(logging.ERROR)  # of a server that is away
    try:
        stop = _StopSignals()
        with _ProgressPrinter(filler.next_seq, arguments.follow, arguments.json) as teller:
            is_all = LakeRun(
                filler,
                spark,
                trigger if arguments.follow else None,
                patience,
                is_stopped=lambda: bool(stop.number),
                report=teller.print_progress,
                print_sentence=teller.print_sentence,
            ).run()
    finally:
        spark.stop()
    if is_all:
        return DONE
    print("stopped before the end; it goes on from here when it is run again", file=sys.stderr)
    return _SIGNAL_EXIT_CODE + stop.number


def _make_filler(arguments: argparse.Namespace) -> LakeFiller:
    from taskyard.pipeline.lake.stream import MAX_RECORDS, LakeFiller

    try:
        return LakeFiller(
            open_storage(arguments),
            data=arguments.data,
            url=arguments.url,
            checkpoint=arguments.checkpoint,
            payloads=arguments.payloads,
            max_records=arguments.batch or MAX_RECORDS,
            retention_days=arguments.retention,
            reader=arguments.reader or "",
            patience=0,  # the run itself waits, and says so
        )
    except ValueError as error:
        raise CommandFailed(f"--url: {error}.", USAGE) from error


class _StopSignals:
    """Handles signals: the batch that is running is finished first.

    A second Ctrl-C does not wait for it. Not to be made before Spark has started, which takes
    Ctrl-C over.
    """

    def __init__(self) -> None:
        self.number = 0  # of the signal
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: Any) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number


class _ProgressPrinter:
    """How far it is: a bar on a terminal, else a line now and then; or all of it, as JSON."""

    def __init__(self, start: int, follow: bool, as_json: bool) -> None:
        self._start = start
        self._follow = follow
        self._json = as_json
        self._began = self._last = time.monotonic()
        self._bar = ProgressBar("reading records", streaming=as_json)
        self._on_terminal = is_terminal(sys.stderr)

    def __enter__(self) -> _ProgressPrinter:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    def print_sentence(self, line: str) -> None:
        """Something that is not about records."""
        gap = "\r\x1b[K" if self._on_terminal else ""
        print(f"{gap}{line}", file=sys.stderr, flush=True)

    def print_progress(self, told: dict[str, Any]) -> None:
        if self._json:
            print(json.dumps(told), flush=True)
        if told["state"] in ("running", "stopped") and told["next_seq"]:
            self._update_bar(told["next_seq"] - self._start, told["lag_records"], told["state"])

    def _update_bar(self, done: int, left: int, state: str) -> None:
        self._bar.done, self._bar.total = done, done + left
        now = time.monotonic()
        is_last = state == "stopped" and not self._follow
        if self._on_terminal or self._json or not (is_last or now - self._last >= _LINE_INTERVAL_S):
            return
        rate = done / max(now - self._began, 0.001)
        print(f"{done:,} of {done + left:,} records, {rate:,.0f}/s", file=sys.stderr, flush=True)
        self._last = now
