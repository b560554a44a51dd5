"""The hot path costs what it did: function calls, system calls and bytes written for a job.

Counts of a fixed workload, so a busy or slow machine changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from guard.budget import DEARER, Cost, Costs, read_costs
from guard.measure import count_calls, count_outside
from guard.outside import Counts, Server
from guard.workloads import DIALECTS, SHAPES, Dialect, Lists, Masenko, Shape, title

ONE_BY_ONE, PIPELINED, _ = SHAPES


@pytest.fixture(scope="module")
def costs() -> Costs:
    return read_costs()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(scope="module")
def calls() -> dict[str, float]:
    return count_calls()


def test_every_workload_has_its_figures(costs: Costs) -> None:
    assert set(costs.jobs) == {title(make(), shape) for make in DIALECTS for shape in SHAPES}


def test_a_job_takes_no_more_function_calls_than_before(
    costs: Costs, calls: dict[str, float]
) -> None:
    faults = [costs.fault(name, "calls", found) for name, found in calls.items()]

    assert not any(faults), "\n".join(filter(None, faults))


def test_calls_are_counted_the_same_each_time(calls: dict[str, float]) -> None:
    assert count_calls() == calls


# Of one connection: to hold a traced server still until several have spoken can take for ever.
ALONE = [shape for shape in SHAPES if shape.connections == 1]


@pytest.mark.parametrize("shape", ALONE, ids=lambda shape: shape.name)
@pytest.mark.parametrize("make", DIALECTS)
def test_a_job_takes_no_more_system_calls_and_bytes_than_before(
    server: Server, costs: Costs, make: Callable[[], Dialect], shape: Shape
) -> None:
    name = title(make(), shape)

    def faults(calls: float, written: float) -> list[str]:
        found = [costs.fault(name, "syscalls", calls), costs.fault(name, "bytes", written)]
        return [fault for fault in found if fault]

    calls, written = count_outside(server, make(), shape, lambda *found: not faults(*found))

    assert not faults(calls, written), "\n".join(faults(calls, written))


# Were the guard blind, these would fail.


def test_a_function_that_calls_more_than_before_is_noticed(costs: Costs) -> None:
    found = count_calls("--dearer")

    assert all("dearer" in costs.fault(name, "calls", calls) for name, calls in found.items())


def test_a_way_to_the_disk_that_takes_more_system_calls_is_noticed(
    tmp_path: Path, costs: Costs
) -> None:
    with Server(tmp_path, sync_mode="thread") as roundabout:
        calls, _ = count_outside(roundabout, Lists(), ONE_BY_ONE, lambda *_: False)

    assert "dearer" in costs.fault("lists, one by one", "syscalls", calls)


def test_records_that_are_longer_are_noticed(server: Server, costs: Costs) -> None:
    _, written = count_outside(server, Masenko(), PIPELINED, lambda *_: False, payload=300)

    assert "dearer" in costs.fault("masenko, pipelined", "bytes", written)


def test_fifteen_in_a_hundred_is_the_limit_both_ways() -> None:
    costs = Costs("3.11", {"work": Cost(calls=100, syscalls=100, bytes=100)})

    assert DEARER == 1.15
    assert [costs.fault("work", "syscalls", found) for found in (50, 100, 114)] == ["", "", ""]
    assert "116.00 system calls a job instead of 100.00, which is 16% dearer" in costs.fault(
        "work", "syscalls", 116
    )
    assert "16% cheaper" in costs.fault("work", "bytes", 84)


def test_calls_of_another_python_are_said_to_be_so() -> None:
    costs = Costs("2.7", {"work": Cost(calls=100, syscalls=100, bytes=100)})

    assert "It was counted with Python 2.7" in costs.fault("work", "calls", 120)
    assert "Python 2.7" not in costs.fault("work", "syscalls", 120)


NOTES = """\
11 futex(0x1, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, FUTEX_BITSET_MATCH_ANY <unfinished ...>
10 epoll_pwait(3<anon_inode:[eventpoll]>, 0x7ffe, 1024, 519, NULL, 8) = -1 EINTR (Interrupted)
10 pwritev2(13</data/journal/0.seg>, [...], 2, 7772, 0) = 40
10 epoll_pwait(3<anon_inode:[eventpoll]>, [...], 1024, 444, NULL, 8) = 1
10 read(18<socket:[1]>, ""..., 256000)  = 250
10 epoll_pwait(3<anon_inode:[eventpoll]>, [], 1024, 0, NULL, 8) = 0
10 pwritev2(13</data/journal/0.seg>, [...], 2, 7772, 0 <unfinished ...>
11 <... futex resumed>)                 = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
10 <... pwritev2 resumed>)              = 300
10 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) = 0x7f00
10 write(18<socket:[1]>, ""..., 13)     = 13
10 epoll_pwait(3<anon_inode:[eventpoll]>, [], 1024, 5, NULL, 8) = 0
10 fdatasync(13</data/journal/0.seg>)   = 0
"""


def test_what_only_a_timer_has_brought_about_is_not_counted_but_its_bytes_are() -> None:
    counts = Counts()

    counts.read(NOTES, Path("/data"))

    assert counts.by_name == {"epoll_pwait": 2, "read": 1, "pwritev2": 1, "write": 1}
    assert counts.calls == 5
    assert counts.bytes == 340
