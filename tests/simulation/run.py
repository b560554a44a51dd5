"""One run: a server, its clients, all faults, then no faults and a check of the rest."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random
from typing import Any, cast

from simulation.agenda import SECOND, Call, EventQueue
from simulation.client import ClientPace, SimulatedClient
from simulation.crowd import (
    KILL,
    POWER,
    STOP,
    ClientSet,
    MakeClientSet,
    PlainClient,
    SetClient,
    SimulationContext,
)
from simulation.draws import Plan
from simulation.machine import Machine, PowerCut, SlowDisk
from simulation.network import Link, LinkOptions
from simulation.server import Server
from support.replaying import check_replay
from support.simulated import SimulatedServer
from support.talk import ProtocolDriver

from taskyard.journal.errors import JournalError

PATIENCE = 600 * SECOND  # in which every request without faults is answered
ERRORS = (errno.EIO, errno.EIO, errno.ENOSPC)
DAY = 86_400 * SECOND


@dataclass(slots=True)
class Outcome:
    seed: int
    digest: str = ""
    seconds: float = 0.0  # simulated
    operations: int = 0  # of the disk
    crashes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    trace: list[str] = field(default_factory=list)


class Run:
    def __init__(self, plan: Plan, make_crowd: MakeClientSet) -> None:
        self.plan = plan
        self.outcome = Outcome(plan.seed)
        self.agenda = EventQueue()
        self.chance = Random(f"run {plan.seed}")
        self.machine = Machine(self.agenda, self.chance)
        self._inside = Random(f"server {plan.seed}")
        self.server: Server | None = None
        self._last_time = self.machine.wall() / SECOND
        self.clients: ClientSet = make_crowd(
            SimulationContext(Random(f"crowd {plan.seed}"), self.now, plan.rules())
        )
        self._links: list[Link] = []
        self._clients: dict[str, SimulatedClient] = {}
        self._visits = 0
        self._faults_stopped = False
        self._starting = False
        self.promises_sync = False  # whatever the server's mode is: see planted.py
        self.operations_of_work = 0  # of the disk, until the faults stopped

    def now(self) -> float:
        """The server's time."""
        if self.server is not None:
            self._last_time = self.server.clock.now() / SECOND
        return self._last_time

    # The whole

    def run(self) -> Outcome:
        with _running(self):
            self.machine.cut = self.plan.cut
            self._start()
            for _ in range(self.plan.clients):
                self._plan_visit()
            for _ in range(self.plan.idlers):
                self._connect_client(idle=True)
            self._plan_faults()
            for seconds, kind in self.plan.script:
                self.agenda.at(round(seconds * SECOND), partial(self._run_fault, kind))
            self._pass(round(self.plan.seconds * SECOND))
            self.end()
        return self.outcome

    def end(self) -> None:
        """Stop the faults."""
        self.operations_of_work = self.machine.operations
        self._stop_faults()
        self.check_replay()
        self.clients.drain(_Connector(self))
        self.clients.check()
        self.sum_up()

    def check_replay(self) -> None:
        """What is on disk is what the server knows."""
        server = self.server
        assert server is not None
        self.machine.in_round(partial(check_replay, cast("SimulatedServer", server)))

    def sum_up(self) -> None:
        outcome = self.outcome
        outcome.jobs.update(self.clients.counts())
        outcome.seconds = self.agenda.now / SECOND
        outcome.operations = self.machine.operations
        outcome.digest = f"{self.agenda.digest()} {self.machine.disk.digest().hex()}"

    def _pass(self, microseconds: int) -> None:
        self.until(self.agenda.now + microseconds)

    def until(self, end: int) -> None:
        agenda = self.agenda
        while True:
            try:
                while agenda.step(end):
                    pass
            except PowerCut:
                self._power_fails(self.machine.cut_within)
            else:
                return

    # The server starts and ends

    def _start(self) -> None:
        """Now or, if that fails, soon."""
        self._starting = False
        machine = self.machine
        loop = machine.new_loop()
        asyncio._set_running_loop(cast(Any, loop))
        self.agenda.record("start")
        if not self._faults_stopped and self.chance.random() < self.plan.recovery_cuts:
            self._cut_at_some_point(30)
        if (
            not self._faults_stopped
            and self.plan.fault_rates.get("error")
            and self.chance.random() < 0.2
        ):
            self.outcome.faults["read"] += 1
            machine.disk.fail_call("read", self.chance.randint(1, 8))
        try:
            machine.in_round(partial(self._make_server, loop))
        except PowerCut:
            self._power_fails("start, " + machine.cut_within)
            return
        except JournalError as error:
            raise AssertionError(f"the server does not start: {error}") from error
        except OSError as error:
            self.agenda.record(f"no start: {error}")
            self.outcome.faults["start refused"] += 1
            loop.die()
            self._start_after(self.chance.randrange(SECOND))
            return
        self.clients.on_server_started()
        assert self.server is not None
        self.server.broker.on_failure(self._disk_failed)

    def _make_server(self, loop: object) -> None:
        self.server = None
        machine = self.machine
        self.server = Server(machine, machine.loop, self.plan.settings, self._inside)

    def _start_after(self, microseconds: int) -> None:
        if not self._starting:
            self._starting = True
            self.agenda.after(microseconds, self._start)

    def _power_fails(self, where: str = "") -> None:
        self.agenda.record(f"power cut {where}")
        self.outcome.crashes[where or "between"] += 1
        self.machine.power_off()
        waits = self.promises_sync or self.plan.settings.durability == "sync"
        safe = inf if waits else self.machine.synced_at
        self._server_is_gone(POWER, safe)

    def _kill(self) -> None:
        if self.server is None:
            return
        self.agenda.record("kill")
        self.outcome.crashes["kill"] += 1
        self.machine.kill()
        memory = self.plan.settings.durability == "memory" and not self.promises_sync
        self._server_is_gone(KILL, self.machine.written_at if memory else inf)

    def _stopped(self) -> None:
        self.agenda.record("stopped")
        self.machine.loop.die()
        server = self.server
        failed = server is not None and bool(server.broker.failure)
        memory = self.plan.settings.durability == "memory"
        self._server_is_gone(STOP, self.machine.written_at if failed and memory else inf)

    def _server_is_gone(self, how: str, safe: float) -> None:
        self.now()
        self.server = None
        links, self._links = self._links, []
        for link in links:
            link.server_died()
        self.clients.on_crash(how, safe)
        self._start_after(self.chance.choice((1000, 100_000, 2 * SECOND)))

    def _disk_failed(self, reason: str) -> None:
        """The operator starts the server again."""
        self.agenda.record(f"read only: {reason}")
        restart = self._kill if self.chance.random() < 0.5 else self._stop
        server = self.server
        self.agenda.after(self.chance.randrange(SECOND), partial(self._if_still, server, restart))

    def _if_still(self, server: Server | None, call: Call) -> None:
        if server is not None and self.server is server:
            call()

    def _stop(self) -> None:
        server = self.server
        if server is not None and server.is_accepting():
            self.agenda.record("stop")
            self.outcome.crashes["stop"] += 1
            self.machine.in_round(partial(server.begin_stop, self._stopped))
            server.loop.wake()

    # Clients

    def _plan_visit(self) -> None:
        if self._visits < self.plan.visits and not self._faults_stopped:
            self._visits += 1
            self.agenda.after(self.chance.randrange(300_000), self._connect_client)

    def _connect_client(self, idle: bool = False) -> None:
        if self._faults_stopped:
            return
        if self.server is None or not self.server.is_accepting():
            self.agenda.after(self.chance.randrange(1, SECOND), partial(self._connect_client, idle))
            return
        number = self.outcome.connections
        met = self.clients.add_client(f"c{number}")
        temper = ClientPace(self.chance, idle)
        temper.leaves_abruptly = temper.leaves_abruptly and not self.plan.gentle
        self.connect(met, f"c{number}", temper, LinkOptions(self.chance))

    def connect(
        self, met: SetClient, name: str, temper: ClientPace, manner: LinkOptions
    ) -> SimulatedClient:
        client = SimulatedClient(self.agenda, self.chance, self, name, met, temper)
        assert self.server is not None
        link = Link(self.agenda, self.chance, self.machine.loop, client, manner)
        self.outcome.connections += 1
        self._clients[name] = client
        self._links.append(link)
        client.start(link, acts=not self._faults_stopped)
        self.agenda.record(f"connect {name} {met.dialect}")
        self.machine.in_round(partial(self.server.accept, met.dialect, link))
        self.server.loop.wake()
        return client

    def gone(self, client: SimulatedClient, lost: bool) -> None:
        del self._clients[client.name]
        self.agenda.record(f"{'lost' if lost else 'left'} {client.name}")
        if lost:
            self.clients.on_connection_lost(client.connected_client.talk)
        self._links = [link for link in self._links if link.is_open()]
        self._plan_visit()

    # Trouble

    def _plan_faults(self) -> None:
        for kind in sorted(self.plan.fault_rates):
            self._plan_fault(kind)

    def _plan_fault(self, kind: str) -> None:
        pause = self.chance.expovariate(self.plan.fault_rates[kind] / 60)
        self.agenda.after(round(pause * SECOND), partial(self._next_fault, kind))

    def _next_fault(self, kind: str) -> None:
        if self._faults_stopped:
            return
        self._plan_fault(kind)
        self._run_fault(kind)

    def _run_fault(self, kind: str) -> None:
        if self.server is not None:
            call = getattr(self, "_" + kind.replace("-", "_"))
            self.agenda.record(f"trouble: {kind}")
            self.outcome.faults[kind] += 1
            call()

    def _point(self) -> None:
        self._cut_at_some_point(self.chance.choice((3, 30, 300)))

    def _cut_at_some_point(self, within: int) -> None:
        machine = self.machine
        nth = machine.operations + self.chance.randint(1, within)
        machine.cut = (nth, self.chance.random() < 0.5)

    def _power(self) -> None:
        self._power_fails()

    def _error(self) -> None:
        chance = self.chance
        kind = chance.choice(
            ("write", "sync", "sync_directory", "create", "rename", "remove", "allocate")
        )
        nth = chance.randint(1, 20 if kind in ("write", "sync") else 3)
        self.machine.disk.fail_call(kind, nth, chance.choice(ERRORS), chance.randrange(5000))

    def _short(self) -> None:
        self.machine.disk.shorten_write(self.chance.randint(1, 10), self.chance.randrange(3000))

    def _full(self) -> None:
        disk, chance = self.machine.disk, self.chance
        disk.set_capacity(disk.used() + chance.choice((0, 1000, 20_000)))
        self.agenda.after(chance.randrange(1, 10 * SECOND), partial(disk.set_capacity, -1))

    def _slow(self) -> None:
        chance = self.chance
        longest = chance.choice((10_000, 300_000, 5 * SECOND))
        self.machine.slow = SlowDisk(longest, chance.choice((0.02, 0.3)))
        self.agenda.after(chance.randrange(1, 10 * SECOND), self._not_slow)

    def _not_slow(self) -> None:
        self.machine.slow = SlowDisk()

    def _clock(self) -> None:
        by = self.chance.choice((SECOND, 60 * SECOND, 3600 * SECOND, 30 * DAY))
        self.machine.set_clock(self.chance.choice((-1, 1)) * self.chance.randrange(by))

    def _pause(self) -> None:
        self.machine.stop_process(self.chance.randrange(1, self._long()))

    def _suspend(self) -> None:
        self.machine.suspend(self.chance.randrange(1, self._long()))

    def _long(self) -> int:
        return int(self.chance.choice((100_000, 3 * SECOND, 60 * SECOND)))

    def _drop(self) -> None:
        for link in self._some_links():
            self._count_if_open("dropped")
            link.drop(self.chance.randrange(5 * SECOND), self.chance.randrange(20 * SECOND))

    def _half_open(self) -> None:
        for link in self._some_links():
            self._count_if_open("half-open links")
            link.drop(self.chance.randrange(5 * SECOND), self.chance.choice((-1, 900 * SECOND)))

    def _count_if_open(self, what: str) -> None:
        self.outcome.faults[what] += 1

    def _reset(self) -> None:
        for link in self._some_links():
            for client in list(self._clients.values()):
                if client.link is link:
                    client.hang_up()

    def _some_links(self) -> list[Link]:
        here = [link for link in self._links if link.knows_client()]
        if not here:
            return []
        count = self.chance.choice((1, 1, 2, len(here)))
        return self.chance.sample(here, min(count, len(here)))

    # Peace

    def _stop_faults(self) -> None:
        self._faults_stopped = True
        machine = self.machine
        machine.cut = None
        machine.slow = SlowDisk()
        machine.disk.heal()
        machine.disk.set_capacity(-1)
        self._await(self._is_up)
        for client in list(self._clients.values()):
            client.stop_soon(self.plan.gentle)
        if self.plan.gentle:
            self._await(lambda: not self._clients)
        for link in self._links:
            link.drop(0, 0)
        self._pass(2 * SECOND)
        server = self.server
        if server is not None and server.broker.failure:
            self._kill()
        self._await(self._is_up)

    def _is_up(self) -> bool:
        return self.server is not None and self.server.is_accepting()

    def _await(self, condition: Callable[[], bool]) -> None:
        end = self.agenda.now + PATIENCE
        while not condition():
            assert self.agenda.now < end, "in vain"
            self._pass(10_000)


class _Connector:
    """Connections for the clients when the faults have stopped."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._clients: dict[int, SimulatedClient] = {}  # by the identity of their talks
        self._names = 0

    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        self._names += 1
        quiet = Random(self._names)
        temper = ClientPace(quiet)
        temper.reads_every = 0
        client = self._run.connect(
            PlainClient(dialect, talk), f"drain{self._names}", temper, LinkOptions(quiet)
        )
        self._clients[id(talk)] = client
        self.wait(0.1)

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        self._clients[id(talk)].send(request)
        run = self._run
        end = run.agenda.now + PATIENCE
        while not talk.is_idle():
            assert self._clients[id(talk)].link is not None, "the connection was closed"
            assert run.agenda.now < end, f"a request is not answered: {request[:200]!r}"
            run.until(run.agenda.now + 2000)

    def wait(self, seconds: float) -> None:
        self._run.until(self._run.agenda.now + round(seconds * SECOND))

    def disconnect(self, talk: ProtocolDriver) -> None:
        client = self._clients.pop(id(talk))
        client.leave_now()
        self.wait(1)


@contextlib.contextmanager
def _running(run: Run) -> Iterator[None]:
    """A loop is said to run, and whatever goes wrong is told with the trace."""
    try:
        yield
    except Exception as error:
        run.outcome.failure = f"{type(error).__name__}: {error}"
        run.sum_up()
        run.outcome.trace = run.agenda.trace()
        raise
    finally:
        asyncio._set_running_loop(None)
        run.machine.loop.die()
