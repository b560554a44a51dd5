"""What pages of other sites make a browser send changes nothing."""

from collections.abc import Iterator

import pytest
from support.web import WebServer

from taskyard.protocols.http.auth import cross_site_refusal, unknown_host_refusal
from taskyard.protocols.http.wire import Request

PAUSE = "/api/v1/queues/mail/pause"  # needs no body, so a browser sends it without asking first


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with WebServer() as running:
        assert running.ask("PUT", "/api/v1/queues/mail", {})[0] == 201
        yield running


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://127.0.0.1", "http://["])
def test_pages_of_other_sites_may_change_nothing(server: WebServer, origin: str) -> None:
    status, kind, _ = server.ask("POST", PAUSE, None, Origin=origin)
    assert (status, kind) == (403, "application/problem+json")
    assert b'"paused":false' in server.get("/api/v1/queues/mail")[2]
    assert server.get("/api/v1/queues/mail", Origin=origin)[0] == 200


def test_pages_of_this_server_and_programs_may(server: WebServer) -> None:
    host, port = server.address
    assert server.ask("POST", PAUSE, None, Origin=f"http://{host}:{port}")[0] == 200
    assert server.ask("POST", "/api/v1/queues/mail/resume")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:8080", 421),
        ("evil.example.", 421),
        ("127.0.0.1.evil.example", 421),
        ("[", 421),
        ("localhost:8080", 200),
        ("taskyard.localhost", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("[::ffff:127.0.0.1]", 200),
        ("taskyard", 200),
    ],
)
def test_a_site_that_gives_its_name_to_this_machine_learns_nothing(
    server: WebServer, host: str, status: int
) -> None:
    found = server.ask("GET", "/api/v1/queues/mail", None, Host=host)[:2]
    assert found == (status, "application/json" if status == 200 else "application/problem+json")
    origin = f"http://{host}"
    assert server.ask("POST", PAUSE, None, Host=host, Origin=origin)[0] in (status, 403)


def test_the_operator_can_name_another_host() -> None:
    request = Request("GET", "/", headers={"host": "jobs.example:8080"})
    named = [set(), {"http://jobs.example"}, {"http://jobs.example:8080"}, {"*"}]
    refused = [unknown_host_refusal(request, frozenset(names)) is not None for names in named]
    assert refused == [True, True, False, False]


@pytest.mark.parametrize(
    ("allowed", "refused"), [("https://example.org", False), ("*", False), ("https://a.org", True)]
)
def test_the_operator_can_allow_them(allowed: str, refused: bool) -> None:
    request = Request("POST", PAUSE, headers={"origin": "https://example.org", "host": "x"})
    assert (cross_site_refusal(request, frozenset({allowed})) is not None) is refused
