"""What the clients of a drill have in common: queues, payloads, how large and long things are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

QUEUES: Final = ("low", "mid", "high")
NARROW: Final = "narrow"  # has at most so many jobs out at a time
DEAD: Final = "dead"  # where jobs go that name a queue for that
BOX: Final = "box"  # of Glovebox, which has made it with few retries; all others only take from it
EVERY_QUEUE: Final = (*QUEUES, NARROW, DEAD, BOX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """What jobs and requests are like: short times for real clocks, any for simulated ones."""

    longest_delay: float = 3.0  # seconds
    largest_payload: int = 400
    short_ttr: float = 0.5
    long_ttr: float = 60.0
    short_ttl: float = 2.0
    waits_ms: Sequence[int] = (1, 5, 50)
    heartbeat: float = 1000.0  # of Masenko's connections
    narrow: int = 2  # jobs of the narrow queue that may be out
    narrow_rate: tuple[int, float] = (40, 2.0)  # and how many may start in so many seconds
    retries: Sequence[int] = (0, 0, 1, 1, 2)  # of Masenko's tasks, which wait longer each time
    default_ttr: float = 60.0  # of the server, for jobs that have none
    workq_max_losses: int = 0
    lease_ttr: bool = False  # Workq's lease shows the ttr
    disk_fails: bool = False

    def longest_wait(self) -> float:
        """Seconds after which nothing is held any more by those who have gone, or delayed."""
        pause = float(max(self.retries) ** 4 + 1)
        return max(self.long_ttr, self.default_ttr, self.longest_delay, pause, self.short_ttr) + 1


def payload_of(token: str, largest: int) -> bytes:
    """What a job of this token carries, the same each time; JSON, so that all protocols can."""
    pad = "x" * Random(token).randint(0, largest)
    return json.dumps({"of": token, "pad": pad}, separators=(",", ":")).encode()


def token_of(payload: bytes) -> str:
    """Whose payload this is; raises what is wrong with it."""
    fields = json.loads(payload)
    token = fields["of"]
    assert isinstance(token, str), payload[:80]
    return token
