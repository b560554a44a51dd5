"""What is done to a lake by hand: `taskyard lake compact`, `rebuild`, `erase`; and `replay`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.ask import confirm
from taskyard.cli.failure import DONE, REFUSED, USAGE, Failure
from taskyard.cli.lake import storage_of
from taskyard.cli.progress import Progress
from taskyard.cli.session import Session
from taskyard.cli.style import is_terminal
from taskyard.cli.table import Column
from taskyard.cli.units import counted
from taskyard.shared.error_line import error_line
from taskyard.shared.names import NAME_RULE, valid_name

if TYPE_CHECKING:
    from taskyard.pipeline.lake.replay import Counts, Replay
    from taskyard.pipeline.lake.store import Store

_SAMPLE: Final = 10


def _open_store(arguments: argparse.Namespace) -> Store:
    """The lake's tables; nothing is made if there is no lake."""
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.store import Store

    return Store(open_lake(storage_of(arguments)).storage)


def run_compact(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.maintain import compact

    store = _open_store(arguments)
    with Progress("compacting"):
        count = store.change(lambda: compact(store, many=2))
        store.change(store.vacuum)
    print(f"{count} small files were put together")


def run_erase(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.job < 1 << 63:
        raise Failure("--job must be the number of a job.", USAGE)
    from taskyard.pipeline.lake.maintain import erase

    store = _open_store(arguments)
    with Progress("erasing"):
        erase(store, arguments.job)
    print(f"the lake has no payload and no result of job {arguments.job}")


def run_rebuild(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.maintain import rebuild
    from taskyard.spark import announce, session

    store = _open_store(arguments)
    spark = session(arguments.master, name="taskyard lake rebuild", ui=arguments.ui)
    announce(spark)
    try:
        with Progress("reading events", sum(file.rows for file in store.files("events"))) as bar:
            total = rebuild(spark, store, lambda done: setattr(bar, "done", done))
    finally:
        spark.stop()
    print(f"made of {total:,} events")


def run_replay(arguments: argparse.Namespace) -> int:
    with Session(arguments) as session:
        code = _find_and_push(session)
        session.out.flush()
    return code


def _find_and_push(session: Session) -> int:
    given = session.arguments
    if given.to is not None and not valid_name(given.to):
        raise Failure(f"--to {NAME_RULE}.", USAGE)
    if given.limit is not None and given.limit < 1:
        raise Failure("--limit must be a number from 1 on.", USAGE)
    if not (given.dry_run or given.yes or is_terminal(sys.stdin)):
        raise Failure(
            "nothing was done: give --yes to push without asking, or --dry-run to see what.", USAGE
        )
    from taskyard.pipeline.lake.replay import Replay, Wanted
    from taskyard.pipeline.lake.snapshot import open_lake

    if not given.dry_run:
        session.client.ping()  # before all that takes long
    wanted = Wanted(given.where, given.to, given.again, given.limit)
    with Replay(open_lake(storage_of(given)), wanted) as chosen:
        return _replay(session, chosen)


def _replay(session: Session, chosen: Replay) -> int:
    given, out = session.arguments, session.out
    with Progress("looking for jobs"):
        counts = chosen.counts()
        sample = chosen.sample(_SAMPLE) if counts.new and not out.json else []
    if sample:
        out.items(_columns(), sample, "")
    if not out.json:
        _tell_left_out(session, counts)
    pushed = 0
    if counts.new and not given.dry_run:
        confirm(session, f"Push {counted(counts.new, 'job')}")
    if (counts.new or counts.returned) and not given.dry_run:
        with Progress("pushing jobs", counts.new) as bar:
            chosen.push(session.url, lambda done: setattr(bar, "done", done))
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


def _tell_left_out(session: Session, counts: Counts) -> None:
    """What is not pushed, and why."""
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
