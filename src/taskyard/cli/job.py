"""`taskyard job`: shows a job with all that is known of it, retries, moves or cancels it."""

from collections.abc import Sequence
from typing import Any, Final

from taskyard.cli.ask import add_yes, confirm
from taskyard.cli.command import command_parser, insert_default_command, run_command, subcommands
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context, path
from taskyard.cli.shown import show_job

_COMMANDS: Final = ("show", "payload", "retry", "move", "priority", "cancel")


def parser() -> CommandParser:
    result = command_parser(
        "job",
        "One job, by its id or uid: show (which is done if no command is named), payload, retry, "
        "move, priority, cancel.",
        "taskyard job 42",
        "taskyard job show 6ba7b810-9dad-11d1-80b4-00c04fd430c8 --json",
        "taskyard job payload 42 > 42.bin",
        "taskyard job retry 42",
        "taskyard job move 42 other --front",
        "taskyard job cancel 42 --yes",
    )
    add = subcommands(result)
    showing = add("show", "Show a job.", "taskyard job show 42", run=show)
    printing = add(
        "payload",
        "Print the payload of a job, and nothing else.",
        "taskyard job payload 42 | jq .",
        run=payload,
    )
    retrying = add(
        "retry", "Make a delayed job or a dead letter ready.", "taskyard job retry 42", run=retry
    )
    moving = add(
        "move",
        "Put a ready, delayed or dead job into another queue.",
        "taskyard job move 42 other --front",
        run=move,
    )
    scoring = add(
        "priority",
        "Give a ready job another priority.",
        "taskyard job priority 42 7",
        run=rescore,
    )
    cancelling = add(
        "cancel",
        "Remove a job in whatever state. Jobs that wait for it fail.",
        "taskyard job cancel 42",
        run=cancel,
    )
    for each in (showing, printing, retrying, moving, scoring, cancelling):
        each.add_argument("job", metavar="JOB", help="its id or uid")
    moving.add_argument("queue", metavar="QUEUE", help="the other queue")
    moving.add_argument("--front", action="store_true", help="at its beginning, not at its end")
    scoring.add_argument("priority", metavar="N", type=int, help="higher first")
    add_yes(cancelling)
    return result


def main(argv: Sequence[str]) -> int:
    made = parser()
    return run_command(made, insert_default_command(made, "show", argv, _COMMANDS))


def show(session: Context) -> None:
    job = _job(session)
    if session.out.json:
        session.out.print_object(job)
    else:
        show_job(session.out, job)


def payload(session: Context) -> None:
    content = session.client.inspect(session.arguments.job).payload
    data = content.data if content is not None else None
    if data is None:
        raise CommandFailed("the payload is no longer on disk: compaction has taken the bytes.")
    session.out.print_bytes(data)


def retry(session: Context) -> None:
    job = session.api("POST", f"{_job_path(session)}/retry")
    session.out.print_result(job, f"{job['id']}: {job['state']} in {job['queue']}.")


def move(session: Context) -> None:
    arguments = session.arguments
    body = {"queue": session.queue_name(arguments.queue), "front": arguments.front}
    job = session.api("POST", f"{_job_path(session)}/move", body)
    session.out.print_result(job, f"{job['id']}: {job['state']} in {job['queue']}.")


def rescore(session: Context) -> None:
    job = session.api("PATCH", _job_path(session), {"priority": session.arguments.priority})
    session.out.print_result(job, f"{job['id']}: its priority is {job['priority']}.")


def cancel(session: Context) -> None:
    job = _job(session)
    told = f"the job {job['id']} ({job['name']}, {job['state']} in {job['queue']})"
    confirm(session, f"Cancel {told}")
    session.api("DELETE", _job_path(session))
    session.out.print_result(
        {"id": job["id"], "uid": job["uid"], "cancelled": True}, f"Cancelled {told}."
    )


def _job_path(session: Context) -> str:
    return path("jobs", session.arguments.job)


def _job(session: Context) -> dict[str, Any]:
    found: dict[str, Any] = session.api("GET", _job_path(session))
    return found
