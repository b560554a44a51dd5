"""A simulated server and those who listen to what happens in it."""

import json
from typing import Any

from support.exchanges import FakeExchange, FakeStream, get
from support.simulated import SimulatedServer

from taskyard.access.principal import ANONYMOUS, Principal
from taskyard.engine.model.job import API, NewJob, Origin, Policy
from taskyard.engine.records.describe import describe
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import JournalReader
from taskyard.protocols.http.monitoring.events import Events

ORIGIN = Origin(API, "", "tester")
PATH = "/api/v1/events"


class Listening:
    """The events of a simulated server, and its clients."""

    def __init__(self, yard: SimulatedServer, most: int = 100) -> None:
        self.yard = yard
        self.events = Events(yard.broker, yard.scheduler, most)

    @property
    def timeline(self) -> str:
        return self.yard.journal.timeline.hex()

    def ask(
        self,
        headers: dict[str, str] | None = None,
        who: Principal = ANONYMOUS,
        **query: str,
    ) -> FakeExchange:
        asked = get(self.events.routes(), PATH, query, headers, who)
        self.yard.run_pending()
        return asked

    def listen(
        self,
        headers: dict[str, str] | None = None,
        who: Principal = ANONYMOUS,
        **query: str,
    ) -> FakeStream:
        asked = self.ask(headers, who, **query)
        assert asked.response is None, asked.response
        assert asked.content_type == "text/event-stream"
        assert asked.streamed is not None
        return asked.streamed

    def refused(self, headers: dict[str, str] | None = None, **query: str) -> dict[str, Any]:
        response = self.ask(headers, ANONYMOUS, **query).answer()
        assert response.content_type == "application/problem+json"
        problem: dict[str, Any] = json.loads(response.body)
        assert problem["status"] == response.status
        return problem


def push(yard: SimulatedServer, queue: str = "q", count: int = 1, payload: bytes = b"") -> None:
    for _ in range(count):
        now = yard.broker.begin_turn()
        yard.engine.push(NewJob(queue, "task", payload, Policy()), ORIGIN, now)
        yard.broker.end_turn()
    yard.advance(0.01)


def recorded(yard: SimulatedServer, after: int = 0) -> list[dict[str, object]]:
    """What `taskyard journal dump` shows."""
    reader = JournalReader(yard.disk.directory(JOURNAL))
    return [describe(entry.record, False) for entry in reader.read(after + 1)]


def seqs(stream: FakeStream) -> list[int]:
    return [event["seq"] for event in stream.events()]
