"""The power fails before and after each single operation of the disk: of a start, of work with
compaction and prepared segments, of a clean stop, and of the recovery from all that.
"""

import pytest
from simulation.draws import short_plan
from simulation.people import ClientMix
from simulation.run import Run
from simulation.simulate import every_point, points_of, simulate
from support.effort import LONG

from taskyard.journal.memory import POINTS

SHARE = 1 if LONG else 16  # of the points, one in so many


@pytest.mark.parametrize("sync_mode", ["inline", "thread"])
def test_a_power_cut_at_any_point_loses_nothing(sync_mode: str) -> None:
    points = points_of(short_plan(sync_mode))
    crashes: set[str] = set()
    for point in every_point(points, SHARE):
        plan = short_plan(sync_mode)
        plan.cut = point
        outcome = simulate(plan, ClientMix)
        assert not outcome.failure, (point, outcome.failure)
        crashes.update(outcome.crashes)
    assert {"before write", "after write", "before sync", "after sync"} <= crashes


def test_the_work_has_every_kind_of_operation() -> None:
    """So that the test above says what it seems to say."""
    run = Run(short_plan(), ClientMix)
    run.run()
    assert set(run.machine.kinds) == set(POINTS)
    assert run.outcome.connections > 10
