"""Somebody who follows a page of the documents, in an empty directory of his own.

He has a terminal in which a server runs, another one for everything else, a Python that stays open
from one block to the next, and a browser at the address of the server.
"""

import fcntl
import os
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.browser import Page
from support.doc_sessions import (
    ROOT,
    RUN,
    commands,
    matches,
    run_python,
    run_shell,
    sessions,
    with_ports,
)
from support.process import ServerProcess
from support.sockets import HANG_GUARD

FILE = re.compile(r"# (\w+\.py)\n")
SERVE = ["taskyard", "serve"]
# Where the pages put things on a machine, and where he has them.
PLACES = {
    "/var/lib/taskyard-lake": "lake",
    "/var/lib/taskyard": "data",
    "/srv/lake": "lake",
    "/srv": "srv",
    "/etc/taskyard": "etc",
    "/backup": "backup",
}
# What is printed in the browser's console, line by line. A block is a program of its own, which may
# wait at its top level, as in the console.
IN_BROWSER = """(async () => {{
    const said = [];
    const console = {{log: (...words) => said.push(words.join(" ") + "\\n")}};
    {code}
    return said.join("");
}})()"""


class Reader:
    def __init__(
        self,
        directory: Path,
        *,
        browser: Callable[[], Page],
        skips: Callable[[str], bool],
        limit: float = HANG_GUARD,
        taskyard: Callable[[list[str]], int] | None = None,
    ) -> None:
        self.directory = directory
        self.names: dict[str, Any] = {"__name__": "docs"}
        self._server = ServerProcess(directory)
        self._browser = browser
        self._skips = skips  # which commands are not for him
        self._limit = limit
        self._taskyard = taskyard  # runs its command line, where that is not done in a shell

    def follow(self, page: Path, name: str) -> None:
        for line, language, written, expected in sessions(page, RUN):
            where = f"{name}:{line}"
            try:
                printed = self._do(language, written, where)
            except Exception as error:
                error.add_note(f"at {where}")
                raise
            if expected is not None:
                assert matches(expected, printed), f"{where} printed\n{printed}not\n{expected}"

    @property
    def url(self) -> str:
        return f"taskyard://127.0.0.1:{self._ports()['resp']}"

    def leave(self) -> None:
        if self._server.is_running():
            self._stop()
        for lock in self.directory.glob("*/lock"):
            end_server(lock)

    def _do(self, language: str, written: str, where: str) -> str:
        if language == "console":
            for command in commands(written):
                self._type_in(command)
            return ""
        code = self._here(written)
        if language == "sh":
            return self._shell(code)
        if language == "js":
            return self._in_browser(code)
        file = FILE.match(code)
        if file is not None:
            (self.directory / file[1]).write_text(code, encoding="utf-8")
            return ""
        return run_python(code, where, self.names)

    def _type_in(self, written: str) -> None:
        if self._skips(written):
            return
        words = shlex.split(written)
        if words[:2] == SERVE:
            self._serve(words[2:])
        elif words[0] == "taskyard" and self._taskyard is not None:
            assert self._taskyard([self._here(word) for word in words[1:]]) == 0
        elif words[0] == "make":
            run_shell(f"cd '{ROOT}' && {written}", self.directory, "", self._limit)
        else:
            self._shell(self._here(written), typed="hush hush\n")

    def _serve(self, flags: list[str]) -> None:
        """In the first terminal, in the place of the server that ran there."""
        if self._server.is_running():
            self._stop()
        if "--data" in flags:
            place = flags.index("--data")
            assert flags[place + 1] in ("data", "/var/lib/taskyard")
            del flags[place : place + 2]
        files = (".pem", ".key", ".toml")
        own = [self._own(flag) for flag in flags]
        self._server.flags = [
            str(self.directory / flag) if flag.endswith(files) else flag for flag in own
        ]
        self._server.restart()

    def _stop(self) -> None:
        assert self._server.stop() == 0, self._server.log_text()
        assert "Traceback" not in self._server.log_text(), self._server.log_text()

    def _shell(self, code: str, typed: str | None = None) -> str:
        return run_shell(code, self.directory, self.url, self._limit, typed)

    def _in_browser(self, code: str) -> str:
        page = self._browser()
        address = f"http://127.0.0.1:{self._ports()['http']}/healthz"
        page.call("Page.navigate", url=address)
        page.wait_for(f"location.href === '{address}' && document.readyState === 'complete'")
        ended = page.call(
            "Runtime.evaluate",
            expression=IN_BROWSER.format(code=code),
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in ended, ended["exceptionDetails"]
        return str(ended["result"]["value"])

    def _here(self, text: str) -> str:
        """The same with his own ports and places."""
        return with_ports(self._own(text), self._ports())

    def _own(self, text: str) -> str:
        for place, own in PLACES.items():
            text = text.replace(place, str(self.directory / own))
        return text

    def _ports(self) -> dict[str, int]:
        if not self._server.is_running():
            self._server.restart()
        names = ("masenko", "workq", "resp", "http")
        return {name: self._server.address(name)[1] for name in names}


def end_server(lock: Path) -> None:
    """That of a data directory, if the page has started one and left it running."""
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.kill(int(lock.read_text()), signal.SIGKILL)
