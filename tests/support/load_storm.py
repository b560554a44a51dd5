"""Clients over TCP that talk to a server process at random until it dies under them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from support.ledger import Ledger
from support.load import DEAD, QUEUES, Conversation
from support.talk import MakeDriver


class Door(NamedTuple):
    """Where a kind of clients comes in."""

    address: tuple[str, int]
    meet: MakeDriver


class SocketStorm:
    """Some clients at once. After so many replies, something is done to the server."""

    def __init__(self, doors: Sequence[Door], chance: Random, name: str, clients: int) -> None:
        self._doors = doors
        self._chance = chance
        self._name = name
        self._clients = clients
        self._met = 0
        self._replies = 0

    def rage(self, replies: int, then: Callable[[], None]) -> None:
        """Talk until `then`, called after that many replies, has ended the server."""
        asyncio.run(self._rage(replies, then))

    async def _rage(self, replies: int, then: Callable[[], None]) -> None:
        enough = asyncio.Event()
        talks = [asyncio.create_task(self._talk_on(replies, enough)) for _ in range(self._clients)]
        ended = asyncio.create_task(enough.wait())
        await asyncio.wait([ended, *talks], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        await asyncio.to_thread(then)
        await asyncio.gather(*talks)

    async def _talk_on(self, replies: int, enough: asyncio.Event) -> None:
        """One client after the other, until the server is gone."""
        try:
            while await self._talk(replies, enough):
                pass
        except ConnectionError:
            pass

    async def _talk(self, replies: int, enough: asyncio.Event) -> bool:
        """One connection; true if it was the client that has left."""
        chance = self._chance
        self._met += 1
        door = chance.choice(self._doors)
        talk = door.meet(f"{self._name}-{self._met}")
        reader, writer = await asyncio.open_connection(*door.address)
        try:
            while chance.random() > 0.01:
                pipelined = chance.choice([1, 1, 1, 2, 8])
                writer.write(b"".join(talk.request() for _ in range(pipelined)))
                while not talk.is_idle():
                    data = await reader.read(65_536)
                    if not data:
                        return False
                    talk.receive(data)
                self._replies += pipelined
                if self._replies >= replies:
                    enough.set()
            talk.leave()
        finally:
            writer.close()
        return True


def masenko_storm(
    address: tuple[str, int], ledger: Ledger, chance: Random, name: str, clients: int
) -> SocketStorm:
    meet = partial(conversation, ledger, chance)
    return SocketStorm([Door(address, meet)], chance, name, clients)


def conversation(ledger: Ledger, chance: Random, name: str) -> Conversation:
    """With delays and retries that are over soon enough to wait for them."""
    return Conversation(
        ledger, chance, name, time.time, longest_delay=0.5, retries=(0, 0, 1), largest_payload=2000
    )


def drain(address: tuple[str, int], ledger: Ledger) -> None:
    """Take and finish everything that is there and will come."""
    ledger.draining = True
    asyncio.run(_drain(address, ledger))


async def _drain(address: tuple[str, int], ledger: Ledger) -> None:
    talk = conversation(ledger, Random(0), "drain")
    reader, writer = await asyncio.open_connection(*address)

    async def ask(request: bytes) -> None:
        writer.write(request)
        while not talk.is_idle():
            data = await reader.read(65_536)
            assert data, "the server has closed the connection"
            talk.receive(data)

    in_vain = 0
    while True:
        await ask(talk.fetch(timeout_ms=500, queues=[*QUEUES, DEAD]))
        held = ledger.held_by(talk.name)
        for entry in held:
            await ask(talk.finish(entry))
        if not held:
            await ask(talk.info())
            if not talk.waiting_jobs:
                break
            in_vain += 1
            assert in_vain < 20, f"{talk.waiting_jobs} jobs are there, and cannot be had"
    writer.close()
