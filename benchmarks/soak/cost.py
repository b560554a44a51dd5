"""What compaction costs while it works: the same cycles where it has much to do and little.

Two servers take turns. One has nothing but the cycles themselves, so its old segments can go as
they are. The other keeps many jobs that nobody takes: each segment that is to go has some of them,
and they must be written forward first. With settings that switch compaction off there is a third,
with the same jobs, and then that is what the second is compared with.
"""

import contextlib
import itertools
import socket
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import rig
from benchmarks.patience import Patience
from benchmarks.soak import crew
from benchmarks.soak.dialect import MASENKO
from benchmarks.soak.ledger import Stream
from benchmarks.soak.run import Setting, say
from benchmarks.soak.sampling import Disk, Spread, look_at_disk, spread

ROUNDS: Final = 4
SHAPES: Final[dict[str, tuple[int, int]]] = {"50": (50, 1), "50 x 20 deep": (50, 20)}
PARKED_PAYLOAD: Final = 1024
PARK_BATCH: Final = 200
PRIME_SLICE: Final = 1.0
IDLE_SECONDS: Final = 3.0

LEAST_RATIO: Final = 0.85
MOST_PAUSE_MS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One server under one shape of load, once."""

    cycles_per_s: float
    cycles: int
    dropped: int
    written: int
    readings: dict[str, list[float]]


@dataclass(slots=True)
class Case:
    """One server under one shape of load."""

    side: str
    shape: str
    cycles_per_s: list[float] = field(default_factory=list)
    cycles: int = 0
    dropped: int = 0  # bytes of segments that went from the head
    written: int = 0  # bytes of segments that came
    readings: dict[str, list[float]] = field(default_factory=dict)

    def add(self, turn: Turn) -> None:
        self.cycles_per_s.append(turn.cycles_per_s)
        self.cycles += turn.cycles
        self.dropped += turn.dropped
        self.written += turn.written
        for kind, values in turn.readings.items():
            self.readings.setdefault(kind, []).extend(values)

    @property
    def median(self) -> float:
        return statistics.median(self.cycles_per_s)

    @property
    def written_per_cycle(self) -> float:
        return self.written / self.cycles if self.cycles else 0.0

    def data(self) -> dict[str, object]:
        spreads = {f"{kind}_ms": spread(values) for kind, values in self.readings.items()}
        return {
            "side": self.side,
            "shape": self.shape,
            "cycles_per_s": self.cycles_per_s,
            "dropped": self.dropped,
            "written_per_cycle": self.written_per_cycle,
            **{name: each and asdict(each) for name, each in spreads.items()},
        }

    def spread(self, kind: str) -> Spread | None:
        return spread(self.readings.get(kind, ()))


@dataclass(slots=True)
class Cost:
    parked: int  # jobs
    idle: dict[str, Spread | None]  # of the probes on a server that does nothing
    cases: list[Case]
    base: str  # the side that `hard` is compared with

    def data(self) -> dict[str, object]:
        return {
            "parked": self.parked,
            "base": self.base,
            "idle_ms": {kind: each and asdict(each) for kind, each in self.idle.items()},
            "cases": [case.data() for case in self.cases],
            "ratios": {shape: self.ratio(shape) for shape in SHAPES},
        }

    def find(self, side: str, shape: str) -> Case:
        return next(case for case in self.cases if (case.side, case.shape) == (side, shape))

    def ratio(self, shape: str) -> float:
        """The median over the rounds: a slow minute of the machine falls on both sides of one."""
        hard, base = self.find("hard", shape), self.find(self.base, shape)
        rounds = zip(hard.cycles_per_s, base.cycles_per_s, strict=True)
        return statistics.median(one / other for one, other in rounds)

    @property
    def was_seen(self) -> bool:
        """Whether the server that has much to compact has dropped anything while measured."""
        return any(case.dropped for case in self.cases if case.side == "hard")


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    server: rig.RunningServer
    journal: Path

    def disk(self) -> Disk:
        return look_at_disk(self.journal)


@contextlib.contextmanager
def start(setting: Setting, name: str, more: tuple[str, ...]) -> Iterator[Side]:
    # Flushes on the loop would be pauses of it, whatever compaction does.
    options = (*setting.server.options, "--sync-mode", "thread", *more)
    with (
        rig.scratch(setting.directory) as directory,
        replace(setting.server, options=options).run(directory) as server,
    ):
        yield Side(name, server, directory / "data" / "journal")


def park(server: rig.RunningServer, jobs: int) -> None:
    """Push jobs into a queue that nobody takes from."""
    stream = Stream("parked", PARKED_PAYLOAD)
    numbers = stream.pushing(jobs)
    push_all(server, (MASENKO.push(stream.name, stream.payload(number)) for number in numbers))


def push_all(server: rig.RunningServer, pushes: Iterable[bytes]) -> None:
    """Sends them over one connection, many at a time, and checks each reply."""
    left = iter(pushes)
    with socket.create_connection((rig.HOST, server.port), timeout=60.0) as connection:
        unread = bytearray()
        while batch := list(itertools.islice(left, PARK_BATCH)):
            connection.sendall(b"".join(batch))
            replies: list[bytes] = []
            while len(replies) < len(batch):
                data = connection.recv(1 << 16)
                if not data:
                    raise rig.BenchmarkError("the server has closed the connection")
                unread += data
                replies += MASENKO.split(unread)
            for reply in replies:
                MASENKO.check(reply)


def prime(setting: Setting, generator: rig.Generator, side: Side, seconds: float) -> None:
    """Cycle until what was there at first has been dropped or written forward, or for so long."""
    load = rig.Load(connections=50, depth=20, payload=setting.churn.payload)
    filled = side.disk().tail
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and side.disk().head <= filled:
        generator.cycle(side.server, load, seconds=PRIME_SLICE, warmup=0)
    disk = side.disk()
    say(
        f"cost: {side.name}: {disk.apparent / 2**20:,.0f} MiB in {disk.segments} segments, "
        f"{disk.head / 2**20:,.0f} MiB were dropped"
    )


def measure(
    setting: Setting,
    generator: rig.Generator,
    probes: crew.Probes,
    side: Side,
    shape: str,
    seconds: float,
) -> Turn:
    connections, depth = SHAPES[shape]
    load = rig.Load(connections=connections, depth=depth, payload=setting.churn.payload)
    before = side.disk()
    probes.listen(side.server.port)
    run = generator.cycle(side.server, load, seconds=seconds, warmup=0)
    readings: dict[str, list[float]] = {}
    note(readings, probes)
    probes.listen(None)
    after = side.disk()
    dropped, written = after.head - before.head, after.tail - before.tail
    say(
        f"cost: {shape}: {side.name}: {run.cycles_per_s:,.0f} cycles/s, "
        f"{dropped / 2**20:,.0f} MiB dropped"
    )
    return Turn(run.cycles_per_s, run.cycles, dropped, written, readings)


def note(readings: dict[str, list[float]], probes: crew.Probes) -> None:
    for kind, found in probes.read().items():
        if found.problem:
            raise rig.BenchmarkError(f"the {kind} probe: {found.problem}")
        readings.setdefault(kind, []).extend(found.taken)
        if kind == "loop":
            readings.setdefault("late", []).extend(found.late)


def idle_floor(probes: crew.Probes, side: Side) -> dict[str, Spread | None]:
    readings: dict[str, list[float]] = {}
    probes.listen(side.server.port)
    time.sleep(IDLE_SECONDS)
    note(readings, probes)
    probes.listen(None)
    return {kind: spread(values) for kind, values in readings.items()}


def measure_cost(
    setting: Setting,
    seconds: float,
    parked: int,
    off: tuple[str, ...],
    patience: Patience | None = None,
) -> Cost:
    """With patience, turns that the host of the machine disturbed are made again."""
    generator = rig.Generator(setting.generator)
    patience = patience or Patience(0.0, say)
    with contextlib.ExitStack() as stack:
        probes = stack.enter_context(crew.probes())
        sides = [
            stack.enter_context(start(setting, "hardly", ())),
            stack.enter_context(start(setting, "hard", ())),
        ]
        if off:
            sides.append(stack.enter_context(start(setting, "off", off)))
        idle = idle_floor(probes, sides[0])
        for side in sides[1:]:
            park(side.server, parked)
        for side in sides:
            prime(setting, generator, side, 0.4 * seconds / len(sides))
        cases = [Case(side.name, shape) for shape in SHAPES for side in sides]
        by_name = {side.name: side for side in sides}
        part = 0.6 * seconds / (ROUNDS * len(cases))
        for case in cases * ROUNDS:
            take = partial(
                measure, setting, generator, probes, by_name[case.side], case.shape, part
            )
            turn, _ = patience.measure(f"{case.shape}, {case.side}", take)
            case.add(turn)
    return Cost(parked, idle, cases, "off" if off else "hardly")
