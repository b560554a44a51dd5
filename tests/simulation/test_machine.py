"""The machine itself: its clocks, its network, and that the server is given what it must bear."""

from __future__ import annotations

from random import Random

import pytest
from simulation.agenda import SECOND, EventQueue
from simulation.client import ClientPace
from simulation.crowd import PlainClient
from simulation.draws import Plan
from simulation.machine import Machine, PowerCut, SlowDisk
from simulation.network import LinkOptions
from simulation.people import ClientMix
from simulation.run import Run

from taskyard.broker.interfaces import AnchoredClock
from taskyard.engine.model.job import READY
from taskyard.server.settings.schema import Settings


class Line:
    """A driver that sends given lines, and records the replies."""

    def __init__(self, *requests: bytes) -> None:
        self._requests = list(requests)
        self.heard = b""

    def request(self) -> bytes:
        return self._requests.pop(0) if self._requests else b""

    def receive(self, data: bytes) -> None:
        self.heard += data

    def is_idle(self) -> bool:
        return False

    def leave(self) -> None: ...

    def lost(self) -> None: ...


@pytest.fixture
def machine() -> Machine:
    return Machine(EventQueue(), Random(1))


@pytest.fixture
def run() -> Run:
    settings = Settings(heartbeat=3 * SECOND, output_limit=4096)
    run = Run(Plan(1, settings), ClientMix)
    run._start()
    run._faults_stopped = True  # nobody else comes
    return run


def connect(run: Run, dialect: str, talk: Line) -> str:
    temper, manner = ClientPace(Random(1)), LinkOptions(Random(1))
    temper.reads_every = 0
    name = f"c{run.outcome.connections}"
    run.connect(PlainClient(dialect, talk), name, temper, manner)
    run._clients[name].send(talk.request())
    return name


def wait(run: Run, seconds: float) -> None:
    run.until(run.agenda.now + round(seconds * SECOND))


def test_a_clock_that_is_set_changes_nothing_for_a_server_that_runs(machine: Machine) -> None:
    clock = AnchoredClock(0, machine.wall_ns, machine.monotonic_ns)
    before = clock.now()
    machine.set_clock(-3600 * SECOND)
    assert clock.now() == before
    machine.set_clock(2 * 3600 * SECOND)
    assert clock.now() == before
    assert AnchoredClock(0, machine.wall_ns, machine.monotonic_ns).now() == before + 3600 * SECOND


def test_a_suspended_machine_does_not_count_the_time(machine: Machine) -> None:
    clock = AnchoredClock(0, machine.wall_ns, machine.monotonic_ns)
    before = clock.now()
    machine.suspend(10 * SECOND)
    machine.agenda.run(10 * SECOND)
    assert clock.now() == before
    machine.agenda.run(11 * SECOND)
    assert clock.now() == before + SECOND


def test_the_clock_goes_on_when_a_process_is_killed_on_a_slow_disk(machine: Machine) -> None:
    file = machine.disk.create("a", 0)
    machine.slow = SlowDisk(60 * SECOND, 1.0)
    seen = []

    def write() -> None:
        file.write_at(0, [b"slow"])
        seen.append(machine.monotonic())

    machine.in_round(write)
    assert seen[0] > SECOND
    machine.kill()
    assert machine.monotonic() == seen[0]
    machine.agenda.run(SECOND)
    assert machine.monotonic() == seen[0] + SECOND


def test_what_comes_to_a_busy_process_comes_after_what_it_does(machine: Machine) -> None:
    file = machine.disk.create("a", 0)
    machine.slow = SlowDisk(60 * SECOND, 1.0)
    machine.in_round(lambda: file.write_at(0, [b"slow"]))
    free = machine.free_at()
    assert free > SECOND
    seen = []
    machine.in_round(lambda: seen.append(machine.monotonic()))
    assert seen[0] >= free
    assert machine.free_at() > free


def test_no_operation_takes_effect_once_the_power_has_failed(machine: Machine) -> None:
    file = machine.disk.create("a", 0)
    machine.cut = (machine.operations + 1, False)
    with pytest.raises(PowerCut):
        file.write_at(0, [b"lost"])
    with pytest.raises(PowerCut):
        file.sync()
    machine.power_off()
    assert machine.disk.names() in ([], ["a"])


def test_a_half_open_connection_is_found_by_its_silence(run: Run) -> None:
    worker = Line(b'PUSH {"name":"n","queue":"q","retry":9}\nFETCH {"queues":["q"]}\n')
    connect(run, "masenko", worker)
    wait(run, 1)
    assert b'"id":1' in worker.heard
    run._links[0].drop(0, -1)
    assert run.server is not None
    wait(run, 1)
    assert len(run.server.connections.all()) == 1
    wait(run, 9)
    assert not run.server.connections.all()
    assert run.server.engine.job(1).state == READY


def test_bytes_on_their_way_are_lost_with_a_connection(run: Run) -> None:
    talk = Line(b'PUSH {"name":"n"}\n')
    connect(run, "masenko", talk)
    run._links[0].drop(0, 0)
    wait(run, 1)
    assert run.server is not None
    assert run.server.engine.state.next_id == 1
    assert not run.server.connections.all()


def test_a_client_that_does_not_read_is_not_read_from(run: Run) -> None:
    talk = Line(b"".join(b"PING\n" for _ in range(20_000)))
    name = connect(run, "masenko", talk)
    client = run._clients[name]
    client._pace.reads_every = 100 * SECOND
    wait(run, 2)
    server = run.server
    assert server is not None
    connection = server.connections.all()[0]
    assert 4096 < connection.unsent_bytes() < 3 * 4096
    assert connection._output_blocked
    client._pace.reads_every = 1000
    client._pace.reads = 100_000
    client._read()
    wait(run, 2)
    assert talk.heard == b"PONG {}\n" * 20_000


def test_what_runs_in_a_thread_ends_with_the_power(run: Run) -> None:
    machine = run.machine
    connect(run, "masenko", Line(b'PUSH {"name":"n"}\n'))
    machine.cut = (machine.operations + 1, True)
    wait(run, 0.001)
    wait(run, 5)
    assert run.outcome.crashes.total() == 1
    assert run.server is not None
