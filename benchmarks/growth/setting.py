"""What all parts of the benchmark share: what is to be run, and how two loads take turns."""

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import rig
from benchmarks.patience import Patience

SHAPES: Final[dict[str, tuple[int, int]]] = {"50": (50, 1), "50 x 100 deep": (50, 100)}
WARMUP_SECONDS: Final = 0.5

Found = dict[str, Any]
"""What a part has measured, as it is written into its file."""


def say(text: str) -> None:
    print(text, flush=True)


@dataclass(frozen=True, slots=True)
class Setting:
    form: rig.Form
    durability: rig.Durability
    generator: rig.Generator
    directory: Path
    jobs: int
    """Of the deepest queue; other crowds are shares of it."""
    payload: int
    rounds: int
    seconds: float
    options: tuple[str, ...] = ()
    """More arguments of the server."""
    turns: int = 0
    """Rounds of two servers that are compared, which are further apart than what they tell; 0: as
    many as of everything else."""
    patience: Patience = field(default_factory=lambda: Patience(0.0, say))

    def server(
        self, *options: str, dialect: rig.Dialect = "masenko", first: bool = False
    ) -> rig.Taskyard:
        more = (*options, *self.options)
        return rig.Taskyard(self.form, self.durability, more, first=first, dialect=dialect)

    def load(self, shape: str, queues: int = 1) -> rig.Load:
        connections, depth = SHAPES[shape]
        return rig.Load(connections, depth, self.payload, queues)

    @property
    def bulk(self) -> rig.Load:
        """The load that fills a server quickest."""
        return self.load("50 x 100 deep")

    def part_of(self, share: float) -> int:
        """So many of the jobs; with fewer `--jobs` everything shrinks."""
        return max(round(self.jobs * share), 1)


def in_turns(setting: Setting, sides: Mapping[str, Callable[[], Found]]) -> dict[str, list[Found]]:
    """Each side once a round, the other one first in every second round."""
    found: dict[str, list[Found]] = {name: [] for name in sides}
    for number in range(setting.turns or setting.rounds):
        names = list(sides) if number % 2 == 0 else list(sides)[::-1]
        for name in names:
            taken, stolen = setting.patience.measure(name, sides[name])
            found[name].append({**taken, "stolen": stolen})
            say(f"  {name}: {taken['cycles_per_s']:,.0f} cycles/s")
    return found


def figures(run: rig.Measurement) -> Found:
    return {
        "cycles_per_s": run.cycles_per_s,
        "p99_us": run.latency_us["cycle"].p99,
        "server_cores": run.server_cores,
        "generator_cores": run.generator_cores,
    }


def comparison(name: str, many: Sequence[Found], few: Sequence[Found]) -> Found:
    """Much of something to little of it, round by round.

    A slow minute of the machine falls on both sides of one.
    """
    rounds = zip(many, few, strict=True)
    ratios = [one["cycles_per_s"] / other["cycles_per_s"] for one, other in rounds]
    return {"name": name, "ratios": ratios, "many": list(many), "few": list(few)}


def queue_counts(server: rig.RunningServer) -> list[dict[str, Any]]:
    """What INFO says of each queue, so that no figure is taken of a server that lost its jobs."""
    with socket.create_connection((rig.HOST, server.port), timeout=60.0) as connection:
        connection.sendall(b"INFO {}\n")
        reply = connection.makefile("rb").readline()
    if not reply.startswith(b"OK "):
        raise rig.BenchmarkError(f"INFO was answered with {reply[:200]!r}")
    queues: list[dict[str, Any]] = json.loads(reply[3:])["queues"]
    return queues


def expect_jobs(server: rig.RunningServer, state: str, jobs: int) -> None:
    """So many are in this state: `ready`, `delayed` or `to_ack`."""
    found = sum(queue[state] for queue in queue_counts(server))
    if found != jobs:
        raise rig.BenchmarkError(f"{found:,} jobs are {state}, and there should be {jobs:,}")
