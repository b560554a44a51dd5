"""Several clients do anything, the power fails at any moment, again and again: is all there?

The whole broker on the simulated disk; the ledger has what the clients were told. A seed gives
the same run each time.
"""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from support.ledger import Ledger
from support.load import DEAD, QUEUES, Conversation
from support.simulated import SimulatedPeer, SimulatedYard

CRASHES = 3
STEPS = 80
SEEDS = 150
LONGEST_WAIT = 120  # seconds of the fake clock in which every delay and retry is over


class Client:
    """A conversation and the simulated connection that carries it."""

    def __init__(self, yard: SimulatedYard, ledger: Ledger, chance: Random, name: str) -> None:
        self._peer: SimulatedPeer = yard.connect()
        self._ledger = ledger
        self.conversation = Conversation(ledger, chance, name, yard.now, largest_payload=3000)

    def send(self, requests: int = 1) -> None:
        if self._peer.reading and not self._peer.closed:
            self._peer.arrive(b"".join(self.conversation.request() for _ in range(requests)))

    def ask(self, request: bytes) -> None:
        self._peer.send(request)
        self.read()

    def read(self) -> None:
        self.conversation.receive(self._peer.take())

    def leave(self) -> bool:
        """Go away, unless a reply is still to come."""
        self.read()
        if not self.conversation.is_idle() or self._peer.closed:
            return False
        self._ledger.leaving(self.conversation.name)
        self._peer.close()
        return True


class Storm:
    """One run of the server with clients that come and go, up to the moment it fails."""

    def __init__(self, yard: SimulatedYard, ledger: Ledger, chance: Random, number: int) -> None:
        self._yard = yard
        self._ledger = ledger
        self._chance = chance
        self._number = number
        self._met = 0
        self._clients = [self._new_client() for _ in range(chance.randint(1, 4))]

    def rage(self) -> None:
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
            yard.settle()
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
        name = f"client{self._number}-{self._met}"
        return Client(self._yard, self._ledger, self._chance, name)


def drain(yard: SimulatedYard, ledger: Ledger, chance: Random) -> None:
    """Take and finish everything, as one client that looks into every queue."""
    ledger.draining = True
    client = Client(yard, ledger, chance, "drain")
    talk = client.conversation
    for _ in range(LONGEST_WAIT):
        client.ask(talk.info())
        if not talk.waiting_jobs:
            return
        for queue in (*QUEUES, DEAD):
            while held_now(client, yard, ledger, queue):
                for entry in ledger.held_by(talk.name):
                    client.ask(talk.finish(entry))
        yard.advance(1)
    raise AssertionError(f"{talk.waiting_jobs} jobs are there, and cannot be had")


def held_now(client: Client, yard: SimulatedYard, ledger: Ledger, queue: str) -> bool:
    """Fetch one job of this queue, if there is one."""
    client.ask(client.conversation.fetch(timeout_ms=1, queues=[queue]))
    yard.advance(0.002)
    client.read()
    return bool(ledger.held_by(client.conversation.name))


def make_yard(chance: Random, seed: int, durability: str = "sync") -> SimulatedYard:
    return SimulatedYard(
        heartbeat=1000.0,
        durability=durability,
        spare=chance.random() < 0.5,
        inline_sync=chance.random() < 0.5,
        segment_size=chance.choice([4096, 16_384, 65_536]),  # small ones are compacted
        payload_memory=0,
        seed=seed,
    )


def survive(yard: SimulatedYard, chance: Random, crash: Callable[[], None], fault: bool) -> None:
    """Storms, each ended by a crash, then a look at what is left."""
    ledger = Ledger()
    slow = chance.random() < 0.7
    for number in range(CRASHES):
        yard.scheduler.slow = slow
        if fault:
            break_disk(yard, chance)
        Storm(yard, ledger, chance, number).rage()
        ledger.crashed()
        crash()
    drain(yard, ledger, chance)
    ledger.check()


def break_disk(yard: SimulatedYard, chance: Random) -> None:
    """Some call will fail, if it comes to that."""
    operation = chance.choice(["write", "sync", "sync_directory", "create", "rename"])
    nth = chance.randint(1, 20 if operation in ("write", "sync") else 2)
    yard.disk.fail(operation, nth=nth, keep=chance.randint(0, 5000))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_survives_power_cuts(seed: int) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed)
    survive(yard, chance, partial(yard.crash, chance), fault=False)


@pytest.mark.parametrize("seed", range(SEEDS // 3))
def test_what_was_acknowledged_survives_a_failing_disk(seed: int) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed)
    survive(yard, chance, partial(yard.crash, chance), fault=True)


@pytest.mark.parametrize("durability", ["sync", "write"])
@pytest.mark.parametrize("seed", range(SEEDS // 5))
def test_what_was_acknowledged_survives_a_killed_process(seed: int, durability: str) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed, durability)
    survive(yard, chance, yard.kill, fault=False)
