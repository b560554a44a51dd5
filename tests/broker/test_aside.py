"""Replies that wait for a place of their own, of clients that are cut off meanwhile."""

import json

import pytest
from support.glovebox import Client
from support.simulated import ServerSide, SimulatedPeer, SimulatedServer

from taskyard.broker.replies import DeferredReplies, ReplyQueue
from taskyard.broker.turns import ClientConnection

LABEL = 1
MANY = 100


class Witness(SimulatedPeer):
    """A transport that remembers what is written to it after its end, too."""

    def __init__(self, yard: SimulatedServer) -> None:
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
        self.yard = SimulatedServer()
        self.broker = self.yard.broker
        self.transport = Witness(self.yard)
        side = ServerSide(self.transport)
        self.outbox = ReplyQueue(self.broker, side, ClientConnection(1), 1 << 20)
        self.aside = DeferredReplies(self.broker, self.outbox, self.broker.synced_waiters)
        self.mark = self.broker.journal.durable + 1

    def reach_the_mark(self) -> None:
        self.broker.synced_waiters.release_up_to(self.mark)


def test_what_is_put_aside_is_held_until_its_mark() -> None:
    world = World()
    world.aside.add(b"x" * 1000, world.mark)
    assert (world.broker.pending_reply_bytes, world.outbox.pending_bytes) == (1000, 1000)
    world.reach_the_mark()
    assert (world.broker.pending_reply_bytes, world.outbox.pending_bytes) == (0, 0)
    assert world.transport.written == [b"x" * 1000]


def test_what_is_put_aside_is_given_back_once_by_an_abort() -> None:
    world = World()
    world.aside.add(b"x" * 1000, world.mark)
    world.outbox.abort()
    assert (world.broker.pending_reply_bytes, world.outbox.pending_bytes) == (0, 0)
    world.reach_the_mark()
    assert (world.broker.pending_reply_bytes, world.outbox.pending_bytes) == (0, 0)
    assert world.transport.written == []
    assert not world.aside.has_waiting()


def test_nothing_is_put_aside_after_an_abort() -> None:
    world = World()
    world.outbox.abort()
    world.aside.add(b"x" * 1000, world.mark)
    assert (world.broker.pending_reply_bytes, world.outbox.pending_bytes) == (0, 0)
    assert not world.aside.has_waiting()
    world.reach_the_mark()
    assert world.transport.written == []


def test_an_abort_comes_before_a_close_that_waited() -> None:
    world = World()
    world.aside.add(b"x" * 1000, world.mark)
    world.outbox.close()
    world.outbox.abort()
    world.reach_the_mark()
    assert world.transport.ends == ["abort"]


def yard_with_queue(output_limit: int = 1 << 20) -> SimulatedServer:
    """One whose replies wait for nothing; a sync happens when the test lets it."""
    yard = SimulatedServer(durability="memory", inline_sync=False, output_limit=output_limit)
    Client(yard).create("q")
    yard.advance(2.0)
    yard.scheduler.slow = True
    return yard


def post(client: Client, *stages: str) -> None:
    """The server's loop has not gone on by then, so nothing is written."""
    assert client.peer.connection is not None
    message = {"type": "post", "queue": "q", "message": "m", "label": 1, "notify": stages}
    client.peer.connection.on_text(json.dumps(message).encode())


def sync(yard: SimulatedServer) -> None:
    yard.advance(2.0)
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()


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
    outstanding = yard.broker.pending_reply_bytes
    assert outstanding > 0
    client.peer.connection.output_blocked = True  # its socket is full
    for _ in range(MANY):
        other.peer.connection.on_text(b'{"type":"pop","queue":"q","label":2,"sync":"ready"}')
    assert client.peer.closed
    assert yard.broker.pending_reply_bytes == 0
    sync(yard)
    assert yard.broker.pending_reply_bytes == 0
    assert not client.peer.responses


def test_a_glovebox_client_that_comes_back_on_another_socket_with_notices_outstanding() -> None:
    yard = yard_with_queue()
    client = Client(yard, durable=True)
    sync(yard)
    client.peer.answers_pings = False
    post(client, "sync")
    assert yard.broker.pending_reply_bytes > 0
    again = yard.connect_glovebox(reconnect_as=client.id)
    sync(yard)
    assert yard.broker.pending_reply_bytes == 0
    assert client.peer.closed
    assert not client.peer.responses
    assert [response["type"] for response in again.responses] == ["hello", "notice"]
