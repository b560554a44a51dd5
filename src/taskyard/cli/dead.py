"""`taskyard dead`: lists, shows, replays and purges dead letters."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import (
    add_limit,
    command_parser,
    insert_default_command,
    limit_of,
    run_command,
    subcommands,
)
from taskyard.cli.content import format_in_one_line
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import PAGE_ITEMS, Context, path
from taskyard.cli.shown import DEAD, now, short_error, show_job
from taskyard.cli.table import Column
from taskyard.cli.units import counted, since, size
from taskyard.shared.exit_codes import REFUSED, USAGE

_COMMANDS: Final = ("list", "show", "replay", "purge")
QUEUES: Final = (
    Column("QUEUE", lambda queue: queue["name"], flexible=True),
    Column("DEAD", lambda queue: queue["counts"]["failed"], right=True, style=lambda _: "red"),
    Column("BYTES", lambda queue: size(queue["dead_bytes"]), right=True),
)
GROUPS: Final = (
    Column("COUNT", lambda group: group["count"], right=True, style=lambda _: "red"),
    Column("REASON", lambda group: group["reason"], flexible=True),
    Column("LAST", lambda group: f"{since(group['last_at'], now())} ago", right=True),
    Column("NEWEST", lambda group: " ".join(map(str, group["sample"][:3]))),
    Column("LAST ERROR", lambda group: short_error(group, "last_error"), flexible=True),
)


def parser() -> CommandParser:
    result = command_parser(
        "dead",
        "Dead letters are jobs that have failed for good: list, show, replay, purge.",
        "taskyard dead list",
        "taskyard dead list mail --error timeout",
        "taskyard dead show mail",
        "taskyard dead replay mail 42 43",
        "taskyard dead replay mail --error 'connection refused'",
        "taskyard dead purge mail --reason 'failures used up' --yes",
    )
    add = subcommands(result)
    listing = add(
        "list",
        "List the dead letters of a queue, the oldest first. Without a queue: how many each has.",
        "taskyard dead list",
        "taskyard dead list mail --name send --json",
        run=show_all,
    )
    listing.add_argument("queue", nargs="?", metavar="QUEUE")
    _add_selection(listing)
    add_limit(listing)
    showing = add(
        "show",
        "Show why jobs of a queue died, by reason. With an id: all about this one.",
        "taskyard dead show mail",
        "taskyard dead show mail 42",
        run=show,
    )
    showing.add_argument("queue", metavar="QUEUE")
    showing.add_argument("job", nargs="?", metavar="JOB", help="its id or uid")
    replaying = add(
        "replay",
        "Give dead letters another life, with their counts at zero: those that are named, those "
        "that fit, or --all.",
        "taskyard dead replay mail 42 43",
        "taskyard dead replay mail --error timeout --yes",
        "taskyard dead replay mail --all",
        run=replay,
    )
    purging = add(
        "purge",
        "Remove dead letters: those that are named, those that fit, or --all.",
        "taskyard dead purge mail 42",
        "taskyard dead purge mail --all --yes",
        run=purge,
    )
    for each in (replaying, purging):
        each.add_argument("queue", metavar="QUEUE")
        each.add_argument("ids", nargs="*", type=int, metavar="ID")
        each.add_argument("--all", action="store_true", help="all dead letters of the queue")
        _add_selection(each)
        add_yes(each)
    return result


def _add_selection(parser: CommandParser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="those that died for exactly this reason")
    parser.add_argument("--error", metavar="TEXT", help="those whose error has this in it")
    parser.add_argument("--name", metavar="NAME", help="those of this name")


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(made, insert_default_command(made, "list", argv, _COMMANDS))


def show_all(session: Context) -> None:
    if session.arguments.queue is None:
        if _is_selective(session):
            raise CommandFailed("name the queue whose dead letters you want to see.", USAGE)
        queues = session.pages("/queues", "queues")
        rows = (queue for queue in queues if queue["counts"]["failed"])
        session.out.print_items(QUEUES, rows, "There are no dead letters.")
        return
    most = limit_of(session.arguments)
    session.out.print_limited_items(DEAD, _selected(session), most, _nothing_found(session))


def _nothing_found(session: Context) -> str:
    return f"{session.arguments.queue} has no {'such ' * _is_selective(session)}dead letters."


def show(session: Context) -> None:
    arguments = session.arguments
    if arguments.job is not None:
        job = session.api("GET", path("jobs", arguments.job))
        if job["state"] != "failed" or job["queue"] != arguments.queue:
            told = f"{job['state']} in {job['queue']}"
            raise CommandFailed(
                f"{arguments.job} is no dead letter of {arguments.queue}: it is {told}."
            )
        if session.out.json:
            session.out.print_object(job)
        else:
            show_job(session.out, job)
        return
    found = session.api("GET", session.queue_path(arguments.queue, "dead"))
    if session.out.json:
        session.out.print_object(found)
        return
    session.out.print_items(GROUPS, found["groups"], f"{arguments.queue} has no dead letters.")
    if not found["complete"]:
        session.out.print_note(
            f"Counted are the newest {found['scanned']:,} of {found['total']:,}."
        )


def replay(session: Context) -> None:
    _run_on_selection(session, "replay", "Replay", "replayed")


def purge(session: Context) -> None:
    _run_on_selection(session, "purge", "Remove", "removed")


def _run_on_selection(session: Context, route: str, verb: str, done: str) -> None:
    """`done`: what the answer calls it, and the sentence."""
    name = session.arguments.queue
    where = session.queue_path(name, "dead", route)
    label = f"{verb.lower().rstrip('e')}ing {name}"
    count = 0
    skipped: list[int] = []
    if _selects_all(session):
        some = _count_selected(session)
        confirm(session, f"{verb} {counted(some, 'dead letter')} of {name}")
        with _progress(session, label, some):
            count = session.long_api("POST", where, _run_on_all(session, route))[done]
    else:
        ids = _chosen(session, verb)
        with ProgressBar(label, len(ids)) as progress:
            for at in range(0, len(ids), PAGE_ITEMS):
                answer = session.long_api("POST", where, {"ids": ids[at : at + PAGE_ITEMS]})
                count += answer[done]
                skipped += answer["skipped"]
                progress.done = at + PAGE_ITEMS
    session.out.print_result(
        {"queue": name, done: count, "skipped": skipped},
        f"{name}: {counted(count, 'dead letter')} {done}.{_describe_skipped(skipped)}",
    )
    if skipped and not count:
        raise CommandFailed("none of these is a dead letter of this queue.")


# Which ones


def _is_selective(session: Context) -> bool:
    given = session.arguments
    return given.reason is not None or given.error is not None or given.name is not None


def _selects_all(session: Context) -> bool:
    """Whether the server can pick them itself."""
    given = session.arguments
    if sum((bool(given.ids), given.all, _is_selective(session))) != 1:
        raise CommandFailed(
            "say which: ids, or --all, or some of --reason, --error and --name.",
            USAGE,
        )
    return not given.ids and given.error is None and given.name is None


def _run_on_all(session: Context, route: str) -> dict[str, Any]:
    reason = session.arguments.reason
    body: dict[str, Any] = {} if reason is None else {"reason": reason}
    return {"all": True, **body} if route == "replay" else body


def _selected(session: Context) -> Iterator[Any]:
    given = session.arguments
    where = session.queue_path(given.queue, "dead", "jobs")
    for job in session.pages(where, "jobs", reason=given.reason):
        if given.name is not None and job["name"] != given.name:
            continue
        if given.error is not None and given.error not in format_in_one_line(job["error"]):
            continue
        yield job


def _chosen(session: Context, verb: str) -> list[int]:
    """The ids that were given, or those that fit, once that was confirmed."""
    given = session.arguments
    if given.ids:
        if verb == "Remove":
            confirm(session, f"Remove {counted(len(given.ids), 'dead letter')} of {given.queue}")
        return list(dict.fromkeys(given.ids))
    with ProgressBar(f"looking through {given.queue}"):
        ids = [job["id"] for job in _selected(session)]
    if not ids:
        raise CommandFailed(f"{given.queue} has no such dead letters.", REFUSED)
    confirm(session, f"{verb} {counted(len(ids), 'dead letter')} of {given.queue}")
    return ids


def _count_selected(session: Context) -> int:
    reason = session.arguments.reason
    found = session.api("GET", session.queue_path(session.arguments.queue, "dead"))
    if reason is None:
        return int(found["total"])
    return sum(group["count"] for group in found["groups"] if group["reason"] == reason)


# Doing it


def _progress(session: Context, label: str, count: int) -> ProgressBar:
    before = _count_selected(session)
    return ProgressBar(label, count, measure=lambda: max(0, before - _count_selected(session)))


def _describe_skipped(skipped: list[int]) -> str:
    if not skipped:
        return ""
    shown = ", ".join(map(str, skipped[:10])) + (", ..." if len(skipped) > 10 else "")
    return f" No dead letters of it, so left alone: {shown}."
