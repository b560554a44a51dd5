"""All that a server answers over HTTP, with users, in a simulated server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocols.http.rig import Reply
from support.simulated import SimulatedPeer, SimulatedServer
from support.simulated_http import connect
from support.users import user, users_of

from taskyard.access.authenticator import OpenAuthenticator
from taskyard.access.gatekeeper import UserAuthenticator
from taskyard.access.users import Users
from taskyard.server.app import HttpApplication
from taskyard.server.settings.schema import Settings

PASSWORD = "correct-horse"
TOKEN = "ty_token"
COOKIE = "taskyard_session"


def people() -> Users:
    return users_of(
        user("root", PASSWORD, admin=True, tokens=(TOKEN, "ty_second")),
        user("ada", PASSWORD, rules=(("mail", "push,inspect"),)),
        user("worker", certificate="worker.example.org", rules=(("*", "inspect"),)),
    )


@dataclass
class Site:
    """Without users if they are None."""

    data: Path
    users: Users | None = field(default_factory=people)
    settings: dict[str, Any] = field(default_factory=dict)
    yard: SimulatedServer = field(default_factory=SimulatedServer)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Also again, as after a restart: nothing is left but the data directory."""
        yard = self.yard
        self.gate = None
        if self.users is not None:
            self.gate = UserAuthenticator(self.users, yard.clock, yard.scheduler)
        settings = Settings(data=self.data, **self.settings)
        self.web = HttpApplication(
            settings, yard.broker, yard.scheduler, authenticator=self.gate or OpenAuthenticator()
        )

    def change(self, users: Users) -> None:
        assert self.gate is not None
        self.users = users
        self.gate.replace_users(users)

    def connect(self, certificate: str = "") -> SimulatedPeer:
        return connect(self.yard, self.web.http, "192.0.2.1:4321", certificate)

    def ask(
        self,
        method: str,
        path: str,
        *headers: str,
        value: object = None,
        certificate: str = "",
    ) -> Answer:
        """One request on a connection of its own; headers are whole lines."""
        peer = self.connect(certificate)
        lines = [f"{method} {path} HTTP/1.1", "host: taskyard", *headers]
        body = b"" if value is None else json.dumps(value).encode()
        if value is not None:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        peer.send("\r\n".join([*lines, "", ""]).encode() + body)
        if not peer._received:  # an answer that is held back, as wrong ones are
            self.yard.advance(10)
        return read_answer(peer, method)

    def log_in(self, **given: str) -> str:
        """Gives the header with the cookie."""
        answer = self.ask("POST", "/api/v1/session", value=given)
        assert answer.status == 200, answer.body
        return f"cookie: {answer.cookie()}"


@dataclass
class Answer(Reply):
    lines: list[str]

    def all(self, name: str) -> list[str]:
        """Of a header that may come more than once."""
        return [line.partition(": ")[2] for line in self.lines if line.startswith(f"{name}: ")]

    def cookie(self) -> str:
        """The pair that a browser would send back."""
        [line] = self.all("set-cookie")
        pair, *attributes = line.split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
        return pair

    def has_dropped(self) -> bool:
        return any(line.startswith(f"{COOKIE}=; Max-Age=0;") for line in self.all("set-cookie"))


def read_answer(peer: SimulatedPeer, method: str = "GET") -> Answer:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.read_line()
    first, *lines = head.decode().split("\r\n")[:-2]
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = dict(line.split(": ", 1) for line in lines)
    bare = method == "HEAD" or status in ("204", "304")
    size = 0 if bare else int(headers["content-length"])
    body = peer.read_exactly(size)
    peer.expect_nothing()
    return Answer(int(status), headers, body, lines)
