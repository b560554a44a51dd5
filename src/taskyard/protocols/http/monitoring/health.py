"""GET /healthz: the process is up. GET /readyz: it takes writes, or why it does not."""

from __future__ import annotations

import json
from typing import Final

from taskyard.broker.broker import Broker
from taskyard.protocols.http.messages import Exchange, Response, Route

PROBLEM: Final = "application/problem+json"


class Health:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.stopping = False  # set as soon as the server begins to stop

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/healthz", self.show_health),
            Route("GET", "/readyz", self.show_readiness),
        ]

    def show_health(self, exchange: Exchange) -> None:
        exchange.reply(_ok("up"))

    def show_readiness(self, exchange: Exchange) -> None:
        exchange.reply(self.readiness())

    def readiness(self) -> Response:
        failure = self._broker.failure or self._broker.engine.read_only_reason
        refusing = self._broker.journal.space.push_refusal
        if self.stopping:
            return _not_ready("shutting-down", "The server is shutting down.", "it stops")
        if failure:
            return _not_ready("read-only", "Nothing can be written until a restart.", failure)
        if refusing:
            title = "Pushes are refused until there is room; jobs can be finished."
            return _not_ready("no-space", title, refusing)
        if self._broker.engine.draining:
            title = "Pushes are refused; jobs are handed out and can be finished."
            return _not_ready("draining", title, "the server is being drained")
        return _ok("ready")


def _ok(status: str) -> Response:
    return Response(200, json.dumps({"status": status}).encode())


def _not_ready(reason: str, title: str, detail: str) -> Response:
    problem = {
        "type": "about:blank",
        "title": title,
        "status": 503,
        "detail": detail,
        "reason": reason,
    }
    return Response(503, json.dumps(problem).encode(), PROBLEM)
