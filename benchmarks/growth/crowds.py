"""The same cycles among many delayed jobs, many queues or many connections, and among few."""

import contextlib
import datetime as dt
import resource
import socket
from collections.abc import Iterator
from typing import Final

from benchmarks import rig
from benchmarks.growth.setting import (
    SHAPES,
    WARMUP_SECONDS,
    Found,
    Setting,
    comparison,
    expect_jobs,
    figures,
    in_turns,
    queue_counts,
    say,
)
from benchmarks.soak.cost import push_all
from benchmarks.soak.dialect import MASENKO
from benchmarks.soak.ledger import Stream

FEW_DELAYED: Final = 10_000
FEW_QUEUES: Final = 10
SOME_QUEUES: Final = 100  # two for each connection, so that these change theirs too
MONTH: Final = 30 * 24 * 3600
# Prime to the seconds of a month, so that the times come in no order and fall on all of it.
STRIDE: Final = 1_000_003
# Of ten million jobs, these are 5,000 and 500.
CONNECTIONS: Final = 0.0005
FEW_CONNECTIONS: Final = 0.00005
FILLS: Final = 5


def measure_delayed(setting: Setting) -> Found:
    jobs = setting.part_of(0.1)
    few = min(FEW_DELAYED, jobs)
    with (
        rig.scratch(setting.directory) as much,
        rig.scratch(setting.directory) as little,
        setting.server().run(much) as among_many,
        setting.server().run(little) as among_few,
    ):
        for server, count in ((among_many, jobs), (among_few, few)):
            say(f"delayed: pushing {count:,}")
            push_all(server, delayed_pushes(count, setting.payload))
        found = [
            comparison(
                f"cycles/s with {jobs:,} delayed jobs to {few:,}, connections {shape}",
                *both(setting, shape, (among_many, 1), (among_few, 1)),
            )
            for shape in SHAPES
        ]
        expect_jobs(among_many, "delayed", jobs)
        expect_jobs(among_few, "delayed", few)
    return {"comparisons": found}


def delayed_pushes(jobs: int, payload: int) -> Iterator[bytes]:
    """Due at any time of the month after the coming one."""
    begin = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=MONTH)
    stream = Stream("delayed", payload)
    for number in range(jobs):
        due = begin + dt.timedelta(seconds=number * STRIDE % MONTH)
        yield MASENKO.push(stream.name, stream.payload(number), due=due.isoformat())


def measure_queues(setting: Setting) -> Found:
    queues = setting.part_of(0.01)
    few, some = min(FEW_QUEUES, queues), min(SOME_QUEUES, queues)
    with (
        rig.scratch(setting.directory) as much,
        rig.scratch(setting.directory) as little,
        setting.server().run(much) as among_many,
        setting.server().run(little) as among_few,
    ):
        say(f"queues: making {queues:,}")
        jobs = make_queues(setting, among_many, queues)
        setting.generator.fill(among_few, setting.load("50", some), jobs)
        found = []
        for shape in SHAPES:
            for name, used, used_of_few in (
                (f"cycles/s spread over {queues:,} queues to {few}", queues, few),
                (f"cycles/s spread over {queues:,} queues to {some}", queues, some),
                (f"cycles/s on {few} of {queues:,} queues to {few} alone", few, few),
            ):
                sides = both(setting, shape, (among_many, used), (among_few, used_of_few))
                found.append(comparison(f"{name}, connections {shape}", *sides))
        expect_jobs(among_many, "ready", jobs)
        expect_jobs(among_few, "ready", jobs)
    return {"comparisons": found}


def make_queues(setting: Setting, server: rig.RunningServer, queues: int) -> int:
    """Jobs in every queue; gives how many.

    Connections share the number of jobs, not that of the queues, so that the slowest of them may
    have left some out; hence half as many more.
    """
    jobs, enough = 0, queues * 3 // 2
    for _ in range(FILLS):
        jobs += setting.generator.fill(server, setting.load("50", queues), enough).pushed
        if sum(queue["ready"] > 0 for queue in queue_counts(server)) == queues:
            return jobs
    raise rig.BenchmarkError(f"{queues:,} queues have not got a job each")


def both(
    setting: Setting,
    shape: str,
    many: tuple[rig.RunningServer, int],
    few: tuple[rig.RunningServer, int],
) -> tuple[list[Found], list[Found]]:
    """The same load on two servers, each with the number of its queues that are used."""

    def cycle(server: rig.RunningServer, queues: int) -> Found:
        load = setting.load(shape, queues)
        return figures(
            setting.generator.cycle(server, load, seconds=setting.seconds, warmup=WARMUP_SECONDS)
        )

    sides = {f"{shape}, many": lambda: cycle(*many), f"{shape}, few": lambda: cycle(*few)}
    much, little = in_turns(setting, sides).values()
    return much, little


def measure_connections(setting: Setting) -> Found:
    connections = setting.part_of(CONNECTIONS)
    few = setting.part_of(FEW_CONNECTIONS)

    def cycle(server: rig.RunningServer, used: int) -> Found:
        load = rig.Load(used, payload=setting.payload)
        warmup = 2 * WARMUP_SECONDS
        return figures(
            setting.generator.cycle(server, load, seconds=setting.seconds, warmup=warmup)
        )

    with (
        rig.scratch(setting.directory) as much,
        rig.scratch(setting.directory) as little,
        setting.server().run(much) as among_many,
        setting.server().run(little) as among_few,
    ):
        found = in_turns(
            setting,
            {
                f"{connections:,} connections": lambda: cycle(among_many, connections),
                f"{few:,} connections": lambda: cycle(among_few, few),
            },
        )
        with idle_connections(among_many, connections - few):
            beside = in_turns(
                setting,
                {
                    f"{few:,} of {connections:,}": lambda: cycle(among_many, few),
                    f"{few:,} alone": lambda: cycle(among_few, few),
                },
            )
    return {
        "comparisons": [
            comparison(f"cycles/s of {connections:,} connections to {few:,}", *found.values()),
            comparison(
                f"cycles/s of {few:,} connections beside {connections - few:,} idle ones to none",
                *beside.values(),
            ),
        ]
    }


@contextlib.contextmanager
def idle_connections(server: rig.RunningServer, count: int) -> Iterator[None]:
    """Clients that have asked something once and then say nothing."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = socket.create_connection((rig.HOST, server.port), timeout=30.0)
            stack.enter_context(one)
            one.sendall(b"PING\n")
            if not one.recv(64).startswith(b"PONG"):
                raise rig.BenchmarkError("a PING was not answered")
        yield
