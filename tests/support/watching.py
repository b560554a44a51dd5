"""A simulated server and those who watch its figures."""

import json
from typing import Any

import msgspec
from support.exchanges import FakeExchange, FakeStream
from support.simulated import SimulatedServer

from taskyard.access.principal import ANONYMOUS, Principal
from taskyard.protocols.http.monitoring.live import PATH, LiveStream, SummarySources
from taskyard.protocols.http.monitoring.live_messages import LiveSample
from taskyard.protocols.http.monitoring.watch import CHUNK_QUEUES, StatsSampler
from taskyard.protocols.http.wire import Request


class Watching:
    def __init__(
        self,
        yard: SimulatedServer | None = None,
        most: int = 100,
        about: SummarySources | None = None,
        portion: int = CHUNK_QUEUES,
    ) -> None:
        self.yard = yard or SimulatedServer()
        self.watch = StatsSampler(
            self.yard.broker, self.yard.scheduler, lambda: {"http": 0}, portion
        )
        self.watch.start()
        about = about or SummarySources(connections=lambda: {"masenko": 1, "http": 2})
        self.live = LiveStream(
            self.yard.broker, self.yard.scheduler, self.watch, about, max_listeners=most
        )

    def ask(self, principal: Principal = ANONYMOUS, **query: str) -> FakeExchange:
        exchange = FakeExchange(Request("GET", PATH, query, principal=principal))
        self.live.routes()[0].handler(exchange)
        self.yard.run_pending()
        return exchange

    def listen(self, principal: Principal = ANONYMOUS, **query: str) -> FakeStream:
        asked = self.ask(principal, **query)
        assert asked.response is None, asked.response
        assert asked.content_type == "text/event-stream"
        assert asked.streamed is not None
        return asked.streamed

    def first(self, principal: Principal = ANONYMOUS, **query: str) -> dict[str, Any]:
        """The first look that such a client gets, which is soon."""
        stream = self.listen(principal, **query)
        found = looks(stream)
        if not found:  # others listen, and have just got one
            self.yard.advance(0.25)
            found = looks(stream)
        stream.hang_up()
        (look,) = found
        return look

    def refused(self, principal: Principal = ANONYMOUS, **query: str) -> dict[str, Any]:
        response = self.ask(principal, **query).answer()
        problem: dict[str, Any] = json.loads(response.body)
        assert problem["status"] == response.status
        return problem


def looks(stream: FakeStream) -> list[dict[str, Any]]:
    """Those that have come since the last time; each is as its type says."""
    found = stream.events()
    for look in found:
        msgspec.convert(look, LiveSample)
    return found


def names(look: dict[str, Any]) -> list[str]:
    return [row["name"] for row in look["queues"]["shown"]]
