"""What Taskyard's priority queue costs when it is large, and what re-scoring leaves behind.

Two parts: `cost` (UPDATE, re-score, PEEK and NEXT with ten items in ten pools and with a million in
a hundred thousand, two servers in turns), and `garbage` (memory and journal after a million
re-scorings of one item and a million more, and its score after kill -9). All over one connection,
pipelined.
"""

import argparse
import random
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

# So that the file can be started by its path as well as with -m.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import readings, rig
from benchmarks.pqueue_client import Client, command, integers, strings, updates
from benchmarks.soak.sampling import Disk, look_at_disk

PARTS = ("cost", "garbage")
OPERATIONS = ("UPDATE", "re-score", "PEEK", "NEXT")
FEW_ITEMS = FEW_POOLS = 10
LIFT: Final = 1_000_000_000
"""Brings an item above all others."""
HOT_DEPTH: Final = 1000
STEADY_SECONDS, SETTLE_SECONDS = 2.0, 60.0
"""The journal has settled when it has not changed for so long; it is not waited for longer."""
MOST_SEGMENTS: Final = 4
"""The one in use, the spare, and one at each end in part."""
MOST_GROWTH: Final = 4 * 2**20
"""Of resident memory. Were 16 bytes left of each re-scoring, a million would be four times that."""
JUDGED_FROM: Final = 1_000_000
"""Re-scorings. Before so many, resident memory grows while Python's own heap does not."""
MIB: Final = 2.0**20


@dataclass(frozen=True, slots=True)
class Spent:
    """Microseconds for one command: as the client waits for it, and of the server's loop."""

    elapsed: float
    server: float


@dataclass(frozen=True, slots=True)
class Cost:
    operation: str
    few: list[Spent] = field(default_factory=list)
    many: list[Spent] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median_elapsed(self.many) / median_elapsed(self.few)

    @property
    def ratio_by_server(self) -> float:
        return median_server(self.many) / median_server(self.few)


def median_elapsed(rounds: Sequence[Spent]) -> float:
    return statistics.median(spent.elapsed for spent in rounds)


def median_server(rounds: Sequence[Spent]) -> float:
    return statistics.median(spent.server for spent in rounds)


@dataclass(frozen=True, slots=True)
class Garbage:
    rescorings: int
    segment: int
    per_s: float
    bytes_first: int
    """Before all re-scorings."""
    bytes_before: int
    """After as many as are judged."""
    bytes_after: int
    written: int
    """Bytes of the journal so far, up to its last segment."""
    largest: int
    """The journal when the last re-scoring was answered."""
    settled: Disk
    settled_in: float
    restarted_in: float

    @property
    def growth(self) -> int:
        return self.bytes_after - self.bytes_before


@dataclass(frozen=True, slots=True)
class Setting:
    server: rig.Taskyard
    generator: rig.Generator
    directory: Path
    items: int
    pools: int
    rescorings: int
    segment: int
    rounds: int
    batches: int
    depth: int


def say(text: str) -> None:
    print(text, flush=True)


def check_size(client: Client, items: int, pools: int) -> None:
    found = client.info()
    if (found["items"], found["pools"]) != (items, pools):
        raise rig.BenchmarkError(
            f"INFO shows {found['items']:,} items in {found['pools']:,} pools, "
            f"and there should be {items:,} in {pools:,}"
        )


class Subject:
    """A server with a standing population of items, which every batch leaves as it was."""

    def __init__(self, server: rig.RunningServer, client: Client, pools: int) -> None:
        self._server = server
        self._client = client
        self._pools = pools
        self._random = random.Random(pools)
        self._serial = 0
        self._spent: dict[str, tuple[float, float]] = {}

    def round(self, batches: int, depth: int) -> dict[str, Spent]:
        self._spent = dict.fromkeys(OPERATIONS, (0.0, 0.0))
        for _ in range(batches):
            self._batch(depth)
        scale = 1e6 / (batches * depth)
        return {
            name: Spent(elapsed * scale, server * scale)
            for name, (elapsed, server) in self._spent.items()
        }

    def _batch(self, depth: int) -> None:
        """New items anywhere among the others, moved elsewhere, and then lifted out and taken."""
        keys = [b"new:%016x" % (self._serial + number) for number in range(depth)]
        self._serial += depth
        first, second = self._scores(depth), self._scores(depth)
        moves = [after - before for before, after in zip(first, second, strict=True)]
        self._timed("UPDATE", updates(zip(keys, first, strict=True)), integers(first))
        self._timed("re-score", updates(zip(keys, moves, strict=True)), integers(second))
        lifted = [score + LIFT for score in second]
        self._client.exchange(updates((key, LIFT) for key in keys), integers(lifted))
        # Among equal scores the first that had it comes first, and the sort is stable.
        order = sorted(range(depth), key=lambda number: -lifted[number])
        self._timed("PEEK", command(b"PEEK") * depth, strings([keys[order[0]]] * depth))
        self._timed("NEXT", command(b"NEXT") * depth, strings(keys[number] for number in order))

    def _scores(self, count: int) -> list[int]:
        return [self._random.randint(1, self._pools) for _ in range(count)]

    def _timed(self, operation: str, commands: bytes, expected: bytes) -> None:
        loop, began = readings.loop_seconds(self._server.pid), time.perf_counter()
        self._client.exchange(commands, expected)
        elapsed = time.perf_counter() - began
        server = readings.loop_seconds(self._server.pid) - loop
        before = self._spent[operation]
        self._spent[operation] = before[0] + elapsed, before[1] + server


def measure_cost(setting: Setting) -> list[Cost]:
    costs = {name: Cost(name) for name in OPERATIONS}
    with (
        rig.scratch(setting.directory) as few_directory,
        rig.scratch(setting.directory) as many_directory,
        setting.server.run(few_directory) as few_server,
        setting.server.run(many_directory) as many_server,
        Client(few_server) as few_client,
        Client(many_server) as many_client,
    ):
        fill(setting, few_server, FEW_ITEMS, FEW_POOLS)
        fill(setting, many_server, setting.items, setting.pools)
        check_size(few_client, FEW_ITEMS, FEW_POOLS)
        check_size(many_client, setting.items, setting.pools)
        few = Subject(few_server, few_client, FEW_POOLS)
        many = Subject(many_server, many_client, setting.pools)
        for subject in (few, many):
            subject.round(max(setting.batches // 10, 1), setting.depth)
        for number in range(setting.rounds):
            for subject in (few, many) if number % 2 == 0 else (many, few):
                for name, spent in subject.round(setting.batches, setting.depth).items():
                    cost = costs[name]
                    (cost.few if subject is few else cost.many).append(spent)
            latest = (
                f"{name} {cost.few[-1].elapsed:.2f} and {cost.many[-1].elapsed:.2f}"
                for name, cost in costs.items()
            )
            say(f"cost: round {number + 1}, µs with few and with many: {', '.join(latest)}")
        check_size(few_client, FEW_ITEMS, FEW_POOLS)
        check_size(many_client, setting.items, setting.pools)
    return list(costs.values())


def fill(setting: Setting, server: rig.RunningServer, items: int, pools: int) -> None:
    load = rig.Load(connections=10, depth=100, scores=pools)
    filled = setting.generator.fill(server, load, items, serial=0)
    say(f"cost: {items:,} items in {pools:,} pools, {filled.cycles_per_s:,.0f} a second")


def measure_garbage(setting: Setting) -> Garbage:
    # Small segments, so that there are some to drop.
    taskyard = replace(setting.server, options=("--segment-size", str(setting.segment)))
    with rig.scratch(setting.directory) as directory:
        journal = directory / "data" / "journal"
        with taskyard.run(directory, end_with=signal.SIGKILL) as server:
            with Client(server) as client:
                first = readings.resident_bytes(server.pid)
                rescore(client, 0, setting.rescorings)
                before = readings.resident_bytes(server.pid)
                began = time.monotonic()
                rescore(client, setting.rescorings, 2 * setting.rescorings)
                seconds = time.monotonic() - began
            after, disk = readings.resident_bytes(server.pid), look_at_disk(journal)
            say(f"garbage: the second {setting.rescorings:,} re-scorings took {seconds:.1f} s")
            settled, settled_in = wait_until_settled(journal)
        with taskyard.run(directory) as server, Client(server) as client:
            score = command(b"SCORE", b"hot")
            client.exchange(score, integers([2 * setting.rescorings]))
            check_size(client, 1, 1)
            restarted_in = server.started_in
    return Garbage(
        rescorings=setting.rescorings,
        segment=setting.segment,
        per_s=setting.rescorings / seconds,
        bytes_first=first,
        bytes_before=before,
        bytes_after=after,
        written=disk.tail,
        largest=disk.apparent,
        settled=settled,
        settled_in=settled_in,
        restarted_in=restarted_in,
    )


def rescore(client: Client, start: int, end: int) -> None:
    """Adds 1 to the score of one item until it is `end`."""
    for at in range(start, end, HOT_DEPTH):
        count = min(HOT_DEPTH, end - at)
        client.exchange(updates([(b"hot", 1)]) * count, integers(range(at + 1, at + count + 1)))


def wait_until_settled(journal: Path) -> tuple[Disk, float]:
    """Compaction goes on when no more comes in: how the journal looks then, and after how long."""
    began = changed = time.monotonic()
    disk = look_at_disk(journal)
    while (now := time.monotonic()) - changed < STEADY_SECONDS and now - began < SETTLE_SECONDS:
        time.sleep(0.05)
        latest = look_at_disk(journal)
        if latest != disk:
            disk, changed = latest, time.monotonic()
    return disk, changed - began


def cost_table(setting: Setting, costs: Sequence[Cost]) -> str:
    few = f"{FEW_ITEMS} items in {FEW_POOLS} pools"
    many = f"{setting.items:,} in {setting.pools:,}"
    header = ["operation", f"{few}, µs", f"{many}, µs", "ratio"]
    header += ["server µs", "server µs", "ratio by server µs"]
    rows = [
        [
            cost.operation,
            f"{median_elapsed(cost.few):.2f}",
            f"{median_elapsed(cost.many):.2f}",
            f"{cost.ratio:.2f}",
            f"{median_server(cost.few):.2f}",
            f"{median_server(cost.many):.2f}",
            f"{cost.ratio_by_server:.2f}",
        ]
        for cost in costs
    ]
    return rig.markdown_table(header, rows)


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def garbage_table(garbage: Garbage) -> str:
    rows = [memory_row(garbage), journal_row(garbage), speed_row(garbage)]
    return rig.markdown_table(["what", "figure", "detail", "bar"], rows)


def memory_row(garbage: Garbage) -> list[str]:
    sizes = (garbage.bytes_first, garbage.bytes_before, garbage.bytes_after)
    enough = garbage.rescorings >= JUDGED_FROM
    judged = verdict(garbage.growth <= MOST_GROWTH) if enough else "too few to judge"
    return [
        f"growth of resident memory, the second {garbage.rescorings:,} re-scorings of one item",
        f"{garbage.growth / MIB:+.1f} MiB",
        "{:,.1f} MiB before the first, {:,.1f} after it, {:,.1f} after the second".format(
            *(size / MIB for size in sizes)
        ),
        f"at most {MOST_GROWTH / MIB:.0f} MiB: {judged}",
    ]


def journal_row(garbage: Garbage) -> list[str]:
    written, largest = garbage.written / MIB, garbage.largest / MIB
    reached = garbage.settled.apparent <= MOST_SEGMENTS * garbage.segment
    bar = f"at most {MOST_SEGMENTS} segments of {garbage.segment / MIB:.0f} MiB"
    return [
        "journal and spare, at rest",
        f"{garbage.settled.apparent / MIB:.1f} MiB",
        (
            f"about {written:.0f} MiB written, {largest:.1f} there at the end, "
            f"at rest {garbage.settled_in:.1f} s later"
        ),
        f"{bar}: {verdict(reached)}",
    ]


def speed_row(garbage: Garbage) -> list[str]:
    return [
        f"re-scorings a second, {HOT_DEPTH:,} deep",
        f"{garbage.per_s:,.0f}",
        f"the score is right after kill -9; {garbage.restarted_in:.2f} s to the ports file",
        "",
    ]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="PART,...", help=str(PARTS))
    parser.add_argument("--items", type=int, default=1_000_000, help="of the large one (1000000)")
    parser.add_argument("--pools", type=int, default=100_000, help="different scores (100000)")
    parser.add_argument("--rescorings", type=int, default=1_000_000, help="of one item (1000000)")
    parser.add_argument("--rounds", type=int, default=6, help="of each server (6)")
    parser.add_argument("--batches", type=int, default=200, help="of each round (200)")
    parser.add_argument("--depth", type=int, default=100, help="commands sent at once (100)")
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="write")
    parser.add_argument("--form", choices=("compiled", "interpreted"), help="(compiled if built)")
    parser.add_argument("--segment-mib", type=int, default=4, help="of the journal (4)")
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument("--results", type=Path, default=rig.DEFAULT_DIRECTORY / "pools.json")
    return parser.parse_args()


def make_setting(arguments: argparse.Namespace) -> Setting:
    if min(arguments.rounds, arguments.batches, arguments.depth, arguments.pools) < 1:
        raise rig.BenchmarkError("--rounds, --batches, --depth and --pools are at least 1")
    if arguments.items < arguments.pools:
        raise rig.BenchmarkError("--items: there is at least one in each of the pools")
    if arguments.rescorings < 1:
        raise rig.BenchmarkError("--rescorings: at least 1")
    form = rig.choose_form(arguments.form)
    return Setting(
        server=rig.Taskyard(form, arguments.durability, dialect="pqueue"),
        generator=rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY)),
        directory=arguments.dir,
        items=arguments.items,
        pools=arguments.pools,
        rescorings=arguments.rescorings,
        segment=arguments.segment_mib * 2**20,
        rounds=arguments.rounds,
        batches=arguments.batches,
        depth=arguments.depth,
    )


def main() -> int:
    arguments = read_arguments()
    tables: list[str] = []
    data: dict[str, object] = {}
    try:
        [parts] = rig.choose_terms(arguments.only, [PARTS])
        if "garbage" in parts and arguments.durability == "memory":
            raise rig.BenchmarkError("with durability memory there is no journal to look at")
        setting = make_setting(arguments)
        facts = readings.machine(setting.directory)
        if "cost" in parts:
            costs = measure_cost(setting)
            tables.append(cost_table(setting, costs))
            data["cost"] = [
                {**asdict(cost), "ratio": cost.ratio, "ratio_by_server": cost.ratio_by_server}
                for cost in costs
            ]
        if "garbage" in parts:
            garbage = measure_garbage(setting)
            tables.append(garbage_table(garbage))
            data["garbage"] = asdict(garbage)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}")
    print(f"{setting.server.name}, durability {setting.server.durability}\n")
    print("\n\n".join(tables))
    about = {"machine": facts, "server": asdict(setting.server)}
    rig.write_results(arguments.results, {**about, **data})
    return 0


if __name__ == "__main__":
    sys.exit(main())
