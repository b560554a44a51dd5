"""`taskyard extend`: keeps leases for longer."""

from collections.abc import Sequence
from datetime import UTC, datetime

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.main import Parser
from taskyard.cli.refs import each_ref, leased
from taskyard.cli.session import Session
from taskyard.cli.units import seconds_of


def parser() -> Parser:
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


def extend(session: Session) -> int:
    seconds = seconds_of(session.arguments.time, "--for")

    def keep(ref: str) -> None:
        until = datetime.fromtimestamp(session.client.extend(leased(ref), seconds), UTC)
        session.out.did(
            {"ref": ref, "deadline": until.isoformat().replace("+00:00", "Z")},
            f"{ref}: until {until.astimezone():%Y-%m-%d %H:%M:%S%z}.",
        )

    return each_ref(session, keep)
