"""WebSockets over real sockets, with a client library that is not ours."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from support.process import WarmServer
from support.sockets import HANG_GUARD
from support.web import WebServer
from support.websocket_client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.typing import Origin

MEBIBYTE = 1 << 20
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
DURABLE = {"Durable-Session": "true"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmServer]:
    with WarmServer(tmp_path_factory.mktemp("server")) as running:
        yield running
        assert "Traceback" not in running.log_text()


def url(server: WarmServer, path: str = "/connect/") -> str:
    host, port = server.address("http")
    return f"ws://{host}:{port}{path}"


def say(client: ClientConnection, **request: object) -> object:
    client.send(json.dumps(request))
    return json.loads(client.recv())


def test_the_first_message_is_a_greeting(server: WarmServer) -> None:
    with connect(url(server)) as client:
        greeting = json.loads(client.recv())
        assert greeting["type"] == "hello"
        assert list(greeting) == ["type", "id"]


def test_a_message_goes_through(server: WarmServer) -> None:
    with connect(url(server)) as client:
        client.recv()
        created = say(client, type="create", queue="through", label=1)
        assert created == {"type": "notice", "label": 1, "notice": "ready"}
        posted = say(client, type="post", queue="through", message="hi", label=2, notify=["sync"])
        assert posted == {"type": "notice", "label": 2, "notice": "sync"}
        popped = say(client, type="pop", queue="through", label=3)
        assert isinstance(popped, dict)
        assert popped["body"] == "hi"
        assert popped["finished"] is True


def test_a_client_can_ask_for_bincode(server: WarmServer) -> None:
    with connect(url(server), additional_headers={"Binary": "true"}) as client:
        greeting = client.recv()
        assert isinstance(greeting, bytes)
        assert greeting[:8] == b"\0\0\0\0\2\0\0\0"
        assert len(greeting) == 16


def test_a_message_may_come_in_fragments(server: WarmServer) -> None:
    with connect(url(server)) as client:
        client.recv()
        request = json.dumps({"type": "pop", "queue": "nowhere", "label": 7})
        client.send([request[:5], request[5:6], request[6:]])
        assert json.loads(client.recv())["code"] == "NoObject"


def test_a_large_message_goes_through(server: WarmServer) -> None:
    body = "é" * (MEBIBYTE // 2)
    with connect(url(server), max_size=None) as client:
        client.recv()
        say(client, type="create", queue="large", label=1)
        posted = say(client, type="post", queue="large", message=body, label=2, notify=["sync"])
        assert posted == {"type": "notice", "label": 2, "notice": "sync"}
        popped = say(client, type="pop", queue="large", label=3)
        assert isinstance(popped, dict)
        assert popped["body"] == body


def test_a_message_beyond_all_limits_ends_the_connection(server: WarmServer) -> None:
    with connect(url(server)) as client:
        client.recv()
        with suppress(ConnectionClosed):  # it may be over while this is on its way
            client.send("x" * (8 * MEBIBYTE))
        with pytest.raises(ConnectionClosed):
            client.recv()


def test_a_message_that_is_refused_for_its_size_is_not_posted(server: WarmServer) -> None:
    with connect(url(server)) as client:
        client.recv()
        say(client, type="create", queue="refused", label=1)
        post = {"type": "post", "queue": "refused", "message": "x" * (7 * MEBIBYTE)}
        with suppress(ConnectionClosed):  # it may be over while this is on its way
            client.send(json.dumps(post))
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    with connect(url(server)) as client:
        client.recv()
        empty = {"type": "nomessage", "label": 1}
        assert say(client, type="pop", queue="refused", label=1) == empty


@pytest.mark.parametrize(
    "message",
    [json.dumps([255] * MEBIBYTE), json.dumps("\x01" * MEBIBYTE)],
    ids=["array", "escapes"],
)
def test_a_message_may_be_spelled_at_length(server: WarmServer, message: str) -> None:
    with connect(url(server)) as client:
        client.recv()
        say(client, type="create", queue="spelled", label=1)
        client.send(
            '{"type": "post", "queue": "spelled", "label": 2, "notify": ["sync"], "message": '
            + message
            + "}"
        )
        assert json.loads(client.recv()) == {"type": "notice", "label": 2, "notice": "sync"}


def test_a_message_larger_than_a_payload_is_refused_and_the_connection_goes_on(
    server: WarmServer,
) -> None:
    with connect(url(server)) as client:
        client.recv()
        say(client, type="create", queue="larger", label=1)
        refused = say(client, type="post", queue="larger", message="x" * (MEBIBYTE + 1), label=2)
        assert isinstance(refused, dict)
        assert refused["code"] == "BadRequest"
        empty = {"type": "nomessage", "label": 3}
        assert say(client, type="pop", queue="larger", label=3) == empty


def test_what_is_malformed_is_refused_and_the_connection_goes_on(server: WarmServer) -> None:
    with connect(url(server)) as client:
        client.recv()
        for junk in ("junk", "[]", "{}", b"\xff" * 9, b""):
            client.send(junk)
            assert json.loads(client.recv())["type"] == "error"
        assert client.ping().wait(HANG_GUARD)


def test_a_connection_is_closed_with_a_handshake(server: WarmServer) -> None:
    with connect(url(server)) as client:
        client.recv()
        client.close(1000, "done")
        assert client.close_code == 1000


def test_pages_of_other_sites_may_not_connect(server: WarmServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(url(server), origin=Origin("http://elsewhere.example"))
    assert refused.value.response.status_code == 403


def test_pages_of_this_server_may_connect(server: WarmServer) -> None:
    host, port = server.address("http")
    with connect(url(server), origin=Origin(f"http://{host}:{port}")) as client:
        assert client.recv()


@pytest.mark.parametrize("origins", ["http://elsewhere.example", "a.example,*"])
def test_the_operator_can_allow_other_sites(tmp_path: Path, origins: str) -> None:
    with (
        WarmServer(tmp_path, "--http-origins", origins) as server,
        connect(url(server), origin=Origin("http://elsewhere.example")) as client,
    ):
        assert client.recv()


def test_a_websocket_elsewhere_is_not_found(server: WarmServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(url(server, "/elsewhere"))
    assert refused.value.response.status_code == 404


def test_a_plain_request_is_told_to_ask_for_a_websocket(server: WarmServer) -> None:
    with closing(HTTPConnection(*server.address("http"))) as connection:
        connection.request("GET", "/connect/")
        response = connection.getresponse()
        assert response.status == 426
        assert b"WebSocket" in response.read()


@pytest.mark.parametrize("connection", ["Upgrade", "keep-alive, Upgrade", "UPGRADE"])
def test_the_words_of_browsers_are_understood(server: WarmServer, connection: str) -> None:
    peer = server.connect("http")
    peer.send(upgrade(f"connection: {connection}\r\nsec-websocket-key: {KEY}\r\n"))
    assert peer.read_line() == b"HTTP/1.1 101 Switching Protocols\r\n"


@pytest.mark.parametrize(
    "key", ["", "sec-websocket-key: abc\r\n", f"sec-websocket-key: {KEY[2:]}\r\n"]
)
def test_a_handshake_without_a_key_is_refused(server: WarmServer, key: str) -> None:
    peer = server.connect("http")
    peer.send(upgrade(f"connection: Upgrade\r\n{key}"))
    assert peer.read_line() == b"HTTP/1.1 400 Bad Request\r\n"
    assert peer.read_line() == b"content-type: application/problem+json\r\n"


def upgrade(headers: str) -> bytes:
    head = "GET /connect/ HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\n"
    return f"{head}sec-websocket-version: 13\r\n{headers}\r\n".encode()


# A disk that takes no more: what cannot be kept is refused before hands are shaken


def refusal_of(server: WebServer, **headers: str) -> object:
    with pytest.raises(InvalidStatus) as refused:
        server.websocket(**headers)
    response = refused.value.response
    assert response.status_code == 503
    assert response.headers["content-type"] == "application/problem+json"
    return json.loads(response.body or b"")["detail"]


def hello(client: ClientConnection) -> str:
    return str(json.loads(client.recv())["id"])


def test_a_session_that_cannot_be_kept_is_refused_in_words_of_http() -> None:
    with WebServer() as server:
        with server.websocket(**DURABLE) as client:
            id = hello(client)
        server.wait_until_quiet()
        server.disk.fail_always("write")
        with pytest.raises(ConnectionError):  # the promise cannot be kept
            server.ask("POST", "/api/v1/queues/mail/jobs", {})
        for headers in (DURABLE, {"Reconnect-As": id}, {**DURABLE, "Reconnect-As": id}):
            assert "The session cannot be kept: " in str(refusal_of(server, **headers))
        with server.websocket() as client:
            assert hello(client)
        assert server.do(lambda: server.web.glovebox.stats.total_connections) == 2


def test_without_room_there_is_no_new_session_but_an_old_one_goes_on() -> None:
    with WebServer() as server:
        with server.websocket(**DURABLE) as client:
            id = hello(client)
        server.wait_until_quiet()
        server.do(lambda: setattr(server.engine.journal_space, "push_refusal", "the disk is full"))
        detail = "The session cannot be kept: the disk is full."
        assert refusal_of(server, **DURABLE) == detail
        with server.websocket(**DURABLE, **{"Reconnect-As": id}) as client:
            assert hello(client) == id


def test_a_stop_closes_websockets(tmp_path: Path) -> None:
    with WarmServer(tmp_path) as server, connect(url(server)) as client:
        client.recv()
        assert server.stop() == 0
        with pytest.raises(ConnectionClosed):
            client.recv()


def test_what_sync_was_said_of_is_there_after_a_kill(tmp_path: Path) -> None:
    with WarmServer(tmp_path) as server:
        for round_ in range(3):
            with connect(url(server)) as client:
                post_synced(client, [f"{round_}:{number}" for number in range(50)])
                server.kill()
            server.restart()
        with connect(url(server)) as client:
            client.recv()
            popped = [say(client, type="pop", queue="kept", label=1) for _ in range(150)]
        bodies = [message["body"] for message in popped if isinstance(message, dict)]
        assert bodies == [f"{round_}:{number}" for round_ in range(3) for number in range(50)]


def post_synced(client: ClientConnection, messages: list[str]) -> None:
    """All at once; it is over when all are said to be on disk."""
    client.recv()
    say(client, type="create", queue="kept", label=0)
    for label, message in enumerate(messages):
        post = {"type": "post", "queue": "kept", "message": message}
        client.send(json.dumps({**post, "label": label, "notify": ["sync"]}))
    for label in range(len(messages)):
        notice = json.loads(client.recv())
        assert notice == {"type": "notice", "label": label, "notice": "sync"}
