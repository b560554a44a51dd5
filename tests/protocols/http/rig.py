"""An HTTP connection on a fake socket, with the whole simulated broker behind it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from support.simulated import SimulatedPeer, SimulatedServer
from support.simulated_http import connect

from taskyard.protocols.http.connection import Http
from taskyard.protocols.http.routing import Router
from taskyard.protocols.http.wire import Exchange, Handler, Response, Route

BODY_LIMIT = 1000


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


def echo(exchange: Exchange) -> None:
    request = exchange.request
    body = {
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "params": request.params,
        "body": request.body.decode("latin-1"),
        "peer": request.peer,
        "x": request.headers.get("x"),
    }
    exchange.reply(Response(200, json.dumps(body).encode()))


@dataclass
class Rig:
    """`later` collects exchanges of /later that the test answers when it likes."""

    yard: SimulatedServer = field(default_factory=SimulatedServer)
    later: list[Exchange] = field(default_factory=list)
    body_limit: int = BODY_LIMIT

    def __post_init__(self) -> None:
        routes = [
            Route("GET", "/echo", echo),
            Route("POST", "/echo", echo),
            Route("GET", "/things/{thing}/parts/{part}", echo),
            Route("GET", "/things/all/parts/{part}", echo),
            Route("GET", "/later", self.later.append),
            Route("GET", "/broken", _broken),
        ]
        self.http = Http(
            self.yard.broker,
            self.yard.scheduler,
            Router(routes),
            output_limit=10_000,
            body_limit=self.body_limit,
        )

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        self.http.router.add(Route(method, pattern, handler))

    def connect(self, certificate: str = "") -> SimulatedPeer:
        return connect(self.yard, self.http, "192.0.2.1:4321", certificate)


def _broken(exchange: Exchange) -> None:
    raise ZeroDivisionError


def read(peer: SimulatedPeer) -> Reply:
    """The next answer, whose length its head must tell."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.read_line()
    first, *lines = head.decode().split("\r\n")[:-2]
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in lines)
    return Reply(int(status), headers, peer.read_exactly(int(headers.get("content-length", "0"))))


def ask(peer: SimulatedPeer, request: bytes) -> Reply:
    peer.send(request)
    return read(peer)
