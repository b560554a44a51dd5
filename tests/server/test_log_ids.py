"""From a client's trouble to the server's line: connections and requests have names in the log, and
nothing that clients send is in it."""

import json
import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from support.process import WarmServer
from support.sockets import HANG_GUARD
from support.websocket_client import connect

from taskyard.access.users import hash_password

SECRET = "Zyzzyva"
Line = dict[str, Any]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WarmServer]:
    with WarmServer(tmp_path, "--log-format", "json", "--log-level", "debug") as process:
        yield process
        assert "Traceback" not in process.log_text()


def lines(server: WarmServer, message: str, **fields: object) -> list[Line]:
    found = [line for line in server.log_entries() if line["message"] == message]
    return [line for line in found if all(line.get(k) == v for k, v in fields.items())]


def line(server: WarmServer, message: str, **fields: object) -> Line:
    """Wait for it; there is one."""
    server.wait_for(lambda: bool(lines(server, message, **fields)))
    (found,) = lines(server, message, **fields)
    return found


def say(server: WarmServer, dialect: str, data: bytes) -> bytes:
    """On a connection of its own, until the server has closed it."""
    with socket.create_connection(server.address(dialect), timeout=HANG_GUARD) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65_536), b""))


def request(
    server: WarmServer,
    method: str,
    path: str,
    headers: dict[str, str] | None = None,
    body: str = "",
) -> HTTPResponse:
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        connection.request(method, path, body or None, headers or {})
        response = connection.getresponse()
        response.read()
        return response


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        ("masenko", b"PING\nPING\n"),
        ("workq", b"inspect server\r\ninspect server\r\n"),
        ("resp", b"PING\r\nPING\r\n"),
        ("http", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2),
    ],
)
def test_a_connection_comes_and_goes(server: WarmServer, dialect: str, said: bytes) -> None:
    answer = say(server, dialect, said)
    went = line(server, "connection closed", dialect=dialect)
    came = line(server, "connection opened", connection=went["connection"])
    assert (came["level"], went["level"]) == ("debug", "debug")
    assert came["peer"] == went["peer"]
    assert (went["commands"], went["received"], went["sent"]) == (2, len(said), len(answer))
    assert went["reason"] == "closed by the client"
    assert 0 <= went["seconds"] < HANG_GUARD


def test_connections_are_numbered_from_one(server: WarmServer) -> None:
    for dialect in ("masenko", "resp", "workq", "masenko"):
        say(server, dialect, b"")
    server.wait_for(lambda: len(lines(server, "connection closed")) == 4)
    came = lines(server, "connection opened")
    assert [each["connection"] for each in came] == [1, 2, 3, 4]
    assert [each["dialect"] for each in came] == ["masenko", "resp", "workq", "masenko"]


def test_a_websocket_keeps_its_number(server: WarmServer) -> None:
    host, port = server.address("http")
    with connect(f"ws://{host}:{port}/connect") as client:
        client.recv()
        client.send(json.dumps({"type": "create", "queue": "q", "label": 1}))
        client.recv()
    went = line(server, "connection closed")
    assert (went["dialect"], went["commands"]) == ("glovebox", 2)
    assert line(server, "connection opened")["connection"] == went["connection"]


def test_the_end_of_the_server_is_a_reason(server: WarmServer) -> None:
    server.connect().send(b"PING\n")
    server.wait_for(lambda: bool(lines(server, "connection opened")))
    server.stop()
    assert [each["reason"] for each in lines(server, "connection closed")] == ["server stopping"]


@pytest.mark.parametrize(
    ("dialect", "said", "why", "number"),
    [
        ("masenko", b"PING\nHost: x\n", "this port does not speak HTTP", 2),
        ("masenko", b"PUSH " + b"x" * (2 << 20), "line too long", 1),
        ("workq", b"POST / HTTP/1.1\r\n", "this port does not speak HTTP", 1),
        ("workq", b"x" * 70_000, "line too long", 1),
        ("resp", b"PING\r\n*1\r\n:1\r\n", "expected '$'", 2),
        ("resp", b"*x\r\n", "invalid multibulk length", 1),
        ("http", b"\x00\x01\r\n\r\n", "This is not HTTP/1.1: Invalid method encountered.", 1),
    ],
)
def test_who_breaks_the_protocol_is_told_of(
    server: WarmServer, dialect: str, said: bytes, why: str, number: int
) -> None:
    with socket.create_connection(server.address(dialect), timeout=HANG_GUARD) as client:
        with suppress(ConnectionError):  # of much, the server does not read the rest for ever
            client.sendall(said)
        found = line(server, "protocol error")
        assert (found["level"], found["dialect"], found["reason"]) == ("info", dialect, why)
        assert found["request"] == f"{found['connection']}-{number}"
        assert found["peer"] == ":".join(map(str, client.getsockname()))
    went = line(server, "connection closed", connection=found["connection"])
    assert went["reason"] == "protocol error"


# HTTP


def test_a_request_has_an_id_in_its_answer_and_in_the_log(server: WarmServer) -> None:
    response = request(server, "GET", "/api/v1/queues/nothing")
    id = response.headers["x-request-id"]
    assert re.fullmatch(r"[0-9]+-1", id)
    found = line(server, "a request was answered", request=id)
    assert (found["method"], found["path"], found["status"]) == (
        "GET",
        "/api/v1/queues/nothing",
        404,
    )
    assert id == f"{found['connection']}-1"


@pytest.mark.parametrize("given", ["a", "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "~!" * 64])
def test_a_client_may_name_its_requests(server: WarmServer, given: str) -> None:
    response = request(server, "GET", "/healthz", {"X-Request-Id": given})
    assert response.headers["x-request-id"] == given
    assert line(server, "a request was answered")["request"] == given


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "caf\xe9", "a\tb"])
def test_not_by_any_name(server: WarmServer, given: str) -> None:
    response = request(server, "GET", "/healthz", {"X-Request-Id": given})
    assert re.fullmatch(r"[0-9]+-1", response.headers["x-request-id"])
    assert line(server, "a request was answered")["request"] != given


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/api/v1/events", {}, "", 200),
        ("GET", "/nothing", {}, "", 404),
        ("POST", "/api/v1/queues/q/jobs", {}, "{", 415),
        ("POST", "/x", {"Content-Length": str(1 << 40)}, "x", 413),
    ],
)
def test_streams_and_refusals_have_one_too(
    server: WarmServer, method: str, path: str, headers: dict[str, str], body: str, status: int
) -> None:
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        assert response.status == status
        assert re.fullmatch(r"[0-9]+-1", response.headers["x-request-id"])


# Secrets


def test_a_refused_login_can_be_found(tmp_path: Path) -> None:
    with logging_in(tmp_path) as server:
        say(server, "masenko", b'PING\nAUTH {"user":"ada","password":"wrong"}\n')
        first = line(server, "login failed: wrong name, password or token", times=1)
        assert first["request"] == f"{first['connection']}-2"
        came = line(server, "connection opened", connection=first["connection"])
        assert came["dialect"] == "masenko"
        headers = {"Authorization": f"Bearer {SECRET}", "X-Request-Id": "mine"}
        assert request(server, "GET", "/api/v1/queues", headers).status == 401
        assert (
            line(server, "login failed: wrong name, password or token", times=2)["request"]
            == "mine"
        )


def logging_in(directory: Path) -> WarmServer:
    users = directory / "users.toml"
    password = hash_password(f"{SECRET}-right").text()
    users.write_text(f'[users.ada]\npassword = "{password}"\nadmin = true\n')
    users.chmod(0o600)
    flags = ("--log-format", "json", "--log-level", "debug", "--slow-command", "1ms")
    return WarmServer(directory, *flags, "--users", str(users))


UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
RIGHT = f"{SECRET}-right"
PUSH = f'PUSH {{"name":"a","payload":"{SECRET}"}}\n'
# Right and wrong logins (few: each takes longer than the last), payloads, words that are none,
# and what breaks protocols.
SAID = [
    ("masenko", f'AUTH {{"user":"ada","password":"{RIGHT}"}}\n{PUSH}'),
    ("masenko", f'AUTH {{"user":"{SECRET}","password":"{SECRET}"}}\n'),
    ("masenko", f"{SECRET} {SECRET}\n\x00{SECRET}\nPUSH {SECRET}\nHost: {SECRET}\n"),
    ("masenko", SECRET * 10_000),
    ("workq", f"auth ada {RIGHT}\r\nadd {UID} q 1000 60000 7\r\n{SECRET}\r\n"),
    ("workq", f"{SECRET} {SECRET}\r\nPOST /{SECRET} HTTP/1.1\r\n"),
    ("workq", SECRET * 10_000),
    ("resp", f"AUTH ada {RIGHT}\r\nRPUSH q {SECRET}\r\nSET k {SECRET}\r\nBLPOP q 1\r\n"),
    ("resp", f"{SECRET} {SECRET}\r\n*1\r\n{SECRET}\r\n"),
    ("resp", f"AUTH ada {RIGHT}\r\nAPI POST /api/v1/queues/q/jobs {SECRET}\r\n"),
    ("http", f"{SECRET} / HTTP/1.1\r\n\r\n"),
    ("http", f"GET /api/v1/queues?{SECRET} HTTP/1.1\r\nhost: a\r\ncookie: {SECRET}\r\n\r\n"),
]


def test_nothing_that_clients_send_is_in_the_log(tmp_path: Path) -> None:
    with logging_in(tmp_path) as server:
        for dialect, said in SAID:
            say(server, dialect, said.encode())
        basic = "Basic " + b64encode(f"ada:{RIGHT}".encode()).decode()
        json_type = {"Content-Type": "application/json"}
        pushed = json.dumps({"payload": SECRET, "name": "a"})
        for headers in ({"Authorization": basic}, {"Authorization": f"Bearer {SECRET}"}):
            request(server, "POST", "/api/v1/queues/q/jobs", {**headers, **json_type}, pushed)
            request(server, "GET", f"/api/v1/search?q={SECRET}", headers)
        login = json.dumps({"user": SECRET, "password": SECRET})
        request(server, "POST", "/api/v1/session", json_type, login)
        host, port = server.address("http")
        headers = {"Authorization": basic}
        with connect(f"ws://{host}:{port}/connect", additional_headers=headers) as client:
            client.recv()
            client.send(SECRET)
            client.send(json.dumps({"type": "post", "queue": "q", "label": 1, "message": SECRET}))
            client.recv()
        server.wait_for(lambda: bool(lines(server, "connection closed", dialect="glovebox")))
        assert server.stop() == 0
        text = server.log_text()
        assert SECRET not in text
        assert b64encode(SECRET.encode()).decode()[:8] not in text
        assert len(lines(server, "connection opened")) >= len(SAID)
        assert "Traceback" not in text
