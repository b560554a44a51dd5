"""`taskyard leases`: lists the leased jobs, and their holders."""

from collections.abc import Sequence

from taskyard.cli.command import add_limit, command_parser, limit_of, run_command
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context
from taskyard.cli.shown import LEASES


def parser() -> CommandParser:
    result = command_parser(
        "leases",
        "List the jobs that are leased: who holds them, for how long, and when the lease ends.",
        "taskyard leases",
        "taskyard leases mail --json | jq -r .lease.holder",
        run=show_all,
    )
    result.add_argument("queue", nargs="?", metavar="QUEUE")
    add_limit(result)
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def show_all(session: Context) -> None:
    queue = session.arguments.queue
    where = "/leases" if queue is None else session.queue_path(queue, "leases")
    rows = session.pages(where, "leases")
    session.out.print_limited_items(LEASES, rows, limit_of(session.arguments), "Nothing is leased.")
