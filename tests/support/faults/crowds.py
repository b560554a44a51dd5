"""The crowd of all protocols as it behaves towards a real server, and how it is drained there."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from support.drill.crowd import WORKERS, ClientPopulation
from support.drill.drain import DrainWorker
from support.drill.habits import EVERY_QUEUE, DriverOptions
from support.faults.storm import LISTENERS
from support.process import ServerProcess
from support.sockets import HANG_GUARD
from support.talk import ProtocolDriver
from support.waiting import wait_for

DEFAULT_TTR = 1.0  # seconds, to be waited for at the end of a run
FLAGS = ("--default-ttr", f"{DEFAULT_TTR}s", "--heartbeat", "1h")
HABITS = DriverOptions(
    longest_delay=0.3,
    largest_payload=2000,
    short_ttr=0.2,
    long_ttr=1.0,
    short_ttl=0.5,
    heartbeat=3600,
    retries=(0,),
    default_ttr=DEFAULT_TTR,
    narrow_rate=(400, 2.0),
    disk_fails=True,
)

WAIT_MS = 2  # of a take, so long as there may be something
TRIES = 50

Connect = Callable[[tuple[str, int]], socket.socket]


def make_population(chance: Random) -> ClientPopulation:
    """For a server with FLAGS."""
    return ClientPopulation(chance, time.time, HABITS)


def drain_population(
    crowd: ClientPopulation, chance: Random, server: ServerProcess, connect: Connect
) -> None:
    """Take and finish whatever is there and will come, and settle the account."""
    # Whatever was held by others has come back by then, and what was delayed is due.
    until = time.monotonic() + crowd.habits.longest_wait()
    wait_for(lambda: time.monotonic() > until)
    crowd.settled()
    dialect = chance.choice(sorted(WORKERS))
    worker = WORKERS[dialect]("at the end", crowd.book, chance, crowd.habits)
    with TcpConnector(server, connect) as door:
        door.connect(dialect, worker)
        for _ in range(TRIES):
            take_all(door, worker)
            if not crowd.book.unfinished():
                break
        door.disconnect(worker)
        crowd.drain(door)
    crowd.check()


def take_all(door: TcpConnector, worker: DrainWorker) -> None:
    """Quicker than the crowd's own way, which waits a moment at each queue that is empty."""
    took = True
    while took:  # what is finished may release others
        took = False
        for queue in EVERY_QUEUE:
            door.exchange(worker, worker.take([queue], WAIT_MS))
            while held := worker.holds():
                took = True
                for lease in held:
                    door.exchange(worker, worker.finish(lease))
                door.exchange(worker, worker.take([queue], WAIT_MS))


class TcpConnector:
    """The way to a server that is left in peace."""

    def __init__(self, server: ServerProcess, connect: Connect) -> None:
        self._server = server
        self._connect = connect
        self._open: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._open.values():
            connection.close()

    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        connection = self._connect(self._server.address(LISTENERS.get(dialect, dialect)))
        connection.settimeout(HANG_GUARD)
        self._open[id(talk)] = connection

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        connection = self._open[id(talk)]
        connection.sendall(request)
        while not talk.is_idle():
            data = connection.recv(65_536)
            assert data, f"the server has closed the connection:\n{self._server.log_text()}"
            talk.receive(data)

    def wait(self, seconds: float) -> None:
        """It was waited for before."""

    def disconnect(self, talk: ProtocolDriver) -> None:
        talk.leave()
        self._open.pop(id(talk)).close()


def connect_here(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, HANG_GUARD)
