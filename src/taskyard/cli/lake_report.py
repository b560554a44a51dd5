"""`taskyard lake report`: a page with plots about what the queues did."""

import argparse
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from taskyard.cli.failure import USAGE, Failure
from taskyard.cli.lake import add_command, add_master, check_out
from taskyard.cli.progress import Progress
from taskyard.duration import parse_duration

NAME: Final = "report.html"
_DAYS: Final = re.compile(r"([0-9]+)d")


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "report",
        "Write one page with plots about what the queues did. It needs no other file and no "
        "network: mail it, print it, keep it.",
        "taskyard lake report --lake /srv/lake --out report.html",
        "taskyard lake report --since 7d --queues 'mail.*' --target mail.receipts=30s",
        run=run,
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the page (default report.html in the lake, which a server shows at /lake/report)",
    )
    made.add_argument(
        "--queues",
        nargs="+",
        action="extend",
        default=[],
        metavar="QUEUE",
        help="only these; * and ? stand for any characters",
    )
    made.add_argument(
        "--since",
        metavar="TIME",
        help="from then on: 2026-03-01, 2026-03-01T12:00, or how long before the end (24h, 7d)",
    )
    made.add_argument("--until", metavar="TIME", help="up to then, in the same form")
    made.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="QUEUE=TIME",
        help="jobs of this queue (or pattern) should wait no longer: mail=30s; may be repeated",
    )
    add_master(made)


def run(arguments: argparse.Namespace) -> None:
    targets = [read_target(each) for each in arguments.target]
    if arguments.out is not None:
        check_out(arguments.out)
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.report.report import STEPS, Options, Target, write_report
    from taskyard.spark import session

    lake = open_lake(arguments.lake)
    out = arguments.out or Path(arguments.lake) / NAME
    since, until = read_span(arguments, lake.watermark.last_time or datetime.now(UTC))
    wanted = tuple(Target(queue, seconds) for queue, seconds in targets)
    options = Options(tuple(arguments.queues), since, until, wanted)
    with Progress("starting Spark"):
        spark = session(arguments.master, name="taskyard lake report", ui=False)
    try:
        with Progress("report", STEPS) as progress:
            write_report(spark, lake, out, options, progress.step)
    finally:
        spark.stop()
    print(f"wrote {out}", file=sys.stderr)


def read_span(
    arguments: argparse.Namespace, end: datetime
) -> tuple[datetime | None, datetime | None]:
    since = read_time("--since", arguments.since, end)
    until = read_time("--until", arguments.until, end)
    if since and (until or end) <= since:
        raise Failure("--since must be before --until and before the end of the lake.", USAGE)
    return since, until


def read_time(flag: str, value: str | None, end: datetime) -> datetime | None:
    """A moment in UTC; a duration counts back from the end of what the lake has."""
    if value is None:
        return None
    try:
        days = _DAYS.fullmatch(value)
        if days:
            return end - timedelta(days=int(days[1]))
        if value[-1:].isalpha() and not value.upper().endswith("Z"):
            return end - timedelta(microseconds=abs(parse_duration(value)))
        found = datetime.fromisoformat(value)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Failure(
            f"{flag} {value}: not a time; write 2026-03-01, 2026-03-01T12:00 or 24h.", USAGE
        ) from None


def read_target(value: str) -> tuple[str, float]:
    queue, _, limit = value.rpartition("=")
    try:
        seconds = float(limit) if limit[-1:].isdigit() else parse_duration(limit) / 1_000_000
    except ValueError:
        seconds = -1.0
    if not queue or not 0 < seconds < float("inf"):
        raise Failure(f"--target {value}: write QUEUE=TIME, such as mail=30s.", USAGE)
    return queue, seconds
