"""`taskyard pause`: stops the delivery of a queue's jobs."""

from collections.abc import Sequence

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context
from taskyard.cli.units import counted


def parser() -> CommandParser:
    result = command_parser(
        "pause",
        "Hand out no more jobs of these queues. What is leased goes on, and pushes are taken.",
        "taskyard pause mail",
        "taskyard pause mail reports",
        run=pause,
    )
    result.add_argument("queues", nargs="+", metavar="QUEUE")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def pause(session: Context) -> None:
    for name in session.arguments.queues:
        queue = session.api("POST", session.queue_path(name, "pause"))
        session.out.print_result(
            queue, f"{name}: paused, with {counted(queue['counts']['ready'], 'job')} ready."
        )
