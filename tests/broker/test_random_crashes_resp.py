"""Clients of the RESP listener do anything, the power fails at any moment: is all there?

The whole broker on the simulated disk. Some clients have a database to themselves, of which a
model knows the exact contents; others share the jobs of some queues, of which a ledger knows what
they were told.
"""

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from support.crashing import Kind, SimulatedClientLoad, load_and_crash, make_yard
from support.effort import effort
from support.load_resp import TTR_MS, Crowd, Loners
from support.replies_resp import ask, command
from support.simulated import SimulatedServer

SEEDS = effort(60, 12)
LARGEST = 3000

Crash = Callable[[SimulatedServer, Random], None]


def survive_alone(yard: SimulatedServer, chance: Random, crash: Crash) -> None:
    loners = Loners(chance, LARGEST)

    def fall() -> None:
        crash(yard, chance)
        loners.look(yard.connect("resp"))

    kinds = [Kind("resp", loners.meet)]
    load_and_crash(
        yard, chance, partial(SimulatedClientLoad, yard, kinds, chance), fall, fault=False
    )
    loners.empty(yard.connect("resp"))


def survive_together(yard: SimulatedServer, chance: Random, crash: Crash) -> None:
    crowd = Crowd(chance, LARGEST)

    def fall() -> None:
        crowd.crashed(leases_end=True)
        crash(yard, chance)

    kinds = [Kind("resp", crowd.meet)]
    load_and_crash(
        yard, chance, partial(SimulatedClientLoad, yard, kinds, chance), fall, fault=False
    )
    yard.advance(2 * TTR_MS / 1000)
    crowd.take_everything(yard.connect("resp"))


def power_cut(yard: SimulatedServer, chance: Random) -> None:
    yard.crash(chance)


def kill(yard: SimulatedServer, chance: Random) -> None:
    yard.kill()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_lone_client_was_told_survives_power_cuts(seed: int) -> None:
    chance = Random(seed)
    survive_alone(make_yard(chance, seed), chance, power_cut)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_clients_were_told_of_shared_jobs_survives_power_cuts(seed: int) -> None:
    chance = Random(seed)
    survive_together(make_yard(chance, seed), chance, power_cut)


@pytest.mark.parametrize("durability", ["sync", "write"])
@pytest.mark.parametrize("seed", range(SEEDS // 6))
def test_what_was_told_survives_a_killed_process(seed: int, durability: str) -> None:
    chance = Random(seed)
    survive_alone(make_yard(chance, seed, durability), chance, kill)
    survive_together(make_yard(chance, seed, durability), chance, kill)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_jobs_of_one_command_survive_together_or_not_at_all(seed: int) -> None:
    chance = Random(seed)
    yard = make_yard(chance, seed)
    yard.scheduler.slow = True
    peer = yard.connect("resp")
    sizes = [chance.choice([1, 2, 40, 1000]) for _ in range(chance.randint(1, 4))]
    for number, size in enumerate(sizes):
        jobs = [word for _ in range(size) for word in (2, f"q{number}", chance.randbytes(50))]
        peer.arrive(command("JOB.PUSHALL", size, *jobs))
        for _ in range(chance.randint(0, 8)):
            if not yard.scheduler.step() and yard.scheduler.blocking:
                yard.scheduler.finish_blocking()
    told = peer.take().count(b"*")
    yard.crash(chance)
    yard.run_pending()
    peer = yard.connect("resp")
    for number, size in enumerate(sizes):
        there = ask(peer, "LLEN", f"q{number}")
        assert there == size or (number >= told and there == 0)
