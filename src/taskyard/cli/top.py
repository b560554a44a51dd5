"""`taskyard top`: a live view of queues, leases and names of tasks."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from taskyard.cli.command import command_parser, run_command
from taskyard.cli.failure import CommandFailed
from taskyard.cli.main import CommandParser
from taskyard.cli.session import Context
from taskyard.cli.style import Style, is_terminal
from taskyard.cli.top_model import SORTS, ServerSample, TopModel
from taskyard.cli.top_screen import ScreenView, draw
from taskyard.cli.units import seconds_of
from taskyard.shared.exit_codes import USAGE

if TYPE_CHECKING:
    from taskyard.cli.terminal import Terminal
    from taskyard.cli.top_source import TopSource

_NAMES: Final = 20  # shown to programs, of the slowest and of the failing
_ONCE_ROWS: Final = 40
_PAGE: Final = 10  # rows


def parser() -> CommandParser:
    result = command_parser(
        "top",
        "Watch a server live: queues with their rates, what is leased, which names are slow or "
        "fail, and how the journal is. Keys: q ends it, s sorts by the next column (S by the one "
        "before), / filters queues by name, p or space stops the view, arrows scroll.",
        "taskyard top",
        "taskyard top --sort dead --filter mail",
        "taskyard top --once",
        "taskyard top --json --interval 10s | jq .queues",
        run=watch,
    )
    result.add_argument(
        "--interval", default="2s", metavar="TIME", help="between two looks (default 2s)"
    )
    result.add_argument("--sort", choices=SORTS, default=SORTS[0], help="queues by what")
    result.add_argument("--filter", default="", metavar="TEXT", help="only queues with this in it")
    result.add_argument("--once", action="store_true", help="print it once, for scripts")
    result.add_argument("--http", metavar="URL", help="the HTTP listener, if not where it says")
    return result


def main(argv: Sequence[str]) -> int:
    return run_command(parser(), argv)


def watch(session: Context) -> None:
    given = session.arguments
    interval = seconds_of(given.interval, "--interval")
    if interval < 0.1:
        raise CommandFailed("--interval must be at least 100ms.", USAGE)
    from taskyard.cli.top_source import TopSource

    plain = given.once or given.json
    if not plain and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise CommandFailed("this needs a terminal; use --once or --json without one.", USAGE)
    source = TopSource(session, given.http)
    session.api("GET", "/queues", limit=1)  # refused before the screen is taken
    source.start()
    try:
        if plain:
            _print(session, source, interval)
        else:
            _Screen(session, source, interval).run()
    finally:
        source.close()


def _print(session: Context, source: TopSource, interval: float) -> None:
    """Two samples make rates; programs get a line for each further one."""
    given = session.arguments
    model = TopModel()
    model.update(source.sample())
    while True:
        time.sleep(min(interval, 1.0) if given.once else interval)
        model.update(source.sample())
        with source.lock:
            if given.json:
                session.out.print_object(_as_json(model, source))
            else:
                _print_frame(session, model, source)
        session.out.flush()
        if given.once:
            return


def _print_frame(session: Context, model: TopModel, source: TopSource) -> None:
    given = session.arguments
    columns = shutil.get_terminal_size((80, 24)).columns
    view = ScreenView(sort=given.sort, filter=given.filter)
    lines = draw(model, source.names, view, columns, _ONCE_ROWS, Style(sys.stdout))[:-1]
    # The parts have the size of a screen; blank rows between them are of no use on paper.
    shown = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if line or after]
    print("\n".join(shown))


def _as_json(model: TopModel, source: TopSource) -> dict[str, Any]:
    return {
        **model.as_json(),
        "slowest": [figures.as_json() for figures in source.names.slowest(_NAMES)],
        "failing": [figures.as_json() for figures in source.names.most_failing(_NAMES)],
    }


class _Screen:
    """One thread takes samples, this one draws and reads keys."""

    def __init__(self, session: Context, source: TopSource, interval: float) -> None:
        given = session.arguments
        self._source = source
        self._interval = interval
        self._model = TopModel()
        self._view = ScreenView(sort=given.sort, filter=given.filter)
        self._style = Style(sys.stdout)
        self._samples: SimpleQueue[ServerSample | str] = SimpleQueue()
        self._stopped = threading.Event()
        self._ended = False

    def run(self) -> None:
        from taskyard.cli.terminal import Terminal

        with Terminal() as terminal:
            looking = threading.Thread(target=self._poll_source, args=(terminal,), daemon=True)
            looking.start()
            try:
                while not self._ended:
                    self._draw(terminal)
                    for key in terminal.keys(None):
                        self._on_key(key)
                    self._apply_samples()
            finally:
                self._stopped.set()

    def _poll_source(self, terminal: Terminal) -> None:
        from taskyard.client.errors import ClientError

        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                self._samples.put(self._source.sample())
            except (ClientError, CommandFailed) as error:
                self._samples.put(str(error))
            terminal.wake()
            self._stopped.wait(max(0.05, self._interval - (time.monotonic() - begun)))

    def _apply_samples(self) -> None:
        while True:
            try:
                found = self._samples.get_nowait()
            except Empty:
                return
            if self._view.paused:
                continue
            if isinstance(found, ServerSample):
                self._model.update(found)
            else:
                self._model.last_error = found

    def _draw(self, terminal: Terminal) -> None:
        columns, rows = terminal.size()
        with self._source.lock:
            lines = draw(self._model, self._source.names, self._view, columns, rows, self._style)
        terminal.show(lines)

    # Keys

    def _on_key(self, key: str) -> None:
        view = self._view
        if key == "interrupt":
            self._ended = True
        elif view.typing:
            self._on_filter_key(key)
        elif key == "q":
            self._ended = True
        elif key in {"s", "S"}:
            step = 1 if key == "s" else -1
            view.sort = SORTS[(SORTS.index(view.sort) + step) % len(SORTS)]
            view.first = 0
        elif key == "/":
            view.typing = True
        elif key == "escape":
            view.filter = ""
        elif key in {"p", " "}:
            view.paused = not view.paused
        else:
            self._on_scroll_key(key)

    def _on_filter_key(self, key: str) -> None:
        view = self._view
        if key == "enter":
            view.typing = False
        elif key == "escape":
            view.typing, view.filter = False, ""
        elif key == "backspace":
            view.filter = view.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            view.filter += key

    def _on_scroll_key(self, key: str) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -_PAGE, "page down": _PAGE}
        if key in steps:
            self._view.first = max(0, self._view.first + steps[key])
        elif key == "home":
            self._view.first = 0
        elif key == "end":
            self._view.first = sys.maxsize
