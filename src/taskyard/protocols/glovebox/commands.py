"""Glovebox: labelled requests over a WebSocket, in JSON or bincode.

A request that has to wait delays no other: its answer has its label. A client's session holds what
it fetches; the session is its connection, or outlives it if the client asks for that. Knows whole
messages and whole frames; the WebSocket itself is the listener's. User documentation:
docs/glovebox.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from taskyard.access.principal import ANONYMOUS, Allow, Principal, check_rules
from taskyard.broker.broker import Broker
from taskyard.broker.metrics import ProtocolStats
from taskyard.broker.seams import Scheduler, Transport
from taskyard.engine.model.errors import TaskyardError
from taskyard.engine.model.job import GLOVEBOX, MAX_TRIES, Origin, Policy
from taskyard.engine.model.queue import Queue
from taskyard.engine.model.state import FIRST_SESSION_ID, DurableSession
from taskyard.protocols.glovebox.connection import GloveboxConnection

DEFAULT_RETRIES: Final = 20
VERBS: Final = ("post", "fetch", "finish", "pop", "create")


def random_session_id() -> int:
    """A session's id. A client that knows it can take over the session, so it must not be
    guessable.

    Its upper bit is set, so that it is never the number of a connection of another protocol.
    """
    return FIRST_SESSION_ID | secrets.randbits(62)


class Glovebox:
    """State shared by all connections of this protocol."""

    def __init__(
        self,
        broker: Broker,
        scheduler: Scheduler,
        output_limit: i64,
        creation: bool = True,
        generate_id: Callable[[], int] = random_session_id,
        allow: Allow = check_rules,
    ) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self.output_limit = output_limit
        self.allows_creation = creation  # clients may create queues
        self.check_permission = allow
        self.stats = ProtocolStats("glovebox")
        broker.metrics.add_protocol(self.stats)
        self.verbs = {name: self.stats.add_command(name) for name in VERBS}
        self._generate_id = generate_id
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
        """Send hello to a new client.

        A session that cannot be kept is refused with a TaskyardError; once `accept` was called,
        nothing is refused any more.
        """
        engine = self.broker.engine
        now = self.broker.begin_turn()
        origin = Origin(GLOVEBOX, principal.name, f"{peer}#{self.stats.total_connections + 1}")
        known = None if reconnect_as is None else engine.state.sessions.get(reconnect_as)
        before = engine.records.end_position()
        session: DurableSession | None = None
        try:
            if known is not None:
                session = engine.attach_session(known.id, origin, now)
                self._take_over_session(known.id)
            elif durable:
                session = engine.open_session(self._new_id(), origin, now)
        except TaskyardError:
            self.broker.end_turn()
            raise
        id = self._new_id() if session is None else session.id
        self.stats.total_connections += 1
        self.stats.open_connections += 1
        if accept is not None:
            accept()
        connection = GloveboxConnection(self, transport, origin, id, binary, session, principal)
        if session is not None:
            self._attached[id] = connection
        self.broker.register(connection)
        connection.send_hello(before)
        self.broker.end_turn()
        return connection

    def on_disconnect(self, connection: GloveboxConnection) -> None:
        self.stats.open_connections -= 1
        self.detach(connection)

    def detach(self, connection: GloveboxConnection) -> None:
        if self._attached.get(connection.owner) is connection:
            del self._attached[connection.owner]

    def policy(self, queue: Queue) -> Policy:
        retries = queue.effective_settings.retries
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
        id = self._generate_id()
        while id in self.broker.engine.state.sessions:
            id = self._generate_id()
        return id

    def _take_over_session(self, id: int) -> None:
        """A client is back before its old socket was known to be dead."""
        old = self._attached.pop(id, None)
        if old is not None:
            old.on_session_taken_over()
