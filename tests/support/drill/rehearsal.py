"""A population on a simulated server: clients connect and leave, connections break, the server
crashes; at the end everything is taken out and the history is checked.

A seed gives the same run each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol, cast

from support.crashing import break_disk, make_yard
from support.drill.book import HistoryChecker, HistoryCounts
from support.drill.glovebox import GloveboxClients
from support.drill.habits import EVERY_QUEUE, DriverOptions
from support.drill.resp import RespClients, RespDriver
from support.drill.resp_alone import LoneRespClients
from support.drill.yard_http import connect_http
from support.simulated import SimulatedPeer, SimulatedServer
from support.talk import ProtocolDriver

STEPS = 160
LIVES = 4


class LosableDriver(ProtocolDriver, Protocol):
    def lost(self) -> None:
        """Its connection has ended."""


class ProtocolClients(Protocol):
    def add_client(self, name: str) -> LosableDriver: ...


@dataclass(frozen=True, slots=True)
class Kind:
    dialect: str
    people: ProtocolClients


@dataclass(eq=False, slots=True)
class Caller:
    """A client and its connection."""

    talk: LosableDriver
    peer: SimulatedPeer
    chance: Random

    def send(self, requests: int) -> None:
        if self.peer.reading and not self.peer.closed:
            data = b"".join(self.talk.request() for _ in range(requests))
            if len(data) > 1 and self.chance.random() < 0.1:
                cut = self.chance.randrange(1, len(data))
                self.peer.arrive(data[:cut])
                data = data[cut:]
            self.peer.arrive(data)

    def read(self) -> None:
        data = self.peer.take()
        cut = self.chance.randrange(len(data) + 1) if self.chance.random() < 0.2 else 0
        for part in (data[:cut], data[cut:]):
            if part:
                self.talk.receive(part)
        unasked = getattr(self.talk, "answer", bytes)()
        if unasked and not self.peer.closed:
            self.peer.arrive(unasked)


class SimulatedRun:
    def __init__(self, seed: int, *, disk_fails: bool = False) -> None:
        self.chance = Random(seed)
        self.server: SimulatedServer = make_yard(self.chance, seed)
        self.book = HistoryChecker(self.server.now)
        self.habits = DriverOptions()
        self.kinds: Sequence[Kind] = ()
        self._disk_fails = disk_fails
        self._callers: list[Caller] = []
        self._met = 0

    def run(self) -> HistoryCounts:
        for life in range(LIVES):
            self.server.scheduler.slow = self.chance.random() < 0.6
            if self._disk_fails and self.chance.random() < 0.5:
                break_disk(self.server, self.chance)
            self._callers = [self._come(life) for _ in range(self.chance.randint(2, 6))]
            for _ in range(self.chance.randint(1, STEPS)):
                self._step(life)
            self._end_life()
        self.drain()
        return self.book.check()

    def _come(self, life: int) -> Caller:
        self._met += 1
        kinds = [kind for kind in self.kinds if getattr(kind.people, "has_room", lambda: True)()]
        kind = self.chance.choice(kinds)
        talk = kind.people.add_client(f"{kind.dialect}{life}-{self._met}")
        return self._carry(kind.dialect, talk)

    def _carry(self, dialect: str, talk: LosableDriver) -> Caller:
        web = dialect in ("glovebox", "api")
        peer = connect_http(self.server) if web else self.server.connect(dialect)
        return Caller(talk, peer, self.chance)

    def _step(self, life: int) -> None:
        chance, yard = self.chance, self.server
        action = chance.random()
        at = chance.randrange(len(self._callers))
        caller = self._callers[at]
        if action < 0.5:
            caller.send(chance.choice([1, 1, 1, 2, 6]))
        elif action < 0.7:
            yard.run_pending()
        elif action < 0.8:
            yard.scheduler.step()
        elif action < 0.87:
            if yard.scheduler.blocking:
                yard.scheduler.finish_blocking()
        elif action < 0.95:
            yard.advance(chance.choice([0.001, 0.05, 0.6, 3.0]))
        elif action < 0.97 or caller.peer.closed:
            self._lose(caller)
            self._callers[at] = self._come(life)
        elif caller.talk.is_idle():
            caller.read()
            if caller.talk.is_idle():
                caller.talk.leave()
                caller.peer.close()
                self._callers[at] = self._come(life)
        if chance.random() < 0.8:
            for each in self._callers:
                each.read()

    def _lose(self, caller: Caller) -> None:
        if self.chance.random() < 0.5:
            caller.read()
        if self.chance.random() < 0.5:
            caller.peer.close()
            caller.talk.lost()
        else:  # the server hears of it later
            caller.talk.lost()
            self.server.scheduler.call_soon(caller.peer._lose)

    def _end_life(self) -> None:
        how = self.chance.random()
        for caller in self._callers:
            if self.chance.random() < 0.5:
                caller.read()
            caller.talk.lost()
        self._callers = []
        self.server.disk.heal()
        if how < 0.6:
            self.server.crash(self.chance if how < 0.4 else None)
        elif how < 0.8 or self.server.broker.failure:
            self.server.kill()
        else:
            self.server.scheduler.slow = False
            while self.server.scheduler.blocking:
                self.server.scheduler.finish_blocking()
            self.server.restart()
        for kind in self.kinds:
            on_crash = getattr(kind.people, "on_crash", None)
            if on_crash is not None:
                on_crash()
        self.book.on_crash()

    # The end

    def drain(self) -> None:
        yard = self.server
        yard.scheduler.slow = False
        people = next(k.people for k in self.kinds if isinstance(k.people, RespClients))
        talk = people.add_client("drain")
        assert isinstance(talk, RespDriver)
        caller = Caller(talk, yard.connect("resp"), Random(0))
        self._ask(caller, talk.finish_all())
        yard.advance(2 * self.habits.long_ttr)  # all leases are over
        self.book.draining = True
        idle_for = 0.0
        while idle_for < 4 * self.habits.long_ttr:
            self._ask(caller, talk.take(EVERY_QUEUE, 50))
            if talk.holds_any():
                self._ask(caller, talk.finish_all())
                idle_for = 0.0
            else:
                yard.advance(5.0)
                idle_for += 5.0

        for kind in self.kinds:
            if isinstance(kind.people, GloveboxClients):
                kind.people.read_owed_notices(self)
            if isinstance(kind.people, LoneRespClients):
                kind.people.check_databases(self)

    # As a door

    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        self._callers = [self._carry(dialect, cast("LosableDriver", talk))]

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        self._ask(self._callers[0], request)

    def disconnect(self, talk: ProtocolDriver) -> None:
        self._callers.pop().peer.close()

    def _ask(self, caller: Caller, request: bytes) -> None:
        caller.peer.send(request)
        caller.read()
        assert caller.talk.is_idle(), "the server does not answer"
