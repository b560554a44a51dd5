"""`taskyard events`: shows what happens to jobs, as it becomes durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.progress import ProgressBar
from taskyard.cli.session import Context
from taskyard.cli.style import Style, columns_of
from taskyard.cli.text import cut, escape_unsafe, pad
from taskyard.shared.exit_codes import REFUSED, USAGE

if TYPE_CHECKING:
    from taskyard.cli.event_stream import EventStream, ServerEvent

_MAX_LAST: Final = 20
_MAX_LOOK_BACK: Final = 10_000  # records that are searched for those that fit
_STYLES: Final = {
    "push": "green",
    "lease": "cyan",
    "finish": "green",
    "retry": "yellow",
    "release": "yellow",
    "fail": "red",
    "remove": "red",
}
_SHOWN_FIRST: Final = ("seq", "time", "event", "id", "queue", "name")
_LEFT_OUT: Final = {"dialect", "holder", "content", "epoch", "bound"}


def parser() -> CommandParser:
    result = command_parser(
        "events",
        "Show the last events, and with --follow what happens from now on; then a connection that "
        "is lost is made again, and nothing is left out.",
        "taskyard events --follow",
        "taskyard events -f --queue mail --event fail,retry",
        "taskyard events --last 1000 --json | jq -r .event | sort | uniq -c",
        "taskyard events -f --json --after 0",
        run=show,
    )
    result.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    result.add_argument(
        "--queue", action="append", default=[], metavar="QUEUE", help="only of this queue"
    )
    result.add_argument(
        "--event", action="append", default=[], metavar="KIND", help="only these: push,finish,fail"
    )
    result.add_argument("--job", type=int, metavar="ID", help="only of this job")
    result.add_argument(
        "--last", "-n", type=int, metavar="N", help="the last N (default 20; none with --follow)"
    )
    result.add_argument(
        "--after", metavar="ID", help="begin behind this event; 0: with the first that is kept"
    )
    result.add_argument("--count", type=int, metavar="N", help="end after so many")
    result.add_argument("--http", metavar="URL", help="the HTTP listener, if not where it says")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def show(session: Context) -> None:
    from taskyard.cli.event_stream import EventStream, HttpEndpoint

    given = session.arguments
    if given.last is not None and given.after is not None:
        raise CommandFailed("give --last or --after, not both.", USAGE)
    web = HttpEndpoint(session, given.http)
    with EventStream(web, persistent=given.follow) as stream:
        shown = _show_all(session, stream)
    if not shown and not given.follow:
        session.out.print_nothing_found("There are no such events.")


def _show_all(session: Context, stream: EventStream) -> int:
    given = session.arguments
    events = _until_end(stream.events(**_query(session)))
    fitting: Iterator[ServerEvent] = (event for event in events if _matches(session, event))
    if not given.follow and given.after is None:
        with ProgressBar("reading events"):
            fitting = iter(deque(fitting, _last_count(session)))
    style = Style(session.out.stream)
    shown = 0
    for event in fitting:
        _print(session, event, style)
        shown += 1
        if given.count is not None and shown >= given.count:
            break
    return shown


def _last_seq(session: Context) -> int | None:
    """Return the number of the last event; None for users that may not read it."""
    from taskyard.client.errors import Denied

    try:
        return int(session.api("GET", "/server")["journal"]["records"])
    except Denied:
        return None


def _last_count(session: Context) -> int:
    given = session.arguments
    if given.last is not None:
        return max(0, int(given.last))
    return 0 if given.follow else _MAX_LAST


def _query(session: Context) -> dict[str, str]:
    """Return the request to the server."""
    given = session.arguments
    last_seq = _last_seq(session)
    query = {}
    if given.queue:
        query["queue"] = ",".join(map(session.queue_name, given.queue))
    if given.event:
        query["event"] = ",".join(given.event)
    if not given.follow:
        query["until"] = "now" if last_seq is None else str(last_seq)
    last = _last_count(session)
    if last and (given.queue or given.event or given.job is not None):
        last = max(last, _MAX_LOOK_BACK)
    if given.after is not None:
        query["after"] = given.after
    elif last:
        query["after"] = "0" if last_seq is None else str(max(0, last_seq - last))
    return query


def _until_end(events: Iterator[ServerEvent]) -> Iterator[ServerEvent]:
    """Run up to the last requested event, or for ever."""
    for event in events:
        if event.kind == "end":
            return
        yield event


def _matches(session: Context, event: ServerEvent) -> bool:
    given = session.arguments
    if event.kind == "error":
        raise CommandFailed(f"{event.data.get('detail', 'the journal cannot be read')}.", REFUSED)
    if event.kind in {"left_behind", "timeline"}:
        return True
    return given.job is None or event.data.get("id") == given.job


def _print(session: Context, event: ServerEvent, style: Style) -> None:
    if session.out.json:
        session.out.print_object({"event_id": event.id, "event": event.kind, **event.data})
    else:
        text = _line(event.kind, event.data)
        if session.out.on_terminal:
            text = cut(text, columns_of(session.out.stream))
        kind = pad(event.kind, 9)
        print(
            text.replace(kind, style.paint(kind, _STYLES.get(event.kind, "")), 1),
            file=session.out.stream,
        )
    session.out.flush()


def _line(kind: str, data: dict[str, Any]) -> str:
    time = data.get("time")
    clock = f"{datetime.fromisoformat(time).astimezone():%H:%M:%S.%f}"[:-3] if time else " " * 12
    name = data.get("name", "")
    queue = data.get("queue", "")
    what = [str(data.get("id", "")), queue, name if name != queue else ""]
    rest = [f"{key}={value}" for key, value in data.items() if _is_shown(key, value)]
    return escape_unsafe(
        " ".join([clock, pad(kind, 9), *(word for word in (*what, *rest) if word)])
    )


def _is_shown(key: str, value: object) -> bool:
    if key in _SHOWN_FIRST or key in _LEFT_OUT:
        return False
    return value not in (None, "", 0, False, [])
