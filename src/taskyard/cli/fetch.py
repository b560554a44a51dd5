"""`taskyard fetch`: leases jobs and prints them, or runs a program for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.content import content_from_bytes, format_in_one_line
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.table import Column
from taskyard.cli.units import seconds_of, span
from taskyard.shared.exit_codes import DONE, NOTHING, REFUSED, USAGE

if TYPE_CHECKING:
    from taskyard.client.source import Job

_MAX_FETCH: Final = 1000  # what one command may take
_WAIT_S: Final = 60.0  # seconds that a program without an end waits in one request
COLUMNS: Final = (
    Column("REF", lambda job: job.ref),
    Column("QUEUE", lambda job: job.queue, flexible=True),
    Column("NAME", lambda job: job.name, flexible=True),
    Column("ATTEMPT", lambda job: job.attempt, right=True),
    Column("LEASE", lambda job: span(job.lease) if job.lease else "no end", right=True),
    Column(
        "PAYLOAD", lambda job: format_in_one_line(content_from_bytes(job.payload)), flexible=True
    ),
)


def parser() -> CommandParser:
    result = command_parser(
        "fetch",
        "Lease jobs and print them with their refs, for `taskyard ack` and `taskyard nack`. With "
        "--exec a program is run for each: it gets the payload on its input, and its exit code "
        "decides whether the job has succeeded. If there is no job, the exit code is 5.",
        "taskyard fetch mail",
        "taskyard fetch mail reports --count 10 --wait 30s --json",
        "taskyard fetch thumbs --ack --raw > a.png",
        "taskyard fetch mail --exec 'sendmail -t' --forever",
        run=fetch,
    )
    result.add_argument("queues", nargs="+", metavar="QUEUE", help="the first that has a job")
    result.add_argument("--count", type=int, default=1, metavar="N", help="up to so many jobs")
    result.add_argument(
        "--wait", default="0", metavar="TIME", help="how long to wait for the first (default: not)"
    )
    result.add_argument("--ttr", metavar="TIME", help="how long the leases last")
    result.add_argument("--ack", action="store_true", help="end them with success at once")
    result.add_argument(
        "--raw",
        action="store_true",
        help="print nothing but the payload, as it is; with --count, a newline behind each",
    )
    result.add_argument(
        "--exec",
        metavar="COMMAND",
        dest="program",
        help="run this by the shell for each job, one after the other",
    )
    result.add_argument(
        "--result",
        action="store_true",
        help="what the program prints is the result of the job",
    )
    result.add_argument("--forever", action="store_true", help="go on until Ctrl-C, with --exec")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def fetch(session: Context) -> int:
    given = session.arguments
    _check(session)
    if given.program is not None:
        return _run_program(session)
    jobs = _fetch_jobs(session, given.count, seconds_of(given.wait, "--wait"))
    if not jobs:
        return _raise_no_job(session)
    _print(session, jobs)
    session.out.flush()  # before they are ended: what was not printed is not lost
    if given.ack:
        for job in jobs:
            session.client.ack(job)
    return DONE


def _check(session: Context) -> None:
    given = session.arguments
    if not 1 <= given.count <= _MAX_FETCH:
        raise CommandFailed(f"--count must be from 1 to {_MAX_FETCH}.", USAGE)
    if given.program is None and (given.forever or given.result):
        raise CommandFailed("--forever and --result go with --exec.", USAGE)
    if given.program is not None and (given.ack or given.raw):
        raise CommandFailed("--exec ends the jobs itself: leave out --ack and --raw.", USAGE)


def _fetch_jobs(session: Context, count: int, wait: float) -> list[Job]:
    given = session.arguments
    ttr = given.ttr and seconds_of(given.ttr, "--ttr")
    with ProgressBar(f"waiting for a job in {', '.join(given.queues)}"):
        return session.client.fetch(*given.queues, count=count, wait=wait, ttr=ttr)


def _raise_no_job(session: Context) -> int:
    none = f"There is no job in {' or '.join(session.arguments.queues)}; --wait 1m waits for one."
    # Programs read the bytes of --raw, and know from the exit code.
    (session.out.print_note if session.arguments.raw else session.out.print_nothing_found)(none)
    return NOTHING


def _print(session: Context, jobs: list[Job]) -> None:
    given = session.arguments
    if session.out.json:
        for job in jobs:
            session.out.print_object(_job_json(job))
    elif given.raw:
        for job in jobs:
            session.out.print_bytes(job.payload + (b"\n" if given.count > 1 else b""))
    else:
        session.out.print_items(COLUMNS, jobs, "")


def _job_json(job: Job) -> dict[str, Any]:
    deadline = None
    if job.lease:
        until = datetime.now(UTC).timestamp() + job.lease
        deadline = datetime.fromtimestamp(until, UTC).isoformat().replace("+00:00", "Z")
    return {
        "ref": job.ref,
        "id": job.id,
        "uid": job.uid,
        "queue": job.queue,
        "name": job.name,
        "attempt": job.attempt,
        "fails": job.fails,
        "deadline": deadline,
        "payload": content_from_bytes(job.payload),
    }


def _run_program(session: Context) -> int:
    from taskyard.cli.shell_worker import ShellWorker

    given = session.arguments
    session.heartbeats = True
    worker = ShellWorker(session.client, given.program, keep_output=given.result)
    wait = _WAIT_S if given.forever else seconds_of(given.wait, "--wait")
    done = failed = 0
    while given.forever or done < given.count:
        jobs = _fetch_jobs(session, 1, wait)
        if not jobs and not given.forever:
            break
        for job in jobs:
            code = worker.run_job(job)
            done += 1
            failed += code != 0
            _print_outcome(session, job, code, worker.state)
    if not done:
        return _raise_no_job(session)
    return REFUSED if failed else DONE


def _print_outcome(session: Context, job: Job, code: int, state: str) -> None:
    value = {"ref": job.ref, "id": job.id, "queue": job.queue, "exit": code, "state": state}
    if session.out.json:
        session.out.print_object(value)
        session.out.flush()
    elif code:
        session.out.print_note(f"{job.ref}: exit code {code}, so the job is {state}.")
