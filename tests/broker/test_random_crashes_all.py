"""Clients of several protocols share queues and do anything, and the server fails at any moment.

The whole broker on the simulated disk; the history checker has what the clients were told.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from support.crashing import CRASHES, STEPS, break_disk, make_yard
from support.drill.crowd import ClientPopulation
from support.drill.glovebox import GloveboxDriver
from support.drill.habits import DriverOptions
from support.drill.yard_http import connect_http
from support.effort import effort
from support.simulated import SimulatedPeer, SimulatedServer
from support.talk import ProtocolDriver

SEEDS = effort(40, 10)


def connect(yard: SimulatedServer, dialect: str) -> SimulatedPeer:
    return connect_http(yard) if dialect in ("glovebox", "api") else yard.connect(dialect)


class Client:
    def __init__(self, yard: SimulatedServer, crowd: ClientPopulation, name: str) -> None:
        dialect, self.talk = crowd.add_client(name)
        self._crowd = crowd
        self._peer = connect(yard, dialect)

    def send(self, requests: int) -> None:
        if self._peer.reading and not self._peer.closed:
            self._peer.arrive(b"".join(self.talk.request() for _ in range(requests)))

    def read(self) -> None:
        self.talk.receive(self._peer.take())
        if isinstance(self.talk, GloveboxDriver):
            self._peer.arrive(self.talk.answer())

    def leave(self) -> None:
        """Go away, also in the middle of something."""
        self.read()
        if self.talk.is_idle():
            self.talk.leave()
        else:
            self._crowd.on_connection_lost(self.talk)
        self._peer.close()

    def is_gone(self) -> bool:
        return self._peer.closed


class SimulatedServerConnector:
    """The way into a simulated server that is left in peace."""

    def __init__(self, yard: SimulatedServer) -> None:
        self._yard = yard
        self._peers: dict[int, SimulatedPeer] = {}

    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        self._peers[id(talk)] = connect(self._yard, dialect)

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        peer = self._peers[id(talk)]
        peer.send(request)
        talk.receive(peer.take())
        while not talk.is_idle():
            assert self._yard.scheduler.is_waiting(), "there is no answer"
            self._yard.advance(0.1)
            talk.receive(peer.take())

    def wait(self, seconds: float) -> None:
        self._yard.advance(seconds)

    def disconnect(self, talk: ProtocolDriver) -> None:
        talk.leave()
        self._peers.pop(id(talk)).close()


def rage(yard: SimulatedServer, crowd: ClientPopulation, chance: Random, name: str) -> None:
    """Clients come and go, up to the moment when the server fails."""
    met = chance.randint(1, 5)
    clients = [Client(yard, crowd, f"{name}-{each}") for each in range(met)]
    for _ in range(chance.randint(1, STEPS)):
        step(yard, crowd, chance, clients)
        for index, client in enumerate(clients):
            client.read()
            if client.is_gone():
                crowd.on_connection_lost(client.talk)
                clients[index] = Client(yard, crowd, name)
    for client in clients:
        crowd.on_connection_lost(client.talk)


def step(
    yard: SimulatedServer, crowd: ClientPopulation, chance: Random, clients: list[Client]
) -> None:
    action = chance.random()
    if action < 0.5:
        chance.choice(clients).send(chance.choice([1, 1, 1, 2, 6]))
    elif action < 0.7:
        yard.run_pending()
    elif action < 0.8:
        yard.scheduler.step()
    elif action < 0.9:
        if yard.scheduler.blocking:
            yard.scheduler.finish_blocking()
    elif action < 0.97:
        yard.advance(chance.choice([0.001, 0.1, 0.1, 1.5]))
    else:
        number = chance.randrange(len(clients))
        clients[number].leave()
        clients[number] = Client(yard, crowd, "late")


def survive(seed: int, fall: Callable[[SimulatedServer, Random], None], *, fault: bool) -> None:
    """Storms, each ended by a crash, some of them on a disk that fails; then a look at the rest."""
    chance = Random(seed)
    yard = make_yard(chance, seed)
    habits = DriverOptions(largest_payload=chance.choice([40, 3000]), disk_fails=fault)
    crowd = ClientPopulation(chance, yard.now, habits, sure_connections=not fault)
    slow = chance.random() < 0.7
    for number in range(CRASHES):
        yard.scheduler.slow = slow
        if fault:
            break_disk(yard, chance)
        rage(yard, crowd, chance, f"storm{number}")
        crowd.on_crash()
        fall(yard, chance)
        crowd.on_server_started()
    crowd.drain(SimulatedServerConnector(yard))
    crowd.check()


def cut_power(yard: SimulatedServer, chance: Random) -> None:
    yard.crash(chance)


def kill(yard: SimulatedServer, chance: Random) -> None:
    yard.kill()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_told_is_true_after_power_cuts(seed: int) -> None:
    survive(seed, cut_power, fault=False)


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_what_was_told_is_true_after_a_killed_process(seed: int) -> None:
    survive(seed, kill, fault=False)


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_what_was_told_is_true_after_a_failing_disk(seed: int) -> None:
    survive(seed, cut_power, fault=True)
