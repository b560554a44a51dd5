"""Takes the pictures of the README: scripts/screenshots.py, in a clone after `make demo`.

A server under the load of the demo is looked at, for real: its dashboard in Chromium, and
`taskyard top` in a terminal whose screen Chromium then shows.
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import shutil
import signal
import struct
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any, Final

import pyte
from playwright.sync_api import Browser, sync_playwright

from demo.__main__ import start_crews
from demo.crew import Shift
from demo.yard import Yard

IMAGES: Final = Path("docs/images")
WARM: Final = 75.0  # seconds of load before the pictures, so that plots have a shape
COLUMNS: Final = 110
LINES: Final = 30
_COLOURS: Final = {
    "default": "#d8dee9",
    "black": "#4c566a",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#ffffff",
}
_PAGE: Final = """<style>
body { margin: 0; background: #1b1f27; padding: 14px 18px; display: inline-block; }
pre { margin: 0; font: 14px/1.32 "DejaVu Sans Mono", monospace; color: #d8dee9; }
</style><pre>"""


def main() -> None:
    yard = Yard(Path("build/screenshots"))
    shift = Shift()
    try:
        yard.wait_until_ready()
        threads, _ = start_crews(yard, shift)
        screen = Terminal(["top", "--url", yard.addresses.url])
        time.sleep(WARM)
        with sync_playwright() as playwright:
            program = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-gpu"]
            )
            _dashboard(browser, yard.addresses.web, IMAGES / "dashboard.png")
            _terminal(browser, screen.as_html(), IMAGES / "top.png")
            browser.close()
        screen.close()
        shift.over.set()
        shift.home.set()
        for thread in threads:
            thread.join()
    finally:
        shift.over.set()
        shift.home.set()
        yard.stop()


def _dashboard(browser: Browser, address: str, out: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.goto(address)
    page.get_by_role("banner").get_by_text("Live", exact=True).wait_for()
    page.wait_for_timeout(3000)  # plots are drawn with the first looks
    page.screenshot(path=out)


def _terminal(browser: Browser, shown: str, out: Path) -> None:
    page = browser.new_page(viewport={"width": 1100, "height": 640})
    page.set_content(shown)
    page.locator("body").screenshot(path=out)


class Terminal:
    """`taskyard` with these arguments, in a terminal of its own."""

    def __init__(self, arguments: list[str]) -> None:
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._child, self._fd = pty.fork()
        if self._child == 0:
            environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
            command = [sys.executable, "-m", "taskyard", *arguments]
            os.execve(command[0], command, environment)
        size = struct.pack("HHHH", LINES, COLUMNS, 0, 0)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, size)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._fd, 65_536)
            except OSError:
                return
            with self._lock:
                self._stream.feed(data)

    def as_html(self) -> str:
        with self._lock:
            lines = [
                "".join(_span(self._screen.buffer[line][column]) for column in range(COLUMNS))
                for line in range(LINES)
            ]
        return _PAGE + "\n".join(lines) + "</pre>"

    def close(self) -> None:
        os.kill(self._child, signal.SIGTERM)
        os.waitpid(self._child, 0)


def _span(cell: Any) -> str:
    front, back = _colour(cell.fg), _colour(cell.bg) if cell.bg != "default" else "transparent"
    if cell.reverse:
        front, back = (back if back != "transparent" else "#1b1f27"), front
    style = f"color:{front};background:{back}" + (";font-weight:bold" if cell.bold else "")
    return f'<span style="{style}">{html.escape(cell.data)}</span>'


def _colour(name: str) -> str:
    plain = name.removeprefix("bright")
    return _COLOURS.get(plain, f"#{name}" if len(name) == 6 else _COLOURS["default"])


if __name__ == "__main__":
    main()
