"""Permission: whatever comes over HTTP asks one hook first, and does nothing if that says no."""

import json
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

import pytest
from support.simulated import as_json
from support.sockets import HANG_GUARD
from support.web import WebServer
from websockets.sync.client import ClientConnection

from taskyard.access.principal import Denied, Principal
from taskyard.protocols.glovebox.bincode import encode_request
from taskyard.protocols.glovebox.types import (
    READY,
    Create,
    Fetch,
    Finish,
    GloveboxRequest,
    Pop,
    Post,
)
from taskyard.protocols.http import wire

ADA = {"X-Name": "ada"}
NEEDED = "You need the role of an operator."


class Gate:
    """Remembers who asked for what; lets everybody in until it is shut."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.shut = False

    def allow(self, principal: Principal, action: str, queue: str) -> None:
        self.asked.append((principal.name, action, queue))
        if self.shut:
            raise Denied(NEEDED)


def by_header(request: wire.Request, later: object) -> Principal:
    return Principal(request.headers.get("x-name", ""), is_superuser=True)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def server(gate: Gate) -> Iterator[WebServer]:
    with WebServer(gate.allow, by_header) as running:
        yield running


def say(client: ClientConnection, request: GloveboxRequest) -> dict[str, Any]:
    client.send(encode_request(request))
    return hear(client)


def hear(client: ClientConnection) -> dict[str, Any]:
    message = client.recv()
    return as_json(message) if isinstance(message, bytes) else json.loads(message)


def is_denied(answer: tuple[int, str, bytes]) -> None:
    status, kind, body = answer
    assert (status, kind) == (HTTPStatus.FORBIDDEN, "application/problem+json")
    told = json.loads(body)
    assert (told["type"], told["detail"]) == ("urn:taskyard:problem:denied", NEEDED)


# Plain HTTP

PLAIN = [
    ("/status/mail", ("inspect", "mail"), "application/json"),
    ("/status/gr%C3%BC%C3%9Fe", ("inspect", "grüße"), "application/json"),
    ("/metrics", ("inspect", ""), "text/plain; version=0.0.4; charset=utf-8"),
    ("/api/v1/queues/mail", ("inspect", "mail"), "application/problem+json"),
    ("/api/v1/server", ("inspect", ""), "application/json"),
]


@pytest.mark.parametrize(("path", "wanted", "kind"), PLAIN)
def test_a_page_is_for_those_who_may_inspect(
    server: WebServer, gate: Gate, path: str, wanted: tuple[str, str], kind: str
) -> None:
    assert server.get(path, **ADA)[1] == kind
    assert server.get(path)[1] == kind
    gate.shut = True
    is_denied(server.get(path, **ADA))
    assert gate.asked == [("ada", *wanted), ("", *wanted), ("ada", *wanted)]


@pytest.mark.parametrize(
    ("path", "queues"),
    [
        ("/api/v1/events", [""]),
        ("/api/v1/events?queue=", [""]),
        ("/api/v1/events?queue=mail", ["mail"]),
        ("/api/v1/events?queue=mail,post&after=1", ["mail", "post"]),
    ],
)
def test_events_are_for_those_who_may_inspect_all_they_ask_for(
    server: WebServer, gate: Gate, path: str, queues: list[str]
) -> None:
    gate.shut = True
    is_denied(server.get(path, **ADA))
    assert gate.asked == [("ada", "inspect", queues[0])]
    assert server.do(server.broker.feed.listener_count) == 0
    gate.asked.clear()
    gate.shut = False
    server.get(path + ("&" if "?" in path else "?") + "event=none", **ADA)  # which there is not
    assert gate.asked == [("ada", "inspect", queue) for queue in queues]


def test_a_push_that_is_denied_pushes_nothing(server: WebServer, gate: Gate) -> None:
    gate.shut = True
    is_denied(server.ask("POST", "/api/v1/queues/mail/jobs", {"text": "x"}, **ADA))
    assert gate.asked == [("ada", "push", "mail")]
    assert server.do(server.engine.state.entity_counts)[:2] == [0, 0]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_are_for_everybody(server: WebServer, gate: Gate, path: str) -> None:
    gate.shut = True
    assert server.get(path)[0] == HTTPStatus.OK
    assert not gate.asked


# Glovebox

REQUESTS = [
    (Create("new", 7), "admin"),
    (Post("mail", b"x", label=7), "push"),
    (Pop("mail", READY, label=7), "take"),
    (Fetch("mail", None, 60, label=7), "take"),
    (Finish("mail", 1, 0, 7), "take"),
]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("request_", "action"), REQUESTS, ids=lambda value: type(value).__name__)
def test_a_request_of_glovebox_that_is_denied_does_nothing(
    server: WebServer, gate: Gate, request_: GloveboxRequest, action: str, binary: bool
) -> None:
    with server.websocket(**ADA, Binary=str(binary)) as client:
        hear(client)
        say(client, Create("mail"))
        client.send(encode_request(Post("mail", b"first")))
        client.send(encode_request(Post("mail", b"second")))
        assert say(client, Fetch("mail", None, 60, label=1))["body"] == "first"
        gate.asked.clear()
        gate.shut = True
        before = server.do(server.engine.records.end_position)
        told = say(client, request_)
        assert told == {
            "type": "error",
            "label": 7,
            "code": "PermissionDenied",
            "key": request_.queue,
        }
        assert gate.asked == [("ada", action, request_.queue)]
        assert server.do(server.engine.records.end_position) == before
        gate.shut = False
        assert say(client, Pop("mail", READY, label=2))["body"] == "second"
        client.send(encode_request(Finish("mail", 1, 0, 3, 0)))
        assert hear(client) == {"type": "notice", "label": 3, "notice": "finish"}


@pytest.mark.parametrize(("request_", "action"), REQUESTS, ids=lambda value: type(value).__name__)
def test_whether_a_queue_is_there_is_not_told_to_those_who_may_not_use_it(
    server: WebServer, gate: Gate, request_: GloveboxRequest, action: str
) -> None:
    with server.websocket() as client:
        hear(client)
        gate.shut = True
        assert say(client, request_)["code"] == "PermissionDenied"
        assert gate.asked == [("", action, request_.queue)]


def test_what_is_no_request_asks_for_no_permission(server: WebServer, gate: Gate) -> None:
    gate.shut = True
    with server.websocket(**ADA) as client:
        assert hear(client)["type"] == "hello"
        client.send("junk")
        assert hear(client)["code"] == "BadRequest"
    assert not gate.asked


def test_who_asked_is_in_the_record_of_what_was_done(server: WebServer) -> None:
    with server.websocket(**ADA) as client:
        hear(client)
        say(client, Create("mail"))
    with closing(HTTPConnection(*server.address, timeout=HANG_GUARD)) as connection:
        connection.request("GET", "/api/v1/events?queue=mail&after=0")
        answer = connection.getresponse()
        line = b""
        while not line.startswith(b"data: "):
            line = answer.readline()
    assert json.loads(line.removeprefix(b"data: "))["user"] == "ada"


def test_requests_that_are_denied_are_counted_as_errors(server: WebServer, gate: Gate) -> None:
    with server.websocket() as client:
        hear(client)
        gate.shut = True
        say(client, Post("mail", b"x"))
        client.send("junk")
        hear(client)
        gate.shut = False
        page = server.get("/metrics")[2].decode()
    for verb in ("post", "unknown"):
        outcomes = {"ok": 0, "empty": 0, "error": 1}
        for outcome, count in outcomes.items():
            labels = f'dialect="glovebox",verb="{verb}",outcome="{outcome}"'
            assert f"taskyard_requests_total{{{labels}}} {count}\n" in page
