"""The simulator finds bugs that were planted, within a few seeds."""

import pytest
from simulation.crowd import MakeClientSet
from simulation.drilled import history_checked_clients
from simulation.people import ClientMix
from simulation.planted import early_replies, lost_write, lying_disk, power_cut_plan
from simulation.run import Outcome
from simulation.simulate import Change, simulate

from taskyard.server.settings.schema import Durability

ENOUGH = 8  # seeds


def found(change: Change, durability: Durability, make_crowd: MakeClientSet) -> Outcome | None:
    """The first seed that fails."""
    for seed in range(ENOUGH):
        outcome = simulate(power_cut_plan(seed, durability), make_crowd, change)
        if outcome.failure:
            return outcome
    return None


@pytest.mark.parametrize(
    ("change", "durability", "make_crowd"),
    [
        (lying_disk, "sync", ClientMix),
        (lying_disk, "sync", history_checked_clients),
        (lost_write, "sync", ClientMix),
        (early_replies, "memory", ClientMix),
        (early_replies, "write", ClientMix),
    ],
)
def test_a_planted_bug_is_found(
    change: Change, durability: Durability, make_crowd: MakeClientSet
) -> None:
    outcome = found(change, durability, make_crowd)
    assert outcome is not None
    assert outcome.crashes.total()
    assert outcome.trace


@pytest.mark.parametrize("durability", ["sync", "write", "memory"])
def test_without_one_the_same_seeds_pass(durability: Durability) -> None:
    for seed in range(3):
        outcome = simulate(power_cut_plan(seed, durability), ClientMix)
        assert not outcome.failure
        assert outcome.crashes.total()
