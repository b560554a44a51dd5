"""What a handler sees of HTTP: a request, and the exchange through which it answers.

An answer may come at once or later (a payload that must be read back, a long list), and it waits
for the journal like any reply: `position` is the journal position that must be durable before it is
sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from taskyard.access.principal import ANONYMOUS, Principal


@dataclass(slots=True)
class Request:
    method: str
    path: str  # decoded, without the query
    query: dict[str, str] = field(default_factory=dict)  # the last value of each name
    headers: dict[str, str] = field(default_factory=dict, repr=False)  # names in lower case
    body: bytes = field(default=b"", repr=False)
    peer: str = ""  # host:port of the client
    principal: Principal = ANONYMOUS
    params: dict[str, str] = field(default_factory=dict)  # what the route's {names} stand for
    certificate: str = ""  # the common name of the client's, if TLS has verified one
    connection: int = 0  # its number in the log
    id: str = ""  # what the log calls the request, and its answer has as X-Request-Id


@dataclass(slots=True)
class Response:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    position: int = 0


class Stream(Protocol):
    """The body of a response without an end, such as server-sent events."""

    def send(self, data: bytes, position: int = 0) -> None: ...

    def accepts_more(self) -> bool:
        """Whether the client reads what it is sent; if not, `on_writable` says when it does."""
        ...

    def close(self) -> None: ...


class Exchange(Protocol):
    """One request and its one answer: either `reply` or `stream`, once."""

    @property
    def request(self) -> Request: ...

    def reply(self, response: Response) -> None: ...

    def stream(
        self,
        content_type: str,
        *,
        on_writable: Callable[[], None],
        on_close: Callable[[], None],
    ) -> Stream:
        """Begin an answer without an end; `on_close`: the client has gone."""
        ...


Handler = Callable[[Exchange], None]

# The principal, or the answer to wrong credentials; None: it takes a while, and the function
# will be called with it in a turn of the loop's own.
Identify = Callable[[Request, Callable[[Principal | Response], None]], Principal | Response | None]


def anonymous(request: Request, later: Callable[[Principal | Response], None]) -> Principal:
    """There are no users."""
    return ANONYMOUS


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    pattern: str  # /api/v1/queues/{queue}: a {name} stands for one segment, decoded
    handler: Handler
