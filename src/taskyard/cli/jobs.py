"""`taskyard jobs`: lists the jobs of a queue, or those that ended a short while ago."""

from collections.abc import Sequence
from typing import Final

from taskyard.cli.command import add_limit, command_parser, limit_of, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context
from taskyard.cli.shown import JOBS, QUEUE
from taskyard.cli.table import Column
from taskyard.shared.exit_codes import USAGE

STATES: Final = ("ready", "limited", "leased", "delayed", "blocked", "succeeded", "failed")


def parser() -> CommandParser:
    result = command_parser(
        "jobs",
        "List the jobs of a queue in one state: ready ones in the order in which they will be "
        "handed out, delayed ones by their time. With --finished those of all queues that ended a "
        "short while ago, the last one first.",
        "taskyard jobs mail",
        "taskyard jobs mail --state delayed --limit 20",
        "taskyard jobs mail --state all --json | jq .id",
        "taskyard jobs --finished",
        run=show_all,
    )
    result.add_argument("queue", nargs="?", metavar="QUEUE")
    result.add_argument(
        "--state",
        choices=(*STATES, "all"),
        default="all",
        help="only those in this state (default: those in any)",
    )
    result.add_argument(
        "--finished", action="store_true", help="those that ended a short while ago"
    )
    result.add_argument("--name", metavar="NAME", help="only those of this name")
    add_limit(result)
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def states_of(session: Context, queue: str) -> list[str]:
    """Those that the server counts, in the order in which they are shown."""
    counts = session.api("GET", session.queue_path(queue))["counts"]
    return [state for state in STATES if state in counts]


def show_all(session: Context) -> None:
    arguments = session.arguments
    if arguments.finished == (arguments.queue is not None):
        raise CommandFailed("name a queue, or give --finished.", USAGE)
    most = limit_of(arguments)
    if arguments.finished:
        found = session.pages("/finished", "jobs")
        columns: Sequence[Column] = (JOBS[0], QUEUE, *JOBS[1:])
    else:
        where = session.queue_path(arguments.queue, "jobs")
        states = (
            states_of(session, arguments.queue) if arguments.state == "all" else [arguments.state]
        )
        found = (job for state in states for job in session.pages(where, "jobs", state=state))
        columns = JOBS
    name = arguments.name
    rows = (job for job in found if name is None or job["name"] == name)
    session.out.print_limited_items(columns, rows, most, _nothing_found(session))


def _nothing_found(session: Context) -> str:
    given = session.arguments
    if given.finished:
        return "No job has ended a short while ago."
    such = given.name is not None or given.state != "all"
    return f"{given.queue} has no {'such ' * such}jobs."
