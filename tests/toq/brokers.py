"""The two servers that toq runs on, each a process that can be killed and started again."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from support.listeners import KeptPort
from support.process import WarmServer
from support.waiting import wait_for

from taskyard import Client, Job, StaleLease
from taskyard.client.connection import Connection, Reply, Word
from taskyard.client.errors import Unavailable
from taskyard.client.url import Address

HOST = "127.0.0.1"


class Broker(Protocol):
    """A server as a test sees it; both speak RESP."""

    name: str
    port: int

    @property
    def url(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None:
        """It is not started again."""

    def end_leases(self, queue: str) -> None:
        """As if the time of all leases of this queue were over, which are long."""


class TaskyardBroker:
    name = "taskyard"

    def __init__(self, directory: Path) -> None:
        self._kept = KeptPort()
        self.port = self._kept.number
        self._server = WarmServer(directory, "--resp-port", str(self.port))

    @property
    def url(self) -> str:
        return f"taskyard://{HOST}:{self.port}"

    def start(self) -> None:
        self._server.restart()

    def kill(self) -> None:
        self._server.kill()

    def close(self) -> None:
        self.kill()
        self._kept.close()

    def end_leases(self, queue: str) -> None:
        with Client(self.url) as client:
            for held in list(client.leases(queue)):
                ref = f"{held.id}-1-{held.attempts}"  # of a server that was started once
                with contextlib.suppress(StaleLease):
                    client.extend(Job(ref, queue, b""), 0.001)


class RedisBroker:
    name = "redis"

    def __init__(self, directory: Path) -> None:
        self._kept = KeptPort()
        self.port = self._kept.number
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    def start(self) -> None:
        options = f"--bind {HOST} --port {self.port} --dir {self._directory} --hz 100"
        options += " --appendonly yes --appendfsync always --daemonize no"
        process = subprocess.Popen(
            ["redis-server", *options.split(), "--save", ""],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        self._process = process
        wait_for(lambda: process.poll() is not None or self._answers())
        assert process.poll() is None, "Redis has ended"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._kept.close()

    def end_leases(self, queue: str) -> None:
        """Those of all queues: it is consumers that live or not."""
        with Connection(Address(HOST, self.port)) as connection:
            keys = connection.call("KEYS", "toq:alive:*")
            assert isinstance(keys, list)
            for key in keys:
                assert isinstance(key, bytes)
                connection.call("DEL", key)

    def _answers(self) -> bool:
        with contextlib.suppress(Unavailable), Connection(Address(HOST, self.port)) as connection:
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
        self.broker.close()

    def ask(self, *words: Word) -> Reply:
        """The reply to a command that any program could send."""
        assert self._client is not None
        return self._client.call(*words, repeat=True)


BROKERS: dict[str, type[TaskyardBroker] | type[RedisBroker]] = {
    "taskyard": TaskyardBroker,
    "redis": RedisBroker,
}
