"""Who comes to the simulated server: clients of all dialects, and one tally of them all."""

from __future__ import annotations

from simulation.crowd import Crowd, Door, Guest, Met, World
from simulation.drilled import drilled
from simulation.talks import QUEUES, TALKS, TTR_MS, PlainTalk, RespTalk
from simulation.tally import Tally
from support.talk import Talk


class People:
    def __init__(self, world: World) -> None:
        self._world = world
        self._tally = Tally(world.clock)
        self._met = 0

    def meet(self, name: str) -> Met:
        """Each dialect in turn at first."""
        self._met += 1
        kind = TALKS[self._met - 1] if self._met <= len(TALKS) else self._world.chance.choice(TALKS)
        largest = self._world.settings.largest_payload
        return Guest(kind.dialect, kind(self._tally, self._world.chance, name, largest))

    def lost(self, talk: Talk) -> None:
        if isinstance(talk, PlainTalk):
            talk.lost()

    def crashed(self, how: str, safe: float) -> None:
        self._tally.crashed(safe)

    def started(self) -> None:
        """Nothing was agreed upon with the server that is gone."""

    def drain(self, door: Door) -> None:
        """Pop what is there, until all leases are over."""
        talk = RespTalk(self._tally, self._world.chance, "drain", 10)
        door.enter("resp", talk)
        for _ in range(3):
            for queue in QUEUES:
                talk.empty = False
                while not talk.empty:
                    door.ask(talk, talk.pop(queue, 50))
            door.wait(TTR_MS / 1000)
        door.leave(talk)

    def check(self) -> None:
        self._tally.check()

    def counts(self) -> dict[str, int]:
        return dict(self._tally.counts)


def the_crowd(world: World) -> Crowd:
    """Those of the drill, whose book knows every rule; or plain ones, who are content with less."""
    return drilled(world) if world.chance.random() < 0.7 else People(world)
