"""A crowd of clients of all dialects that share queues and a book. No I/O.

Who carries their bytes tells the crowd what happens to connections and to the server. Whoever has
received all there was calls `leave` of a talk that goes with no request open; `lost` is for all
other ends of connections.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import inf
from random import Random
from typing import NamedTuple, Protocol, cast

from support.drill.api import ApiPeople
from support.drill.book import Book, Limits, Sum
from support.drill.drain import Drain, Worker
from support.drill.glovebox import GloveboxPeople
from support.drill.habits import NARROW, Habits
from support.drill.masenko import MasenkoTalk
from support.drill.resp import RespPeople
from support.drill.resp_alone import AlonePeople
from support.drill.settings import SettingsTalk
from support.drill.workq import WorkqTalk
from support.talk import Talk


class Met(NamedTuple):
    """A client that has come, and the listener that it goes to."""

    dialect: str
    talk: Talk


class Door(Protocol):
    """The way to a server that is left in peace."""

    def enter(self, dialect: str, talk: Talk) -> None:
        """Connect this one."""

    def ask(self, talk: Talk, request: bytes) -> None:
        """Carry it, and what comes back, until the talk is idle."""

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""

    def leave(self, talk: Talk) -> None:
        """Let it leave, and close its connection; the server knows when this returns."""


class LosableTalk(Talk, Protocol):
    def lost(self) -> None:
        """Its connection has ended."""


MakeWorker = Callable[[str, Book, Random, Habits], Worker]
MeetOne = Callable[[str], LosableTalk]

WORKERS: Mapping[str, MakeWorker] = {"masenko": MasenkoTalk, "workq": WorkqTalk}
DIALECTS = ("masenko", "workq", "resp", "glovebox", "api")


class Crowd:
    def __init__(
        self,
        chance: Random,
        clock: Callable[[], float],
        habits: Habits | None = None,
        *,
        limits: Limits | None = None,
        sure_connections: bool = False,
        forgetful: bool = False,
        dialects: Sequence[str] = DIALECTS,
        narrow: bool = True,
    ) -> None:
        """`sure_connections`: see Book; `forgetful`: a crash may undo what was told, as its mode of
        durability allows the server; `dialects`: those that are spoken."""
        self.habits = habits or Habits()
        limits = limits or Limits()
        if self.habits.disk_fails:
            limits.late = inf
        self.book = Book(clock, limits, sure_connections=sure_connections)
        self._chance = chance
        self._dialects = tuple(dialects)
        self._narrow = narrow
        self._glovebox = GloveboxPeople(self.book, chance, self.habits, forgetful=forgetful)
        self._alone = AlonePeople(chance, self.habits)
        self._models = not forgetful  # they tell what was answered from what was not, and no more
        self._kinds: Mapping[str, MeetOne] = {
            "masenko": partial(self._come, MasenkoTalk),
            "workq": partial(self._come, WorkqTalk),
            "resp": RespPeople(self.book, chance, self.habits).meet,
            "glovebox": self._glovebox.meet,
            "api": ApiPeople(self.book, chance, self.habits).meet,
        }
        self._met = 0
        self._sum: Sum | None = None

    def meet(self, name: str) -> Met:
        """Somebody new, or a client that comes back."""
        self._met += 1
        name = f"{name}:{self._met}"
        if self._wants_settings():
            return Met("resp", self._come(SettingsTalk, name))
        dialect = self._chance.choice(self._dialects)
        alone = self._models and self._alone.has_room()
        if dialect == "resp" and alone and self._chance.random() < 0.2:
            return Met(dialect, self._alone.meet(name))
        return Met(dialect, self._kinds[dialect](name))

    def meet_at(self, dialect: str, name: str) -> Talk:
        """The same for who has chosen the listener."""
        self._met += 1
        name = f"{name}:{self._met}"
        if dialect == "resp" and self._wants_settings():
            return self._come(SettingsTalk, name)
        return self._kinds[dialect](name)

    def _wants_settings(self) -> bool:
        wanted = self._narrow and NARROW not in self.book.limits.in_flight
        return wanted and self._chance.random() < 0.5

    def _come(
        self, kind: Callable[[str, Book, Random, Habits], LosableTalk], name: str
    ) -> LosableTalk:
        return kind(name, self.book, self._chance, self.habits)

    def lost(self, talk: Talk) -> None:
        """Its connection has ended without `leave`, perhaps in the middle of something."""
        cast("LosableTalk", talk).lost()

    def crashed(self, how: str = "power", safe: float = inf) -> None:
        """The server is gone. What was told up to the time `safe` must be there afterwards."""
        self.book.crashed(forgets_from=safe)
        self._glovebox.crashed()
        self._alone.crashed()
        limits = self.book.limits
        if safe != inf:  # so may be what was said of the queue
            limits.in_flight.pop(NARROW, None)
            limits.in_flight_of_key.pop(NARROW, None)
            limits.rate.pop(NARROW, None)

    def started(self) -> None:
        """It is there again."""

    def make_drain(self) -> tuple[str, Drain]:
        """Somebody who takes out what is ready, in a dialect that comes to mind."""
        dialect = self._chance.choice(list(WORKERS))
        self._met += 1
        worker = WORKERS[dialect](f"drain:{self._met}", self.book, self._chance, self.habits)
        return dialect, Drain(worker)

    def settled(self) -> None:
        """So much time has passed since all connections ended (`habits.longest_wait`) that nothing
        is held by others or delayed any more: what is drained now is the rest, and in order."""
        self.book.draining = True

    def drain(self, door: Door) -> None:
        """Take and finish whatever is there. Nobody else is connected, and the server knows."""
        self._drain(door)
        door.wait(self.habits.longest_wait())
        self.settled()
        self._drain(door)
        self._glovebox.hear_out(door)
        if self._models:
            self._alone.look(door)

    def _drain(self, door: Door) -> None:
        dialect, drain = self.make_drain()
        door.enter(dialect, drain)
        while not drain.done:
            door.ask(drain, drain.request())
        door.leave(drain)

    def check(self) -> Sum:
        """Untrue if what was told cannot all be true."""
        self._sum = self.book.check()
        return self._sum

    def counts(self) -> dict[str, int]:
        """Figures for the sum; what is lost or invented does not come as far as this."""
        counts = asdict(self._sum or self.book.sum)
        counts.update(counts.pop("notes"))
        return {**counts, "lost": 0, "invented": 0}
