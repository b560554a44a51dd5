"""`taskyard lake job`: what the lake has of one job."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from taskyard.cli.failure import NOTHING, USAGE, Failure
from taskyard.cli.lake import add_command
from taskyard.cli.table import Column, print_table
from taskyard.cli.text import safe
from taskyard.error_line import error_line


def add(commands: Any) -> None:
    made = add_command(
        commands,
        "job",
        "Show what the lake has of one job: its runs, attempts and events. Also long after the "
        "server has forgotten it.",
        "taskyard lake job 42 --lake /srv/lake",
        "taskyard lake job 42 --json | jq .events",
        run=run,
    )
    made.add_argument("job", metavar="JOB", help="its id, or the uid that it was pushed with")
    made.add_argument("--json", action="store_true", help="as one JSON object")


def run(arguments: argparse.Namespace) -> None:
    from taskyard.pipeline.lake.errors import LakeError
    from taskyard.pipeline.lake.one_job import find_job
    from taskyard.pipeline.lake.snapshot import last_watermark

    path = Path(arguments.lake)
    try:
        found = find_job(path, arguments.job)
    except ValueError as error:
        raise Failure(f"{error}.", USAGE) from None
    except LakeError as error:
        if last_watermark(path.resolve()) is None:  # there is none yet, so that no job is in it
            raise Failure(f"{error}.", NOTHING) from None
        raise
    if found is None:
        raise Failure(f"the lake has no job {arguments.job}.", NOTHING)
    if arguments.json:
        print(json.dumps(found))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    for run in [*found["runs"], *([found["open"]] if found["open"] else [])]:
        ended = run.get("outcome") or run.get("state")
        told = f"job {found['id']}, run {run['run']}: {run['name']} in {run['queue']}, {ended}"
        print(safe(told))
        for name in ("uid", "pushed_at", "started_at", "finished_at", "reason", "error"):
            if run.get(name) is not None:
                print(f"  {name}: {safe(str(run[name]))}")
    if found["attempts"]:
        print()
        print_table(
            [
                _column("run", right=True),
                _column("attempt", right=True),
                _column("worker", flexible=True),
                _column("started_at"),
                _column("run_seconds", right=True),
                _column("outcome"),
                Column("error", lambda row: error_line(row["error"] or "") or "-", flexible=True),
            ],
            found["attempts"],
            sys.stdout,
        )
    print()
    columns = [_column("time"), _column("event"), Column("", _details, flexible=True)]
    print_table(columns, found["events"], sys.stdout)


def _column(name: str, *, right: bool = False, flexible: bool = False) -> Column:
    def text(row: Any) -> object:
        value = row.get(name)
        return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else value

    return Column(name, text, right=right, flexible=flexible)


def _details(event: dict[str, Any]) -> str:
    """What else there is to say, but what is the same in all of them."""
    known = (
        "time",
        "event",
        "seq",
        "part",
        "job_id",
        "uid",
        "payload_size",
        "details",
        "error_line",
    )
    return " ".join(f"{name}={value}" for name, value in event.items() if name not in known)
