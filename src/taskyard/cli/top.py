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
from taskyard.cli.failure import USAGE, Failure
from taskyard.cli.main import Parser
from taskyard.cli.session import Session
from taskyard.cli.style import Style, is_terminal
from taskyard.cli.top_model import SORTS, Look, Model
from taskyard.cli.top_screen import View, draw
from taskyard.cli.units import seconds_of

if TYPE_CHECKING:
    from taskyard.cli.terminal import Terminal
    from taskyard.cli.top_source import TopSource

_NAMES: Final = 20  # shown to programs, of the slowest and of the failing
_ONCE_ROWS: Final = 40
_PAGE: Final = 10  # rows


def parser() -> Parser:
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


def watch(session: Session) -> None:
    given = session.arguments
    interval = seconds_of(given.interval, "--interval")
    if interval < 0.1:
        raise Failure("--interval must be at least 100ms.", USAGE)
    from taskyard.cli.top_source import TopSource

    plain = given.once or given.json
    if not plain and not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise Failure("this needs a terminal; use --once or --json without one.", USAGE)
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


def _print(session: Session, source: TopSource, interval: float) -> None:
    """Two looks make rates; programs get a line for each further one."""
    given = session.arguments
    model = Model()
    model.update(source.look())
    while True:
        time.sleep(min(interval, 1.0) if given.once else interval)
        model.update(source.look())
        with source.lock:
            if given.json:
                session.out.object(_shown(model, source))
            else:
                _print_frame(session, model, source)
        session.out.flush()
        if given.once:
            return


def _print_frame(session: Session, model: Model, source: TopSource) -> None:
    given = session.arguments
    columns = shutil.get_terminal_size((80, 24)).columns
    view = View(sort=given.sort, filter=given.filter)
    lines = draw(model, source.names, view, columns, _ONCE_ROWS, Style(sys.stdout))[:-1]
    # The parts have the room of a screen; blank rows between them are of no use on paper.
    shown = [line for line, after in zip(lines, [*lines[1:], ""], strict=True) if line or after]
    print("\n".join(shown))


def _shown(model: Model, source: TopSource) -> dict[str, Any]:
    return {
        **model.shown(),
        "slowest": [figures.shown() for figures in source.names.slowest(_NAMES)],
        "failing": [figures.shown() for figures in source.names.failing(_NAMES)],
    }


class _Screen:
    """One thread looks, this one draws and reads keys."""

    def __init__(self, session: Session, source: TopSource, interval: float) -> None:
        given = session.arguments
        self._source = source
        self._interval = interval
        self._model = Model()
        self._view = View(sort=given.sort, filter=given.filter)
        self._style = Style(sys.stdout)
        self._looks: SimpleQueue[Look | str] = SimpleQueue()
        self._over = threading.Event()
        self._ended = False

    def run(self) -> None:
        from taskyard.cli.terminal import Terminal

        with Terminal() as terminal:
            looking = threading.Thread(target=self._look, args=(terminal,), daemon=True)
            looking.start()
            try:
                while not self._ended:
                    self._draw(terminal)
                    for key in terminal.keys(None):
                        self._press(key)
                    self._take()
            finally:
                self._over.set()

    def _look(self, terminal: Terminal) -> None:
        from taskyard.client.errors import ClientError

        while not self._over.is_set():
            begun = time.monotonic()
            try:
                self._looks.put(self._source.look())
            except (ClientError, Failure) as error:
                self._looks.put(str(error))
            terminal.wake()
            self._over.wait(max(0.05, self._interval - (time.monotonic() - begun)))

    def _take(self) -> None:
        while True:
            try:
                found = self._looks.get_nowait()
            except Empty:
                return
            if self._view.paused:
                continue
            if isinstance(found, Look):
                self._model.update(found)
            else:
                self._model.trouble = found

    def _draw(self, terminal: Terminal) -> None:
        columns, rows = terminal.size()
        with self._source.lock:
            lines = draw(self._model, self._source.names, self._view, columns, rows, self._style)
        terminal.show(lines)

    # Keys

    def _press(self, key: str) -> None:
        view = self._view
        if key == "interrupt":
            self._ended = True
        elif view.typing:
            self._type(key)
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
            self._scroll(key)

    def _type(self, key: str) -> None:
        view = self._view
        if key == "enter":
            view.typing = False
        elif key == "escape":
            view.typing, view.filter = False, ""
        elif key == "backspace":
            view.filter = view.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            view.filter += key

    def _scroll(self, key: str) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -_PAGE, "page down": _PAGE}
        if key in steps:
            self._view.first = max(0, self._view.first + steps[key])
        elif key == "home":
            self._view.first = 0
        elif key == "end":
            self._view.first = sys.maxsize
