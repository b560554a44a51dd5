"""How quickly the Python client pushes many jobs, beside the load generator in C.

Each round starts one fresh server for each case, in turns: the load generator pushes over RESP
(RPUSH, pipelined, on one connection and on fifty), and both clients push as many jobs of the same
size with `push_many`. A case ends when all jobs are acknowledged, and it is checked that they are
there.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# So that the file can be started by its path as well as with -m.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(1, str(Path(__file__).resolve().parent.parent / "src"))

from benchmarks import readings, rig
from taskyard import AsyncClient, Client
from taskyard.client.connection import Connection
from taskyard.client.url import Address

LEAST_RATIO = 1 / 3
QUEUE = "push-many"

Push = Callable[[rig.RunningServer], float]


def payloads(jobs: int, size: int) -> Iterator[bytes]:
    return (b"%0*d" % (size, number) for number in range(jobs))


def url_of(server: rig.RunningServer) -> str:
    return f"taskyard://{rig.HOST}:{server.port}"


def with_generator(binary: Path, load: rig.Load, jobs: int) -> Push:
    generator = rig.Generator(binary)
    return lambda server: generator.fill(server, load, jobs).cycles_per_s


def with_client(jobs: int, size: int) -> Push:
    def push(server: rig.RunningServer) -> float:
        with Client(url_of(server)) as client:
            began = time.perf_counter()
            pushed = client.push_many(QUEUE, payloads(jobs, size))
            seconds = time.perf_counter() - began
        check(server, len(pushed), jobs)
        return jobs / seconds

    return push


def with_async_client(jobs: int, size: int) -> Push:
    async def push(server: rig.RunningServer) -> float:
        async with AsyncClient(url_of(server)) as client:
            began = time.perf_counter()
            pushed = await client.push_many(QUEUE, payloads(jobs, size))
            seconds = time.perf_counter() - began
        check(server, len(pushed), jobs)
        return jobs / seconds

    return lambda server: asyncio.run(push(server))


def check(server: rig.RunningServer, pushed: int, jobs: int) -> None:
    with Connection(Address(rig.HOST, server.port)) as connection:
        ready = connection.call("LLEN", QUEUE)
    if (pushed, ready) != (jobs, jobs):
        raise rig.BenchmarkError(f"{pushed} of {jobs} jobs were pushed, and {ready!r} are ready")


def make_cases(binary: Path, jobs: int, size: int) -> dict[str, Push]:
    one = rig.Load(connections=1, depth=1000, payload=size)
    fifty = rig.Load(connections=50, depth=100, payload=size)
    return {
        "load generator, 1 connection, 1,000 deep": with_generator(binary, one, jobs),
        "load generator, 50 connections, 100 deep": with_generator(binary, fifty, jobs),
        "Client.push_many": with_client(jobs, size),
        "AsyncClient.push_many": with_async_client(jobs, size),
    }


def measure(
    cases: dict[str, Push], server: rig.Taskyard, rounds: int, directory: Path
) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        for name, push in cases.items():
            with rig.scratch(directory) as place, server.run(place) as running:
                rates[name].append(push(running))
            print(f"round {number + 1} {name}: {rates[name][-1]:,.0f} jobs/s", flush=True)
    return rates


def table(rates: dict[str, list[float]]) -> str:
    medians = {name: statistics.median(taken) for name, taken in rates.items()}
    best = max(rate for name, rate in medians.items() if name.startswith("load generator"))
    rows = [
        [
            name,
            f"{medians[name]:,.0f}",
            f"{min(taken):,.0f} - {max(taken):,.0f}",
            f"{medians[name] / best:.2f}",
        ]
        for name, taken in rates.items()
    ]
    return rig.markdown_table(["", "jobs/s", "least - most", "ratio"], rows)


def bars(rates: dict[str, list[float]]) -> list[str]:
    medians = {name: statistics.median(taken) for name, taken in rates.items()}
    best = max(rate for name, rate in medians.items() if name.startswith("load generator"))
    lines: list[str] = []
    for name in ("Client.push_many", "AsyncClient.push_many"):
        ratio = medians[name] / best
        verdict = "reached" if ratio >= LEAST_RATIO else "MISSED"
        lines.append(f"bar {name}: {ratio:.2f}, at least {LEAST_RATIO:.2f} wanted: {verdict}")
    return lines


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--payload", type=int, default=200, help="bytes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durability", choices=rig.DURABILITIES, default="sync")
    parser.add_argument("--code", type=Path, help="where the server's package is imported from")
    parser.add_argument("--dir", type=Path, default=rig.DEFAULT_DIRECTORY)
    parser.add_argument("--results", type=Path, default=rig.DEFAULT_DIRECTORY / "push_many.json")
    return parser.parse_args()


def main() -> int:
    arguments = read_arguments()
    try:
        form = "compiled" if arguments.code else rig.choose_form(None)
        server = rig.Taskyard(form, arguments.durability, dialect="lists", code=arguments.code)
        binary = rig.compile_generator(rig.DEFAULT_DIRECTORY)
        facts = readings.machine(arguments.dir)
        cases = make_cases(binary, arguments.jobs, arguments.payload)
        rates = measure(cases, server, arguments.rounds, arguments.dir)
    except rig.BenchmarkError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"\n{readings.describe_machine(facts)}")
    print(f"{form} server, durability {arguments.durability}, {arguments.jobs:,} jobs of ", end="")
    print(f"{arguments.payload} bytes; load {os.getloadavg()[0]:.1f} at the end\n")
    print(f"{table(rates)}\n")
    print("\n".join(bars(rates)))
    rig.write_results(arguments.results, {"machine": facts, "rates": rates})
    return 0


if __name__ == "__main__":
    sys.exit(main())
