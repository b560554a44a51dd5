"""A client of the JSON API inside a simulated server: no sockets, but the same waiting for the
disk.

Whatever is answered is compared with the API's own document, so each test that uses this also
tests that the document is true.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from support.json_schema import check
from support.simulated import SimulatedServer

from taskyard.access.principal import Allow, Principal, check_rules
from taskyard.broker.replies import ReplyQueue
from taskyard.broker.turns import ClientConnection
from taskyard.protocols.http.monitoring.history import History
from taskyard.protocols.http.routing import ApiRoutes
from taskyard.protocols.http.wire import Request, Response, Route, Stream
from taskyard.shared.api_types import LakeView

NDJSON = "application/x-ndjson"

_document: dict[str, Any] = {}  # the same for all servers, and slow to make


@dataclass
class Reply:
    status: int
    body: Any
    headers: dict[str, str]
    content_type: str

    def ok(self) -> Any:
        assert self.status < 300, self.body
        return self.body

    def problem(self, status: int, kind: str, field: str | None = None) -> Any:
        """It is this problem; gives its body."""
        assert (self.status, self.content_type) == (status, "application/problem+json"), self.body
        assert self.body["type"] == f"urn:taskyard:problem:{kind}"
        assert self.body.get("field") == field, self.body
        assert self.body["detail"].endswith("."), self.body
        return self.body


class FakeExchange:
    """Holds the answer back until what it shows is durable, as the listener does."""

    def __init__(self, yard: SimulatedServer, request: Request) -> None:
        self.request = request
        self.response: Response | None = None
        self.sent = False
        self.aborted = False
        self._outbox = ReplyQueue(yard.broker, self, ClientConnection(0), 1 << 30)

    def reply(self, response: Response) -> None:
        assert self.response is None, "answered twice"
        self.response = response
        self._outbox.send(b"x", response.position)
        self._outbox.flush_output()

    def stream(
        self, content_type: str, *, on_writable: Callable[[], None], on_close: Callable[[], None]
    ) -> Stream:
        raise NotImplementedError

    # As the transport of its outbox

    def write(self, data: bytes) -> None:
        self.sent = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def certificate_name(self) -> str:
        return ""

    def close_after_draining(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class ApiClient:
    def __init__(
        self,
        yard: SimulatedServer,
        allow: Allow = check_rules,
        principal: Principal | None = None,
    ) -> None:
        self.yard = yard
        self._principal = Principal("ada", is_superuser=True) if principal is None else principal
        self._allow = allow
        self._broker: object = None
        self._routes: list[Route] = []
        self.document = _document
        self.lake: LakeView | None = None
        self.history: History | None = None

    def api(self) -> ApiRoutes:
        yard = self.yard
        return ApiRoutes(
            yard.broker,
            yard.scheduler,
            durability="sync",
            max_losses=10,
            connections=lambda: {"workq": 1},
            lake_status=lambda: self.lake,
            history=self.history,
            allow=self._allow,
        )

    def begin(
        self,
        method: str,
        path: str,
        value: Any = None,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        query: dict[str, Any] | None = None,
    ) -> FakeExchange:
        """Hand a request to the server, and do not wait for anything."""
        if self._broker is not self.yard.broker:  # the server was started again
            self._broker = self.yard.broker
            self._routes = self.api().routes()
        if body is None:
            body = b"" if value is None else json.dumps(value).encode()
        handler, params = self._route(method, path)
        request = Request(
            method,
            path,
            {name: str(text) for name, text in (query or {}).items()},
            {"content-type": content_type} if body else {},
            body,
            "10.0.0.9:4000",
            self._principal,
            params,
        )
        exchange = FakeExchange(self.yard, request)
        self.yard.broker.begin_turn()
        handler(exchange)
        self.yard.broker.end_turn()
        return exchange

    def call(self, method: str, path: str, value: Any = None, **more: Any) -> Reply:
        exchange = self.begin(method, path, value, **more)
        self.yard.run_pending()
        return self.finish(exchange)

    def finish(self, exchange: FakeExchange) -> Reply:
        response = exchange.response
        assert response is not None
        assert exchange.sent, "not answered"
        body = json.loads(response.body) if response.body else None
        reply = Reply(response.status, body, dict(response.headers), response.content_type)
        self._compare(exchange.request, reply)
        return reply

    def get(self, path: str, **query: Any) -> Reply:
        return self.call("GET", path, query=query)

    def post(self, path: str, value: Any = None, **more: Any) -> Reply:
        return self.call("POST", path, value, **more)

    def push(self, queue: str = "mail", **fields: Any) -> int:
        """Push a job; gives its id."""
        id: int = self.post(f"/api/v1/queues/{queue}/jobs", fields).ok()["id"]
        return id

    def batch(self, queue: str, jobs: list[Any]) -> Reply:
        body = b"".join(json.dumps(job).encode() + b"\n" for job in jobs)
        path = f"/api/v1/queues/{queue}/jobs"
        return self.post(path, body=body, content_type=NDJSON)

    def job(self, job: int | str) -> Any:
        return self.get(f"/api/v1/jobs/{job}").ok()

    def walk(self, path: str, items: str, **query: Any) -> list[Any]:
        """All pages of a list, one after the other."""
        found: list[Any] = []
        page = self.get(path, **query).ok()
        for _ in range(1000):
            found += page[items]
            if page["next"] is None:
                return found
            page = self.get(path, cursor=page["next"], **query).ok()
        raise AssertionError(f"{path} has no end")

    def _route(
        self, method: str, path: str
    ) -> tuple[Callable[[FakeExchange], None], dict[str, str]]:
        for route in self._routes:
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.pattern)
            found = re.fullmatch(pattern, path)
            if found and route.method == method:
                return route.handler, found.groupdict()
        raise AssertionError(f"no route {method} {path}")

    def _compare(self, request: Request, reply: Reply) -> None:
        if not self.document:
            exchange = self.begin("GET", "/api/v1/openapi.json")
            assert exchange.response is not None
            self.document.update(msgspec.json.decode(exchange.response.body))
        operation = self._operation(request)
        assert str(reply.status) in operation["responses"], (request, reply)
        described = operation["responses"][str(reply.status)].get("content")
        if described is None:
            assert reply.body is None
        else:
            check(reply.body, described[reply.content_type]["schema"], self.document)
        if reply.status < 300 and "requestBody" in operation:
            sent = request.headers["content-type"].partition(";")[0].lower()
            schema = operation["requestBody"]["content"][sent]["schema"]
            if sent == NDJSON:
                for line in request.body.splitlines():
                    check(json.loads(line), schema["contentSchema"], self.document)
            else:
                check(json.loads(request.body), schema, self.document)

    def _operation(self, request: Request) -> Any:
        for pattern, methods in self.document["paths"].items():
            if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), request.path):
                operation = methods.get(request.method.lower())
                if operation is not None:
                    return operation
        raise AssertionError(f"{request.method} {request.path} is not in the document")
