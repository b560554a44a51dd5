"""One request of a connection: its sender, and its one answer, whole or as a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taskyard.access.principal import Principal
from taskyard.protocols.http.messages import Request, Response
from taskyard.protocols.http.parser import ParsedRequest
from taskyard.protocols.http.wire import LAST_CHUNK, encode_chunk, encode_stream_head

if TYPE_CHECKING:
    from taskyard.protocols.http.connection import HttpConnection


class IdentifiedRequest:
    """A request, and its principal once that is known."""

    def __init__(
        self, connection: HttpConnection, exchange: HttpExchange, incoming: ParsedRequest
    ) -> None:
        self.exchange = exchange
        self.incoming = incoming
        self.who: Principal | Response | None = None
        self._connection = connection

    def on_identified(self, who: Principal | Response) -> None:
        self.who = who
        self._connection.on_identified(self)


class HttpExchange:
    """One request and its one answer."""

    def __init__(self, connection: HttpConnection, incoming: ParsedRequest) -> None:
        self._connection: HttpConnection | None = connection
        self._incoming = incoming
        self._on_writable: Callable[[], None] | None = None
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
            connection.send_response(self._incoming, response)

    def stream(
        self,
        content_type: str,
        *,
        on_writable: Callable[[], None],
        on_close: Callable[[], None],
    ) -> HttpExchange:
        assert not self.answered, "a request is answered once"
        self.answered = True
        self._on_writable = on_writable
        self._on_close = on_close
        connection = self._connection
        if connection is not None:
            connection.command_started_at = 0  # it lasts as long as its client reads
            connection.reply_queue.send(
                encode_stream_head(content_type, self.request.id, connection.http.secure), 0
            )
            connection.reply_queue.flush_output()
        return self

    # As the stream

    def send(self, data: bytes, position: int = 0) -> None:
        connection = self._connection
        if connection is not None:
            connection.reply_queue.send(encode_chunk(data), position)
            connection.reply_queue.flush_output()

    def accepts_more(self) -> bool:
        connection = self._connection
        return connection is None or (
            not connection.output_blocked and connection.reply_queue.check_capacity()
        )

    def close(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.reply_queue.send(LAST_CHUNK, 0)
            connection.close()
            self.on_connection_end()

    # From the connection

    def is_stream(self) -> bool:
        return self._on_close is not None

    def on_writable(self) -> None:
        if self._on_writable is not None:
            self._on_writable()

    def on_connection_end(self) -> None:
        self._connection = None
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()
