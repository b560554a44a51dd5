"""`taskyard readers`: readers of the journal, for which segments are kept."""

from collections.abc import Sequence
from typing import Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import command_parser, insert_default_command, run_command, subcommands
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context, path
from taskyard.cli.shown import now
from taskyard.cli.table import Column
from taskyard.cli.units import since

_COMMANDS: Final = ("list", "drop")


def lease_left(until: str) -> str:
    """How long the lease lasts; a lapsed one keeps nothing."""
    left = since(until, now())
    return left if left.startswith("in ") else "lapsed"


COLUMNS: Final = (
    Column("READER", lambda reader: reader["name"], flexible=True),
    Column("NEXT", lambda reader: reader["next_seq"], right=True),
    Column("BEHIND", lambda reader: reader["behind"], right=True),
    Column(
        "MISSED",
        lambda reader: reader["missed"],
        right=True,
        style=lambda reader: "red" if reader["missed"] else "",
    ),
    Column("LEASE", lambda reader: lease_left(reader["lease_until"])),
)


def parser() -> CommandParser:
    result = command_parser(
        "readers",
        "Those who read the journal, and for whom it is kept: list (which is done if no command "
        "is named), drop.",
        "taskyard readers",
        "taskyard readers list --json",
        "taskyard readers drop lake --yes",
    )
    add = subcommands(result)
    add("list", "List readers of the journal.", "taskyard readers list --json", run=show_all)
    dropping = add(
        "drop",
        "Forget a reader that will not come back: nothing is kept for it any more.",
        "taskyard readers drop lake --yes",
        run=drop,
    )
    dropping.add_argument("name", metavar="NAME", help="of the reader")
    add_yes(dropping)
    return result


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(made, insert_default_command(made, "list", argv, _COMMANDS))


def show_all(session: Context) -> None:
    found = session.pages("/readers", "readers")
    session.out.print_items(COLUMNS, found, "There are no readers of the journal.")


def drop(session: Context) -> None:
    name = session.arguments.name
    confirm(session, f"Drop the reader {name}, for whom records may be kept")
    session.api("DELETE", path("readers", name))
    session.out.print_result({"name": name, "dropped": True}, f"{name}: dropped.")
