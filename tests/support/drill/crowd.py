"""A population of clients of all protocols that share queues and a history checker. No I/O.

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

from support.drill.api import ApiClients
from support.drill.book import CheckedLimits, HistoryChecker, HistoryCounts
from support.drill.drain import Drain, DrainWorker
from support.drill.glovebox import GloveboxClients
from support.drill.habits import NARROW, DriverOptions
from support.drill.masenko import MasenkoDriver
from support.drill.resp import RespClients
from support.drill.resp_alone import LoneRespClients
from support.drill.settings import SettingsDriver
from support.drill.workq import WorkqDriver
from support.talk import ProtocolDriver


class PopulationClient(NamedTuple):
    """A client that has connected, and the listener that it uses."""

    dialect: str
    talk: ProtocolDriver


class PopulationConnector(Protocol):
    """Connections to a server without faults."""

    def connect(self, dialect: str, talk: ProtocolDriver) -> None:
        """Connect this one."""

    def exchange(self, talk: ProtocolDriver, request: bytes) -> None:
        """Send its bytes, and pass it the replies, until the driver is idle."""

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""

    def disconnect(self, talk: ProtocolDriver) -> None:
        """Let it leave, and close its connection; the server knows when this returns."""


class LosableDriver(ProtocolDriver, Protocol):
    def lost(self) -> None:
        """Its connection has ended."""


MakeWorker = Callable[[str, HistoryChecker, Random, DriverOptions], DrainWorker]
MakeClient = Callable[[str], LosableDriver]

WORKERS: Mapping[str, MakeWorker] = {"masenko": MasenkoDriver, "workq": WorkqDriver}
DIALECTS = ("masenko", "workq", "resp", "glovebox", "api")


class ClientPopulation:
    def __init__(
        self,
        chance: Random,
        clock: Callable[[], float],
        habits: DriverOptions | None = None,
        *,
        limits: CheckedLimits | None = None,
        sure_connections: bool = False,
        forgetful: bool = False,
        dialects: Sequence[str] = DIALECTS,
        narrow: bool = True,
    ) -> None:
        """`sure_connections`: see HistoryChecker; `forgetful`: a crash may undo what was told, as
        its mode of durability allows the server; `dialects`: those that are spoken.
        """
        self.habits = habits or DriverOptions()
        limits = limits or CheckedLimits()
        if self.habits.disk_fails:
            limits.late = inf
        self.book = HistoryChecker(clock, limits, sure_connections=sure_connections)
        self._chance = chance
        self._dialects = tuple(dialects)
        self._narrow = narrow
        self._glovebox = GloveboxClients(self.book, chance, self.habits, forgetful=forgetful)
        self._alone = LoneRespClients(chance, self.habits)
        self._models = not forgetful  # they tell what was answered from what was not, and no more
        self._kinds: Mapping[str, MakeClient] = {
            "masenko": partial(self._make_client, MasenkoDriver),
            "workq": partial(self._make_client, WorkqDriver),
            "resp": RespClients(self.book, chance, self.habits).add_client,
            "glovebox": self._glovebox.add_client,
            "api": ApiClients(self.book, chance, self.habits).add_client,
        }
        self._client_count = 0
        self._sum: HistoryCounts | None = None

    def add_client(self, name: str) -> PopulationClient:
        """Add a new client, or one that returns."""
        self._client_count += 1
        name = f"{name}:{self._client_count}"
        if self._wants_settings():
            return PopulationClient("resp", self._make_client(SettingsDriver, name))
        dialect = self._chance.choice(self._dialects)
        alone = self._models and self._alone.has_room()
        if dialect == "resp" and alone and self._chance.random() < 0.2:
            return PopulationClient(dialect, self._alone.add_client(name))
        return PopulationClient(dialect, self._kinds[dialect](name))

    def add_client_of(self, dialect: str, name: str) -> ProtocolDriver:
        """The same for a caller that has chosen the listener."""
        self._client_count += 1
        name = f"{name}:{self._client_count}"
        if dialect == "resp" and self._wants_settings():
            return self._make_client(SettingsDriver, name)
        return self._kinds[dialect](name)

    def _wants_settings(self) -> bool:
        wanted = self._narrow and NARROW not in self.book.limits.in_flight
        return wanted and self._chance.random() < 0.5

    def _make_client(
        self, kind: Callable[[str, HistoryChecker, Random, DriverOptions], LosableDriver], name: str
    ) -> LosableDriver:
        return kind(name, self.book, self._chance, self.habits)

    def on_connection_lost(self, talk: ProtocolDriver) -> None:
        """Its connection has ended without `leave`, perhaps in the middle of something."""
        cast("LosableDriver", talk).lost()

    def on_crash(self, how: str = "power", safe: float = inf) -> None:
        """The server is gone. What was told up to the time `safe` must be there afterwards."""
        self.book.on_crash(forgets_from=safe)
        self._glovebox.on_crash()
        self._alone.on_crash()
        limits = self.book.limits
        if safe != inf:  # so may be what was said of the queue
            limits.in_flight.pop(NARROW, None)
            limits.in_flight_of_key.pop(NARROW, None)
            limits.rate.pop(NARROW, None)

    def on_server_started(self) -> None:
        """It is there again."""

    def make_drain(self) -> tuple[str, Drain]:
        """Make a client that takes out what is ready, over a random protocol."""
        dialect = self._chance.choice(list(WORKERS))
        self._client_count += 1
        worker = WORKERS[dialect](
            f"drain:{self._client_count}", self.book, self._chance, self.habits
        )
        return dialect, Drain(worker)

    def settled(self) -> None:
        """So much time has passed since all connections ended (`habits.longest_wait`) that nothing
        is held by others or delayed any more: what is drained now is the rest, and in order."""
        self.book.draining = True

    def drain(self, door: PopulationConnector) -> None:
        """Take and finish whatever is there. Nobody else is connected, and the server knows."""
        self._drain(door)
        door.wait(self.habits.longest_wait())
        self.settled()
        self._drain(door)
        self._glovebox.read_owed_notices(door)
        if self._models:
            self._alone.check_databases(door)

    def _drain(self, door: PopulationConnector) -> None:
        dialect, drain = self.make_drain()
        door.connect(dialect, drain)
        while not drain.done:
            door.exchange(drain, drain.request())
        door.disconnect(drain)

    def check(self) -> HistoryCounts:
        """HistoryViolation if the answers cannot all be true."""
        self._sum = self.book.check()
        return self._sum

    def counts(self) -> dict[str, int]:
        """Figures for the sum; what is lost or invented does not come as far as this."""
        counts = asdict(self._sum or self.book.sum)
        counts.update(counts.pop("notes"))
        return {**counts, "lost": 0, "invented": 0}
