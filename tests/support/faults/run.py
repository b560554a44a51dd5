"""A server under the load of a crowd, whatever is done to it, and the reckoning at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from support.drill.crowd import Crowd
from support.faults import crowds
from support.faults.storm import Connect, Storm, open_connection
from support.process import ServerProcess
from support.sockets import HANG_GUARD


class Run:
    def __init__(self, server: ServerProcess, crowd: Crowd, storm: Storm) -> None:
        self.server = server
        self.crowd = crowd
        self.storm = storm
        self.wait = storm.wait
        self.wait_until = storm.wait_until

    def ended(self) -> None:
        """The server has ended, or is read-only and was stopped: all that it was told is open."""
        assert not self.server.is_running()
        self.storm.gather()
        self.crowd.crashed()

    def again(self) -> None:
        self.server.restart()
        self.storm.release()

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
) -> Iterator[Run]:
    """The server must run when this is left; then everything is taken out of it."""
    crowd = crowds.make_crowd(chance)
    storm = Storm(crowd, server.address, chance, clients, connect=connect, patience=patience)
    with storm:
        yield Run(server, crowd, storm)
        storm.gather()
    crowds.take_everything(crowd, chance, server, connect_at_the_end)
    for name, count in crowd.counts().items():
        tally[f"jobs: {name}" if name != "crashes" else name] += count
    tally["replies"] += storm.replies
    tally["connections cut off"] += storm.cut_off
