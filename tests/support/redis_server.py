"""A real Redis in a process of its own, to hold the RESP listener against."""

import contextlib
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.resp import Address, SocketClient, ask, value
from support.sockets import HANG_GUARD, POLL_INTERVAL

HOST = "127.0.0.1"
TRIES = 10  # another process may take a free port before Redis does


class RedisServer:
    """`redis-server` on a free port, from entering the context to leaving it."""

    def __init__(self, directory: Path, append_only: bool = False) -> None:
        self._directory = directory
        self._append_only = append_only
        self._log = directory / "redis.log"
        self.address: Address = (HOST, 0)

    def __enter__(self) -> Self:
        for _ in range(TRIES):
            self._spawn()
            if self._answers():
                return self
        raise AssertionError(f"Redis did not start:\n{self._log.read_text()}")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(HANG_GUARD)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def connect(self) -> SocketClient:
        return SocketClient(self.address)

    def empty(self) -> None:
        with contextlib.closing(self.connect()) as client:
            assert ask(client, "FLUSHALL") == b"+OK\r\n"

    def _spawn(self) -> None:
        self.address = (HOST, free_port())
        options = {
            "bind": HOST,
            "port": str(self.address[1]),
            "dir": str(self._directory),
            "save": "",
            "appendonly": "yes" if self._append_only else "no",
            "appendfsync": "always",
            "daemonize": "no",
            "hz": "500",  # so that a wait of a millisecond takes two and not a hundred
        }
        arguments = [part for name, text in options.items() for part in (f"--{name}", text)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["redis-server", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _answers(self) -> bool:
        """Wait until it does; false if it has ended instead."""
        deadline = time.monotonic() + HANG_GUARD
        while self._process.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                if self._is_the_one_that_listens():
                    return True
            if time.monotonic() > deadline:
                self._process.kill()
            time.sleep(POLL_INTERVAL)
        return False

    def _is_the_one_that_listens(self) -> bool:
        with contextlib.closing(self.connect()) as client:
            told = value(ask(client, "INFO", "server"))
        is_text = isinstance(told, bytes)  # and not the refusal of one that is still loading
        return is_text and b"\r\nprocess_id:%d\r\n" % self._process.pid in told


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
