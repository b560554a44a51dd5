"""Several clients do anything, the power fails at any moment, again and again: is all there?

The whole broker on the simulated disk; the ledger has what the clients were told. A seed gives
the same run each time.
"""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from support.crashing import Client, Kind, SimulatedClientLoad, load_and_crash, make_yard
from support.effort import effort
from support.ledger import Ledger
from support.load import DEAD, QUEUES, Conversation
from support.simulated import SimulatedServer

SEEDS = effort(150, 24)
LONGEST_WAIT = 120  # seconds of the fake clock in which every delay and retry is over


def drain(yard: SimulatedServer, ledger: Ledger, chance: Random) -> None:
    """Take and finish everything, as one client that looks into every queue."""
    ledger.draining = True
    talk = conversation(yard, ledger, chance, "drain")
    client = Client(yard, "masenko", talk)
    for _ in range(LONGEST_WAIT):
        client.ask(talk.info())
        if not talk.waiting_jobs:
            return
        for queue in (*QUEUES, DEAD):
            while held_now(client, talk, yard, ledger, queue):
                for entry in ledger.held_by(talk.name):
                    client.ask(talk.finish(entry))
        yard.advance(1)
    raise AssertionError(f"{talk.waiting_jobs} jobs are there, and cannot be had")


def held_now(
    client: Client, talk: Conversation, yard: SimulatedServer, ledger: Ledger, queue: str
) -> bool:
    """Fetch one job of this queue, if there is one."""
    client.ask(talk.fetch(timeout_ms=1, queues=[queue]))
    yard.advance(0.002)
    client.read()
    return bool(ledger.held_by(talk.name))


def conversation(yard: SimulatedServer, ledger: Ledger, chance: Random, name: str) -> Conversation:
    return Conversation(ledger, chance, name, yard.now, largest_payload=3000)


def survive(yard: SimulatedServer, chance: Random, crash: Callable[[], None], fault: bool) -> None:
    """Storms, each ended by a crash, then a look at what is left."""
    ledger = Ledger()
    kinds = [Kind("masenko", partial(conversation, yard, ledger, chance))]

    def fall() -> None:
        ledger.crashed()
        crash()

    load_and_crash(
        yard, chance, partial(SimulatedClientLoad, yard, kinds, chance), fall, fault=fault
    )
    drain(yard, ledger, chance)
    ledger.check()


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
