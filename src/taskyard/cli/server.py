"""`taskyard server`: shows how the server is and what was slow, and drains it."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from taskyard.cli.command import command_parser, insert_default_command, run_command, subcommands
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.table import Column
from taskyard.cli.units import counted, size, span
from taskyard.shared.exit_codes import DONE, REFUSED

_STATE_STYLES: Final = 0.5  # seconds between them


def _milliseconds(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda slow: f"{1000 * slow[name]:,.1f}"


_SLOW: Final = (
    Column("TIME", lambda slow: slow["time"]),
    Column("REQUEST", lambda slow: slow["request"]),
    Column("DIALECT", lambda slow: slow["dialect"]),
    Column("COMMAND", lambda slow: slow["command"], flexible=True),
    Column("COMMANDS", lambda slow: slow["commands"], right=True),
    Column("MS", _milliseconds("seconds"), right=True),
    Column("LINE", _milliseconds("line_seconds"), right=True),
    Column("WORK", _milliseconds("work_seconds"), right=True),
    Column("DISK", _milliseconds("disk_seconds"), right=True),
    Column("PEER", lambda slow: slow["peer"]),
)


def parser() -> CommandParser:
    result = command_parser(
        "server",
        "The server: show (which is done if no command is named), slow, drain, undrain.",
        "taskyard server",
        "taskyard server --json | jq .journal.bytes",
        "taskyard server slow",
        "taskyard server drain --wait",
        "taskyard server undrain",
    )
    add = subcommands(result)
    add(
        "show",
        "Show version, uptime, journal, memory and connections. If the server does not take "
        "pushes, the exit code is 1.",
        "taskyard server show",
        run=show,
    )
    add(
        "slow",
        "Show the last commands of all dialects that took too long, the newest first, and where "
        "their time went.",
        "taskyard server slow",
        run=show_slow,
    )
    draining = add(
        "drain",
        "Take no more pushes, and hand out what is there, until that is revoked or the server is "
        "started again.",
        "taskyard server drain --wait",
        run=drain,
    )
    draining.add_argument(
        "--wait", action="store_true", help="until no job is with a worker any more"
    )
    add("undrain", "Take pushes again.", "taskyard server undrain", run=undrain)
    return result


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(
        made, insert_default_command(made, "show", argv, ("show", "slow", "drain", "undrain"))
    )


def drain(session: Context) -> None:
    server = session.api("POST", "/server/drain")
    if session.arguments.wait:
        at_first = server["leased"]
        with ProgressBar("waiting for workers", at_first) as progress:
            while server["leased"]:
                time.sleep(_STATE_STYLES)
                server = session.api("GET", "/server")
                progress.done = max(0, at_first - server["leased"])
    left = (
        f"{counted(server['leased'], 'job')} with workers, "
        f"{counted(server['unfinished'], 'job')} not ended"
    )
    session.out.print_result(server, f"No more pushes are taken. Left: {left}.")


def show_slow(session: Context) -> None:
    found = session.api("GET", "/slow")
    if session.out.json:
        session.out.print_object(found)
        return
    none = f"No command took longer than {span(found['threshold'] or 0)} since the start."
    if found["threshold"] is None:
        none = "The server does not look for slow commands: --slow-command is off."
    session.out.print_items(_SLOW, found["commands"], none)


def undrain(session: Context) -> None:
    server = session.api("POST", "/server/undrain")
    taken = "Pushes are taken" if server["accepting"] else f"Still refused: {server['refusing']}"
    session.out.print_result(server, f"{taken}.")


def _lake(lake: dict[str, Any] | None) -> list[tuple[str, str]]:
    if lake is None:
        return []
    behind = f"{counted(lake['lag_records'], 'record')} ({span(lake['lag_seconds'])}) behind"
    wrong = f": {lake['error']}" if lake["error"] else ""
    return [("lake", f"{lake['state']}, {behind}{wrong}")]


def show(session: Context) -> int:
    server = session.api("GET", "/server")
    if session.out.json:
        session.out.print_object(server)
        return DONE if server["accepting"] else REFUSED
    journal = server["journal"]
    connections = [f"{count} {name}" for name, count in server["connections"].items() if count]
    listeners = [
        f"{name} {listener['host']}:{listener['port']}{' (TLS)' if listener['tls'] else ''}"
        for name, listener in server.get("listeners", {}).items()
    ]
    session.out.print_fields(
        [
            ("server", f"taskyard {server['version']} ({server['form']})"),
            ("pushes", "taken" if server["accepting"] else f"refused: {server['refusing']}"),
            ("up", f"{span(server['uptime'])}, start {server['epoch']} on this data directory"),
            ("durability", server["durability"]),
            ("jobs", f"{server['jobs']:,} in {counted(server['queues'], 'queue')}"),
            ("journal", f"{size(journal['bytes'])}, about {size(journal['live_bytes'])} in use"),
            ("records", f"{journal['records']:,} in {counted(journal['segments'], 'segment')}"),
            ("commits", f"{journal['commits']:,} since the start"),
            ("memory", size(server["memory"]["resident"])),
            ("connections", ", ".join(connections) or "none"),
            ("listeners", ", ".join(listeners) or "not told"),
            *_lake(server.get("lake")),
            ("users", f"{server['users']:,}" if server["users"] else "none: everybody may do all"),
        ]
    )
    return DONE if server["accepting"] else REFUSED
