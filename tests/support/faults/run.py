"""A server under the load of a crowd, whatever is done to it, and the reckoning at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from support.drill.crowd import ClientPopulation
from support.faults import crowds
from support.faults.storm import Connect, TcpClientLoad, open_connection
from support.process import ServerProcess
from support.sockets import HANG_GUARD


class LoadedServer:
    def __init__(
        self, server: ServerProcess, crowd: ClientPopulation, storm: TcpClientLoad
    ) -> None:
        self.server = server
        self.crowd = crowd
        self.storm = storm
        self.wait = storm.wait
        self.wait_until = storm.wait_until

    def ended(self) -> None:
        """The server has ended, or is read-only and was stopped: all that it was told is open."""
        assert not self.server.is_running()
        self.storm.pause_clients()
        self.crowd.on_crash()

    def again(self) -> None:
        self.server.restart()
        self.storm.resume_clients()

    def kill(self) -> None:
        self.server.kill()
        self.ended()


@contextmanager
def under_load(
    server: ServerProcess,
    chance: Random,
    tally: Counter[str],
    *,
    clients: int = 10,
    connect: Connect = open_connection,
    connect_at_the_end: crowds.Connect = crowds.connect_here,
    patience: float = HANG_GUARD,
) -> Iterator[LoadedServer]:
    """The server must run when this is left; then everything is taken out of it."""
    crowd = crowds.make_population(chance)
    storm = TcpClientLoad(
        crowd, server.address, chance, clients, connect=connect, patience=patience
    )
    with storm:
        yield LoadedServer(server, crowd, storm)
        storm.pause_clients()
    crowds.drain_population(crowd, chance, server, connect_at_the_end)
    for name, count in crowd.counts().items():
        tally[f"jobs: {name}" if name != "crashes" else name] += count
    tally["replies"] += storm.replies
    tally["connections cut off"] += storm.cut_off
