"""The clients of the simulated server: of all protocols, and one tally of them all."""

from __future__ import annotations

from simulation.crowd import ClientSet, PlainClient, ServerConnector, SetClient, SimulationContext
from simulation.drilled import history_checked_clients
from simulation.talks import DRIVERS, QUEUES, TTR_MS, PlainDriver, RespDriver
from simulation.tally import JobTally
from support.talk import ProtocolDriver


class ClientMix:
    def __init__(self, world: SimulationContext) -> None:
        self._world = world
        self._tally = JobTally(world.clock)
        self._client_count = 0

    def add_client(self, name: str) -> SetClient:
        """Each protocol in turn at first."""
        self._client_count += 1
        kind = (
            DRIVERS[self._client_count - 1]
            if self._client_count <= len(DRIVERS)
            else self._world.chance.choice(DRIVERS)
        )
        largest = self._world.settings.largest_payload
        return PlainClient(kind.dialect, kind(self._tally, self._world.chance, name, largest))

    def on_connection_lost(self, talk: ProtocolDriver) -> None:
        if isinstance(talk, PlainDriver):
            talk.lost()

    def on_crash(self, how: str, safe: float) -> None:
        self._tally.on_crash(safe)

    def on_server_started(self) -> None:
        """Nothing was agreed upon with the server that is gone."""

    def drain(self, door: ServerConnector) -> None:
        """Pop what is there, until all leases are over."""
        talk = RespDriver(self._tally, self._world.chance, "drain", 10)
        door.connect("resp", talk)
        for _ in range(3):
            for queue in QUEUES:
                talk.empty = False
                while not talk.empty:
                    door.exchange(talk, talk.pop(queue, 50))
            door.wait(TTR_MS / 1000)
        door.disconnect(talk)

    def check(self) -> None:
        self._tally.check()

    def counts(self) -> dict[str, int]:
        return dict(self._tally.counts)


def choose_clients(world: SimulationContext) -> ClientSet:
    """Choose those of the drill, whose history checker has every rule; or plain ones with fewer
    checks.
    """
    return history_checked_clients(world) if world.chance.random() < 0.7 else ClientMix(world)
