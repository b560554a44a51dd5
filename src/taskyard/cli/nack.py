"""`taskyard nack`: ends leased jobs with failure, or gives them back."""

from collections.abc import Sequence

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.refs import job_from_ref, run_for_each_ref
from taskyard.cli.session import Context
from taskyard.cli.units import seconds_of
from taskyard.shared.exit_codes import USAGE


def parser() -> CommandParser:
    result = command_parser(
        "nack",
        "End leased jobs with failure: they are tried again as their settings say, or never with "
        "--final. With --return they go back to where they were, and no failure is counted.",
        "taskyard nack 42-1-1 --error 'no such file' --delay 30s",
        "taskyard nack 42-1-1 --final",
        "taskyard nack 42-1-1 --return",
        run=nack,
    )
    result.add_argument("refs", nargs="+", metavar="REF")
    result.add_argument("--error", default="", metavar="TEXT", help="what went wrong")
    result.add_argument("--delay", metavar="TIME", help="how long to wait before the next try")
    result.add_argument("--final", action="store_true", help="do not try it again")
    result.add_argument(
        "--return", action="store_true", dest="give_back", help="give it back: it was no failure"
    )
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def nack(session: Context) -> int:
    given = session.arguments
    delay = given.delay and seconds_of(given.delay, "--delay")
    if sum((given.final, given.give_back, delay is not None)) > 1:
        raise CommandFailed("give only one of --delay, --final and --return.", USAGE)

    def end(ref: str) -> None:
        if given.give_back:
            session.client.give_back(job_from_ref(ref))
            state = "ready"
        elif given.final:
            session.client.fail(job_from_ref(ref), given.error)
            state = "failed"
        else:
            state = session.client.nack(job_from_ref(ref), given.error, delay)
        session.out.print_result({"ref": ref, "state": state}, f"{ref}: {state}.")

    return run_for_each_ref(session, end)
