"""Clients of Workq over TCP: a storm of them, and one that takes everything out."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from random import Random

from support.drain_workq import drain
from support.ledger_workq import Ledger
from support.load_storm import Door, SocketStorm
from support.load_tasks import TaskWorker
from support.load_workq import Conversation, Habits
from support.process import ServerProcess

# With delays that are over soon enough to wait for them.
HABITS = Habits(longest_delay=0.5, largest_payload=2000, short_ttr=0.2)


def workq_storm(
    address: tuple[str, int], ledger: Ledger, chance: Random, name: str, clients: int
) -> SocketStorm:
    door = Door(address, partial(conversation, ledger, chance))
    return SocketStorm([door], chance, name, clients)


def mixed_storm(
    server: ServerProcess, ledger: Ledger, chance: Random, name: str, clients: int
) -> SocketStorm:
    """Some of the workers speak Masenko."""
    doors = [
        Door(server.address("workq"), partial(conversation, ledger, chance)),
        Door(server.address("masenko"), partial(task_worker, ledger, chance)),
    ]
    return SocketStorm(doors, chance, name, clients)


def task_worker(ledger: Ledger, chance: Random, name: str) -> TaskWorker:
    return TaskWorker(ledger, chance, name, time.time)


def conversation(ledger: Ledger, chance: Random, name: str) -> Conversation:
    return Conversation(ledger, chance, name, time.time, HABITS)


def take_everything(address: tuple[str, int], ledger: Ledger) -> None:
    """Take and finish all that is there and will come, and read every result."""
    asyncio.run(_take_everything(address, ledger))


async def _take_everything(address: tuple[str, int], ledger: Ledger) -> None:
    talk = conversation(ledger, Random(0), "drain")
    reader, writer = await asyncio.open_connection(*address)
    for request in drain(ledger, talk, wait_ms=100, tries=20):
        writer.write(request)
        while not talk.is_idle():
            data = await reader.read(65_536)
            assert data, "the server has closed the connection"
            talk.receive(data)
    writer.close()
