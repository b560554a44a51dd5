"""What a seed decides before a run begins: the settings of the server, and what will go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from simulation.agenda import SECOND
from simulation.crowd import Rules

from taskyard.server.settings.schema import Settings

HOUR = 3600 * SECOND


@dataclass(slots=True)
class Plan:
    """One run."""

    seed: int
    settings: Settings
    seconds: float = 20.0  # until the faults stop
    clients: int = 5  # at a time
    visits: int = 60  # connections in all
    idlers: int = 0  # connections on which next to nothing is said
    fault_rates: dict[str, float] = field(
        default_factory=dict
    )  # kinds of trouble, how often a minute
    script: tuple[tuple[float, str], ...] = ()  # trouble at fixed times
    cut: tuple[int, bool] | None = None  # a power cut at this operation of the disk; after it
    recovery_cuts: float = 0.2  # how often the power fails during a start
    gentle: bool = False  # clients leave only when all is answered
    largest_payload: int = 400

    def rules(self) -> Rules:
        settings = self.settings
        fails = any(self.fault_rates.get(kind) for kind in ("error", "full"))
        return Rules(
            durability=settings.durability,
            heartbeat=settings.heartbeat / SECOND,
            max_losses=settings.max_losses,
            workq_max_losses=settings.workq_max_losses,
            default_ttr=settings.default_ttr / SECOND,
            lease_ttr=settings.workq_lease_ttr,
            disk_fails=fails,
            largest_payload=self.largest_payload,
        )


TROUBLE = (
    "point",  # the power fails before or after some operation of the disk
    "power",  # the power fails between two things
    "kill",
    "stop",  # and start again
    "error",  # EIO or ENOSPC, once
    "short",  # a write that takes two
    "full",  # the disk, for a while
    "slow",  # the disk, for a while
    "clock",  # it is set
    "pause",  # the process is stopped for a while
    "suspend",  # the machine is
    "drop",  # connections are cut, and the two ends notice at different times
    "half-open",  # and the server does not notice
    "reset",  # by the client
)


def draw_settings(chance: Random) -> Settings:
    pick = chance.choice
    values: dict[str, Any] = {
        "durability": pick(("sync", "sync", "sync", "sync", "write", "memory")),
        "sync_mode": pick(("inline", "thread")),
        "segment_size": pick((8192, 16_384, 16_384, 65_536, 1 << 20)),
        "preallocate": pick(("zero", "reserve")),
        "payload_memory": pick((0, 0, 10_000, 1 << 22)),
        "payload_limit": 1 << 20,
        "output_limit": pick((4096, 65_536, 1 << 20)),
        "memory_limit": pick((1 << 20, 1 << 28)),
        "max_commands_per_second": pick((None, None, 500)),
        "stall_timeout": pick((2, 60)) * SECOND,
        "heartbeat": pick((2, 10, 45)) * SECOND,
        "compaction": pick((150, 200, 200, None)),
        "retain_bytes": pick((0, 0, 50_000, 1 << 30)),
        "retain_age": pick((0, 5 * SECOND, 72 * HOUR)),
        "finished_memory": pick((0, 20_000, 1 << 22)),
        "workq_lease_ttr": False,
        "max_losses": 0,
        "default_ttr": 5 * SECOND,
    }
    return Settings(**values)


def short_plan(sync_mode: str = "thread") -> Plan:
    """A little of everything, the same each time: for crashes at every point of it."""
    values: dict[str, Any] = {
        "sync_mode": sync_mode,
        "segment_size": 8192,
        "payload_memory": 0,
        "compaction": 150,
        "retain_bytes": 0,
        "heartbeat": 10 * SECOND,
        "default_ttr": 5 * SECOND,
        "max_losses": 0,
    }
    return Plan(
        seed=0,
        settings=Settings(**values),
        seconds=4.0,
        clients=5,
        visits=15,
        script=((1.2, "stop"), (2.0, "kill"), (2.4, "short")),
        recovery_cuts=0.0,
        largest_payload=1500,
    )


def draw_plan(seed: int) -> Plan:
    chance = Random(f"plan {seed}")
    settings = draw_settings(chance)
    weather = {kind: chance.choice((2.0, 6.0, 20.0)) for kind in TROUBLE if chance.random() < 0.4}
    clients = chance.choice((2, 4, 8, 16))
    many = seed % 25 == 7
    return Plan(
        seed,
        settings,
        seconds=chance.choice((5.0, 10.0, 20.0)),
        clients=clients,
        visits=clients * chance.choice((3, 8)),
        idlers=1200 if many else chance.choice((0, 0, 20)),
        fault_rates=weather,
        gentle=chance.random() < 0.2,
        recovery_cuts=chance.choice((0.0, 0.3, 0.6)),
        largest_payload=chance.choice((100, 400, 3000)),
    )
