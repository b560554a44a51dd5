"""`taskyard ack`: ends leased jobs with success."""

import os
from collections.abc import Sequence

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import USAGE, Failure
from taskyard.cli.main import Parser
from taskyard.cli.refs import each_ref, leased
from taskyard.cli.session import Session


def parser() -> Parser:
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


def ack(session: Session) -> int:
    result = _result(session)

    def end(ref: str) -> None:
        session.client.ack(leased(ref), result)
        session.out.did({"ref": ref, "state": "succeeded"}, f"{ref}: succeeded.")

    return each_ref(session, end)


def _result(session: Session) -> bytes | None:
    given = session.arguments
    if given.result is not None and given.result_file is not None:
        raise Failure("give --result or --result-file, not both.", USAGE)
    if given.result_file is not None:
        with open(given.result_file, "rb") as file:
            return file.read()
    return None if given.result is None else os.fsencode(given.result)
