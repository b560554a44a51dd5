"""`taskyard result`: shows how a job ended, or waits for it."""

import sys
from collections.abc import Sequence

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.content import content_from_bytes
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.text import escape_unsafe
from taskyard.cli.units import seconds_of
from taskyard.shared.exit_codes import DONE, NOTHING, REFUSED


def parser() -> CommandParser:
    result = command_parser(
        "result",
        "Print the result of a job that has succeeded. If it has failed, the error is told and "
        "the exit code is 1; if it has not ended yet, the code is 5.",
        "taskyard result 42",
        "taskyard result 42 --wait 30s --json",
        run=show,
    )
    result.add_argument("job", metavar="JOB", help="its id or uid")
    result.add_argument(
        "--wait", default="0", metavar="TIME", help="how long to wait for its end (default: not)"
    )
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def show(session: Context) -> int:
    name = session.arguments.job
    wait = seconds_of(session.arguments.wait, "--wait")
    with ProgressBar(f"waiting for {name}"):
        outcome = session.client.result(name, wait=wait)
    if outcome is None:
        raise CommandFailed(f"{name} has not ended yet; --wait 1m would wait for it.", NOTHING)
    if session.out.json:
        session.out.print_object(
            {
                "id": outcome.id,
                "state": outcome.state,
                "success": outcome.success,
                "result": None if outcome.result is None else content_from_bytes(outcome.result),
                "error": None if outcome.error is None else content_from_bytes(outcome.error),
            }
        )
    elif outcome.success:
        session.out.print_bytes(outcome.result or b"")
    else:
        first, _, rest = outcome.error_text.strip().partition("\n")
        reason = f": {escape_unsafe(first)}" if first else ", and nobody said why"
        more = f" (`taskyard job {name}` shows all of it)" if rest else ""
        print(f"taskyard result: job {name} has failed{reason}{more}", file=sys.stderr)
    return DONE if outcome.success else REFUSED
