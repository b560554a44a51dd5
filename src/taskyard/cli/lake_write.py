"""What is done to a lake by hand: `taskyard lake compact`, `rebuild`, `erase`; and `replay`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.ask import confirm
from taskyard.cli.failure import CommandFailed
from taskyard.cli.lake import open_storage
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.style import is_terminal
from taskyard.cli.table import Column
from taskyard.cli.units import counted
from taskyard.shared.error_line import error_line
from taskyard.shared.exit_codes import DONE, REFUSED, USAGE
from taskyard.shared.text import NAME_RULE, valid_name

if TYPE_CHECKING:
    from taskyard.pipeline.lake.replay import LakeReplay, ReplayCounts
    from taskyard.pipeline.lake.store import Store

_SAMPLE_JOBS: Final = 10


def _open_store(arguments: argparse.Namespace) -> Store:
    """Open the lake's tables; nothing is made if there is no lake."""
    from taskyard.pipeline.lake.snapshot import open_lake
    from taskyard.pipeline.lake.store import Store

    return Store(open_lake(open_storage(arguments)).storage)


def run_compact(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.maintain import compact

    store = _open_store(arguments)
    with ProgressBar("compacting"):
        count = store.run_step(lambda: compact(store, many=2))
        store.run_step(store.vacuum)
    print(f"{count} small files were put together")


def run_erase(arguments: argparse.Namespace) -> None:
    if not 0 < arguments.job < 1 << 63:
        raise CommandFailed("--job must be the number of a job.", USAGE)
    from taskyard.pipeline.lake.maintain import erase

    store = _open_store(arguments)
    with ProgressBar("erasing"):
        erase(store, arguments.job)
    print(f"the lake has no payload and no result of job {arguments.job}")


def run_rebuild(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.maintain import rebuild
    from taskyard.spark import announce, session

    store = _open_store(arguments)
    spark = session(arguments.master, name="taskyard lake rebuild", ui=arguments.ui)
    announce(spark)
    try:
        with ProgressBar("reading events", sum(file.rows for file in store.files("events"))) as bar:
            total = rebuild(spark, store, lambda done: setattr(bar, "done", done))
    finally:
        spark.stop()
    print(f"made of {total:,} events")


def run_replay(arguments: argparse.Namespace) -> int:
    with Context(arguments) as session:
        code = _find_and_push(session)
        session.out.flush()
    return code


def _find_and_push(session: Context) -> int:
    given = session.arguments
    if given.to is not None and not valid_name(given.to):
        raise CommandFailed(f"--to {NAME_RULE}.", USAGE)
    if given.limit is not None and given.limit < 1:
        raise CommandFailed("--limit must be a number from 1 on.", USAGE)
    if not (given.dry_run or given.yes or is_terminal(sys.stdin)):
        raise CommandFailed(
            "nothing was done: give --yes to push without asking, or --dry-run to see what.", USAGE
        )
    from taskyard.pipeline.lake.replay import LakeReplay, ReplayRequest
    from taskyard.pipeline.lake.snapshot import open_lake

    if not given.dry_run:
        session.client.ping()  # before all that takes long
    wanted = ReplayRequest(given.where, given.to, given.again, given.limit)
    with LakeReplay(open_lake(open_storage(given)), wanted) as chosen:
        return _replay(session, chosen)


def _replay(session: Context, chosen: LakeReplay) -> int:
    given, out = session.arguments, session.out
    with ProgressBar("looking for jobs"):
        counts = chosen.counts()
        sample = chosen.sample(_SAMPLE_JOBS) if counts.new and not out.json else []
    if sample:
        out.print_items(_columns(), sample, "")
    if not out.json:
        _print_skipped(session, counts)
    pushed = 0
    if counts.new and not given.dry_run:
        confirm(session, f"Push {counted(counts.new, 'job')}")
    if (counts.new or counts.returned) and not given.dry_run:
        with ProgressBar("pushing jobs", counts.new) as bar:
            chosen.push(session.url, lambda done: setattr(bar, "done", done))
        pushed = counts.new
    told = {
        "chosen": counts.new + counts.replayed_before + counts.left_out,
        "new": counts.new,
        "already_there": counts.replayed_before,
        "without_payload": counts.no_payload,
        "push_not_seen": counts.no_push,
        "pushed": pushed,
    }
    verb = "would be pushed" if given.dry_run else "pushed"
    out.print_result(told, f"{counted(counts.new, 'job')} {verb}.")
    return REFUSED if counts.left_out else DONE


def _print_skipped(session: Context, counts: ReplayCounts) -> None:
    """What is not pushed, and why."""
    line = session.out.print_line
    if counts.replayed_before:
        line(f"{counted(counts.replayed_before, 'job')} left out: replayed before (see --again).")
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
