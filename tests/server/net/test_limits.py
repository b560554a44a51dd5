"""The limits of connections, with a fake clock and fake sockets: who may come, stay and go on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import uvloop
from server.net.test_connection import FakeTransport
from support.simulated import SimulatedServer

from taskyard.broker.metrics import LimitCounters
from taskyard.server.net.connection import (
    Connection,
    ConnectionRegistry,
    ProtocolFactory,
    StallDetector,
)
from taskyard.server.net.listener import ConnectionLimits, KeyedCounter, Listener
from taskyard.server.net.memory_limit import MemoryLimiter

PATIENCE = 60_000_000
LIMIT = 1 << 20
OUTPUT = 4 * LIMIT
SECOND = 1_000_000
PONG = b"PONG {}\n"


class Socket(FakeTransport):
    """Tells what the other side has not read."""

    def __init__(self) -> None:
        super().__init__()
        self._inner: socket.socket | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner if name == "socket" else super().get_extra_info(name, default)

    @contextmanager
    def has_more(self) -> Iterator[None]:
        """Meanwhile something has arrived that was not read."""
        self._inner, other = socket.socketpair()
        with self._inner, other:
            other.send(b"x")
            yield
        self._inner = None

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def abort(self) -> None:
        super().abort()
        assert self.protocol is not None
        self.protocol.connection_lost(None)


class Rig:
    def __init__(self) -> None:
        self.yard = SimulatedServer(heartbeat=3600.0, output_limit=OUTPUT)
        self.broker = self.yard.broker
        self.strain = self.broker.metrics.limit_counters
        self.everyone = ConnectionRegistry()
        # A look takes no time here: one that a busy machine holds up would put off the next one.
        self.flow = MemoryLimiter(
            self.everyone, self.broker, self.yard.scheduler, LIMIT, lambda: 0.0
        )
        StallDetector(self.everyone, self.broker, self.yard.scheduler, PATIENCE).start()

    def look_again(self) -> None:
        self.yard.advance(5)

    def connect(self, dialect: str = "masenko") -> Client:
        speaks: dict[str, ProtocolFactory] = {
            "masenko": self.yard.masenko,
            "workq": self.yard.workq,
            "resp": self.yard.resp,
        }
        return Client(self, speaks[dialect])


class Client:
    def __init__(self, rig: Rig, dialect: ProtocolFactory) -> None:
        self._rig = rig
        self.socket = Socket()
        self.connection = Connection(dialect, OUTPUT, rig.everyone)
        self.socket.protocol = self.connection
        self.socket.reads = True
        self.connection.connection_made(self.socket)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        self._rig.yard.run_pending()

    def ended(self) -> str:
        return self.socket.ended

    def take(self) -> bytes:
        received = bytes(self.socket.received)
        self.socket.received.clear()
        return received


@pytest.fixture
def rig() -> Rig:
    return Rig()


# Who may come


def test_shares_are_counted_by_key() -> None:
    shares = KeyedCounter(2)
    assert [shares.try_add(key) for key in "aabab"] == [True, True, True, False, True]
    shares.remove("a")
    assert [shares.try_add("a"), shares.try_add("a")] == [True, False]


def test_shares_without_a_limit_count_nothing() -> None:
    shares = KeyedCounter(0)
    assert all(shares.try_add("a") for _ in range(100))
    shares.remove("a")


def test_who_is_refused_takes_no_place() -> None:
    strain = LimitCounters()
    admission = ConnectionLimits(3, 2, strain)
    assert [admission.admit("a") for _ in range(3)] == [
        "",
        "",
        "too many connections from this address",
    ]
    assert admission.admit("b") == ""
    assert admission.admit("c") == "too many connections"
    admission.release("a")
    assert admission.admit("c") == ""
    assert (strain.refused_total, strain.refused_address) == (1, 1)


async def accept_one() -> tuple[dict[str, int], int]:
    """What is set on a connection that was let in, and how many are in after it has gone."""
    loop = asyncio.get_running_loop()
    yard = SimulatedServer()
    everyone = ConnectionRegistry()
    strain = yard.broker.metrics.limit_counters
    admission = ConnectionLimits(5, 5, strain)
    make = partial(Connection, yard.workq, OUTPUT, everyone)
    listener = Listener(loop, "workq", make, admission, strain)
    await listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
    writer.write(b"nonsense\r\n")
    assert await reader.readline() == b"-CLIENT-ERROR Unknown command\r\n"
    assert admission.open_count == 1
    [connection] = everyone.all()
    inner = connection.detach_transport().get_extra_info("socket")
    found = {
        "keep-alive": inner.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        "idle": inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        "probes": inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        "between": inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
        "unconfirmed": inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        "no delay": inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
    }
    writer.close()
    await writer.wait_closed()
    await everyone.wait_until_closed(30)
    await asyncio.sleep(0)
    listener.close()
    return found, admission.open_count


def test_a_peer_that_has_vanished_is_found_out_by_tcp() -> None:
    found, left = uvloop.run(accept_one())
    assert found == {
        "keep-alive": 1,
        "idle": 120,
        "probes": 4,
        "between": 15,
        "unconfirmed": 180_000,
        "no delay": 1,
    }
    assert left == 0


# Who may stay


BEGUN = {
    "masenko": b'PUSH {"name":"a","payload":"',
    "workq": b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 q 1000 60000 100000\r\n",
    "resp": b"*3\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n$100000\r\n",
}


@pytest.mark.parametrize("dialect", list(BEGUN))
def test_a_command_must_come_to_its_end_or_get_on(rig: Rig, dialect: str) -> None:
    client = rig.connect(dialect)
    client.send(BEGUN[dialect])
    for _ in range(8):  # a slow line, but a line
        rig.yard.advance(50)
        client.send(b"x" * 5000)
    assert not client.ended()
    for _ in range(4):
        rig.yard.advance(25)
        client.send(b"x")
    assert b"did not come in time" in client.take()
    assert client.ended() == "closed"
    assert (rig.strain.input_timeouts, rig.strain.output_timeouts) == (1, 0)


@pytest.mark.parametrize("begun", [b"*", b"*2\r", b"*2\r\n", b"*2\r\n$3\r\nGET\r\n", b"PIN"])
def test_wherever_in_a_command_a_client_stops(rig: Rig, begun: bytes) -> None:
    client = rig.connect("resp")
    client.send(begun)
    rig.yard.advance(100)
    assert client.ended() == "closed"


@pytest.mark.parametrize("dialect", list(BEGUN))
def test_between_commands_a_client_may_be_silent_for_ever(rig: Rig, dialect: str) -> None:
    silent, said = rig.connect(dialect), rig.connect(dialect)
    said.send(b"PING\r\n")
    rig.yard.advance(3000)
    assert not silent.ended()
    assert not said.ended()


def test_commands_in_two_halves_are_no_stall(rig: Rig) -> None:
    """There is half a command whenever somebody looks, but never the same."""
    client = rig.connect()
    for _ in range(100):
        client.send(b"PI")
        rig.yard.advance(40)
        client.send(b"NG\n")
    assert client.take() == PONG * 100
    assert not client.ended()


def test_half_a_command_behind_one_that_waits_is_no_stall(rig: Rig) -> None:
    client = rig.connect()
    client.send(b'FETCH {"timeout":"10m"}\nPI')
    rig.yard.advance(300)
    assert not client.ended()


def test_replies_that_nobody_takes_end_the_connection(rig: Rig) -> None:
    client = rig.connect()
    client.socket.reads = False
    for _ in range(5):
        client.send(b"PING\n")
        rig.yard.advance(5)
    rig.yard.advance(20)
    assert not client.ended()
    rig.yard.advance(60)
    assert client.ended() == "aborted"
    assert (rig.strain.input_timeouts, rig.strain.output_timeouts) == (0, 1)


def test_replies_that_are_taken_slowly_do_not(rig: Rig) -> None:
    client = rig.connect()
    client.socket.reads = False
    client.send(b"PING\n" * 100)
    for _ in range(50):
        rig.yard.advance(50)
        del client.socket.buffered[:8]
    assert not client.ended()


# Who may go on


def deaf(rig: Rig, size: int) -> Client:
    """A client that has not taken so many bytes."""
    client = rig.connect()
    client.socket.reads = False
    client.send(b"PING\n" * (size // len(PONG)))
    return client


def test_those_who_hold_much_wait_when_memory_is_short(rig: Rig) -> None:
    holders = [deaf(rig, LIMIT // 4) for _ in range(6)]
    assert rig.strain.paused_connections > 0
    small = rig.connect()
    small.send(b"PING\n" * 10)
    assert small.take() == PONG * 10
    assert not any(holder.socket.is_reading() for holder in holders[:-1])
    total = sum(len(holder.socket.buffered) for holder in holders)
    assert total < LIMIT * 5 // 4
    for holder in holders:
        holder.socket.reads = True
        holder.socket.take()
    rig.look_again()
    assert rig.strain.paused_connections == 0
    for holder in holders:
        assert holder.socket.is_reading()
        assert holder.take() == PONG * (LIMIT // 4 // len(PONG))


def fetch_many(start: int, count: int) -> bytes:
    names = ",".join(f'"q{number}"' for number in range(start, start + count))
    return f'FETCH {{"queues":[{names}],"timeout":"40m"}}\n'.encode()


def test_commands_that_wait_count_and_have_half_of_the_memory_at_most(rig: Rig) -> None:
    clients = [rig.connect() for _ in range(20)]
    for number, client in enumerate(clients):
        client.send(fetch_many(1000 * number, 1000))
    refused = [client for client in clients if client.take()]
    assert 0 < rig.broker.engine.waiter_bytes <= LIMIT // 2
    assert len(refused) >= 18
    few = rig.connect()
    few.send(fetch_many(0, 1))  # whoever waits at few queues may always do so
    assert few.take() == b""
    holder = deaf(rig, LIMIT * 3 // 4)  # alone, that would be within the limit
    assert rig.strain.in_flight_bytes > LIMIT
    assert rig.strain.paused_connections == 1
    for client in clients:
        client.socket.abort()
    rig.look_again()
    assert rig.broker.engine.waiter_bytes < 1000
    assert rig.strain.in_flight_bytes < LIMIT
    assert not holder.ended()


def test_arguments_count_with_what_they_take_in_memory(rig: Rig) -> None:
    """A command of a few bytes for each argument takes ten times as much as it has."""
    client = rig.connect("resp")
    count = LIMIT // 48
    client.send(b"*%d\r\n$3\r\nDEL\r\n" % (count + 2) + b"$1\r\na\r\n" * count)
    assert rig.strain.in_flight_bytes > LIMIT
    assert rig.strain.paused_connections == 1
    with client.socket.has_more():
        rig.look_again()
        assert client.socket.is_reading()
    client.send(b"$1\r\na\r\n")
    assert client.take() == b":0\r\n"
    rig.look_again()
    assert (rig.strain.in_flight_bytes, rig.strain.paused_connections) == (0, 0)


def test_who_has_taken_its_replies_goes_on_before_the_others(rig: Rig) -> None:
    holders = [deaf(rig, LIMIT // 4) for _ in range(6)]
    holders[0].socket.reads = True
    holders[0].socket.take()
    rig.look_again()
    assert rig.strain.paused_connections > 0
    holders[0].send(b"PING\n")
    assert holders[0].take().endswith(PONG)


def test_one_large_command_comes_to_its_end_though_it_is_beyond_the_limit(rig: Rig) -> None:
    client = rig.connect("resp")
    client.send(b"*12\r\n$5\r\nRPUSH\r\n$1\r\nq\r\n")
    for _ in range(10):
        client.send(b"$300000\r\n" + b"x" * 300_000 + b"\r\n")
        rig.look_again()
    assert client.take() == b":10\r\n"


@pytest.mark.parametrize(
    ("dialect", "begin", "more", "end", "done"),
    [
        ("resp", b"MULTI\r\n", b"RPUSH q %b\r\n", b"EXEC\r\n", b"*8\r\n:"),
        (
            "masenko",
            b"ATOMIC\n",
            b'PUSH {"name":"n","queue":"q","payload":"%b"}\n',
            b"DONE\n",
            b'OK {"ids":[',
        ),
    ],
)
def test_of_transactions_that_fill_the_memory_the_one_goes_on_that_has_more_to_say(
    rig: Rig, dialect: str, begin: bytes, more: bytes, end: bytes, done: bytes
) -> None:
    clients = [rig.connect(dialect) for _ in range(4)]
    for client in clients:
        client.send(begin + more % (b"x" * 50_000) * 8)
        client.take()
    rig.look_again()
    assert rig.strain.paused_connections == 4
    for client in reversed(clients):
        with client.socket.has_more():
            rig.look_again()
            assert client.socket.is_reading()
        client.send(end)
        assert client.take().startswith(done)
    rig.look_again()
    assert all(client.socket.is_reading() for client in clients)


def test_a_client_that_goes_while_it_is_held_back_is_forgotten(rig: Rig) -> None:
    holders = [deaf(rig, LIMIT // 4) for _ in range(6)]
    for holder in holders:
        holder.socket.ended = "lost"
        holder.connection.connection_lost(None)
    rig.look_again()
    assert (rig.strain.paused_connections, rig.strain.in_flight_bytes) == (0, 0)


def test_at_the_end_everybody_is_answered(rig: Rig) -> None:
    holders = [deaf(rig, LIMIT // 4) for _ in range(6)]
    rig.flow.stop()
    rig.yard.run_pending()
    for holder in holders:
        holder.socket.take()
        assert holder.take() == PONG * (LIMIT // 4 // len(PONG))


def test_replies_that_wait_for_the_disk_are_bounded_too() -> None:
    yard = SimulatedServer(inline_sync=False)
    yard.broker.pending_reply_limit = 100
    yard.scheduler.slow = True
    peers = [yard.connect("resp") for _ in range(4)]
    for peer in peers:
        peer.send(b"RPUSH q x\r\n" * 200)
    assert yard.broker.pending_reply_bytes < 200
    yard.scheduler.slow = False
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert [peer.take().count(b"\r\n") for peer in peers] == [200] * 4
    assert yard.broker.pending_reply_bytes == 0


# How fast


@pytest.mark.parametrize("dialect", ["masenko", "workq", "resp"])
def test_commands_beyond_the_rate_wait_and_nothing_more_is_read(dialect: str) -> None:
    yard = SimulatedServer()
    yard.broker.rate_limiter.commands_per_second = 10
    peer = yard.connect(dialect)
    peer.send(b"PING\r\n" * 25)
    assert peer.take().count(b"\n") == 10
    assert not peer.reading
    yard.advance(1)
    assert peer.take().count(b"\n") == 10
    yard.advance(0.5)
    assert peer.take().count(b"\n") == 5
    assert peer.reading


def test_a_rate_is_each_connections_own() -> None:
    yard = SimulatedServer()
    yard.broker.rate_limiter.commands_per_second = 2
    peers = [yard.connect() for _ in range(3)]
    for peer in peers:
        peer.send(b"PING\n" * 3)
        assert peer.take() == PONG * 2
    peers[0].close()
    yard.advance(0.5)
    assert [peer.take() for peer in peers[1:]] == [PONG, PONG]


def test_requests_have_a_rate_as_well() -> None:
    yard = SimulatedServer()
    yard.broker.rate_limiter.commands_per_second = 4
    peer = yard.connect("api")
    peer.send(b"GET /api/v1/queues HTTP/1.1\r\nhost: x\r\n\r\n" * 6)
    assert peer.take().count(b"HTTP/1.1 200") == 4
    yard.advance(0.5)
    assert peer.take().count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("dialect", ["masenko", "workq", "resp", "api"])
def test_who_sends_nothing_more_keeps_to_the_rate(dialect: str) -> None:
    yard = SimulatedServer()
    yard.broker.rate_limiter.commands_per_second = 5
    peer = yard.connect(dialect)
    request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" if dialect == "api" else b"PING\r\n"
    peer.send(request * 10)
    peer.take()
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    assert peer.take() == b""
    assert not peer.closed
    yard.advance(1)
    answers = peer.take()
    assert answers.count(b"HTTP/1.1" if dialect == "api" else b"\n") == 5
    yard.advance(1)
    assert peer.closed


def test_at_the_end_the_rate_holds_nobody_up() -> None:
    yard = SimulatedServer()
    yard.broker.rate_limiter.commands_per_second = 1
    peer = yard.connect()
    peer.send(b"PING\n" * 40)
    yard.stop()
    assert peer.take() == PONG * 40
