"""`taskyard schedules`: jobs that the server pushes again and again."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import command_parser, insert_default_command, run_command, subcommands
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context, path
from taskyard.cli.shown import now, show_payload
from taskyard.cli.table import Column
from taskyard.cli.units import backoff_of, counted, exact, local, seconds_of, since
from taskyard.shared.exit_codes import USAGE

_UNLIMITED_FAILS: Final = 2**32 - 1  # the most that the API knows
_COMMANDS: Final = ("list", "show", "set", "delete", "pause", "resume", "run")


def when(schedule: dict[str, Any]) -> str:
    if schedule["every"]:
        return f"every {exact(schedule['every'])}"
    return f"{schedule['cron']} {schedule['timezone']}"


COLUMNS: Final = (
    Column("SCHEDULE", lambda schedule: schedule["name"], flexible=True),
    Column("WHEN", when, flexible=True),
    Column("QUEUE", lambda schedule: schedule["queue"], flexible=True),
    Column(
        "NEXT",
        lambda schedule: "paused" if schedule["paused"] else since(schedule["next_at"], now()),
        style=lambda schedule: "yellow" if schedule["paused"] else "",
    ),
    Column("LAST", lambda schedule: _ago(schedule["last_at"])),
    Column("RUNS", lambda schedule: schedule["runs"], right=True),
    Column("SKIPPED", lambda schedule: schedule["skipped"], right=True),
)


def parser() -> CommandParser:
    result = command_parser(
        "schedules",
        "Jobs that the server pushes by itself: list (which is done if no command is named), show, "
        "set, delete, pause, resume, run.",
        "taskyard schedules",
        "taskyard schedules set nightly --cron '0 3 * * *' --timezone Europe/Berlin reports",
        "taskyard schedules set ping --every 30s health '{\"deep\": false}'",
        "taskyard schedules run nightly",
        "taskyard schedules pause nightly",
    )
    add = subcommands(result)
    add("list", "List schedules.", "taskyard schedules list --json", run=show_all)
    showing = add("show", "Show one schedule.", "taskyard schedules show nightly", run=show)
    setting = add(
        "set",
        "Create a schedule, or replace it: what is not named gets its default.",
        "taskyard schedules set nightly --cron '0 3 * * *' reports '{\"all\": true}'",
        "taskyard schedules set ping --every 30s --overlap skip health",
        run=change,
    )
    deleting = add(
        "delete", "Delete a schedule.", "taskyard schedules delete nightly --yes", run=delete
    )
    pausing = add(
        "pause", "Push no more jobs of a schedule.", "taskyard schedules pause nightly", run=pause
    )
    resuming = add(
        "resume", "Push its jobs again.", "taskyard schedules resume nightly", run=resume
    )
    running = add(
        "run",
        "Push one job of a schedule now, whatever its time, and print its id.",
        "taskyard schedules run nightly",
        run=run_now,
    )
    for each in (showing, setting, deleting, pausing, resuming, running):
        each.add_argument("name", metavar="NAME", help="of the schedule")
    _add_settings(setting)
    add_yes(deleting)
    return result


def _add_settings(parser: CommandParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="where its jobs go")
    parser.add_argument(
        "payload", nargs="?", metavar="PAYLOAD", help="of each job: JSON, or else text"
    )
    parser.add_argument("--cron", metavar="FIELDS", help="minute hour day month weekday")
    parser.add_argument("--every", metavar="TIME", help="a pause instead: 30s, 5m, 1d")
    parser.add_argument("--timezone", metavar="ZONE", help="of --cron, such as Europe/Berlin")
    parser.add_argument("--job-name", metavar="NAME", help="what to run")
    parser.add_argument("--priority", type=int, metavar="N", help="higher first")
    parser.add_argument(
        "--retries", type=int, metavar="N", help="tries after a failure (else 3); -1: without end"
    )
    parser.add_argument(
        "--backoff",
        metavar="TIME[,MOST]",
        help="wait after a failure, which doubles each time (else 1s,5m)",
    )
    parser.add_argument("--attempts", type=int, metavar="N", help="how often it may be taken")
    parser.add_argument("--dead-queue", metavar="QUEUE", help="where it goes when it has failed")
    parser.add_argument("--key", metavar="KEY", help="push nothing while a job of this key waits")
    parser.add_argument(
        "--limit-key", metavar="KEY", help="the limits of the queue for each key go by it"
    )
    parser.add_argument("--ttr", metavar="TIME", help="how long one lease lasts")
    parser.add_argument("--ttl", metavar="TIME", help="when job and result are forgotten")
    parser.add_argument(
        "--missed",
        choices=("once", "skip", "all"),
        help="push once, not at all, or once for each, for ticks while the server was down",
    )
    parser.add_argument(
        "--overlap", choices=("allow", "skip"), help="whether to push while the last one runs"
    )
    parser.add_argument("--paused", action="store_true", help="do not begin yet")


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(made, insert_default_command(made, "list", argv, _COMMANDS))


def show_all(session: Context) -> None:
    found = session.pages("/schedules", "schedules")
    session.out.print_items(COLUMNS, found, "There are no schedules.")


def show(session: Context) -> None:
    schedule = session.api("GET", _schedule_path(session))
    if session.out.json:
        session.out.print_object(schedule)
        return
    moment = now()
    pairs = [
        ("schedule", schedule["name"]),
        ("when", when(schedule)),
        ("state", "paused" if schedule["paused"] else "running"),
        ("next", local(schedule["next_at"], moment)),
        ("last", _last(schedule, moment)),
        ("refused", schedule.get("refused") or ""),
        ("runs", f"{schedule['runs']:,}" if schedule["runs"] else "none yet"),
        ("skipped", _skipped(schedule)),
        ("missed", f"{counted(schedule['missed_ticks'], 'tick')}; {_MISSED[schedule['missed']]}"),
        ("overlap", _OVERLAP[schedule["overlap"]]),
        ("set by", schedule.get("set_by") or ""),
        ("queue", schedule["queue"]),
        *(
            (title, text(schedule[name]))
            for name, title, text in _POLICY
            if schedule[name] is not None
        ),
        ("pauses", _pauses(schedule)),
    ]
    session.out.print_fields([(name, text) for name, text in pairs if text])
    show_payload(session.out, schedule["payload"])


_MISSED: Final = {
    "once": "for all that the server was down for, one job is pushed",
    "skip": "for those that the server was down for, no job is pushed",
    "all": "for each that the server was down for, a job is pushed",
}
_OVERLAP: Final = {
    "allow": "a job is pushed also while the last one runs",
    "skip": "no job is pushed while the last one has not ended",
}


def _most_retries(max_fails: int) -> str:
    if max_fails in (0, _UNLIMITED_FAILS):
        return "without end"
    return f"{max_fails - 1:,} at most" if max_fails > 1 else "none: the first failure is final"


def _pauses(schedule: dict[str, Any]) -> str:
    """Between the retries; nothing is shown where the queue decides."""
    kind = schedule["backoff"]
    if kind != "exponential":
        return {None: "", "none": "none: a retry is ready at once"}.get(kind, str(kind))
    first, most = schedule["backoff_base"], schedule["backoff_cap"]
    return f"{exact(first)}, then twice as long each time" + (
        f", up to {exact(most)}" if most else ""
    )


_POLICY: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("job_name", "job name", str),
    ("priority", "priority", str),
    ("ttr", "lease time", exact),
    ("ttl", "kept for", exact),
    ("max_attempts", "attempts", lambda most: f"{most:,} at most" if most else "without end"),
    ("max_fails", "retries", _most_retries),
    ("dead_queue", "dead queue", str),
    ("key", "key", str),
    ("limit_key", "limit key", str),
)


def _skipped(schedule: dict[str, Any]) -> str:
    count = schedule["skipped"]
    return f"{count:,}, since the last job had not ended" if count else "none"


def _last(schedule: dict[str, Any], moment: datetime) -> str:
    if not schedule["last_at"]:
        return "never"
    return f"{local(schedule['last_at'], moment)}, job {schedule['last_job']}"


def change(session: Context) -> None:
    schedule = session.api("PUT", _schedule_path(session), _settings(session))
    told = "paused" if schedule["paused"] else f"next {local(schedule['next_at'], now())}"
    session.out.print_result(schedule, f"{schedule['name']}: {when(schedule)}, {told}.")


def delete(session: Context) -> None:
    name = session.arguments.name
    session.api("GET", _schedule_path(session))  # refused before one is asked
    confirm(session, f"Delete the schedule {name}")
    session.api("DELETE", _schedule_path(session))
    session.out.print_result({"name": name, "deleted": True}, f"{name}: deleted.")


def pause(session: Context) -> None:
    schedule = session.api("POST", f"{_schedule_path(session)}/pause")
    session.out.print_result(schedule, f"{session.arguments.name}: paused.")


def resume(session: Context) -> None:
    schedule = session.api("POST", f"{_schedule_path(session)}/resume")
    told = local(schedule["next_at"], now())
    session.out.print_result(schedule, f"{session.arguments.name}: resumed, next {told}.")


def run_now(session: Context) -> None:
    pushed = session.api("POST", f"{_schedule_path(session)}/run")
    session.out.print_result(pushed, str(pushed["id"]))


# Their parts


def _schedule_path(session: Context) -> str:
    return path("schedules", session.arguments.name)


def _ago(moment: str | None) -> str:
    return f"{since(moment, now())} ago" if moment else "-"


def _settings(session: Context) -> dict[str, Any]:
    given = session.arguments
    if (given.cron is None) == (given.every is None):
        raise CommandFailed("give --cron or --every: one of them says when.", USAGE)
    found = {
        "queue": session.queue_name(given.queue),
        "cron": given.cron,
        "every": given.every and seconds_of(given.every, "--every"),
        "timezone": given.timezone,
        "name": given.job_name,
        "priority": given.priority,
        **_retries(given.retries, given.backoff),
        "max_attempts": given.attempts,
        "dead_queue": given.dead_queue and session.queue_name(given.dead_queue),
        "key": given.key,
        "limit_key": given.limit_key,
        "ttr": given.ttr and seconds_of(given.ttr, "--ttr"),
        "ttl": given.ttl and seconds_of(given.ttl, "--ttl"),
        "missed": given.missed,
        "overlap": given.overlap,
        "paused": given.paused or None,
        **_payload(given.payload),
    }
    return {name: value for name, value in found.items() if value is not None}


def _retries(retries: int | None, backoff: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if retries is not None:
        if retries < -1:
            raise CommandFailed("--retries must be -1 (without end), 0 or more.", USAGE)
        found["max_fails"] = retries + 1 if retries >= 0 else _UNLIMITED_FAILS
    if backoff is not None:
        first, most = backoff_of(backoff)
        found |= {"backoff": "exponential", "backoff_base": first, "backoff_cap": most}
    return found


def _payload(text: str | None) -> dict[str, Any]:
    import json

    if text is None:
        return {}
    try:
        return {"payload": json.loads(text)}
    except ValueError:
        return {"text": text}
