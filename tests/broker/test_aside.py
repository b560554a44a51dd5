"""Replies that wait for a place of their own, of clients that are cut off meanwhile."""

import json

import pytest
from support.glovebox import Client
from support.simulated import ServerSide, SimulatedPeer, SimulatedYard

from taskyard.broker.aside import Aside
from taskyard.broker.outbox import Outbox
from taskyard.broker.receiver import Receiver

LABEL = 1
MANY = 100


class Witness(SimulatedPeer):
    """A transport that remembers what is written to it after its end, too."""

    def __init__(self, yard: SimulatedYard) -> None:
        super().__init__(yard)
        self.written: list[bytes] = []
        self.ends: list[str] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.ends.append("abort")

    def _shut(self) -> None:
        self.ends.append("close")


class World:
    def __init__(self) -> None:
        self.yard = SimulatedYard()
        self.broker = self.yard.broker
        self.transport = Witness(self.yard)
        side = ServerSide(self.transport)
        self.outbox = Outbox(self.broker, side, Receiver(1), 1 << 20)
        self.aside = Aside(self.broker, self.outbox, self.broker.synced)
        self.mark = self.broker.journal.durable + 1

    def reach_the_mark(self) -> None:
        self.broker.synced.reached(self.mark)


def test_what_is_put_aside_is_held_until_its_mark() -> None:
    world = World()
    world.aside.put(b"x" * 1000, world.mark)
    assert (world.broker.held, world.outbox.size) == (1000, 1000)
    world.reach_the_mark()
    assert (world.broker.held, world.outbox.size) == (0, 0)
    assert world.transport.written == [b"x" * 1000]


def test_what_is_put_aside_is_given_back_once_by_an_abort() -> None:
    world = World()
    world.aside.put(b"x" * 1000, world.mark)
    world.outbox.abort()
    assert (world.broker.held, world.outbox.size) == (0, 0)
    world.reach_the_mark()
    assert (world.broker.held, world.outbox.size) == (0, 0)
    assert world.transport.written == []
    assert not world.aside.waits()


def test_nothing_is_put_aside_after_an_abort() -> None:
    world = World()
    world.outbox.abort()
    world.aside.put(b"x" * 1000, world.mark)
    assert (world.broker.held, world.outbox.size) == (0, 0)
    assert not world.aside.waits()
    world.reach_the_mark()
    assert world.transport.written == []


def test_an_abort_comes_before_a_close_that_waited() -> None:
    world = World()
    world.aside.put(b"x" * 1000, world.mark)
    world.outbox.close()
    world.outbox.abort()
    world.reach_the_mark()
    assert world.transport.ends == ["abort"]


def yard_with_queue(output_limit: int = 1 << 20) -> SimulatedYard:
    """One whose replies wait for nothing; a sync happens when the test lets it."""
    yard = SimulatedYard(durability="memory", inline_sync=False, output_limit=output_limit)
    Client(yard).create("q")
    yard.advance(2.0)
    yard.scheduler.slow = True
    return yard


def post(client: Client, *stages: str) -> None:
    """The server's loop has not gone on by then, so nothing is written."""
    assert client.peer.connection is not None
    message = {"type": "post", "queue": "q", "message": "m", "label": 1, "notify": stages}
    client.peer.connection.text(json.dumps(message).encode())


def sync(yard: SimulatedYard) -> None:
    yard.advance(2.0)
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.settle()


@pytest.mark.parametrize("stage", ["write", "sync"])
def test_a_glovebox_client_that_does_not_read_is_cut_off_with_notices_outstanding(
    stage: str,
) -> None:
    yard = yard_with_queue(output_limit=1000)
    client, other = Client(yard), Client(yard)
    assert client.peer.connection is not None
    assert other.peer.connection is not None
    for _ in range(MANY):
        post(client, "finish")
    post(client, stage)
    outstanding = yard.broker.held
    assert outstanding > 0
    client.peer.connection.stuffed = True  # its socket is full
    for _ in range(MANY):
        other.peer.connection.text(b'{"type":"pop","queue":"q","label":2,"sync":"ready"}')
    assert client.peer.closed
    assert yard.broker.held == 0
    sync(yard)
    assert yard.broker.held == 0
    assert not client.peer.responses


def test_a_glovebox_client_that_comes_back_on_another_socket_with_notices_outstanding() -> None:
    yard = yard_with_queue()
    client = Client(yard, durable=True)
    sync(yard)
    client.peer.answers_pings = False
    post(client, "sync")
    assert yard.broker.held > 0
    again = yard.connect_glovebox(reconnect_as=client.id)
    sync(yard)
    assert yard.broker.held == 0
    assert client.peer.closed
    assert not client.peer.responses
    assert [response["type"] for response in again.responses] == ["hello", "notice"]
