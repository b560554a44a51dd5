"""A program that runs beside a test, with a log of its own: to be told, killed, waited for."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from support.sockets import HANG_GUARD
from support.waiting import wait_for


def state_of(process: int) -> str:
    """The letter that Linux has for it: T for one that is halted, and so on. Z, of one that has
    ended and that nobody has waited for, is "" here, as if it were gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0].replace("Z", "")


class Child:
    """A context, whose end kills it. What it does shows as files in its directory."""

    def __init__(
        self,
        directory: Path,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self._log = directory / f"child-{id(self)}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for_file(self, name: str) -> None:
        """Until something is written in it: who is killed before that has left no mark."""

        def there() -> bool:
            assert self.is_running(), f"it has ended:\n{self.log()}"
            path = self.directory / name
            return path.exists() and path.stat().st_size > 0

        wait_for(there)

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """The exit code."""
        return self._process.wait(HANG_GUARD)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return self._log.read_text(errors="replace")
