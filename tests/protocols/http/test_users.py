"""A server that has users, as clients and its operator see it."""

from __future__ import annotations

import base64
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from support.process import WarmServer
from support.sockets import HANG_GUARD
from support.users import user, users_of
from support.websocket_client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from taskyard.access.users import Users, hash_password, save_users, token_text

PASSWORD = "correct-horse-battery"
WRONG = "incorrect-horse-battery"
TOKEN = "ty_token-of-the-operator"
MAILER = "ty_token-of-the-mailer"
NO_RULES = "ty_token-of-nobody-much"


def everybody(*, with_mailer: bool = True, mailer: str = "push,take,inspect") -> Users:
    users = [
        user("root", PASSWORD, tokens=(TOKEN,), admin=True),
        user("new", tokens=(NO_RULES,)),
    ]
    if with_mailer:
        users.append(user("mailer", tokens=(MAILER,), rules=(("mail.*", mailer),)))
    return users_of(*users, anonymous=(("public", "push"),))


class Yard(WarmServer):
    def __init__(self, directory: Path, *flags: str) -> None:
        self.file = directory / "users.toml"
        save_users(self.file, everybody())
        super().__init__(
            directory,
            *("--users", str(self.file), "--log-level", "debug", "--log-format", "json"),
            *flags,
        )

    def reload(self, users: Users | str) -> None:
        """Write the file, and wait until the server has said something about it."""
        if isinstance(users, str):
            self.file.write_text(users)
        else:
            save_users(self.file, users)
        before = len(self.told_of_users())
        self.tell(signal.SIGHUP)
        self.wait_for(lambda: len(self.told_of_users()) > before)

    def told_of_users(self) -> list[dict[str, Any]]:
        texts = ("users reloaded", "users not reloaded")
        return [entry for entry in self.log_entries() if entry["message"].startswith(texts)]

    def request(
        self, method: str, path: str, authorization: str = "", value: object = None
    ) -> tuple[int, Any, list[str]]:
        """The status, the body and the challenges of an answer."""
        with closing(HTTPConnection(*self.address("http"), timeout=HANG_GUARD)) as connection:
            answer = begin(connection, method, path, authorization, value)
            body = answer.read()
            kind = answer.headers["content-type"]
            told = json.loads(body) if body and "json" in kind else body.decode()
            if answer.status >= 400:
                assert kind == "application/problem+json"
            return answer.status, told, answer.headers.get_all("www-authenticate", [])

    def websocket(self, authorization: str = "") -> ClientConnection:
        host, port = self.address("http")
        headers = {"Authorization": authorization} if authorization else {}
        return connect(f"ws://{host}:{port}/connect", additional_headers=headers)


def begin(
    connection: HTTPConnection, method: str, path: str, authorization: str, value: object = None
) -> HTTPResponse:
    body = None if value is None else json.dumps(value)
    headers = {"content-type": "application/json"} if body else {}
    if authorization:
        headers["authorization"] = authorization
    connection.request(method, path, body, headers)
    return connection.getresponse()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


ROOT = f"Bearer {TOKEN}"
AS_MAILER = f"Bearer {MAILER}"
AS_NEW = f"Bearer {NO_RULES}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """One that no test changes the users of."""
    with Yard(tmp_path_factory.mktemp("users")) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Yard]:
    with Yard(tmp_path) as running:
        yield running


# Plain HTTP

ROUTES = [
    ("GET", "/api/v1/queues"),
    ("GET", "/api/v1/queues/mail.in"),
    ("GET", "/api/v1/queues/mail.in/jobs"),
    ("POST", "/api/v1/queues/mail.in/jobs"),
    ("POST", "/api/v1/queues/mail.in/pause"),
    ("GET", "/api/v1/jobs/1"),
    ("GET", "/api/v1/leases"),
    ("GET", "/api/v1/finished"),
    ("GET", "/api/v1/server"),
    ("GET", "/api/v1/listeners"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/events"),
    ("GET", "/api/v1/events?queue=mail.in"),
    ("GET", "/metrics"),
    ("GET", "/status/mail.in"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_strangers_are_asked_to_log_in_and_users_without_permission_are_refused(
    shared: Yard, method: str, path: str
) -> None:
    status, told, challenges = shared.request(method, path)
    assert (status, told["type"]) == (401, "urn:taskyard:problem:unauthenticated")
    assert [challenge.split()[0] for challenge in challenges] == ["Basic", "Bearer"]
    status, told, challenges = shared.request(method, path, AS_NEW)
    assert (status, told["type"], challenges) == (403, "urn:taskyard:problem:denied", [])
    assert told["detail"].startswith("User new has no permission to ")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_need_no_user(shared: Yard, path: str) -> None:
    assert shared.request("GET", path)[0] == 200
    assert shared.request("GET", path, "Bearer wrong")[0] == 200


@pytest.mark.parametrize("authorization", [ROOT, basic("root", PASSWORD), basic("", TOKEN)])
def test_a_password_or_a_token_opens(shared: Yard, authorization: str) -> None:
    status, told, _ = shared.request("GET", "/api/v1/server", authorization)
    assert status == 200
    assert told["users"] == 3


@pytest.mark.parametrize("authorization", [basic("root", WRONG), basic("x", PASSWORD), "Bearer x"])
def test_what_is_wrong_is_refused_also_where_strangers_may(
    shared: Yard, authorization: str
) -> None:
    path = "/api/v1/queues/public/jobs"
    status, told, challenges = shared.request("POST", path, authorization, {"text": "x"})
    assert (status, len(challenges)) == (401, 2)
    assert told["detail"] == "The name, the password or the token is wrong."
    assert shared.request("POST", path, "", {"text": "x"})[0] == 201


def test_who_pushed_is_in_the_journal(server: Yard) -> None:
    for authorization, queue in ((AS_MAILER, "mail.in"), ("", "public")):
        path = f"/api/v1/queues/{queue}/jobs"
        assert server.request("POST", path, authorization, {"text": "x"})[0] == 201
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        answer = begin(connection, "GET", "/api/v1/events?after=0&event=push", ROOT)
        found: list[dict[str, Any]] = []
        while len(found) < 2:
            line = answer.readline()
            if line.startswith(b"data: "):
                found.append(json.loads(line.removeprefix(b"data: ")))
    assert [(each["queue"], each.get("user", "")) for each in found] == [
        ("mail.in", "mailer"),
        ("public", ""),
    ]


# WebSockets


def hear(client: ClientConnection) -> Any:
    message = client.recv(HANG_GUARD)
    return json.loads(message)


def say(client: ClientConnection, **request: object) -> None:
    client.send(json.dumps(request))


def test_a_websocket_belongs_to_its_user(shared: Yard) -> None:
    assert shared.request("PUT", "/api/v1/queues/mail.ws", ROOT, {})[0] == 201
    assert shared.request("PUT", "/api/v1/queues/other", ROOT, {})[0] == 201
    for authorization in (AS_MAILER, basic("", MAILER)):
        with shared.websocket(authorization) as client:
            assert hear(client)["type"] == "hello"
            say(client, type="post", queue="other", message="x", label=1, notify=["ready"])
            assert hear(client)["code"] == "PermissionDenied"
            say(client, type="post", queue="mail.ws", message="x", label=2, notify=["ready"])
            assert hear(client) == {"type": "notice", "label": 2, "notice": "ready"}
            say(client, type="create", queue="mail.new", label=3)
            assert hear(client)["code"] == "PermissionDenied"


@pytest.mark.parametrize(
    ("authorization", "status"), [("Bearer wrong", 401), (AS_NEW, 403), ("Digest x", 401)]
)
def test_a_websocket_is_refused_before_it_is_one(
    shared: Yard, authorization: str, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        shared.websocket(authorization)
    response = refused.value.response
    assert response.status_code == status
    assert json.loads(response.body or b"")["status"] == status


def test_strangers_who_may_do_something_may_connect(shared: Yard) -> None:
    with shared.websocket() as client:
        assert hear(client)["type"] == "hello"
        say(client, type="pop", queue="public", label=1)
        assert hear(client)["code"] == "PermissionDenied"


def test_strangers_who_may_do_nothing_may_not_connect(server: Yard) -> None:
    server.reload(users_of(user("root", PASSWORD, admin=True)))
    with pytest.raises(InvalidStatus) as refused:
        server.websocket()
    assert refused.value.response.status_code == 401
    assert "www-authenticate" in refused.value.response.headers


# Other users while it runs


def test_a_reload_takes_up_what_has_changed(server: Yard) -> None:
    path = "/api/v1/queues/mail.in/jobs"
    with closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as connection:
        answer = begin(connection, "POST", path, AS_MAILER, {"text": "x"})
        assert (answer.status, answer.read()[:6]) == (201, b'{"id":')
        server.reload(everybody(mailer="inspect"))
        answer = begin(connection, "POST", path, AS_MAILER, {"text": "x"})
        assert answer.status == 403
        answer.read()
        server.reload(everybody(with_mailer=False))
        answer = begin(connection, "POST", path, AS_MAILER, {"text": "x"})
        assert answer.status == 401
        answer.read()
    assert server.request("GET", "/api/v1/server", ROOT)[1]["users"] == 2
    assert [entry["users"] for entry in server.told_of_users()] == [3, 2]


@pytest.mark.parametrize(
    "text", ["[users", "[users.root]\nadmin = 'yes'", "[users.root]\npassword = 'x'"]
)
def test_a_file_that_cannot_be_used_changes_nothing(server: Yard, text: str) -> None:
    server.reload(text)
    [told] = server.told_of_users()
    assert told["level"] == "error"
    assert told["message"].startswith(f"users not reloaded: {server.file}: ")
    assert server.request("GET", "/api/v1/server", ROOT)[0] == 200
    assert server.request("GET", "/api/v1/queues", AS_MAILER)[0] == 200


def test_a_websocket_of_a_user_who_was_removed_is_closed(server: Yard) -> None:
    assert server.request("PUT", "/api/v1/queues/mail.in", ROOT, {})[0] == 201
    with server.websocket(AS_MAILER) as client, server.websocket(ROOT) as other:
        assert hear(client)["type"] == hear(other)["type"] == "hello"
        say(client, type="fetch", queue="mail.in", block_timeout=600, work_timeout=600, label=1)
        say(client, type="pop", queue="mail.in", timeout=0, label=2)  # the fetch before it waits
        assert hear(client) == {"type": "nomessage", "label": 2}
        server.reload(everybody(with_mailer=False))
        assert hear(client) == {"type": "nomessage", "label": 1}
        with pytest.raises(ConnectionClosed):
            hear(client)
        say(other, type="pop", queue="mail.in", timeout=0, label=3)
        assert hear(other) == {"type": "nomessage", "label": 3}


def test_a_fetch_that_waits_is_refused_when_it_is_allowed_no_longer(server: Yard) -> None:
    assert server.request("PUT", "/api/v1/queues/mail.in", ROOT, {})[0] == 201
    with server.websocket(AS_MAILER) as client:
        hear(client)
        say(client, type="fetch", queue="mail.in", block_timeout=600, work_timeout=600, label=1)
        say(client, type="pop", queue="mail.in", timeout=0, label=2)
        assert hear(client)["label"] == 2
        server.reload(everybody(mailer="push"))
        assert hear(client) == {
            "type": "error",
            "label": 1,
            "code": "PermissionDenied",
            "key": "mail.in",
        }
        say(client, type="post", queue="mail.in", message="x", label=3, notify=["ready"])
        assert hear(client)["label"] == 3
    assert server.request("GET", "/api/v1/queues/mail.in", ROOT)[1]["counts"]["ready"] == 1


def test_events_end_for_those_who_may_no_longer_hear_of_them(server: Yard) -> None:
    with (
        closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as ours,
        closing(HTTPConnection(*server.address("http"), timeout=HANG_GUARD)) as others,
    ):
        ending = begin(ours, "GET", "/api/v1/events?queue=mail.in", AS_MAILER)
        staying = begin(others, "GET", "/api/v1/events", ROOT)
        assert (ending.status, staying.status) == (200, 200)
        server.reload(everybody(mailer="push"))
        assert ending.read() == b"retry: 1000\n\n"
        assert server.request("POST", "/api/v1/queues/public/jobs", "", {"text": "x"})[0] == 201
        line = b""
        while not line.startswith(b"data: "):
            line = staying.readline()
            assert line


# What others must not read


def test_nothing_secret_is_logged_counted_or_told(server: Yard) -> None:
    told: list[object] = []
    for authorization in (
        ROOT,
        basic("root", PASSWORD),
        basic("root", WRONG),
        basic("root", PASSWORD),
        basic(WRONG, PASSWORD),
        f"Bearer {WRONG}",
        f"Digest {WRONG}",
        f"Basic {WRONG}",
    ):
        told.append(server.request("GET", "/api/v1/server", authorization))
        with closing(socket.create_connection(server.address("http"), HANG_GUARD)) as raw:
            head = f"GET / HTTP/1.1\r\nauthorization: {authorization}\r\nconnection: close\r\n"
            raw.sendall(f"{head}content-length: x\r\n\r\n".encode())
            told.append(raw.makefile("rb").read())
    server.reload(f"[users.root]\npassword = '{WRONG}'\ntokens = ['{TOKEN}']\n")
    metrics = server.request("GET", "/metrics", ROOT)
    assert metrics[0] == 200
    assert "\ntaskyard_users 3\n" in metrics[1]
    assert "\ntaskyard_logins_wrong_total 3\n" in metrics[1]
    assert "\ntaskyard_logins_turned_away_total 0\n" in metrics[1]
    told += [metrics, server.request("GET", "/api/v1/queues", ROOT)]
    assert server.stop() == 0
    written = server.log_text() + repr(told)
    assert "wrong name, password or token" in written
    users = everybody()
    hashes = [
        *[each.password.text() for each in users.users.values() if each.password is not None],
        *[token_text(digest) for each in users.users.values() for digest in each.tokens],
    ]
    encoded = [base64.b64encode(f"root:{each}".encode()).decode() for each in (PASSWORD, WRONG)]
    for secret in (PASSWORD, WRONG, TOKEN, MAILER, NO_RULES, *encoded, *hashes):
        assert secret not in written
    for file in server.data.rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes()
            assert TOKEN.encode() not in file.read_bytes()


def test_a_file_that_everybody_can_read_is_warned_of(tmp_path: Path) -> None:
    server = Yard(tmp_path)
    server.file.chmod(0o644)
    with server:
        [told] = [entry for entry in server.log_entries() if entry["level"] == "warning"]
    assert told["message"] == (
        f"every user of this machine can read or change {server.file}: chmod 600 it"
    )


# Its start


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read (No such file or directory)."),
        ("[users.ada]\nadmin = 1", "user 'ada': admin must be true or false."),
    ],
)
def test_a_server_does_not_start_with_users_it_cannot_read(
    tmp_path: Path, text: str | None, reason: str
) -> None:
    file = tmp_path / "other.toml"
    if text is not None:
        file.write_text(text)
    server = WarmServer(tmp_path, "--users", str(file))
    server.start()
    assert server.wait() == 2
    assert f"cannot start: {file}: {reason}" in server.log_text()
    assert not server.data.exists()


def test_a_server_that_others_could_reach_does_not_start_without_users(tmp_path: Path) -> None:
    server = WarmServer(tmp_path, "--bind", "0.0.0.0")
    server.start()
    assert server.wait() == 2
    assert "bind is 0.0.0.0, which other machines may reach" in server.log_text()
    with WarmServer(tmp_path, "--bind", "0.0.0.0", "--allow-anonymous", "on"):
        pass
    with Yard(tmp_path, "--bind", "0.0.0.0"):
        pass


def test_sighup_does_not_end_a_server_that_has_nothing_to_reload(tmp_path: Path) -> None:
    with WarmServer(tmp_path) as server:
        server.tell(signal.SIGHUP)
        assert server.stop() == 0


def test_passwords_as_the_command_makes_them_are_accepted(tmp_path: Path) -> None:
    """With the cost that they have by default."""
    server = Yard(tmp_path)
    users = everybody()
    users.users["root"].password = hash_password(PASSWORD)
    save_users(server.file, users)
    with server:
        assert server.request("GET", "/api/v1/server", basic("root", PASSWORD))[0] == 200
