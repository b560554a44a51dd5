"""Push-take-finish throughput of Taskyard over its protocols and of Redis, side by side.

Every measurement has a fresh server on a fresh directory; the servers take turns within each
round, so that what the machine does meanwhile falls on all of them alike.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

# So that the file can be started by its path as well as with -m.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import readings, redis_peer, rig

FORMS: tuple[rig.Form, ...] = ("compiled", "interpreted")
PEER_OF: dict[rig.Dialect, str] = {
    "masenko": "redis-list",
    "workq": "redis-list",
    "lists": "redis-lists",
    "pqueue": "redis-pqueue",
}
"""For each protocol the use of Redis that comes nearest."""
TASKYARDS: dict[str, rig.Taskyard] = {
    server.name: server
    for server in (rig.Taskyard(form, "sync", dialect=each) for form in FORMS for each in PEER_OF)
}
PEERS = {"redis-list": "redis-list", "redis-lists": "lists", "redis-pqueue": "zset"}
"""Uses of Redis, each with the load generator's driver for it."""
SERVERS = [*TASKYARDS, *PEERS]
SHAPES: dict[str, tuple[int, int]] = {
    "c1": (1, 1),
    "c50": (50, 1),
    "c500": (500, 1),
    "c50x100": (50, 100),
}
PEER_DURABILITY: dict[rig.Durability, str] = {
    "sync": "appendfsync always",
    "write": "appendfsync everysec",
    "memory": "appendonly no",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio to another server that must be reached."""

    server: str
    to: str
    durability: rig.Durability
    shape: str
    ratio: float


BARS = (
    Bar("taskyard-compiled", "redis-list", "sync", "c50", 1.0),
    *(Bar("taskyard-compiled-workq", "taskyard-compiled", "sync", shape, 0.8) for shape in SHAPES),
)


@dataclass(frozen=True, slots=True)
class Case:
    """All the rounds of one server at one durability and shape."""

    server: str
    durability: rig.Durability
    shape: str
    rounds: list[rig.Measurement] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        return [taken.cycles_per_s for taken in self.rounds]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def latency(self) -> rig.Percentiles:
        """Of the whole cycle."""
        taken = [measured.latency_us["cycle"] for measured in self.rounds]
        return rig.Percentiles(
            p50=statistics.median(each.p50 for each in taken),
            p99=statistics.median(each.p99 for each in taken),
            p999=statistics.median(each.p999 for each in taken),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    servers: list[str]
    durabilities: list[rig.Durability]
    shapes: list[str]
    rounds: int
    seconds: float
    warmup: float
    payload: int
    directory: Path

    @property
    def measurements(self) -> int:
        return len(self.servers) * len(self.durabilities) * len(self.shapes) * self.rounds


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="sync only, 3 rounds of 1 second")
    parser.add_argument("--rounds", type=int, help="rounds of each case (5)")
    parser.add_argument("--seconds", type=float, help="seconds of each measurement (3)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds not counted (0.5)")
    parser.add_argument("--payload", type=int, default=200, help="bytes of each payload (200)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="WORD,...",
        help="of " + ", ".join([*SERVERS, *rig.DURABILITIES, *SHAPES]),
    )
    parser.add_argument(
        "--dir", type=Path, default=rig.DEFAULT_DIRECTORY, help="where the servers keep their data"
    )
    parser.add_argument(
        "--results", type=Path, default=rig.DEFAULT_DIRECTORY / "run.json", help="the results file"
    )
    return parser.parse_args()


def make_plan(arguments: argparse.Namespace) -> Plan:
    kinds = (SERVERS, list(rig.DURABILITIES), list(SHAPES))
    servers, durabilities, shapes = rig.choose_terms(arguments.only, kinds)
    chosen = [durability for durability in rig.DURABILITIES if durability in durabilities]
    if arguments.quick and len(chosen) == len(rig.DURABILITIES):
        chosen = ["sync"]
    plan = Plan(
        servers=[name for name in servers if is_available(name)],
        durabilities=chosen,
        shapes=shapes,
        rounds=arguments.rounds or (3 if arguments.quick else 5),
        seconds=arguments.seconds or (1.0 if arguments.quick else 3.0),
        warmup=arguments.warmup,
        payload=arguments.payload,
        directory=arguments.dir,
    )
    if not plan.servers:
        raise rig.BenchmarkError("none of the servers asked for can be run")
    return plan


def is_available(server: str) -> bool:
    if server in PEERS:
        reason = redis_peer.available_or_reason()
        if reason is not None:
            print(f"going on without {server}: {reason}", flush=True)
        return reason is None
    form = TASKYARDS[server].form
    if not rig.is_built(form):
        where = rig.code_path(form).relative_to(rig.ROOT)
        print(f"going on without {server}: it is not built in {where}", flush=True)
        return False
    return True


def measure(plan: Plan, generator: rig.Generator) -> list[Case]:
    cases = [
        Case(server, durability, shape)
        for durability in plan.durabilities
        for shape in plan.shapes
        for server in plan.servers
    ]
    began, count = time.monotonic(), 0
    # A round goes through every case, so that a slow minute of the machine hits one round of
    # all of them and not all rounds of one.
    for number in range(plan.rounds):
        for case in cases:
            case.rounds.append(measure_once(plan, generator, case))
            count += 1
            print(
                f"[{count}/{plan.measurements}, {time.monotonic() - began:.0f} s] "
                f"round {number + 1} {case.durability} {case.shape} {case.server}: "
                f"{case.rates[-1]:,.0f} cycles/s",
                flush=True,
            )
    return cases


def make_server(name: str, durability: rig.Durability) -> rig.Taskyard | redis_peer.Redis:
    if name in PEERS:
        return redis_peer.Redis(durability, PEERS[name])
    return replace(TASKYARDS[name], durability=durability)


def measure_once(plan: Plan, generator: rig.Generator, case: Case) -> rig.Measurement:
    connections, depth = SHAPES[case.shape]
    load = rig.Load(connections=connections, depth=depth, payload=plan.payload)
    server = make_server(case.server, case.durability)
    with rig.scratch(plan.directory) as directory, server.run(directory) as running:
        return generator.cycle(running, load, seconds=plan.seconds, warmup=plan.warmup)


def find(cases: Sequence[Case], server: str, durability: str, shape: str) -> Case | None:
    wanted = (server, durability, shape)
    for case in cases:
        if (case.server, case.durability, case.shape) == wanted:
            return case
    return None


def ratio(cases: Sequence[Case], case: Case, to: str | None) -> float | None:
    """To the rate of another server at the same durability and shape, if it was measured."""
    other = None if to is None else find(cases, to, case.durability, case.shape)
    return None if other is None else case.rate / other.rate


def peer_of(server: str) -> str | None:
    return PEER_OF[TASKYARDS[server].dialect] if server in TASKYARDS else None


def masenko_of(server: str) -> str | None:
    """The same server over Masenko, where a cycle has the same steps."""
    if server in TASKYARDS and TASKYARDS[server].dialect == "workq":
        return replace(TASKYARDS[server], dialect="masenko").name
    return None


def show_ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def row(cases: Sequence[Case], case: Case) -> list[str]:
    connections, depth = SHAPES[case.shape]
    name = case.server
    if name in PEERS:
        name += f" ({PEER_DURABILITY[case.durability]})"
    return [
        case.durability,
        f"{connections}" if depth == 1 else f"{connections} x {depth} deep",
        name,
        f"{case.rate:,.0f}",
        f"{min(case.rates):,.0f} - {max(case.rates):,.0f}",
        show_ratio(ratio(cases, case, peer_of(case.server))),
        show_ratio(ratio(cases, case, masenko_of(case.server))),
        f"{case.latency.p50:,.0f}",
        f"{case.latency.p99:,.0f}",
        f"{case.latency.p999:,.0f}",
        f"{statistics.median(taken.server_cores for taken in case.rounds):.2f}",
        f"{statistics.median(taken.generator_cores for taken in case.rounds):.2f}",
    ]


def table(cases: Sequence[Case]) -> str:
    header = ["durability", "connections", "server", "cycles/s", "least - most"]
    header += ["ratio to Redis", "ratio to Masenko", "p50 µs", "p99 µs", "p99.9 µs"]
    header += ["server cores", "generator cores"]
    return rig.markdown_table(header, [row(cases, case) for case in cases])


def bars(cases: Sequence[Case]) -> list[str]:
    lines: list[str] = []
    for bar in BARS:
        case = find(cases, bar.server, bar.durability, bar.shape)
        reached = None if case is None else ratio(cases, case, bar.to)
        if reached is not None:
            verdict = "reached" if reached >= bar.ratio else "MISSED"
            lines.append(
                f"bar {bar.server} {bar.durability} {bar.shape}: {reached:.2f} x {bar.to}, "
                f"at least {bar.ratio:.2f} wanted: {verdict}"
            )
    return lines


def results(
    plan: Plan, cases: Sequence[Case], facts: dict[str, object], redis: str | None
) -> dict[str, object]:
    return {
        "machine": facts,
        "redis": redis,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "warmup": plan.warmup,
        "payload": plan.payload,
        "cases": [
            {
                **asdict(case),
                "cycles_per_s": case.rate,
                "ratio": ratio(cases, case, peer_of(case.server)),
                "ratio_to_masenko": ratio(cases, case, masenko_of(case.server)),
            }
            for case in cases
        ],
        "bars": bars(cases),
    }


def main() -> int:
    arguments = read_arguments()
    try:
        plan = make_plan(arguments)
        generator = rig.Generator(rig.compile_generator(rig.DEFAULT_DIRECTORY))
        facts = readings.machine(plan.directory)
        redis = redis_peer.version() if set(PEERS) & set(plan.servers) else None
        cases = measure(plan, generator)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}")
    print(f"{redis or 'no Redis'}; {plan.payload}-byte payloads; ", end="")
    print(f"medians of {plan.rounds} rounds of {plan.seconds:g} s\n\n{table(cases)}\n")
    for line in bars(cases):
        print(line)
    rig.write_results(arguments.results, results(plan, cases, facts, redis))
    return 0


if __name__ == "__main__":
    sys.exit(main())
