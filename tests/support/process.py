"""A server process to be started, killed and looked at, over and over on one data directory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.listeners import address_of, any_ports
from support.sockets import HANG_GUARD, POLL_INTERVAL, SocketPeer
from support.warm import WarmProcess


class ServerProcess:
    """`taskyard serve` with the given flags. Entering the context starts it and waits for it."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        prepare: Callable[[], None] | None = None,
        environment: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        self.data = directory / "data"
        self.ports_file = directory / "ports.json"
        self.log = directory / "server.log"
        self.flags = list(flags)
        self._wrapper = wrapper  # a command that becomes the one behind it
        self._prepare = prepare  # called in the child before it becomes the server
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None
        self._peers: list[SocketPeer] = []

    def __enter__(self) -> Self:
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    # Starting

    def spawn(self) -> None:
        """Start the process, with a log of its own, and wait for nothing."""
        command = [*self._wrapper, sys.executable, "-m", "taskyard", *self._arguments()]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                preexec_fn=self._prepare,  # noqa: PLW1509 (no thread of a test has a lock then)
            )

    def _arguments(self) -> list[str]:
        options = ["--data", str(self.data), "--ports-file", str(self.ports_file)]
        return ["serve", *options, *any_ports(self.flags), *self.flags]

    def start(self) -> None:
        """The same, and any ports file that comes is of this process."""
        self.ports_file.unlink(missing_ok=True)
        self.spawn()

    def wait_until_ready(self) -> None:
        self.wait_for(self.ports_file.exists)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until this is so; the server must go on running until then."""
        deadline = time.monotonic() + HANG_GUARD
        while not condition():
            assert self.is_running(), f"the server has ended:\n{self.log_text()}"
            assert time.monotonic() < deadline, f"in vain:\n{self.log_text()}"
            time.sleep(POLL_INTERVAL)

    def restart(self) -> None:
        """Start it again after its end."""
        self.start()
        self.wait_until_ready()

    # While it runs

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def address(self, dialect: str = "masenko") -> tuple[str, int]:
        return address_of(self.ports_file, dialect)

    def connect(self, dialect: str = "masenko") -> SocketPeer:
        peer = SocketPeer(self.address(dialect), self.address())
        self._peers.append(peer)
        return peer

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def log_entries(self) -> list[dict[str, Any]]:
        """The lines of a log in JSON, but for one that is still being written."""
        lines = self.log_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    # Ending

    def kill(self) -> None:
        """At once, with nothing said to anybody."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._hang_up()

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code, when it has ended."""
        assert self._process is not None
        try:
            return self._process.wait(HANG_GUARD)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server goes on running:\n{self.log_text()}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """As an operator would do it; gives the exit code."""
        self.tell(number)
        code = self.wait()
        self._hang_up()
        return code

    def _hang_up(self) -> None:
        while self._peers:
            self._peers.pop().close()


class WarmServer(ServerProcess):
    """One that is forked, not loaded, for tests that are not about how a server starts."""

    def __init__(self, directory: Path, *flags: str) -> None:
        super().__init__(directory, *flags)

    def spawn(self) -> None:
        self._process = WarmProcess(self._arguments(), self.log, "w")
