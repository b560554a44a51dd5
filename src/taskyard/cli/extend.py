"""`taskyard extend`: keeps leases for longer."""

from collections.abc import Sequence
from datetime import UTC, datetime

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.main import CommandParser
from taskyard.cli.refs import job_from_ref, run_for_each_ref
from taskyard.cli.session import Context
from taskyard.cli.units import seconds_of


def parser() -> CommandParser:
    result = command_parser(
        "extend",
        "Let leases end so long from now, be that later or sooner than they would.",
        "taskyard extend 42-1-1 --for 5m",
        run=extend,
    )
    result.add_argument("refs", nargs="+", metavar="REF")
    result.add_argument(
        "--for", default="60s", metavar="TIME", dest="time", help="how long from now (default 60s)"
    )
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def extend(session: Context) -> int:
    seconds = seconds_of(session.arguments.time, "--for")

    def keep(ref: str) -> None:
        until = datetime.fromtimestamp(session.client.extend(job_from_ref(ref), seconds), UTC)
        session.out.print_result(
            {"ref": ref, "deadline": until.isoformat().replace("+00:00", "Z")},
            f"{ref}: until {until.astimezone():%Y-%m-%d %H:%M:%S%z}.",
        )

    return run_for_each_ref(session, keep)
