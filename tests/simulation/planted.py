"""Bugs that are planted on purpose: a simulator that does not find them finds nothing."""

from __future__ import annotations

from dataclasses import replace

from simulation.draws import Plan, draw_plan
from simulation.run import Run

from taskyard.server.settings.schema import Durability


def lying_disk(run: Run) -> None:
    """A flush is reported as done, and nothing has happened."""
    run.machine.disk.ignore_syncs()


def lost_write(run: Run) -> None:
    """The journal has a hole where a frame should be."""
    run.machine.disk.lose_write(40)


def early_replies(run: Run) -> None:
    """Replies do not wait for the disk, though they are said to."""
    run.promises_sync = True


def power_cut_plan(seed: int, durability: Durability = "sync") -> Plan:
    """Power cuts, and nothing else that could be to blame."""
    plan = draw_plan(seed)
    plan.settings = replace(
        plan.settings, durability=durability, max_commands_per_second=None, segment_size=16_384
    )
    plan.fault_rates = {"power": 20.0, "point": 20.0}
    plan.seconds = 5.0
    plan.clients = 6
    plan.visits = 24
    plan.idlers = 0
    return plan
