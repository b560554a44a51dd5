"""Between a socket and a connection: a client in memory shakes hands, and the socket is watched."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from support.simulated import SimulatedServer
from support.tls import HERE, Certificates

from taskyard.server.net.connection import Connection, ConnectionRegistry
from taskyard.server.settings.schema import load_settings
from taskyard.server.tls import TlsTransport, make_context

LIMIT = 20_000


class WatchedSocket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.happened: list[str] = []
        self.high: int | None = None
        self._reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 4321) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.happened, "written after the end"
        self.written += data

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True

    def is_closing(self) -> bool:
        return "close" in self.happened or "abort" in self.happened

    def write_eof(self) -> None:
        self.happened.append("write_eof")

    def close(self) -> None:
        self.happened.append("close")

    def abort(self) -> None:
        self.happened.append("abort")


class Rig:
    """A client in memory, the transport, a connection, and the simulated broker behind it."""

    def __init__(self, context: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.yard = SimulatedServer(output_limit=LIMIT)
        self.open = ConnectionRegistry()
        self.connection = Connection(self.yard.masenko, LIMIT, self.open)
        self.socket = WatchedSocket()
        self.transport = TlsTransport(context, self.connection, 3600)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.transport.connection_made(self.socket)

    def shake_hands(self) -> None:
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
                break
            self.deliver()
        self.deliver()

    def deliver(self, more: bytes = b"") -> None:
        """Both sides get what the other has written, and the server something behind it."""
        data = self._outgoing.read() + more
        if data:
            self.transport.data_received(data)
            self.yard.run_pending()
        self._incoming.write(self.socket.written)
        self.socket.written.clear()

    def say(self, data: bytes) -> None:
        self.client.write(data)
        self.deliver()

    def hear(self) -> bytes:
        """All that has come so far."""
        heard = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self.client.read(65_536):
                heard += part
        return heard

    def has_heard_the_end(self) -> bool:
        try:
            return not self.client.read(1)
        except ssl.SSLWantReadError:
            return False


Scene = Callable[[Rig], None]
Play = Callable[[Scene], None]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.sign("server", "/CN=server", HERE)
    return made


@pytest.fixture
def play(certificates: Certificates) -> Play:
    """Runs a scene on an event loop, where hands have been shaken."""
    given = {"tls_certificate": str(certificates.path("server-both.pem"))}
    context = make_context(load_settings(given, {}))

    def play(scene: Scene) -> None:
        async def on_loop() -> None:
            rig = Rig(context, certificates.client())
            rig.shake_hands()
            scene(rig)
            rig.transport.connection_lost(None)  # or its timers would be left

        asyncio.run(on_loop())

    return play


def test_requests_are_answered(play: Play) -> None:
    def scene(rig: Rig) -> None:
        rig.say(b'PING\nPUSH {"name":"a"}\n')
        assert rig.hear() == b'PONG {}\nOK {"id":1}\n'
        assert rig.socket.high == LIMIT

    play(scene)


def test_who_does_not_read_is_not_read_from(play: Play) -> None:
    def scene(rig: Rig) -> None:
        rig.transport.pause_writing()
        assert not rig.socket.is_reading()
        rig.say(b"PING\n")
        assert rig.hear() == b""
        rig.transport.resume_writing()
        assert rig.socket.is_reading()
        rig.yard.run_pending()
        rig.deliver()
        assert rig.hear() == b"PONG {}\n"

    play(scene)


def test_a_large_reply_is_encrypted_in_portions(play: Play) -> None:
    def scene(rig: Rig) -> None:
        data = bytes(range(256)) * 1000
        for view in (data, bytearray(data), memoryview(data)):
            rig.transport.write(view)
            rig.deliver()
            assert rig.hear() == data

    play(scene)


def test_a_connection_that_lingers_drops_what_still_comes(play: Play) -> None:
    def scene(rig: Rig) -> None:
        rig.connection.close_after_draining()
        assert rig.socket.happened == ["write_eof"]
        rig.deliver()
        assert rig.has_heard_the_end()
        rig.say(b'PUSH {"name":"a"}\n' * 1000)
        rig.connection.write(b"nobody hears this")
        assert not rig.socket.written
        assert rig.yard.engine.state.jobs.size == 0
        rig.transport.eof_received()
        assert rig.socket.happened == ["write_eof", "close"]

    play(scene)


@pytest.mark.parametrize(
    "broken",
    [b"\x17\x03\x03\x00\x20" + b"x" * 32, b"no TLS at all", b"\x15\x03\x03\x00\x02\x02\x28"],
)
def test_what_came_before_a_broken_record_counts_and_nobody_is_disturbed(
    play: Play, broken: bytes
) -> None:
    def scene(rig: Rig) -> None:
        rig.client.write(b'PING\nPUSH {"name":"a","queue":"q"}\n')
        rig.deliver(broken)
        queue = rig.yard.engine.queue(b"q")
        assert queue is not None
        assert queue.ready.size == 1
        assert rig.socket.happened == ["abort"]

    play(scene)


def test_a_close_is_announced_once(play: Play) -> None:
    def scene(rig: Rig) -> None:
        rig.connection.close()
        rig.connection.close()
        assert rig.socket.happened == ["close"]
        rig.deliver()
        assert rig.has_heard_the_end()
        rig.connection.write(b"nobody hears this")

    play(scene)


def test_a_reply_goes_out_after_both_ends_of_the_client(play: Play) -> None:
    """That by TLS, and then that by TCP."""

    def scene(rig: Rig) -> None:
        rig.client.write(b'PUSH {"name":"a"}\n')
        with contextlib.suppress(ssl.SSLWantReadError):
            rig.client.unwrap()
        rig.transport.data_received(rig._outgoing.read())
        assert rig.transport.eof_received()
        assert rig.socket.happened == []
        rig.yard.run_pending()
        rig.deliver()
        assert rig.client.read(100) == b'OK {"id":1}\n'
        assert rig.socket.happened == ["close"]

    play(scene)


def test_a_lost_connection_is_told(play: Play) -> None:
    def scene(rig: Rig) -> None:
        rig.say(b'PUSH {"name":"a"}\nFETCH\n')
        job = rig.yard.engine.state.live_job(1)
        assert job is not None
        assert job.lease is not None
        rig.transport.connection_lost(ConnectionResetError())
        rig.yard.run_pending()
        assert job.lease is None

    play(scene)


def test_a_connection_that_comes_during_the_stop_is_shut_down(certificates: Certificates) -> None:
    given = {"tls_certificate": str(certificates.path("server-both.pem"))}

    async def on_loop() -> None:
        rig = Rig(make_context(load_settings(given, {})), certificates.client())
        rig.open.shutting_down = True
        rig.shake_hands()
        assert rig.socket.happened == ["close"]
        rig.transport.connection_lost(None)

    asyncio.run(on_loop())


def test_nobody_hears_of_a_client_that_goes_before_hands_are_shaken(
    certificates: Certificates,
) -> None:
    given = {"tls_certificate": str(certificates.path("server-both.pem"))}

    async def on_loop() -> None:
        rig = Rig(make_context(load_settings(given, {})), certificates.client())
        rig.transport.pause_writing()
        rig.transport.resume_writing()
        assert not rig.transport.eof_received()
        rig.transport.connection_lost(None)
        await rig.open.wait_until_closed(0)  # none was ever open

    asyncio.run(on_loop())
