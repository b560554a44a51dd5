"""`taskyard push`: pushes a job, or one for each line of a file."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.settings import SETTINGS
from taskyard.cli.units import backoff_of, counted, moment_of, seconds_of
from taskyard.shared.exit_codes import USAGE

if TYPE_CHECKING:
    from taskyard.client.views import Pushed

_JOBS_AT_ONCE: Final = 5_000  # jobs between two updates of the progress
_CHUNK_BYTES: Final = 1 << 20


def parser() -> CommandParser:
    result = command_parser(
        "push",
        "Push a job and print its id. The payload is the argument, as it is, or what is in a file "
        "or comes from the input. With --lines each line is a job.",
        'taskyard push mail \'{"to": "ada@example.com"}\'',
        "taskyard push thumbs --file a.png --delay 5m --retries 3 --backoff 2s,1m",
        "date | taskyard push log -",
        "taskyard push mail --lines --file addresses.txt",
        run=push,
    )
    result.other_commands = {
        setting.flag: f"it is a setting of queues: taskyard queues set QUEUE {setting.flag}"
        for setting in SETTINGS
    }
    result.add_argument("queue", metavar="QUEUE")
    result.add_argument(
        "payload", nargs="?", metavar="PAYLOAD", help="the payload; - for what the input has"
    )
    result.add_argument("--file", metavar="FILE", help="the file that has the payload, - for input")
    result.add_argument("--lines", action="store_true", help="push a job for each line")
    result.add_argument("--name", metavar="NAME", help="what to run (default: the queue's name)")
    result.add_argument("--priority", type=int, default=0, metavar="N", help="higher first")
    result.add_argument("--delay", metavar="TIME", help="not before so long from now: 30s, 5m, 1d")
    result.add_argument("--at", metavar="WHEN", help="not before this time: 2030-01-31T12:00")
    result.add_argument(
        "--uid", metavar="UUID", help="a uid of your own: pushed again, it is not pushed twice"
    )
    result.add_argument(
        "--key", metavar="KEY", help="push nothing if a job with this key waits in the queue"
    )
    result.add_argument("--limit-key", metavar="KEY", help="for whose limits it counts")
    result.add_argument(
        "--retries", type=int, metavar="N", help="tries after a failure (else 3); -1: without end"
    )
    result.add_argument(
        "--backoff",
        metavar="TIME[,MOST]",
        help="wait after a failure, which doubles each time (else 1s,5m)",
    )
    result.add_argument("--attempts", type=int, metavar="N", help="how often it may be taken")
    result.add_argument("--ttr", metavar="TIME", help="how long one lease lasts")
    result.add_argument("--ttl", metavar="TIME", help="when job and result are forgotten")
    result.add_argument(
        "--dead-queue", metavar="QUEUE", help="where it goes when it has failed for good"
    )
    result.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="JOB",
        help="a job that must succeed first, by id or uid; may be given again",
    )
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def push(session: Context) -> None:
    arguments = session.arguments
    options = _options(session)
    if arguments.lines:
        _push_lines(session, options)
        return
    payload = _payload(session)
    pushed = session.client.push(arguments.queue, payload, uid=arguments.uid, **options)
    if session.out.json:
        _print_pushed(session, pushed)
        return
    session.out.print_line(str(pushed.id))
    if not pushed.new:
        session.out.print_note("It was there already, and nothing was pushed.")


def _push_lines(session: Context, options: dict[str, Any]) -> None:
    arguments = session.arguments
    if arguments.uid is not None or arguments.key is not None:
        raise CommandFailed("--uid and --key name one job: they do not go with --lines.", USAGE)
    if arguments.payload not in {None, "-"}:
        raise CommandFailed("with --lines the payloads come from --file or from the input.", USAGE)
    queue = arguments.queue
    count = 0
    with _open_input(arguments.file) as file, _progress(session, _lines_in(file)) as bar:
        lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in file)
        while some := list(itertools.islice(lines, _JOBS_AT_ONCE)):
            for pushed in session.client.push_many(queue, some, **options):
                if session.out.json:
                    _print_pushed(session, pushed)
            count += len(some)
            bar.done = count
    if not session.out.json:
        session.out.print_line(f"{queue}: {counted(count, 'job')} pushed.")


def _progress(session: Context, total: int) -> ProgressBar:
    return ProgressBar(f"pushing to {session.arguments.queue}", total, streaming=session.out.json)


def _print_pushed(session: Context, pushed: Pushed) -> None:
    queue = session.arguments.queue
    session.out.print_object(
        {"id": pushed.id, "uid": pushed.uid, "queue": queue, "new": pushed.new}
    )


# What it is about


def _payload(session: Context) -> bytes:
    arguments = session.arguments
    if arguments.payload is not None and arguments.file is not None:
        raise CommandFailed("give the payload or --file, not both.", USAGE)
    if arguments.payload is None and arguments.file is None:
        if sys.stdin.isatty():
            raise CommandFailed("give a payload, --file, or - to type it (end with Ctrl-D).", USAGE)
        arguments.file = "-"
    if arguments.payload is not None and arguments.payload != "-":
        return os.fsencode(arguments.payload)
    with _open_input(arguments.file) as file:
        return file.read()


def _open_input(name: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if name is None or name == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    return open(name, "rb")


def _lines_in(file: BinaryIO) -> int:
    """0 if that cannot be known beforehand."""
    if not file.seekable():
        return 0
    start = file.tell()
    count = sum(chunk.count(b"\n") for chunk in _chunks(file))
    file.seek(start)
    return count


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


def _options(session: Context) -> dict[str, Any]:
    given = session.arguments
    if given.delay is not None and given.at is not None:
        raise CommandFailed("give --delay or --at, not both.", USAGE)
    found = {
        "name": given.name,
        "delay": given.delay and seconds_of(given.delay, "--delay"),
        "run_at": given.at and moment_of(given.at, "--at"),
        "unique": given.key,
        "limit_key": given.limit_key,
        "retries": given.retries,
        "backoff": given.backoff and backoff_of(given.backoff),
        "attempts": given.attempts,
        "ttr": given.ttr and seconds_of(given.ttr, "--ttr"),
        "ttl": given.ttl and seconds_of(given.ttl, "--ttl"),
        "dead_queue": given.dead_queue,
    }
    options = {name: value for name, value in found.items() if value is not None}
    return {**options, "priority": given.priority, "blocked_by": given.after}
