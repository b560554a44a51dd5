"""The population of the drill on the simulated machine: its history checker has every rule."""

from __future__ import annotations

from simulation.crowd import ClientSet, SimulationContext
from support.drill.crowd import ClientPopulation as Drill
from support.drill.habits import DriverOptions


def history_checked_clients(world: SimulationContext) -> ClientSet:
    rules = world.settings
    habits = DriverOptions(
        largest_payload=rules.largest_payload,
        heartbeat=rules.heartbeat,
        default_ttr=rules.default_ttr,
        workq_max_losses=rules.workq_max_losses,
        lease_ttr=rules.lease_ttr,
        disk_fails=rules.disk_fails,
    )
    return Drill(world.chance, world.clock, habits, forgetful=rules.durability != "sync")
