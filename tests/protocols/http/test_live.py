"""GET /api/v1/live over a real socket."""

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from support.sockets import HANG_GUARD
from support.web import WebServer

from taskyard.protocols.http.monitoring.live import disk_space_of


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer() as running:
        yield running


JSON = {"content-type": "application/json"}


def clients_of_http(look: Any) -> int:
    [told] = [each for each in look["dialects"] if each["dialect"] == "http"]
    clients: int = told["clients"]
    return clients


def next_look(answer: HTTPResponse) -> Any:
    line = b"."
    while line and not line.startswith(b"data: "):
        line = answer.readline()
    return json.loads(line.removeprefix(b"data: "))


def test_what_is_pushed_shows_in_the_looks_that_follow(server: WebServer) -> None:
    with (
        closing(HTTPConnection(*server.address, timeout=HANG_GUARD)) as connection,
        closing(HTTPConnection(*server.address, timeout=HANG_GUARD)) as pushing,
    ):
        connection.request("GET", "/api/v1/live?queue=mail")
        answer = connection.getresponse()
        assert answer.headers["content-type"] == "text/event-stream"
        first = next_look(answer)
        assert (first["totals"]["ready"], first["queue"]) == (0, None)
        assert clients_of_http(first) == 1
        pushing.request("POST", "/api/v1/queues/mail/jobs", '{"text":"x"}', JSON)
        assert pushing.getresponse().status == 201
        look = first
        while look["queue"] is None:
            look = next_look(answer)
        assert (look["totals"]["ready"], look["queue"]["ready"]) == (1, 1)
        assert look["server"]["epoch"] == first["server"]["epoch"]
        assert clients_of_http(look) == 2  # the other has not gone yet
        assert look["disk"] is None  # the journal is in memory
    assert json.loads(server.get("/api/v1/history?queue=mail")[2])["step"] == 10


def test_the_room_on_a_disk(tmp_path: Path) -> None:
    free, total = disk_space_of(str(tmp_path))
    assert 0 < free <= total


def test_a_stream_ends_with_the_server() -> None:
    with (
        WebServer() as server,
        closing(HTTPConnection(*server.address, timeout=HANG_GUARD)) as connection,
    ):
        connection.request("GET", "/api/v1/live")
        answer = connection.getresponse()
        next_look(answer)
        server.do(server.web.stop)
        while answer.readline():  # until its end
            pass
        assert server.do(server.web.live_stream.count) == 0
