"""A fixed set of seeds: whole servers, crowds of clients, everything that can go wrong."""

import pytest
from simulation.draws import draw_plan
from simulation.simulate import simulate
from support.effort import effort

SEEDS = effort(400, 60)
# What long runs have found, each in a few steps that hardly ever come together: a job that comes
# twice to one who finishes it by its number, a disk that fails once under a look at a job,
# clients who go on in the middle of the last flush, a clock that is set beyond the end of a value,
# a handshake that reaches a server about to stop, a push with a delay that is sent again to a
# server whose clock is behind, and a job of Masenko in its dead queue that is lost with a
# connection, and then asked for by its uid in Workq.
FOUND = (5155, 5220, 5693, 10520, 10674, 10984, 13907)


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_nothing_is_lost_and_nothing_invented(seed: int) -> None:
    outcome = simulate(draw_plan(seed))
    assert not outcome.failure, "\n".join([outcome.failure, *outcome.trace[-60:]])


def test_a_thousand_connections_are_open_at_once() -> None:
    plan = draw_plan(7)
    assert plan.idlers > 1000
    outcome = simulate(plan)
    assert not outcome.failure
    assert outcome.connections > 1000
