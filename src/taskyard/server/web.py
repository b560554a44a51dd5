"""Everything that speaks HTTP, on one listener."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from taskyard.access.gate import Authenticator, OpenAuthenticator, may_connect
from taskyard.access.principal import INSPECT, Allow, Principal, check_rules
from taskyard.access.sessions import KEY_FILE, BrowserSessions, SessionKey
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import EventLoopLagProbe
from taskyard.broker.receiver import ClientConnection
from taskyard.broker.seams import Scheduler
from taskyard.engine.model.errors import TaskyardError
from taskyard.protocols.glovebox.commands import Glovebox, random_session_id
from taskyard.protocols.glovebox.http import parse_connect_headers, queue_status
from taskyard.protocols.http.api.lake import LakeBackend, LakeStatus, no_lake_status
from taskyard.protocols.http.api.server import Listeners
from taskyard.protocols.http.connection import Http, UpgradableTransport
from taskyard.protocols.http.credentials import RequestIdentifier
from taskyard.protocols.http.dashboard_page import DashboardPage
from taskyard.protocols.http.guard import (
    deny_without_permissions,
    require_permission,
    unauthenticated,
)
from taskyard.protocols.http.lake_report import LakeReportPage
from taskyard.protocols.http.messages import Exchange, Identify, Request, Response, Route, anonymous
from taskyard.protocols.http.monitoring.events import Events
from taskyard.protocols.http.monitoring.health import Health
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.monitoring.live import LiveStream
from taskyard.protocols.http.monitoring.live_head import SummarySources, disk_space_of
from taskyard.protocols.http.monitoring.metrics_page import MetricsPage
from taskyard.protocols.http.monitoring.watch import StatsSampler
from taskyard.protocols.http.origins import cross_site_refusal, unknown_host_refusal
from taskyard.protocols.http.parser import ParsedRequest
from taskyard.protocols.http.problems import problem
from taskyard.protocols.http.router import Router
from taskyard.protocols.http.routing import ApiRoutes
from taskyard.protocols.http.websocket import WebSocket, refuse_upgrade
from taskyard.server.settings.config import Settings
from taskyard.server.settings.exposure import is_local
from taskyard.shared.process import Usage, process_usage

FRAME_OVERHEAD_BYTES = 65_536  # what a message may be longer than the largest payload, as JSON text
# characters of one byte: as an escape, or in an array with a space behind each comma
JSON_CHARS_PER_BYTE = 6


class HttpApplication:
    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        scheduler: Scheduler,
        *,
        allow: Allow = check_rules,
        authenticator: Authenticator | None = None,
        identify: Identify = anonymous,
        listeners: Listeners = dict,
        lake: LakeStatus = no_lake_status,
        lake_requests: LakeBackend | None = None,
        draw_session_id: Callable[[], int] = random_session_id,
        process_usage: Callable[[], Usage] = process_usage,
    ) -> None:
        """With an authenticator, that identifies clients; `draw_session_id` gives the ids of
        Glovebox sessions, and `process_usage` the metrics of this process.
        """
        self._authenticator: Authenticator = authenticator or OpenAuthenticator()
        sessions = _browser_sessions(settings, broker, self._authenticator)
        if authenticator is not None:
            identify = RequestIdentifier(authenticator, unauthenticated, sessions).identify
        self._broker = broker
        self._settings = settings
        self._origins = frozenset(settings.http_origins)
        self._identify = identify
        self._is_local_only = not self._authenticator.has_users and is_local(settings.bind)
        self.health = Health(broker)
        self.glovebox = Glovebox(
            broker,
            scheduler,
            settings.output_limit,
            settings.glovebox_creation,
            draw_session_id,
            allow,
        )
        self.events = Events(broker, scheduler, allow=allow)
        self._lag_probe = EventLoopLagProbe(broker.metrics, broker.clock, scheduler)
        self.stats_sampler = StatsSampler(broker, scheduler, lambda: {"http": self.http.requests})
        self.live_stream = LiveStream(
            broker, scheduler, self.stats_sampler, self._server_info(lake), allow=allow
        )
        api = ApiRoutes(
            broker,
            scheduler,
            durability=settings.durability,
            max_losses=settings.max_losses,
            connections=self._open_connections,
            listeners=listeners,
            users=int if authenticator is None else lambda: authenticator.user_count,
            lake_status=lake,
            backend=lake_requests,
            sessions=sessions,
            secure=settings.tls_certificate is not None,
            history=History(self.stats_sampler, scheduler),
            allow=allow,
        )
        self.api = Router(api.routes_without_cookies())  # by itself, for use without HTTP
        metrics = MetricsPage(
            broker,
            scheduler,
            settings.metrics_queues,
            process=process_usage,
            authenticator=authenticator,
            lake_status=lake,
        )
        report = LakeReportPage(
            scheduler, None if lake_requests is None else lake_requests.report_path
        )
        inspected = [
            *metrics.routes(),
            *report.routes(),
            Route("GET", "/status/{queue}", self._send_queue_status),
        ]
        routes = [
            *api.routes(),
            *self.health.routes(),
            *self.events.routes(),
            *self.live_stream.routes(),
            *[require_permission(allow, INSPECT, route) for route in inspected],
            Route("GET", "/connect", _send_upgrade_required),
            *DashboardPage().routes(),
        ]
        self.http = Http(
            broker,
            scheduler,
            Router(routes),
            output_limit=settings.output_limit,
            body_limit=settings.http_body_limit,
            identify=self._identify_request,
            refuse=unauthenticated,
            secure=settings.tls_certificate is not None,
        )
        self._lag_probe.start()
        self.stats_sampler.start()
        self.http.upgrades["/connect"] = self._connect_glovebox

    def on_permissions_changed(self) -> None:
        """The users were reloaded; connections are notified on their own."""
        self.events.rules_changed()
        self.live_stream.rules_changed()

    def stop(self) -> None:
        """The server is about to end."""
        self.health.stopping = True
        self.events.close()
        self.live_stream.close()
        self.stats_sampler.stop()
        self._lag_probe.stop()

    def _identify_request(
        self, request: Request, later: Callable[[Principal | Response], None]
    ) -> Principal | Response | None:
        refusal = cross_site_refusal(request, self._origins)
        if refusal is None and self._is_local_only:
            refusal = unknown_host_refusal(request, self._origins)
        return refusal or self._identify(request, later)

    def _open_connections(self) -> dict[str, int]:
        """Return how many are open now, by protocol."""
        return {
            **{
                traffic.protocol_name: int(traffic.open_connections)
                for traffic in self._broker.metrics.protocols
            },
            "http": self.http.clients,
        }

    def _server_info(self, lake: LakeStatus) -> SummarySources:
        settings = self._settings
        return SummarySources(
            durability=settings.durability,
            connections=self._open_connections,
            lake=lake,
            space=partial(disk_space_of, str(settings.data)),
        )

    def _send_queue_status(self, exchange: Exchange) -> None:
        exchange.reply(queue_status(self._broker.engine, exchange.request.params["queue"]))

    def _connect_glovebox(
        self, socket: UpgradableTransport, incoming: ParsedRequest, extra_input: bytes
    ) -> ClientConnection | Response:
        """Continue as a Glovebox client."""
        request = incoming.request
        refusal = refuse_upgrade(incoming, self._origins)
        refusal = refusal or deny_without_permissions(request.principal)
        if refusal is None and not may_connect(self._authenticator, request.principal):
            refusal = problem(503, "This user has too many connections: close one, or try later.")
        if refusal is not None:
            return refusal
        asked = parse_connect_headers(request.headers)
        reader = WebSocket(
            socket.detach_transport(),
            self._settings.payload_limit * JSON_CHARS_PER_BYTE + FRAME_OVERHEAD_BYTES,
        )
        try:
            connection = self.glovebox.connect(
                socket,
                request.peer,
                asked.binary,
                asked.durable,
                asked.reconnect_as,
                request.principal,
                partial(reader.complete_handshake, incoming),
            )
        except TaskyardError as error:  # before hands were shaken
            reader.on_disconnect()
            return problem(503, f"The session cannot be kept: {error}.")
        connection.websocket = reader
        reader.attach_handler(connection, extra_input)
        return connection


def _browser_sessions(
    settings: Settings, broker: Broker, authenticator: Authenticator
) -> BrowserSessions | None:
    """Make the sessions of browsers, where there are users that can log in."""
    if not authenticator.has_users:
        return None
    key = SessionKey(settings.data / KEY_FILE)
    return BrowserSessions(authenticator, key, broker.clock, settings.session_length)


def _send_upgrade_required(exchange: Exchange) -> None:
    exchange.reply(problem(426, "This address is for WebSockets: ask for an upgrade to one."))
