"""The JSON API: all its routes, and the document that describes them.

Handlers are short: they read what was sent, call the engine, and show what came of it. User
documentation: docs/api.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from taskyard.access.principal import INSPECT, Allow, by_its_rules
from taskyard.access.sessions import Sessions
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.protocols.http.api.consumers import ConsumerOperations
from taskyard.protocols.http.api.dead_letters import DeadOperations
from taskyard.protocols.http.api.history import HistoryOperations
from taskyard.protocols.http.api.job_events import JobEventOperations
from taskyard.protocols.http.api.jobs import JobOperations
from taskyard.protocols.http.api.journal import JournalOperations
from taskyard.protocols.http.api.lake import Errands, Lake, LakeOperations, no_lake
from taskyard.protocols.http.api.push import PushOperations
from taskyard.protocols.http.api.queues import QueueNames, QueueOperations
from taskyard.protocols.http.api.readers import ReaderOperations
from taskyard.protocols.http.api.schedules import ScheduleOperations
from taskyard.protocols.http.api.search import SearchOperations
from taskyard.protocols.http.api.server import (
    Connections,
    Durability,
    Listeners,
    ServerOperations,
)
from taskyard.protocols.http.api.session import SessionOperations
from taskyard.protocols.http.api.slow import SlowOperations
from taskyard.protocols.http.call import Call, Operation
from taskyard.protocols.http.messages import Exchange, Response, Route
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.monitoring.watch import Watch
from taskyard.protocols.http.schema import document


class Api:
    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        *,
        durability: Durability,
        max_losses: int,
        connections: Connections = dict,
        listeners: Listeners = dict,
        users: Callable[[], int] = int,
        lake: Lake = no_lake,
        errands: Errands | None = None,
        sessions: Sessions | None = None,
        secure: bool = False,
        history: History | None = None,
        allow: Allow = by_its_rules,
    ) -> None:
        self._broker = broker
        self._allow = allow
        names = QueueNames(broker)
        pushing = PushOperations(max_losses, scheduler)
        if history is None:  # one that nothing is put into
            history = History(Watch(broker, scheduler), scheduler)
        self.operations: list[Operation] = [
            *QueueOperations(names, scheduler).operations(),
            *pushing.operations(),
            *JobOperations(names).operations(),
            *SearchOperations(names, scheduler).operations(),
            *JobEventOperations(scheduler).operations(),
            *HistoryOperations(history).operations(),
            *DeadOperations(scheduler).operations(),
            *ScheduleOperations(pushing).operations(),
            *ServerOperations(broker, durability, connections, listeners, users, lake).operations(),
            *SlowOperations(broker).operations(),
            *LakeOperations(lake, errands).operations(),
            *JournalOperations(scheduler).operations(),
            *ReaderOperations().operations(),
            *ConsumerOperations(scheduler).operations(),
            *SessionOperations(sessions, secure=secure).operations(),
            Operation(
                method="GET",
                pattern="/api/v1/openapi.json",
                name="getDocument",
                summary="This document",
                action=INSPECT,
                run=self._show_document,
                anywhere=True,
                answers={200: ("OpenAPI 3.1.", dict)},
                reads_state=False,
            ),
        ]
        self._document = b""

    def routes(self) -> list[Route]:
        return [self._route(operation) for operation in self.operations]

    def routes_beside_http(self) -> list[Route]:
        """Those that make sense without cookies."""
        return [self._route(each) for each in self.operations if not each.for_everybody]

    def _route(self, operation: Operation) -> Route:
        return Route(operation.method, operation.pattern, partial(self._handle, operation))

    def _handle(self, operation: Operation, exchange: Exchange) -> None:
        Call(self._broker, self._allow, operation, exchange).start()

    def _show_document(self, call: Call) -> None:
        if not self._document:
            self._document = document(self.operations)
        call.reply(Response(200, self._document))
