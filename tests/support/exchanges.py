"""Requests to handlers without a listener: an exchange that keeps what it is answered with."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from taskyard.access.principal import ANONYMOUS, Principal
from taskyard.protocols.http.wire import Handler, Request, Response, Route


class FakeStream:
    """What a client has been sent; while it is `stuffed` it reads nothing."""

    def __init__(self, on_writable: Callable[[], None], on_close: Callable[[], None]) -> None:
        self._on_writable = on_writable
        self._on_close = on_close
        self.data = b""
        self.marks: list[int] = []
        self.stuffed = False
        self.closed = False  # by the server

    def send(self, data: bytes, position: int = 0) -> None:
        assert not self.closed
        self.data += data
        self.marks.append(position)

    def accepts_more(self) -> bool:
        return not self.stuffed

    def close(self) -> None:
        self.closed = True
        self._on_close()

    # As the client

    def read_again(self) -> None:
        self.stuffed = False
        self._on_writable()

    def hang_up(self) -> None:
        self._on_close()

    def take(self) -> list[dict[str, str]]:
        """The blocks that have come since the last time, by the names of their fields."""
        text, self.data = self.data.decode(), b""
        assert text == "" or text.endswith("\n\n")
        blocks = [block for block in text.split("\n\n") if block]
        return [dict(line.split(": ", 1) for line in _fields(block)) for block in blocks]

    def events(self) -> list[dict[str, Any]]:
        """The data of the events that have come since the last time."""
        return [json.loads(block["data"]) for block in self.take() if "data" in block]


def _fields(block: str) -> list[str]:
    return [line for line in block.split("\n") if not line.startswith(":")]


class FakeExchange:
    def __init__(self, request: Request) -> None:
        self._request = request
        self.response: Response | None = None
        self.streamed: FakeStream | None = None
        self.content_type = ""

    @property
    def request(self) -> Request:
        return self._request

    def reply(self, response: Response) -> None:
        assert self.response is None
        assert self.streamed is None
        self.response = response

    def stream(
        self, content_type: str, *, on_writable: Callable[[], None], on_close: Callable[[], None]
    ) -> FakeStream:
        assert self.response is None
        assert self.streamed is None
        self.content_type = content_type
        self.streamed = FakeStream(on_writable, on_close)
        return self.streamed

    def answer(self) -> Response:
        assert self.response is not None, "it is not answered yet"
        return self.response


def handler_of(routes: Iterable[Route], path: str) -> Handler:
    return next(route.handler for route in routes if route.pattern == path)


def get(
    routes: Iterable[Route],
    path: str,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    who: Principal = ANONYMOUS,
) -> FakeExchange:
    exchange = FakeExchange(Request("GET", path, query or {}, headers or {}, principal=who))
    handler_of(routes, path)(exchange)
    return exchange
