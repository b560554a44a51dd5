"""Between socket and protocol: bytes both ways, backpressure both ways, and the end."""

import asyncio
from typing import Any

import pytest
from support.simulated import SimulatedServer
from support.wire import exchange

from taskyard.protocols.connection import INPUT_LIMIT
from taskyard.server.net.connection import Connection, ConnectionRegistry

LIMIT = 20_000


class FakeTransport(asyncio.Transport):
    """A socket whose other side reads when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Connection | None = None
        self.buffered = bytearray()
        self.received = bytearray()  # by the other side
        self.reads = False  # the other side takes what comes
        self.ended = ""
        self._reading = True
        self._high = 0
        self._paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4321) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.ended, "written after the end"
        self.buffered += data
        if self.reads:
            self.take()
        elif len(self.buffered) > self._high and not self._paused:
            self._paused = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def take(self) -> None:
        """The other side reads all there is."""
        self.received += self.buffered
        self.buffered.clear()
        if self._paused:
            self._paused = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Rig:
    """A connection on a fake socket, with the whole simulated broker behind it."""

    def __init__(self) -> None:
        self.yard = SimulatedServer(output_limit=LIMIT)
        self.open = ConnectionRegistry()
        self.transport, self.connection = self.connect()

    def connect(self) -> tuple[FakeTransport, Connection]:
        transport = FakeTransport()
        connection = Connection(self.yard.masenko, LIMIT, self.open)
        transport.protocol = connection
        connection.connection_made(transport)
        return transport, connection

    def arrive(self, data: bytes) -> None:
        self.connection.data_received(data)
        self.yard.run_pending()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_arrives_is_answered(rig: Rig) -> None:
    rig.transport.reads = True
    rig.arrive(b"PI")
    rig.arrive(b'NG\nPUSH {"name":"a"}\n')
    assert rig.transport.received == b'PONG {}\nOK {"id":1}\n'


def test_replies_to_a_client_that_does_not_read_are_bounded(rig: Rig) -> None:
    commands = 0
    while rig.transport.is_reading():
        rig.arrive(b"PING\n" * 100)
        commands += 100
        assert commands < 100_000
    assert len(rig.transport.buffered) <= LIMIT + 100_000
    rig.transport.reads = True
    rig.transport.take()
    rig.yard.run_pending()
    assert rig.transport.is_reading()
    assert rig.transport.received == b"PONG {}\n" * commands


def test_much_that_arrives_at_once_is_answered_in_portions(rig: Rig) -> None:
    """Each as large as the client's reading allows, the rest of the commands waits."""
    rig.arrive(b"PING\n" * 50_000)
    assert LIMIT < len(rig.transport.buffered) < LIMIT + 100_000
    for _ in range(20):
        rig.transport.take()
        rig.yard.run_pending()
    assert rig.transport.received == b"PONG {}\n" * 50_000


def test_a_client_that_reads_again_is_read_from_again(rig: Rig) -> None:
    for _ in range(5):
        rig.arrive(b"PING\n" * 5000)
        assert not rig.transport.is_reading()
        while rig.transport.buffered:
            rig.transport.take()
        assert rig.transport.is_reading()


def test_both_reasons_not_to_read_must_be_gone(rig: Rig) -> None:
    """A full output, and much behind a fetch that waits."""
    rig.arrive(b"PING\n" * 2000 + b'FETCH {"timeout":"1s"}\n' + b"PING\n" * (INPUT_LIMIT // 4))
    assert not rig.transport.is_reading()
    rig.transport.take()
    rig.transport.reads = True
    assert not rig.transport.is_reading()
    rig.yard.advance(1.1)
    assert rig.transport.is_reading()


def test_a_lost_connection_fails_what_it_holds(rig: Rig) -> None:
    rig.transport.reads = True
    rig.arrive(b'PUSH {"name":"a","retry":0,"deadqueue":"dead"}\nFETCH\n')
    rig.connection.connection_lost(None)
    rig.yard.run_pending()
    peer = rig.yard.connect()
    exchange(peer, b'FETCH {"queues":["dead"]}\n', b'OK {"id":1,"queue":"dead","name":"a"}\n')


def test_nothing_is_done_to_a_connection_that_is_gone(rig: Rig) -> None:
    rig.arrive(b"PING\n" * 5000)
    rig.transport.ended = "lost"
    rig.connection.connection_lost(ConnectionResetError())
    rig.connection.data_received(b"PING\n")
    rig.connection.resume_writing()
    rig.yard.advance(100)


def test_replies_are_not_written_to_a_connection_that_is_closing(rig: Rig) -> None:
    """The loop tells of a loss only later, and until then a write to it would be an error."""
    rig.connection.data_received(b'PUSH {"name":"a"}\n')
    rig.transport.abort()
    rig.yard.run_pending()
    assert not rig.transport.buffered
    peer = rig.yard.connect()
    exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a"}\n')


def test_the_client_is_named_in_the_records(rig: Rig) -> None:
    rig.arrive(b'PUSH {"name":"a"}\nFETCH\n')
    job = rig.yard.engine.state.live_job(1)
    assert job is not None
    assert job.lease is not None
    assert job.lease.holder == "192.0.2.1:4321#1"


def test_half_a_connection_is_enough_for_replies(rig: Rig) -> None:
    rig.transport.reads = True
    rig.connection.data_received(b'PUSH {"name":"a"}\n')
    assert rig.connection.eof_received()
    assert not rig.transport.is_closing()
    rig.yard.run_pending()
    assert rig.transport.received == b'OK {"id":1}\n'
    assert rig.transport.ended == "closed"


def test_half_a_connection_is_not_read_from_again(rig: Rig) -> None:
    rig.arrive(b"PING\n" * 5000)
    rig.connection.eof_received()
    rig.transport.reads = True
    rig.transport.take()
    rig.yard.run_pending()
    assert not rig.transport.is_reading()
    assert rig.transport.received == b"PONG {}\n" * 5000
    assert rig.transport.ended == "closed"


def test_a_connection_that_comes_during_the_stop_is_shut_down(rig: Rig) -> None:
    rig.open.shutting_down = True
    transport, _ = rig.connect()
    rig.yard.run_pending()
    assert transport.ended == "closed"
    assert not rig.transport.ended


def test_the_stop_waits_for_all_to_close(rig: Rig) -> None:
    async def stop() -> None:
        closing = asyncio.create_task(rig.open.wait_until_closed(3600))
        await asyncio.sleep(0)
        assert not closing.done()
        rig.connection.connection_lost(None)
        await closing

    asyncio.run(stop())
    assert not rig.transport.ended


def test_who_does_not_go_in_time_is_cut_off(rig: Rig) -> None:
    asyncio.run(rig.open.wait_until_closed(0.001))
    assert rig.transport.ended == "aborted"


def test_a_stop_without_connections_waits_for_nothing() -> None:
    asyncio.run(ConnectionRegistry().wait_until_closed(3600))
