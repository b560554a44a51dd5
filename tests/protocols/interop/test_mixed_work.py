"""Clients of all protocols at work on one queue in no particular order, with crashes in between:
every job is done, none is done twice, and none comes again once its end was acknowledged.
"""

from random import Random

import pytest
from protocols.interop.adapters.base import (
    Adapter,
    AlreadyEnded,
    Can,
    NotFound,
    NotHeld,
    Options,
    Taken,
)
from protocols.interop.world import TimedWorld, able
from support.effort import effort
from support.simulated import SimulatedServer

STEPS = 250
CLIENTS = 3  # of each protocol
ROUNDS = 40  # of taking whatever has come back, until everything must be done
PATIENCE = 200  # failures and lost leases that are not final
FOR_EVER = 1e9
TTR = 30.0


class Crew:
    """The clients, what each of them believes to hold, and what has been acknowledged."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._world = TimedWorld(SimulatedServer(max_losses=PATIENCE), "crash")
        self._clients = [
            self._world.open(adapter) for adapter in able(Can.PUSH) for _ in range(CLIENTS)
        ]
        self._held: list[tuple[Adapter, Taken]] = []
        self._frail: set[bytes] = set()  # a failure would be their end
        self.pushed: set[bytes] = set()
        self.done: set[bytes] = set()

    def work(self) -> None:
        """One step of somebody."""
        chance = self._random
        client = chance.choice(self._clients)
        roll = chance.random()
        if roll < 0.3:
            self._push(client)
        elif roll < 0.6:
            self._take()
        elif roll < 0.85:
            self._end_one(failing=chance.random() < 0.2)
        elif roll < 0.9:
            self._world.advance(chance.uniform(0, 5))
            for other in self._clients:  # many short pauses would make a long silence
                other.keep_alive()
        elif roll < 0.93:
            self._world.advance(chance.uniform(25, 65))
        elif roll < 0.97:
            self._replace(client)
        else:
            self._world.interrupt()

    def finish_all(self) -> None:
        """Do everything that is left, however often it has to come back."""
        while self._held:
            self._end_one(failing=False)
        for _ in range(ROUNDS):
            while self._take():
                if self._held:
                    client, taken = self._held.pop()
                    client.finish(taken)
                    self._note_done(taken)
            if self.done == self.pushed:
                return
            self._world.advance(300)

    def nothing_is_left(self) -> None:
        self._world.sees()
        for client in self._takers():
            self._world.nothing_for(client)

    def _push(self, client: Adapter) -> None:
        options = Options(
            fails=PATIENCE if Can.MAX_FAILS in client.can else None,
            ttl=FOR_EVER if Can.TTL in client.can else None,
            ttr=TTR if Can.TTR in client.can else None,
        )
        job = self._world.push(client, options)
        self.pushed.add(job.payload)
        if client.default_fails == 1 and options.fails is None:
            self._frail.add(job.payload)

    def _takers(self) -> list[Adapter]:
        return [client for client in self._clients if client.can & {Can.TAKE, Can.POP}]

    def _take(self) -> bool:
        if not self._ready():
            return False
        client = self._random.choice(self._takers())
        taken = self._world.take(client)
        assert taken.payload in self.pushed
        assert taken.payload not in self.done, "it came again"
        if Can.POP in client.can:
            self._note_done(taken)
        else:
            self._held.append((client, taken))
        return True

    def _ready(self) -> int:
        with self._world.visit(able(Can.COUNT_READY)[0]) as visitor:
            try:
                return visitor.counts(self._world.queue)["ready"]
            except NotFound:
                return 0

    def _end_one(self, failing: bool) -> None:
        if not self._held:
            return
        client, taken = self._held.pop(self._random.randrange(len(self._held)))
        fails = failing and Can.FAIL in client.can and taken.payload not in self._frail
        try:
            client.fail(taken) if fails else client.finish(taken)
        except NotHeld:
            return  # its lease has ended, as it may
        except (NotFound, AlreadyEnded):
            assert taken.payload in self.done
            return
        if not fails:
            self._note_done(taken)

    def _note_done(self, taken: Taken) -> None:
        assert taken.payload not in self.done, "it was done twice"
        self.done.add(taken.payload)

    def _replace(self, client: Adapter) -> None:
        """A client goes away without a word, and another comes."""
        self._clients.remove(client)
        self._world.close(client)
        self._clients.append(self._world.open(type(client)))
        self._held = [(holder, taken) for holder, taken in self._held if holder is not client]


@pytest.mark.parametrize("seed", range(effort(12, 6)))
def test_every_job_is_done_once(seed: int) -> None:
    crew = Crew(seed)
    for _ in range(STEPS):
        crew.work()
    assert len(crew.done) > 10
    crew.finish_all()
    assert crew.done == crew.pushed
    crew.nothing_is_left()
