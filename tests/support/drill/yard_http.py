"""The HTTP listener of a simulated server with Glovebox behind its upgrade.

The frames are read here: the server's own reader needs an event loop.
"""

from __future__ import annotations

from support.simulated import SimulatedPeer, SimulatedServer
from support.simulated_http import BODY_LIMIT, connect

from taskyard.broker.turns import ClientConnection
from taskyard.engine.model.events import TaskyardError
from taskyard.protocols.glovebox.connection import PONG, TEXT, GloveboxConnection
from taskyard.protocols.glovebox.messages import parse_connect_headers, queue_status
from taskyard.protocols.http.connection import Http, UpgradableTransport
from taskyard.protocols.http.routing import ApiRoutes, Router
from taskyard.protocols.http.wire import Exchange, ParsedRequest, Response, Route, problem

HANDSHAKE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"


class Unmasking:
    """The reading side of a WebSocket: masked frames that are whole messages."""

    def __init__(self) -> None:
        self.connection: GloveboxConnection | None = None
        self._unread = b""

    def feed(self, data: bytes) -> None:
        self._unread += data
        while (message := self._next()) is not None:
            opcode, payload = message
            connection = self.connection
            if connection is None:
                return
            if opcode == TEXT:
                connection.on_text(payload)
            elif opcode == PONG:
                connection.on_pong(payload)
            else:
                connection.on_binary(payload)

    def _next(self) -> tuple[int, bytes] | None:
        data = self._unread
        if len(data) < 6:
            return None
        size, start = data[1] & 0x7F, 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(data[2:10], "big"), 10
        end = start + 4 + size
        if len(data) < end:
            return None
        mask = data[start : start + 4] * (size // 4 + 1)
        self._unread = data[end:]
        payload = bytes(a ^ b for a, b in zip(data[start + 4 : end], mask, strict=False))
        return data[0] & 0x0F, payload

    def partial_message_bytes(self) -> int:
        return len(self._unread)

    def on_disconnect(self) -> None:
        self.connection = None


class GloveboxUpgrade:
    """Makes Glovebox's connections of those that ask for an upgrade."""

    def __init__(self, yard: SimulatedServer) -> None:
        self._yard = yard
        self._glovebox = yard.glovebox

    def tell(self, exchange: Exchange) -> None:
        exchange.reply(queue_status(self._yard.broker.engine, exchange.request.params["queue"]))

    def open(
        self, socket: UpgradableTransport, incoming: ParsedRequest, rest: bytes
    ) -> ClientConnection | Response:
        asked = parse_connect_headers(incoming.request.headers)
        reader = Unmasking()
        try:
            connection = self._glovebox.connect(
                socket,
                incoming.request.peer,
                asked.binary,
                asked.durable,
                asked.reconnect_as,
                accept=lambda: socket.write(HANDSHAKE),
            )
        except TaskyardError as error:
            return problem(503, f"The session cannot be kept: {error}.")
        connection.websocket = reader
        reader.connection = connection
        reader.feed(rest)
        return connection


def connect_http(yard: SimulatedServer) -> SimulatedPeer:
    http = _listener(yard)
    peer = connect(yard, http, f"peer:{len(yard._peers)}")
    yard._peers.append(peer)
    return peer


def _listener(yard: SimulatedServer) -> Http:
    http = yard._http
    if http is None:
        api = ApiRoutes(yard.broker, yard.scheduler, durability="sync", max_losses=yard.max_losses)
        door = GloveboxUpgrade(yard)
        routes = [*api.routes(), Route("GET", "/status/{queue}", door.tell)]
        http = yard._http = Http(
            yard.broker,
            yard.scheduler,
            Router(routes),
            output_limit=1 << 20,
            body_limit=BODY_LIMIT,
        )
        http.upgrades["/connect"] = door.open
    return http
