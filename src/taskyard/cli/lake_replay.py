"""`taskyard lake replay`: picks jobs out of the lake with SQL, and pushes them once more."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import add_flags
from taskyard.cli.failure import DONE, REFUSED, USAGE, Failure
from taskyard.cli.lake import add_command, add_master, add_ui
from taskyard.cli.progress import Progress
from taskyard.cli.session import Session
from taskyard.cli.style import is_terminal
from taskyard.cli.table import Column
from taskyard.cli.units import counted
from taskyard.error_line import error_line
from taskyard.names import NAME_RULE, valid_name

if TYPE_CHECKING:
    from taskyard.pipeline.lake.replay import Counts, Replay

_SAMPLE: Final = 10


def add(commands: Any) -> None:
    result = add_command(
        commands,
        "replay",
        "Push jobs of the lake once more, those that a condition in SQL on its table `jobs` picks. "
        "Each is pushed once, however often this is run. If some have to be left out, the exit "
        "code is 1.",
        "taskyard lake replay --lake /srv/lake --where \"queue = 'mail' and outcome = 'failed' "
        "and date >= '2030-01-31'\" --dry-run",
        "taskyard lake replay --where \"error_class = 'TimeoutError'\" --to mail.slow --yes",
        run=run,
    )
    result.add_argument(
        "--where", required=True, metavar="SQL", help="a condition on the columns of jobs"
    )
    result.add_argument(
        "--to", metavar="QUEUE", help="where they go (default: each to the queue where it was)"
    )
    result.add_argument(
        "--again",
        default="",
        metavar="TAG",
        help="push also those that were replayed before, unless with the same tag",
    )
    result.add_argument("--limit", type=int, metavar="N", help="so many at most, the oldest first")
    result.add_argument("--dry-run", action="store_true", help="only show how many and which")
    add_yes(result)
    add_master(result)
    add_ui(result)
    add_flags(result, connects=True)


def run(arguments: argparse.Namespace) -> int:
    with Session(arguments) as session:
        code = replay(session)
        session.out.flush()
    return code


def replay(session: Session) -> int:
    given = session.arguments
    _check(session)
    from taskyard.pipeline.lake.replay import Replay, Wanted
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.spark import announce
    from taskyard.spark import session as spark_session

    if not given.dry_run:
        session.client.ping()  # before all that takes long
    lake = open_lake(given.lake)
    with Progress("starting Spark"):
        spark = spark_session(given.master, name="taskyard lake replay", ui=given.ui)
    announce(spark)
    wanted = Wanted(given.where, given.to, given.again, given.limit)
    with Replay(spark, lake, wanted) as chosen:
        return _replay(session, chosen)


def _check(session: Session) -> None:
    given = session.arguments
    if given.to is not None and not valid_name(given.to):
        raise Failure(f"--to {NAME_RULE}.", USAGE)
    if given.limit is not None and given.limit < 1:
        raise Failure("--limit must be a number from 1 on.", USAGE)
    if not (given.dry_run or given.yes or is_terminal(sys.stdin)):
        raise Failure(
            "nothing was done: give --yes to push without asking, or --dry-run to see what.", USAGE
        )


def _replay(session: Session, chosen: Replay) -> int:
    given, out = session.arguments, session.out
    with Progress("looking for jobs"):
        counts = chosen.counts()
        sample = chosen.sample(_SAMPLE) if counts.new and not out.json else []
    if sample:
        out.items(_columns(), sample, "")
    _tell(session, counts)
    pushed = 0
    if counts.new and not given.dry_run:
        confirm(session, f"Push {counted(counts.new, 'job')}")
    if (counts.new or counts.returned) and not given.dry_run:
        with Progress(f"pushing {counted(counts.new, 'job')}"):
            chosen.push(session.url)
        pushed = counts.new
    told = {
        "chosen": counts.new + counts.there + counts.left_out,
        "new": counts.new,
        "already_there": counts.there,
        "without_payload": counts.no_payload,
        "push_not_seen": counts.no_push,
        "pushed": pushed,
    }
    verb = "would be pushed" if given.dry_run else "pushed"
    out.did(told, f"{counted(counts.new, 'job')} {verb}.")
    return REFUSED if counts.left_out else DONE


def _tell(session: Session, counts: Counts) -> None:
    """What is not pushed, and why."""
    if session.out.json:
        return
    line = session.out.line
    if counts.there:
        line(f"{counted(counts.there, 'job')} left out: replayed before (see --again).")
    if counts.no_payload:
        line(
            f"{counted(counts.no_payload, 'job')} left out: the lake does not have the payload; "
            "it was filled without --payloads then, or the payload was erased."
        )
    if counts.no_push:
        line(
            f"{counted(counts.no_push, 'job')} left out: the lake has not seen the push, "
            "which was before its first record."
        )


def _columns() -> list[Column]:
    def text(name: str) -> Any:
        return lambda row: "" if row[name] is None else row[name]

    return [
        Column("JOB", text("job_id"), right=True),
        Column("RUN", text("run"), right=True),
        Column("QUEUE", text("queue"), flexible=True),
        Column("TO", text("to_queue"), flexible=True),
        Column("NAME", text("name"), flexible=True),
        Column("OUTCOME", text("outcome")),
        Column("FINISHED", lambda row: f"{row['finished_at']:%Y-%m-%d %H:%M:%S}"),
        Column("ERROR", lambda row: error_line(row["error"] or ""), flexible=True),
    ]
