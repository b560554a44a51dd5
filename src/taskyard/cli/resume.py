"""`taskyard resume`: delivers the jobs of a paused queue again."""

from collections.abc import Sequence

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context
from taskyard.cli.units import counted


def parser() -> CommandParser:
    result = command_parser(
        "resume",
        "Hand out the jobs of paused queues again.",
        "taskyard resume mail",
        run=resume,
    )
    result.add_argument("queues", nargs="+", metavar="QUEUE")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def resume(session: Context) -> None:
    for name in session.arguments.queues:
        queue = session.api("POST", session.queue_path(name, "resume"))
        session.out.print_result(
            queue, f"{name}: resumed, with {counted(queue['counts']['ready'], 'job')} ready."
        )
