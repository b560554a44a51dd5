"""Glovebox: labelled requests over a WebSocket, in JSON or bincode.

A request that has to wait holds up nobody: its answer carries its label. What a client fetches is
held by its session, which is its connection, or outlives it if the client asks for that. Knows
whole messages and whole frames; the WebSocket itself is the listener's. User documentation:
docs/glovebox.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import ANONYMOUS, Allow, Principal, by_its_rules
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import Traffic
from taskyard.broker.seams import Scheduler, Transport
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import GLOVEBOX, MAX_TRIES, Origin, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import FIRST_SESSION, Session
from taskyard.protocols.glovebox.connection import GloveboxConnection

DEFAULT_RETRIES: Final = 20
VERBS: Final = ("post", "fetch", "finish", "pop", "create")


def draw_id() -> int:
    """A session's id. Who knows it can take up the session, so it must not be guessable.

    Its upper bit is set, so that it is never the number of a connection of another dialect.
    """
    return FIRST_SESSION | secrets.randbits(62)


class Glovebox:
    """What all connections of this dialect share."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        output_limit: i64,
        creation: bool = True,
        draw: Callable[[], int] = draw_id,
        allow: Allow = by_its_rules,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.output_limit = output_limit
        self.creation = creation  # clients may create queues
        self.allow = allow
        self.traffic = Traffic("glovebox")
        broker.metrics.add_dialect(self.traffic)
        self.verbs = {name: self.traffic.verb(name) for name in VERBS}
        self._draw = draw
        self._policies: dict[int, Policy] = {}
        self._attached: dict[int, GloveboxConnection] = {}  # of durable sessions

    def connect(
        self,
        transport: Transport,
        peer: str,
        binary: bool = False,
        durable: bool = False,
        reconnect_as: int | None = None,
        principal: Principal = ANONYMOUS,
        accept: Callable[[], None] | None = None,
    ) -> GloveboxConnection:
        """Greet a new client.

        A session that cannot be kept is refused with a TaskyardError; once `accept` was called,
        nothing is refused any more.
        """
        engine = self.broker.engine
        now = self.broker.begin()
        origin = Origin(GLOVEBOX, principal.name, f"{peer}#{self.traffic.connections + 1}")
        known = None if reconnect_as is None else engine.state.sessions.get(reconnect_as)
        before = engine.log.mark()
        session: Session | None = None
        try:
            if known is not None:
                session = engine.attach_session(known.id, origin, now)
                self._replace(known.id)
            elif durable:
                session = engine.open_session(self._new_id(), origin, now)
        except TaskyardError:
            self.broker.end()
            raise
        id = self._new_id() if session is None else session.id
        self.traffic.connections += 1
        self.traffic.clients += 1
        if accept is not None:
            accept()
        connection = GloveboxConnection(self, transport, origin, id, binary, session, principal)
        if session is not None:
            self._attached[id] = connection
        self.broker.join(connection)
        connection.greet(before)
        self.broker.end()
        return connection

    def gone(self, connection: GloveboxConnection) -> None:
        self.traffic.clients -= 1
        self.detached(connection)

    def detached(self, connection: GloveboxConnection) -> None:
        if self._attached.get(connection.owner) is connection:
            del self._attached[connection.owner]

    def policy(self, queue: Queue) -> Policy:
        retries = queue.rules.retries
        if retries < 0:
            retries = DEFAULT_RETRIES
        policy = self._policies.get(retries)
        if policy is None:
            attempts = retries + 1
            # Only attempts count: however one of them ends, the next follows while there is one.
            policy = Policy(max_attempts=attempts if attempts <= MAX_TRIES else 0, max_fails=-1)
            self._policies[retries] = policy
        return policy

    def _new_id(self) -> int:
        id = self._draw()
        while id in self.broker.engine.state.sessions:
            id = self._draw()
        return id

    def _replace(self, id: int) -> None:
        """A client is back before its old socket was known to be dead."""
        old = self._attached.pop(id, None)
        if old is not None:
            old.replaced()
