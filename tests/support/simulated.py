"""The whole broker in one process with a fake clock and a disk in memory.

Same engine, journal, broker and protocol code as the server; only time, the event loop, the disk
and the sockets are stand-ins. Nothing sleeps: after each step everything that can happen at the
present time has happened.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from support.fake_loop import FakeClock, FakeScheduler

from taskyard.access.authenticator import Authenticator
from taskyard.access.principal import ANONYMOUS, Principal
from taskyard.broker.commit import Broker
from taskyard.broker.turns import ClientConnection
from taskyard.engine.model.state import EngineSettings, State
from taskyard.engine.operations.facade import Engine
from taskyard.journal.identity import JournalSettings
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal
from taskyard.journal.retention import RetentionLimits
from taskyard.journal.writer import Journal
from taskyard.protocols.glovebox import bincode
from taskyard.protocols.glovebox import messages as glovebox_messages
from taskyard.protocols.glovebox.connection import BINARY, PING, TEXT, Glovebox, GloveboxConnection
from taskyard.protocols.glovebox.types import Error, GloveboxRequest
from taskyard.protocols.http.connection import Http
from taskyard.protocols.http.routing import ApiRoutes, Router
from taskyard.protocols.masenko.connection import Masenko
from taskyard.protocols.resp.connection import Resp
from taskyard.protocols.resp.protocol import make_resp
from taskyard.protocols.workq.connection import Workq


class SimulatedPeer:
    """One client; also the transport that its connection writes to."""

    def __init__(self, yard: SimulatedServer) -> None:
        self._server = yard
        self._received = bytearray()
        self._gone = False
        self.closed = False
        self.reading = True
        self.receiver: ClientConnection | None = None
        self.witness: Callable[[bytes], None] | None = None  # sees each write as it is made

    def send(self, data: bytes) -> None:
        self.arrive(data)
        self._server.run_pending()

    def arrive(self, data: bytes) -> None:
        """These bytes reach the server in the round of its loop that is to be run next."""
        if self.receiver is not None and not self.closed:
            self.receiver.feed(data)

    def expect(self, data: bytes) -> None:
        got = bytes(self._received[: len(data)])
        assert got == data, f"expected {data!r}, got {bytes(self._received)!r}"
        del self._received[: len(data)]

    def expect_nothing(self) -> None:
        assert not self._received, f"expected nothing, got {bytes(self._received)!r}"

    def expect_closed(self) -> None:
        self.expect_nothing()
        assert self.closed, "the connection is still open"

    def read_line(self) -> bytes:
        line, end, _ = bytes(self._received).partition(b"\n")
        assert end, f"no complete line in {line!r}"
        del self._received[: len(line) + 1]
        return line + end

    def read_exactly(self, size: int) -> bytes:
        data = bytes(self._received[:size])
        assert len(data) == size, f"only {data!r} instead of {size} bytes"
        del self._received[:size]
        return data

    def close(self) -> None:
        self._lose()
        self._server.run_pending()

    def take(self) -> bytes:
        """Everything received so far that was not looked at yet."""
        data = bytes(self._received)
        self._received.clear()
        return data

    # As the transport of its connection

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        if self.witness is not None:
            self.witness(data)
        self._received += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self._received.clear()
        self._shut()

    def _shut(self) -> None:
        if not self.closed:
            self.closed = True
            self._server.scheduler.call_soon(self._lose)

    def _lose(self) -> None:
        self.closed = True
        receiver = self.receiver
        self.receiver = None
        if receiver is not None:
            receiver.on_disconnect()


class ServerSide:
    """What the protocol sees as its transport."""

    def __init__(self, peer: SimulatedPeer, certificate: str = "") -> None:
        self._peer = peer
        self._certificate = certificate
        self.write = peer.write
        self.pause_reading = peer.pause_reading
        self.resume_reading = peer.resume_reading
        self.abort = peer.abort

    def certificate_name(self) -> str:
        return self._certificate

    def close(self) -> None:
        self._peer._shut()

    def close_after_draining(self) -> None:
        self._peer._shut()


class GloveboxPeer(SimulatedPeer):
    """A client that sends and gets whole WebSocket messages, and answers pings by itself."""

    def __init__(self, yard: SimulatedServer, binary: bool) -> None:
        super().__init__(yard)
        self.binary = binary  # what the server speaks to it
        self.connection: GloveboxConnection | None = None
        self.answers_pings = True
        self.responses: deque[dict[str, Any]] = deque()  # arrived and not looked at

    def send_json(self, **fields: object) -> None:
        self.send_text(json.dumps(fields).encode())

    def send_text(self, text: bytes) -> None:
        if self.connection is not None and not self.closed:
            self.connection.on_text(text)
        self._server.run_pending()

    def send_data(self, data: bytes) -> None:
        if self.connection is not None and not self.closed:
            self.connection.on_binary(data)
        self._server.run_pending()

    def send_request(self, request: GloveboxRequest) -> None:
        self.send_data(bincode.encode_request(request))

    def write(self, data: bytes) -> None:
        super().write(data)
        if not self.closed:
            for opcode, payload in frames_of(self.take()):
                self._frame(opcode, payload)

    def _frame(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            if self.answers_pings:
                self._server.scheduler.call_soon(partial(self._pong, payload))
            return
        assert opcode == (BINARY if self.binary else TEXT)
        self.responses.append(as_json(payload) if self.binary else json.loads(payload))

    def _pong(self, payload: bytes) -> None:
        if self.connection is not None and not self.closed:
            self.connection.on_pong(payload)

    def next(self) -> dict[str, Any]:
        assert self.responses, "no response has come"
        return self.responses.popleft()

    def expect_json(self, **fields: object) -> None:
        assert self.next() == fields

    def expect_nothing(self) -> None:
        assert not self.responses, f"expected nothing, got {list(self.responses)}"

    def abort(self) -> None:
        super().abort()
        self.responses.clear()


def frames_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The frames of a server, which are whole messages and not masked."""
    while data:
        assert data[0] & 0xF0 == 0x80, "not a whole message"
        size, start = data[1], 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10], "big"), 10
        assert len(data) >= start + size, "not a whole frame"
        yield data[0] & 0x0F, data[start : start + size]
        data = data[start + size :]


def as_json(data: bytes) -> dict[str, Any]:
    """A bincode response in the form that the same one has in JSON."""
    response = bincode.decode_response(data)
    if isinstance(response, Error) and response.key.startswith(("BadRequest:", "Unavailable:")):
        name, _, key = response.key.partition(":")
        return {"type": "error", "label": response.label, "code": name, "key": key}
    form: dict[str, Any] = json.loads(glovebox_messages.encode_response(response))
    return form


class SimulatedServer:
    """A server that listens to nobody; `connect` gives a client of it."""

    def __init__(
        self,
        heartbeat: float = 45.0,
        *,
        settings: EngineSettings | None = None,
        payload_memory: int = 1 << 22,
        output_limit: int = 1 << 20,
        durability: str = "sync",
        spare: bool = False,
        inline_sync: bool = True,
        flushes_aside: bool = False,
        disk: MemoryDisk | None = None,
        segment_size: int = 1 << 20,
        compaction: int = 200,
        limits: RetentionLimits | None = None,
        lease_ttr: bool = False,
        creation: bool = True,
        max_losses: int = 10,
        seed: int = 1,
        gate: Authenticator | None = None,
        batch_limit: int = 10_000,
    ) -> None:
        self._authenticator = gate
        self._batch_limit = batch_limit
        self._heartbeat = round(heartbeat * 1_000_000)
        self._settings = settings or EngineSettings()
        self._payload_memory = payload_memory
        self._output_limit = output_limit
        self._durability = durability
        self._spare = spare
        self._inline_sync = inline_sync
        self._flushes_aside = flushes_aside
        self._segment_size = segment_size
        self._compaction = compaction
        self.limits = limits or RetentionLimits()
        self._lease_ttr = lease_ttr
        self._creation = creation
        self.max_losses = max_losses
        self._random = random.Random(seed)
        self.disk = disk or MemoryDisk()
        self.clock = FakeClock()
        self._peers: list[SimulatedPeer] = []
        self._start()

    def _start(self) -> None:
        state = State(self._settings)
        settings = JournalSettings(
            segment_size=self._segment_size,
            payload_memory=self._payload_memory,
            durability=self._durability,
            prepare_ahead=self._spare,
        )
        self.journal: Journal
        self.journal, self.report = open_journal(
            self.disk, settings, state, self.clock.now(), self._random.randbytes
        )
        self.scheduler = FakeScheduler(self.clock)
        self.engine = Engine(state, self.journal.records, self.journal.salt, self._random)
        self.engine.boot("simulated", self.clock.now())
        self.broker = Broker(
            self.engine,
            self.journal,
            self.clock,
            self.scheduler,
            self._durability,
            self._inline_sync,
            self._compaction,
            self.limits,
            self._flushes_aside,
        )
        self.broker.flush_journal()
        self.broker.begin_turn()
        self.broker.end_turn()
        self.masenko = Masenko(
            self.broker,
            self.scheduler,
            self._heartbeat,
            self._settings.payload_limit,
            self._output_limit,
            self.max_losses,
            self._authenticator,
        )
        self.workq = Workq(self.broker, self._output_limit, self._lease_ttr, 0, self._authenticator)
        self.resp = make_resp(
            self.broker,
            "pqueue",
            self._settings.payload_limit,
            self._output_limit,
            10,
            self._authenticator,
            self._batch_limit,
            Router(
                ApiRoutes(
                    self.broker, self.scheduler, durability="sync", max_losses=self.max_losses
                ).routes()
            ),
        )
        self.glovebox = Glovebox(
            self.broker, self.scheduler, self._output_limit, self._creation, self._make_session_id
        )
        self._http: Http | None = None  # until somebody wants it

    def connect(self, dialect: str = "masenko", certificate: str = "") -> SimulatedPeer:
        if dialect == "glovebox":
            return self.connect_glovebox()
        if dialect == "api":
            return self._connect_api()
        peer = SimulatedPeer(self)
        dialects: dict[str, Masenko | Workq | Resp] = {
            "masenko": self.masenko,
            "workq": self.workq,
            "resp": self.resp,
        }
        speaks = dialects[dialect]
        peer.receiver = speaks.connect(ServerSide(peer, certificate), f"peer:{len(self._peers)}")
        self._peers.append(peer)
        self.run_pending()
        return peer

    def _connect_api(self) -> SimulatedPeer:
        from support import simulated_http

        if self._http is None:
            self._http = simulated_http.api_listener(self)
        return simulated_http.connect(self, self._http, f"peer:{len(self._peers)}")

    def connect_glovebox(
        self,
        binary: bool = False,
        durable: bool = False,
        reconnect_as: int | None = None,
        principal: Principal = ANONYMOUS,
    ) -> GloveboxPeer:
        """A client behind the WebSocket handshake; it is greeted first."""
        peer = GloveboxPeer(self, binary)
        connection = self.glovebox.connect(
            ServerSide(peer), f"peer:{len(self._peers)}", binary, durable, reconnect_as, principal
        )
        peer.receiver = connection
        peer.connection = connection
        self._peers.append(peer)
        self.run_pending()
        return peer

    def _make_session_id(self) -> int:
        return 1 << 62 | self._random.getrandbits(62)

    def run_pending(self) -> None:
        self.scheduler.settle()

    def now(self) -> float:
        return self.clock.now() / 1_000_000

    def advance(self, seconds: float) -> None:
        self.scheduler.advance(round(seconds * 1_000_000))

    def restart(self) -> None:
        """A clean stop and a new start on the same disk."""
        self.stop()
        self._start()

    def stop(self) -> None:
        """As the server does it."""
        for receiver in self.broker.connections():
            receiver.shut_down()
        self.broker.flush_journal()
        self.run_pending()
        self.journal.close()

    def crash(self, chance: random.Random | None = None) -> None:
        """Power off, then a new start. What was not synced is gone, or with `chance` in part."""
        for peer in self._peers:
            peer.receiver = None
            peer.closed = True
        self._peers = []
        self.disk.crash(chance)
        self._start()

    def kill(self) -> None:
        """The process ends at once; what it has written is still there. Then a new start."""
        for peer in self._peers:
            peer.receiver = None
            peer.closed = True
        self._peers = []
        self._start()
