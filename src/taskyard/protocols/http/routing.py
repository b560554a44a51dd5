"""The JSON API: all its routes, and the document that describes them.

Handlers are short: they parse the request, call the engine, and encode the result. User
documentation: docs/api.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from taskyard.access.principal import INSPECT, Allow, check_rules
from taskyard.access.sessions import BrowserSessions
from taskyard.broker.broker import Broker
from taskyard.broker.seams import Scheduler
from taskyard.protocols.http.api.consumers import ConsumerOperations
from taskyard.protocols.http.api.dead_letters import DeadLetterOperations
from taskyard.protocols.http.api.history import HistoryOperations
from taskyard.protocols.http.api.job_events import JobEventOperations
from taskyard.protocols.http.api.jobs import JobOperations
from taskyard.protocols.http.api.journal import JournalOperations
from taskyard.protocols.http.api.lake import LakeBackend, LakeOperations, LakeStatus, no_lake_status
from taskyard.protocols.http.api.push import PushOperations
from taskyard.protocols.http.api.queues import QueueOperations, SortedQueueNames
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
from taskyard.protocols.http.call import ApiCall, Operation
from taskyard.protocols.http.messages import Exchange, Response, Route
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.monitoring.watch import StatsSampler
from taskyard.protocols.http.schema import openapi_document


class ApiRoutes:
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
        lake_status: LakeStatus = no_lake_status,
        backend: LakeBackend | None = None,
        sessions: BrowserSessions | None = None,
        secure: bool = False,
        history: History | None = None,
        allow: Allow = check_rules,
    ) -> None:
        self._broker = broker
        self._allow = allow
        names = SortedQueueNames(broker)
        pushing = PushOperations(max_losses, scheduler)
        if history is None:  # one that nothing is put into
            history = History(StatsSampler(broker, scheduler), scheduler)
        self.operations: list[Operation] = [
            *QueueOperations(names, scheduler).operations(),
            *pushing.operations(),
            *JobOperations(names).operations(),
            *SearchOperations(names, scheduler).operations(),
            *JobEventOperations(scheduler).operations(),
            *HistoryOperations(history).operations(),
            *DeadLetterOperations(scheduler).operations(),
            *ScheduleOperations(pushing).operations(),
            *ServerOperations(
                broker, durability, connections, listeners, users, lake_status
            ).operations(),
            *SlowOperations(broker).operations(),
            *LakeOperations(lake_status, backend).operations(),
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
                checks_queues_itself=True,
                answers={200: ("OpenAPI 3.1.", dict)},
                reads_state=False,
            ),
        ]
        self._document = b""

    def routes(self) -> list[Route]:
        return [self._route(operation) for operation in self.operations]

    def routes_without_cookies(self) -> list[Route]:
        """Those that make sense without cookies."""
        return [self._route(each) for each in self.operations if not each.for_everybody]

    def _route(self, operation: Operation) -> Route:
        return Route(operation.method, operation.pattern, partial(self._handle, operation))

    def _handle(self, operation: Operation, exchange: Exchange) -> None:
        ApiCall(self._broker, self._allow, operation, exchange).start()

    def _show_document(self, call: ApiCall) -> None:
        if not self._document:
            self._document = openapi_document(self.operations)
        call.reply(Response(200, self._document))
