"""Everything that speaks HTTP, put together on one listener."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from taskyard.access.gate import Gate, OpenGate, has_room
from taskyard.access.principal import INSPECT, Allow, Principal, by_its_rules
from taskyard.access.sessions import KEY_FILE, SessionKey, Sessions
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import LagProbe
from taskyard.broker.receiver import Receiver
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.protocols.glovebox.commands import Glovebox, draw_id
from taskyard.protocols.glovebox.http import status, terms
from taskyard.protocols.http.api.lake import Errands, Lake, no_lake
from taskyard.protocols.http.api.server import Listeners
from taskyard.protocols.http.connection import Http, Socket
from taskyard.protocols.http.credentials import Identification
from taskyard.protocols.http.dashboard_page import Page
from taskyard.protocols.http.guard import guarded, refusal_of_powerless, unauthenticated
from taskyard.protocols.http.lake_report import ReportPage
from taskyard.protocols.http.messages import Exchange, Identify, Request, Response, Route, anonymous
from taskyard.protocols.http.monitoring.events import Events
from taskyard.protocols.http.monitoring.health import Health
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.monitoring.live import Live
from taskyard.protocols.http.monitoring.live_head import About, space_of
from taskyard.protocols.http.monitoring.metrics_page import MetricsPage
from taskyard.protocols.http.monitoring.watch import Watch
from taskyard.protocols.http.origins import refusal_of_other_host, refusal_of_other_site
from taskyard.protocols.http.parser import Incoming
from taskyard.protocols.http.problems import problem
from taskyard.protocols.http.router import Router
from taskyard.protocols.http.routing import Api
from taskyard.protocols.http.websocket import WebSocket, refuse
from taskyard.server.settings.config import Settings
from taskyard.server.settings.exposure import is_local
from taskyard.shared.process import Usage, usage

FRAME_ROOM = 65_536  # what a message may be longer than the largest payload, as JSON text
JSON_BYTE = 6  # characters of one byte: as an escape, or in an array with a space behind each comma


class Web:
    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        scheduler: Scheduler,
        *,
        allow: Allow = by_its_rules,
        gate: Gate | None = None,
        identify: Identify = anonymous,
        listeners: Listeners = dict,
        lake: Lake = no_lake,
        errands: Errands | None = None,
        draw: Callable[[], int] = draw_id,
        process: Callable[[], Usage] = usage,
    ) -> None:
        """With a gate, it is that which identifies; `draw` gives the ids of Glovebox sessions, and
        `process` says what the metrics tell of this one."""
        self._gate: Gate = gate or OpenGate()
        sessions = _sessions(settings, broker, self._gate)
        if gate is not None:
            identify = Identification(gate, unauthenticated, sessions).identify
        self._broker = broker
        self._settings = settings
        self._origins = frozenset(settings.http_origins)
        self._identify = identify
        self._is_for_this_machine = not self._gate.has_users and is_local(settings.bind)
        self.health = Health(broker)
        self.glovebox = Glovebox(
            broker, scheduler, settings.output_limit, settings.glovebox_creation, draw, allow
        )
        self.events = Events(broker, scheduler, allow=allow)
        self._lag = LagProbe(broker.metrics, broker.clock, scheduler)
        self.watch = Watch(broker, scheduler, lambda: {"http": self.http.requests})
        self.live = Live(broker, scheduler, self.watch, self._about(lake), allow=allow)
        api = Api(
            broker,
            scheduler,
            durability=settings.durability,
            max_losses=settings.max_losses,
            connections=self._connections,
            listeners=listeners,
            users=int if gate is None else lambda: gate.count,
            lake=lake,
            errands=errands,
            sessions=sessions,
            secure=settings.tls_certificate is not None,
            history=History(self.watch, scheduler),
            allow=allow,
        )
        self.api = Router(api.routes_beside_http())  # by itself, for who has no need of HTTP
        metrics = MetricsPage(
            broker, scheduler, settings.metrics_queues, process=process, gate=gate, lake=lake
        )
        report = ReportPage(scheduler, None if errands is None else errands.report_path)
        inspected = [
            *metrics.routes(),
            *report.routes(),
            Route("GET", "/status/{queue}", self._status),
        ]
        routes = [
            *api.routes(),
            *self.health.routes(),
            *self.events.routes(),
            *self.live.routes(),
            *[guarded(allow, INSPECT, route) for route in inspected],
            Route("GET", "/connect", _needs_upgrade),
            *Page().routes(),
        ]
        self.http = Http(
            broker,
            scheduler,
            Router(routes),
            output_limit=settings.output_limit,
            body_limit=settings.http_body_limit,
            identify=self._admit,
            refuse=unauthenticated,
            secure=settings.tls_certificate is not None,
        )
        self._lag.start()
        self.watch.start()
        self.http.upgrades["/connect"] = self._connect

    def rules_changed(self) -> None:
        """The users were read again; connections hear of it by themselves."""
        self.events.rules_changed()
        self.live.rules_changed()

    def stop(self) -> None:
        """The server is about to end."""
        self.health.stopping = True
        self.events.close()
        self.live.close()
        self.watch.stop()
        self._lag.stop()

    def _admit(
        self, request: Request, later: Callable[[Principal | Response], None]
    ) -> Principal | Response | None:
        refusal = refusal_of_other_site(request, self._origins)
        if refusal is None and self._is_for_this_machine:
            refusal = refusal_of_other_host(request, self._origins)
        return refusal or self._identify(request, later)

    def _connections(self) -> dict[str, int]:
        """How many are open now, by dialect."""
        return {
            **{traffic.dialect: int(traffic.clients) for traffic in self._broker.metrics.dialects},
            "http": self.http.clients,
        }

    def _about(self, lake: Lake) -> About:
        settings = self._settings
        return About(
            durability=settings.durability,
            connections=self._connections,
            lake=lake,
            space=partial(space_of, str(settings.data)),
        )

    def _status(self, exchange: Exchange) -> None:
        exchange.reply(status(self._broker.engine, exchange.request.params["queue"]))

    def _connect(self, socket: Socket, incoming: Incoming, rest: bytes) -> Receiver | Response:
        """Go on as a Glovebox client."""
        request = incoming.request
        refusal = refuse(incoming, self._origins)
        refusal = refusal or refusal_of_powerless(request.principal)
        if refusal is None and not has_room(self._gate, request.principal):
            refusal = problem(503, "This user has too many connections: close one, or try later.")
        if refusal is not None:
            return refusal
        asked = terms(request.headers)
        reader = WebSocket(socket.raw(), self._settings.payload_limit * JSON_BYTE + FRAME_ROOM)
        try:
            connection = self.glovebox.connect(
                socket,
                request.peer,
                asked.binary,
                asked.durable,
                asked.reconnect_as,
                request.principal,
                partial(reader.shake_hands, incoming),
            )
        except TaskyardError as error:  # before hands were shaken
            reader.lost()
            return problem(503, f"The session cannot be kept: {error}.")
        connection.frames = reader
        reader.begin(connection, rest)
        return connection


def _sessions(settings: Settings, broker: Broker, gate: Gate) -> Sessions | None:
    """Logins of browsers, where there is somebody to log in."""
    if not gate.has_users:
        return None
    key = SessionKey(settings.data / KEY_FILE)
    return Sessions(gate, key, broker.clock, settings.session_length)


def _needs_upgrade(exchange: Exchange) -> None:
    exchange.reply(problem(426, "This address is for WebSockets: ask for an upgrade to one."))
