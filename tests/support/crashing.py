"""Clients that come and go on a simulated server, which fails at any moment.

A seed gives the same run each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from support.simulated import SimulatedPeer, SimulatedServer
from support.talk import MakeDriver, ProtocolDriver

CRASHES = 3
STEPS = 80


class Client:
    """A talk and the simulated connection that carries it."""

    def __init__(self, yard: SimulatedServer, dialect: str, talk: ProtocolDriver) -> None:
        self._peer: SimulatedPeer = yard.connect(dialect)
        self.talk = talk

    def send(self, requests: int = 1) -> None:
        if self._peer.reading and not self._peer.closed:
            self._peer.arrive(b"".join(self.talk.request() for _ in range(requests)))

    def ask(self, request: bytes) -> None:
        self._peer.send(request)
        self.read()

    def read(self) -> None:
        self.talk.receive(self._peer.take())

    def leave(self) -> bool:
        """Go away, unless a reply is still to come."""
        self.read()
        if not self.talk.is_idle() or self._peer.closed:
            return False
        self.talk.leave()
        self._peer.close()
        return True


class Kind(NamedTuple):
    """A kind of clients that come."""

    dialect: str
    meet: MakeDriver


class SimulatedClientLoad:
    """One run of the server with clients that come and go, up to the moment it fails."""

    def __init__(
        self, yard: SimulatedServer, kinds: Sequence[Kind], chance: Random, number: int
    ) -> None:
        self._yard = yard
        self._kinds = kinds
        self._chance = chance
        self._number = number
        self._met = 0
        self._clients = [self._new_client() for _ in range(chance.randint(1, 4))]

    def run_steps(self) -> None:
        for _ in range(self._chance.randint(1, STEPS)):
            self._step()
            for client in self._clients:
                client.read()

    def _step(self) -> None:
        chance, yard = self._chance, self._yard
        action = chance.random()
        if action < 0.5:
            chance.choice(self._clients).send(chance.choice([1, 1, 1, 2, 6]))
        elif action < 0.7:
            yard.run_pending()
        elif action < 0.8:
            yard.scheduler.step()
        elif action < 0.9:
            self._disk_goes_on()
        elif action < 0.97:
            yard.advance(chance.choice([0.001, 0.1, 1.5]))
        elif self._clients[0].leave():
            self._clients[0] = self._new_client()

    def _disk_goes_on(self) -> None:
        if self._yard.scheduler.blocking:
            self._yard.scheduler.finish_blocking()

    def _new_client(self) -> Client:
        self._met += 1
        kind = self._chance.choice(self._kinds)
        talk = kind.meet(f"client{self._number}-{self._met}")
        return Client(self._yard, kind.dialect, talk)


def make_yard(chance: Random, seed: int, durability: str = "sync") -> SimulatedServer:
    return SimulatedServer(
        heartbeat=1000.0,
        durability=durability,
        spare=chance.random() < 0.5,
        inline_sync=chance.random() < 0.5,
        flushes_aside=chance.random() < 0.5,
        segment_size=chance.choice([4096, 16_384, 65_536]),  # small ones are compacted
        payload_memory=0,
        seed=seed,
    )


def load_and_crash(
    yard: SimulatedServer,
    chance: Random,
    storm: Callable[[int], SimulatedClientLoad],
    crash: Callable[[], None],
    *,
    fault: bool,
) -> None:
    """Storms, each ended by a crash, some of them on a disk that fails."""
    slow = chance.random() < 0.7
    for number in range(CRASHES):
        yard.scheduler.slow = slow
        if fault:
            break_disk(yard, chance)
        storm(number).run_steps()
        crash()


def break_disk(yard: SimulatedServer, chance: Random) -> None:
    """Some call will fail, if it comes to that."""
    operation = chance.choice(["write", "sync", "sync_directory", "create", "rename"])
    nth = chance.randint(1, 20 if operation in ("write", "sync") else 2)
    yard.disk.fail_call(operation, nth=nth, keep=chance.randint(0, 5000))
