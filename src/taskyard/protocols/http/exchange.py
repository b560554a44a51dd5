"""One request of a connection: who sends it, and its one answer, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taskyard.access.principal import Principal
from taskyard.protocols.http.messages import Request, Response
from taskyard.protocols.http.parser import Incoming
from taskyard.protocols.http.wire import LAST_CHUNK, encode_chunk, encode_stream_head

if TYPE_CHECKING:
    from taskyard.protocols.http.connection import HttpConnection


class Identified:
    """A request, and who sends it as soon as that is known."""

    def __init__(self, connection: HttpConnection, exchange: Exchange, incoming: Incoming) -> None:
        self.exchange = exchange
        self.incoming = incoming
        self.who: Principal | Response | None = None
        self._connection = connection

    def told(self, who: Principal | Response) -> None:
        self.who = who
        self._connection.identified(self)


class Exchange:
    """One request and its one answer."""

    def __init__(self, connection: HttpConnection, incoming: Incoming) -> None:
        self._connection: HttpConnection | None = connection
        self._incoming = incoming
        self._on_room: Callable[[], None] | None = None
        self._on_close: Callable[[], None] | None = None
        self.answered = False

    @property
    def request(self) -> Request:
        return self._incoming.request

    def reply(self, response: Response) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        connection = self._connection
        if connection is not None:
            connection.answered(self._incoming, response)

    def stream(
        self,
        content_type: str,
        *,
        on_room: Callable[[], None],
        on_close: Callable[[], None],
    ) -> Exchange:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self._on_room = on_room
        self._on_close = on_close
        connection = self._connection
        if connection is not None:
            connection.since = 0  # it is for as long as its client wants
            connection.outbox.send(
                encode_stream_head(content_type, self.request.id, connection.http.secure), 0
            )
            connection.outbox.flush()
        return self

    # As the stream

    def send(self, data: bytes, mark: int = 0) -> None:
        connection = self._connection
        if connection is not None:
            connection.outbox.send(encode_chunk(data), mark)
            connection.outbox.flush()

    def has_room(self) -> bool:
        connection = self._connection
        return connection is None or (not connection.stuffed and connection.outbox.has_room())

    def close(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.outbox.send(LAST_CHUNK, 0)
            connection.close()
            self.over()

    # From the connection

    def is_stream(self) -> bool:
        return self._on_close is not None

    def has_room_again(self) -> None:
        if self._on_room is not None:
            self._on_room()

    def over(self) -> None:
        self._connection = None
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
