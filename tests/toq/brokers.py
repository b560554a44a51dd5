"""The two servers that toq runs on, each a process that can be killed and started again."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from support.process import WarmServer
from support.waiting import wait_for

from taskyard.client.address import Address
from taskyard.client.connection import Connection, Reply, Word
from taskyard.client.errors import Unavailable

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class Broker(Protocol):
    """A server as a test sees it; both speak RESP."""

    name: str
    port: int

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class TaskyardBroker:
    name = "taskyard"

    def __init__(self, directory: Path) -> None:
        self.port = 0
        self._server = WarmServer(directory)

    @property
    def url(self) -> str:
        return f"taskyard://{HOST}:{self.port}"

    def start(self) -> None:
        self._server.restart()
        if not self.port:  # it stays the same from now on
            self.port = self._server.address("resp")[1]
            self._server.flags += ["--resp-port", str(self.port)]

    def kill(self) -> None:
        self._server.kill()


class RedisBroker:
    name = "redis"

    def __init__(self, directory: Path) -> None:
        self.port = 0
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def start(self) -> None:
        """On the port that it had; at first on a free one, which another may take before it."""
        if self.port:
            assert self._start(self.port)
            return
        while not self.port:
            port = free_port()
            if self._start(port):
                self.port = port

    def _start(self, port: int) -> bool:
        options = f"--bind {HOST} --port {port} --dir {self._directory} --hz 100"
        options += " --appendonly yes --appendfsync always --daemonize no"
        process = subprocess.Popen(
            ["redis-server", *options.split(), "--save", ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self._process = process
        wait_for(lambda: process.poll() is not None or self._answers(port))
        return process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self, port: int) -> bool:
        with contextlib.suppress(Unavailable), Connection(Address(HOST, port)) as connection:
            return connection.pipeline([("PING",)]) == [b"PONG"]
        return False


class Running:
    """A broker from entering the context to leaving it, and a plain client of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.name = broker.name
        self._client: Connection | None = None

    @property
    def url(self) -> str:
        return self.broker.url

    def __enter__(self) -> Self:
        self.broker.start()
        self._client = Connection(Address(HOST, self.broker.port))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            self._client.close()
        self.broker.kill()

    def ask(self, *words: Word) -> Reply:
        """The reply to a command that any program could send."""
        assert self._client is not None
        return self._client.call(*words, repeat=True)


BROKERS: dict[str, type[TaskyardBroker] | type[RedisBroker]] = {
    "taskyard": TaskyardBroker,
    "redis": RedisBroker,
}
