"""`taskyard consumers`: consumers that take jobs in numbered batches, such as Spark."""

from collections.abc import Sequence
from typing import Any, Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import command_parser, insert_default_command, run_command, subcommands
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context, path
from taskyard.cli.shown import now
from taskyard.cli.table import Column
from taskyard.cli.units import counted, local, since

_COMMANDS: Final = ("list", "show", "drop")


def state_of(consumer: dict[str, Any]) -> str:
    if consumer["expired"]:
        return "expired"
    return "out" if consumer["open"] else "done"


COLUMNS: Final = (
    Column("CONSUMER", lambda consumer: consumer["name"], flexible=True),
    Column("BATCH", lambda consumer: consumer["batch"], right=True),
    Column(
        "STATE", state_of, style=lambda consumer: "red" if state_of(consumer) == "expired" else ""
    ),
    Column("JOBS", lambda consumer: consumer["jobs"], right=True),
    Column(
        "ENDS",
        lambda consumer: since(consumer["deadline"], now()) if consumer["deadline"] else "-",
    ),
    Column("QUEUES", lambda consumer: " ".join(consumer["queues"]), flexible=True),
)


def parser() -> CommandParser:
    result = command_parser(
        "consumers",
        "Those who take jobs in numbered batches: list (which is done if no command is named), "
        "show, drop.",
        "taskyard consumers",
        "taskyard consumers show spark",
        "taskyard consumers drop spark --yes",
    )
    add = subcommands(result)
    add("list", "List consumers.", "taskyard consumers list --json", run=show_all)
    showing = add("show", "Show one consumer.", "taskyard consumers show spark", run=show)
    dropping = add(
        "drop",
        "Forget a consumer: the jobs that it holds go back to their queues. A query that goes on "
        "with it gets an error, or jobs that it did not have before.",
        "taskyard consumers drop spark --yes",
        run=drop,
    )
    for each in (showing, dropping):
        each.add_argument("name", metavar="NAME", help="of the consumer")
    add_yes(dropping)
    return result


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(made, insert_default_command(made, "list", argv, _COMMANDS))


def show_all(session: Context) -> None:
    found = session.pages("/consumers", "consumers")
    session.out.print_items(COLUMNS, found, "There are no consumers.")


def show(session: Context) -> None:
    consumer = session.api("GET", _consumer_path(session))
    if session.out.json:
        session.out.print_object(consumer)
        return
    deadline = consumer["deadline"]
    session.out.print_fields(
        [
            ("consumer", consumer["name"]),
            ("batch", f"{consumer['batch']:,}"),
            ("state", state_of(consumer)),
            ("jobs", f"{consumer['jobs']:,}"),
            ("ends", local(deadline, now()) if deadline else "never"),
            ("queues", " ".join(consumer["queues"])),
            ("user", consumer["user"] or "-"),
        ]
    )


def drop(session: Context) -> None:
    name = session.arguments.name
    jobs = session.api("GET", _consumer_path(session))["jobs"]  # refused before one is asked
    confirm(session, f"Drop the consumer {name}, and give back up to {counted(jobs, 'job')}")
    session.api("DELETE", _consumer_path(session))
    session.out.print_result({"name": name, "dropped": True}, f"{name}: dropped.")


def _consumer_path(session: Context) -> str:
    return path("consumers", session.arguments.name)
