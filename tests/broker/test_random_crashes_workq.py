"""Clients of Workq do anything, the power fails at any moment, again and again: is all there?

The whole broker on the simulated disk; the ledger has what the clients were told.
"""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from support.crashing import Client, Kind, SimulatedClientLoad, load_and_crash, make_yard
from support.drain_workq import drain
from support.effort import effort
from support.ledger_workq import Ledger
from support.load_tasks import TaskWorker
from support.load_workq import Conversation, Habits
from support.simulated import SimulatedServer

SEEDS = effort(80, 16)


def survive(
    yard: SimulatedServer,
    chance: Random,
    crash: Callable[[], None],
    *,
    fault: bool = False,
    mixed: bool = False,
) -> None:
    """Storms, each ended by a crash, then a look at what is left."""
    ledger = Ledger()
    habits = Habits(largest_payload=3000, disk_fails=fault)
    kinds = [Kind("workq", partial(conversation, yard, ledger, chance, habits=habits))]
    if mixed:
        kinds.append(Kind("masenko", partial(task_worker, yard, ledger, chance)))

    def fall() -> None:
        ledger.crashed()
        crash()

    load_and_crash(
        yard, chance, partial(SimulatedClientLoad, yard, kinds, chance), fall, fault=fault
    )
    take_everything(yard, ledger, chance)
    ledger.check()


def take_everything(yard: SimulatedServer, ledger: Ledger, chance: Random) -> None:
    talk = conversation(yard, ledger, chance, "drain")
    client = Client(yard, "workq", talk)
    for request in drain(ledger, talk, wait_ms=1000, tries=5):
        client.ask(request)
        while not talk.is_idle():
            assert yard.scheduler.is_waiting(), "a request is not answered"
            yard.advance(0.1)
            client.read()


def conversation(
    yard: SimulatedServer,
    ledger: Ledger,
    chance: Random,
    name: str,
    *,
    habits: Habits | None = None,
) -> Conversation:
    return Conversation(ledger, chance, name, yard.now, habits)


def task_worker(yard: SimulatedServer, ledger: Ledger, chance: Random, name: str) -> TaskWorker:
    return TaskWorker(ledger, chance, name, yard.now)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_survives_power_cuts(seed: int) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed)
    survive(yard, chance, partial(yard.crash, chance))


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
    survive(yard, chance, yard.kill)


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_jobs_survive_power_cuts_under_workers_of_two_dialects(seed: int) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed)
    survive(yard, chance, partial(yard.crash, chance), mixed=True)
