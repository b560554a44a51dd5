"""Clients of several dialects share queues and do anything, and the server fails at any moment.

The whole broker on the simulated disk; the book has what the clients were told.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from support.crashing import CRASHES, STEPS, break_disk, make_yard
from support.drill.crowd import Crowd
from support.drill.glovebox import GloveboxTalk
from support.drill.habits import Habits
from support.drill.yard_http import connect_http
from support.effort import effort
from support.simulated import SimulatedPeer, SimulatedYard
from support.talk import Talk

SEEDS = effort(40, 10)


def connect(yard: SimulatedYard, dialect: str) -> SimulatedPeer:
    return connect_http(yard) if dialect in ("glovebox", "api") else yard.connect(dialect)


class Client:
    def __init__(self, yard: SimulatedYard, crowd: Crowd, name: str) -> None:
        dialect, self.talk = crowd.meet(name)
        self._crowd = crowd
        self._peer = connect(yard, dialect)

    def send(self, requests: int) -> None:
        if self._peer.reading and not self._peer.closed:
            self._peer.arrive(b"".join(self.talk.request() for _ in range(requests)))

    def read(self) -> None:
        self.talk.receive(self._peer.take())
        if isinstance(self.talk, GloveboxTalk):
            self._peer.arrive(self.talk.answer())

    def leave(self) -> None:
        """Go away, also in the middle of something."""
        self.read()
        if self.talk.is_idle():
            self.talk.leave()
        else:
            self._crowd.lost(self.talk)
        self._peer.close()

    def is_gone(self) -> bool:
        return self._peer.closed


class YardDoor:
    """The way into a yard that is left in peace."""

    def __init__(self, yard: SimulatedYard) -> None:
        self._yard = yard
        self._peers: dict[int, SimulatedPeer] = {}

    def enter(self, dialect: str, talk: Talk) -> None:
        self._peers[id(talk)] = connect(self._yard, dialect)

    def ask(self, talk: Talk, request: bytes) -> None:
        peer = self._peers[id(talk)]
        peer.send(request)
        talk.receive(peer.take())
        while not talk.is_idle():
            assert self._yard.scheduler.is_waiting(), "there is no answer"
            self._yard.advance(0.1)
            talk.receive(peer.take())

    def wait(self, seconds: float) -> None:
        self._yard.advance(seconds)

    def leave(self, talk: Talk) -> None:
        talk.leave()
        self._peers.pop(id(talk)).close()


def rage(yard: SimulatedYard, crowd: Crowd, chance: Random, name: str) -> None:
    """Clients come and go, up to the moment when the server fails."""
    met = chance.randint(1, 5)
    clients = [Client(yard, crowd, f"{name}-{each}") for each in range(met)]
    for _ in range(chance.randint(1, STEPS)):
        step(yard, crowd, chance, clients)
        for index, client in enumerate(clients):
            client.read()
            if client.is_gone():
                crowd.lost(client.talk)
                clients[index] = Client(yard, crowd, name)
    for client in clients:
        crowd.lost(client.talk)


def step(yard: SimulatedYard, crowd: Crowd, chance: Random, clients: list[Client]) -> None:
    action = chance.random()
    if action < 0.5:
        chance.choice(clients).send(chance.choice([1, 1, 1, 2, 6]))
    elif action < 0.7:
        yard.settle()
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


def survive(seed: int, fall: Callable[[SimulatedYard, Random], None], *, fault: bool) -> None:
    """Storms, each ended by a crash, some of them on a disk that fails; then a look at the rest."""
    chance = Random(seed)
    yard = make_yard(chance, seed)
    habits = Habits(largest_payload=chance.choice([40, 3000]), disk_fails=fault)
    crowd = Crowd(chance, yard.now, habits, sure_connections=not fault)
    slow = chance.random() < 0.7
    for number in range(CRASHES):
        yard.scheduler.slow = slow
        if fault:
            break_disk(yard, chance)
        rage(yard, crowd, chance, f"storm{number}")
        crowd.crashed()
        fall(yard, chance)
        crowd.started()
    crowd.drain(YardDoor(yard))
    crowd.check()


def cut_power(yard: SimulatedYard, chance: Random) -> None:
    yard.crash(chance)


def kill(yard: SimulatedYard, chance: Random) -> None:
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
