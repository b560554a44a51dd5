"""`taskyard queues`: lists queues, shows one, creates, changes and deletes them."""

from collections.abc import Sequence
from typing import Any, Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import command_parser, insert_default_command, run_command, subcommands
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.settings import SETTINGS, add_settings, setting_text, settings_of
from taskyard.cli.table import Column
from taskyard.cli.units import counted, size
from taskyard.shared.exit_codes import USAGE

_SORTS: Final = ("name", "ready", "leased", "delayed", "failed", "pushed")


def _describe_marks(queue: dict[str, Any]) -> str:
    marks = [word for word in ("paused", "draining") if queue.get(word)]
    if queue["settings"].get("draining") and "draining" not in marks:
        marks.append("draining")
    limited = queue["counts"].get("limited")
    if limited:
        marks.append(f"{limited:,} limited")
    return ", ".join(marks)


def _count(state: str, look: str = "") -> Column:
    return Column(
        state.upper() if state != "failed" else "DEAD",
        lambda queue: queue["counts"][state],
        right=True,
        style=lambda queue: look if queue["counts"][state] else "dim",
    )


COLUMNS: Final = (
    Column("QUEUE", lambda queue: queue["name"], flexible=True),
    _count("ready", "green"),
    _count("leased", "cyan"),
    _count("delayed", "yellow"),
    _count("blocked", "magenta"),
    _count("failed", "red"),
    Column("WAITING", lambda queue: queue["waiting"], right=True),
    Column("PUSHED", lambda queue: queue["counters"]["pushed"], right=True),
    Column("DONE", lambda queue: queue["counters"]["finished"], right=True),
    Column("", _describe_marks, style=lambda _: "yellow"),
)


def parser() -> CommandParser:
    result = command_parser(
        "queues",
        "Queues: list (which is done if no command is named), show, set, delete.",
        "taskyard queues",
        "taskyard queues --sort ready 'mail.*'",
        "taskyard queues show mail",
        "taskyard queues set mail --retries 5 --backoff exponential --backoff-base 2s",
        "taskyard queues delete mail --purge",
    )
    add = subcommands(result)
    listing = add(
        "list",
        "List queues. WAITING are the fetches that wait for a job.",
        "taskyard queues list --sort ready",
        "taskyard queues list --json | jq -r .name",
        run=show_all,
    )
    listing.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="only these; * stands for any characters"
    )
    listing.add_argument("--sort", choices=_SORTS, default="name", help="by what (default name)")
    listing.add_argument("--names", action="store_true", help="print nothing but the names")
    showing = add(
        "show",
        "Show one queue: counts, settings and counters.",
        "taskyard queues show mail",
        run=show,
    )
    showing.add_argument("queue", metavar="QUEUE")
    setting = add(
        "set",
        "Change settings of a queue, and create it if there is none. The others stay as they are.",
        "taskyard queues set mail --retries 5 --dead-retention 7d",
        "taskyard queues set mail --retries default",
        run=change,
    )
    setting.add_argument("queue", metavar="QUEUE")
    add_settings(setting)
    deleting = add(
        "delete",
        "Delete a queue and its settings.",
        "taskyard queues delete mail",
        "taskyard queues delete mail --purge --yes",
        run=delete,
    )
    deleting.add_argument("queue", metavar="QUEUE")
    deleting.add_argument("--purge", action="store_true", help="also if there are jobs in it")
    add_yes(deleting)
    return result


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(
        made, insert_default_command(made, "list", argv, ("list", "show", "set", "delete"))
    )


def show_all(session: Context) -> None:
    arguments = session.arguments
    with ProgressBar("reading queues"):
        queues = list(session.pages("/queues", "queues"))
    if arguments.pattern is not None:
        from fnmatch import fnmatchcase

        # Only * is special, as in the patterns of users.
        pattern = arguments.pattern.replace("[", "[[]").replace("?", "[?]")
        queues = [queue for queue in queues if fnmatchcase(queue["name"], pattern)]
    if arguments.sort != "name":
        queues.sort(key=lambda queue: -_sort_key(queue, arguments.sort))
    if arguments.names and not session.out.json:
        for queue in queues:
            session.out.print_line(queue["name"])
        return
    if arguments.pattern is None:
        none = "There are no queues: one begins with its first push."
    else:
        none = f"There is no queue whose name fits {arguments.pattern!r}."
    session.out.print_items(COLUMNS, queues, none)


def show(session: Context) -> None:
    queue = session.api("GET", session.queue_path(session.arguments.queue))
    if session.out.json:
        session.out.print_object(queue)
        return
    counts, counters = queue["counts"], queue["counters"]
    # With those of the server's configuration, where the queue has none of its own.
    effective = queue.get("effective", queue["settings"])
    settings = {name: setting_text(name, value) for name, value in effective.items()}
    session.out.print_fields(
        [
            ("queue", queue["name"]),
            ("state", _describe_marks(queue) or "running"),
            *((f"{name} jobs", f"{counts[name]:,}") for name in counts if name != "failed"),
            ("dead letters", _dead(queue)),
            ("bytes waiting", size(queue["waiting_bytes"])),
            ("fetches waiting", f"{queue['waiting']:,}"),
        ]
    )
    _section(session, "settings", settings)
    _section(session, "since it exists", {name: f"{value:,}" for name, value in counters.items()})


def change(session: Context) -> None:
    name = session.arguments.queue
    settings = settings_of(session.arguments)
    if not settings:
        known = ", ".join(setting.flag for setting in SETTINGS)
        raise CommandFailed(f"say what to set: one of {known}.", USAGE)
    where = session.queue_path(name)
    new = not _exists(session, where)
    view = session.api("PUT" if new else "PATCH", where, settings)
    told = ", ".join(f"{key} {setting_text(key, value)}" for key, value in settings.items())
    session.out.print_result(view, f"{name}: {'created, ' if new else ''}set {told}.")


def delete(session: Context) -> None:
    name = session.arguments.queue
    where = session.queue_path(name)
    queue = session.api("GET", where)
    jobs = sum(queue["counts"].values())
    with_jobs = f" and its {counted(jobs, 'job')}" if jobs and session.arguments.purge else ""
    confirm(session, f"Delete the queue {name}{with_jobs}")
    with ProgressBar(f"deleting {name}", jobs, measure=lambda: jobs - _jobs_in(session, where)):
        done = session.long_api("DELETE", where, purge=session.arguments.purge or None)
    removed = done["removed"]
    session.out.print_result(
        {"queue": name, **done}, f"{name}: deleted, with {counted(removed, 'job')}."
    )


# Their parts


def _dead(queue: dict[str, Any]) -> str:
    count: int = queue["counts"]["failed"]
    return f"{count:,} ({size(queue['dead_bytes'])})" if count else "0"


def _exists(session: Context, where: str) -> bool:
    from taskyard.client.errors import QueueNotFound

    try:
        session.api("GET", where)
    except QueueNotFound:
        return False
    return True


def _jobs_in(session: Context, where: str) -> int:
    counts: dict[str, int] = session.api("GET", where)["counts"]
    return sum(counts.values())


def _sort_key(queue: dict[str, Any], by: str) -> int:
    if by == "pushed":
        return int(queue["counters"]["pushed"])
    return int(queue["counts"][by])


def _section(session: Context, title: str, pairs: dict[str, str]) -> None:
    session.out.print_line("")
    session.out.print_line(f"{title}:")
    session.out.print_fields([(f"  {name}", text) for name, text in pairs.items()])
