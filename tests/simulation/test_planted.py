"""The simulator finds bugs that were planted, within a few seeds."""

import pytest
from simulation.crowd import MakeCrowd
from simulation.drilled import drilled
from simulation.people import People
from simulation.planted import early_replies, lost_write, lying_disk, stormy
from simulation.run import Outcome
from simulation.simulate import Change, simulate

from taskyard.server.settings.config import Durability

ENOUGH = 8  # seeds


def found(change: Change, durability: Durability, make_crowd: MakeCrowd) -> Outcome | None:
    """The first seed that fails."""
    for seed in range(ENOUGH):
        outcome = simulate(stormy(seed, durability), make_crowd, change)
        if outcome.failure:
            return outcome
    return None


@pytest.mark.parametrize(
    ("change", "durability", "make_crowd"),
    [
        (lying_disk, "sync", People),
        (lying_disk, "sync", drilled),
        (lost_write, "sync", People),
        (early_replies, "memory", People),
        (early_replies, "write", People),
    ],
)
def test_a_planted_bug_is_found(
    change: Change, durability: Durability, make_crowd: MakeCrowd
) -> None:
    outcome = found(change, durability, make_crowd)
    assert outcome is not None
    assert outcome.crashes.total()
    assert outcome.trace


@pytest.mark.parametrize("durability", ["sync", "write", "memory"])
def test_without_one_the_same_seeds_pass(durability: Durability) -> None:
    for seed in range(3):
        outcome = simulate(stormy(seed, durability), People)
        assert not outcome.failure
        assert outcome.crashes.total()
