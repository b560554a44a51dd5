"""HTTP inside a simulated server: the listener's own code on a socket that is none."""

from __future__ import annotations

import asyncio

from support.simulated import ServerSide, SimulatedPeer, SimulatedServer

from taskyard.broker.turns import ClientConnection
from taskyard.protocols.http.connection import Http
from taskyard.protocols.http.routing import ApiRoutes, Router

BODY_LIMIT = 1 << 24


class FakeSocket(ServerSide):
    def __init__(self, peer: SimulatedPeer, certificate: str = "") -> None:
        super().__init__(peer)
        self._of = peer
        self._certificate = certificate

    def switch_protocol(self, receiver: ClientConnection) -> None:
        self._of.receiver = receiver

    def detach_transport(self) -> asyncio.Transport:
        raise NotImplementedError

    def certificate_name(self) -> str:
        return self._certificate


def api_listener(yard: SimulatedServer) -> Http:
    """The JSON API of this run of the server."""
    api = ApiRoutes(yard.broker, yard.scheduler, durability="sync", max_losses=yard.max_losses)
    return Http(
        yard.broker,
        yard.scheduler,
        Router(api.routes()),
        output_limit=1 << 20,
        body_limit=BODY_LIMIT,
    )


def connect(
    yard: SimulatedServer, http: Http, address: str, certificate: str = ""
) -> SimulatedPeer:
    peer = SimulatedPeer(yard)
    peer.receiver = http.connect(FakeSocket(peer, certificate), address)
    return peer
