"""Everything that speaks HTTP, put together on one listener."""

from __future__ import annotations

from taskyard.broker.broker import Broker
from taskyard.broker.metrics import LagProbe
from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Scheduler
from taskyard.dialects.api import Api
from taskyard.dialects.events import Events
from taskyard.dialects.glovebox import Glovebox
from taskyard.dialects.glovebox_http import status, terms
from taskyard.dialects.health import Health
from taskyard.dialects.metrics_page import MetricsPage
from taskyard.engine.errors import TaskyardError
from taskyard.http.connection import Http, Socket
from taskyard.http.messages import Exchange, Response, Route
from taskyard.http.parser import Incoming
from taskyard.http.problems import problem
from taskyard.http.router import Router
from taskyard.http.websocket import WebSocket, refuse
from taskyard.server.config import Settings

FRAME_ROOM = 65_536  # what a message may be longer than the largest payload, as JSON text
JSON_BYTE = 4  # characters of one byte in an array: "255,"


class Web:
    def __init__(self, settings: Settings, broker: Broker, scheduler: Scheduler) -> None:
        self._broker = broker
        self._settings = settings
        self.health = Health(broker)
        self.glovebox = Glovebox(
            broker, scheduler, settings.output_limit, settings.glovebox_creation
        )
        self.events = Events(broker, scheduler)
        self._lag = LagProbe(broker.metrics, broker.clock, scheduler)
        self._lag.start()
        api = Api(
            broker,
            scheduler,
            durability=settings.durability,
            max_losses=settings.max_losses,
            connections=self._connections,
        )
        routes = [
            *api.routes(),
            *self.health.routes(),
            *MetricsPage(broker, scheduler, settings.metrics_queues).routes(),
            *self.events.routes(),
            Route("GET", "/status/{queue}", self._status),
            Route("GET", "/connect", _needs_upgrade),
        ]
        self.http = Http(
            broker,
            scheduler,
            Router(routes),
            output_limit=settings.output_limit,
            body_limit=settings.http_body_limit,
        )
        self.http.upgrades["/connect"] = self._connect

    def stop(self) -> None:
        """The server is about to end."""
        self.health.stopping = True
        self.events.close()
        self._lag.stop()

    def _connections(self) -> dict[str, int]:
        """How many are open now, by dialect."""
        return {
            **{traffic.dialect: int(traffic.clients) for traffic in self._broker.metrics.dialects},
            "http": self.http.clients,
        }

    def _status(self, exchange: Exchange) -> None:
        exchange.reply(status(self._broker.engine, exchange.request.params["queue"]))

    def _connect(self, socket: Socket, incoming: Incoming, rest: bytes) -> Receiver | Response:
        """Go on as a Glovebox client."""
        refusal = refuse(incoming, frozenset(self._settings.http_origins))
        if refusal is not None:
            return refusal
        asked = terms(incoming.request.headers)
        reason = self._broker.failure or self._broker.journal.room.refusing
        if reason and asked.durable:  # once hands are shaken it could not be said any more
            return problem(503, f"The session cannot be kept: {reason}.")
        reader = WebSocket(socket.raw(), self._settings.payload_limit * JSON_BYTE + FRAME_ROOM)
        reader.shake_hands(incoming)
        try:
            connection = self.glovebox.connect(
                socket, incoming.request.peer, asked.binary, asked.durable, asked.reconnect_as
            )
        except TaskyardError as error:
            socket.abort()
            return problem(503, f"The session cannot be kept: {error}.")
        connection.frames = reader
        reader.begin(connection, rest)
        return connection


def _needs_upgrade(exchange: Exchange) -> None:
    exchange.reply(problem(426, "This address is for WebSockets: ask for an upgrade to one."))
