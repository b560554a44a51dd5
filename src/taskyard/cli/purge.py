"""`taskyard purge`: removes the jobs of a queue, by state."""

from collections.abc import Sequence

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import command_parser, run_command
from taskyard.cli.jobs import STATES, states_of
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.units import counted


def parser() -> CommandParser:
    result = command_parser(
        "purge",
        "Remove the jobs of a queue: the ready, limited and delayed ones, or those in the states "
        "that are named. The queue and its settings stay.",
        "taskyard purge mail",
        "taskyard purge mail --state ready --yes",
        "taskyard purge mail --state failed",
        run=purge,
    )
    result.add_argument("queue", metavar="QUEUE")
    result.add_argument(
        "--state",
        action="append",
        choices=(*STATES, "all"),
        help="in this state; may be given again (default: ready, limited and delayed)",
    )
    add_yes(result)
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def purge(session: Context) -> None:
    name = session.arguments.queue
    states = session.arguments.state or ["ready", "limited", "delayed"]
    if "all" in states:
        states = states_of(session, name)
    where = session.queue_path(name)
    before = _count(session, where, states)
    confirm(session, f"Remove {counted(before, 'job')} of {name} ({', '.join(states)})")
    with ProgressBar(
        f"purging {name}",
        before,
        measure=lambda: max(0, before - _count(session, where, states)),
    ):
        done = session.long_api("POST", where + "/purge", {"states": list(dict.fromkeys(states))})
    session.out.print_result(
        {"queue": name, **done}, f"{name}: {counted(done['removed'], 'job')} removed."
    )


def _count(session: Context, where: str, states: Sequence[str]) -> int:
    counts = session.api("GET", where)["counts"]
    return sum(counts[state] for state in dict.fromkeys(states))
