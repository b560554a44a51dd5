"""`taskyard ack`: ends leased jobs with success."""

import os
from collections.abc import Sequence

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.refs import job_from_ref, run_for_each_ref
from taskyard.cli.session import Context
from taskyard.shared.exit_codes import USAGE


def parser() -> CommandParser:
    result = command_parser(
        "ack",
        "End leased jobs with success, by the refs that `taskyard fetch` printed.",
        "taskyard ack 42-1-1",
        "taskyard ack 42-1-1 --result '{\"sent\": true}'",
        run=ack,
    )
    result.add_argument("refs", nargs="+", metavar="REF")
    result.add_argument("--result", metavar="TEXT", help="what comes of it, as it is")
    result.add_argument("--result-file", metavar="FILE", help="the file that has the result")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def ack(session: Context) -> int:
    result = _result(session)

    def end(ref: str) -> None:
        session.client.ack(job_from_ref(ref), result)
        session.out.print_result({"ref": ref, "state": "succeeded"}, f"{ref}: succeeded.")

    return run_for_each_ref(session, end)


def _result(session: Context) -> bytes | None:
    given = session.arguments
    if given.result is not None and given.result_file is not None:
        raise CommandFailed("give --result or --result-file, not both.", USAGE)
    if given.result_file is not None:
        with open(given.result_file, "rb") as file:
            return file.read()
    return None if given.result is None else os.fsencode(given.result)
