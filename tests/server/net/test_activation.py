"""Listening sockets that outlive the server, as systemd passes them: nobody is refused then."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.listeners import DIALECTS
from support.process import ServerProcess
from support.sockets import HANG_GUARD

from taskyard.server.net import listener as activation
from taskyard.server.net.listener import collect_passed_sockets
from taskyard.server.settings.schema import ConfigError, Settings

# Becomes the server, as systemd would start it: with sockets from descriptor 3 on.
BECOME = """
import os, sys
passed = [int(number) for number in sys.argv[1].split(",")]
kept = [os.dup(number) for number in passed]
for place, number in enumerate(kept, 3):
    os.dup2(number, place)
    os.set_inheritable(place, True)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "taskyard", *sys.argv[2:]])
"""
SAID = {
    "masenko": (b"PING\n", b"PONG {}\n"),
    "workq": (b"inspect server\r\n", b"+OK 1\r\n"),
    "resp": (b"PING\r\n", b"+PONG\r\n"),
    "http": (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
}


class PassedServer(ServerProcess):
    """A server that is started with sockets."""

    def __init__(self, directory: Path, sockets: list[socket.socket], *flags: str) -> None:
        super().__init__(directory, *flags)
        self._sockets = sockets
        self.names = ""

    def spawn(self) -> None:
        numbers = [each.fileno() for each in self._sockets]
        told = {"LISTEN_FDS": str(len(numbers)), "LISTEN_FDNAMES": self.names}
        passed = ",".join(map(str, numbers))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BECOME, passed, *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **told},
                pass_fds=numbers,
            )


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    """One for each protocol, in their order."""
    found = [socket.create_server(("127.0.0.1", 0)) for _ in DIALECTS]
    yield found
    for each in found:
        each.close()


def ports_of(sockets: list[socket.socket]) -> list[str]:
    pairs = zip(DIALECTS, sockets, strict=True)
    return [flag for name, each in pairs for flag in (f"--{name}-port", str(port_of(each)))]


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def test_who_connects_during_a_restart_waits_and_is_served(
    tmp_path: Path, sockets: list[socket.socket]
) -> None:
    with PassedServer(tmp_path, sockets, *ports_of(sockets)) as server:
        for dialect, each in zip(DIALECTS, sockets, strict=True):
            assert server.address(dialect) == each.getsockname()
        assert server.log_text().count("socket=passed") == len(DIALECTS)
        assert server.stop() == 0
        early = {}
        for dialect, each in zip(DIALECTS, sockets, strict=True):
            client = early[dialect] = socket.create_connection(each.getsockname(), HANG_GUARD)
            client.sendall(SAID[dialect][0])
        server.restart()
        for dialect, client in early.items():
            with closing(client):
                expected = SAID[dialect][1]
                answer = b""
                while len(answer) < len(expected):
                    part = client.recv(len(expected) - len(answer))
                    assert part, f"closed after {answer!r}"
                    answer += part
                assert answer == expected


def test_a_name_says_whose_a_socket_is(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = PassedServer(tmp_path, [listener])
        server.names = "resp"
        with server:
            assert server.address("resp") == listener.getsockname()
            assert server.log_text().count("socket=passed") == 1  # it opens the others by itself
            with socket.create_connection(server.address("http"), HANG_GUARD):
                pass


# What is refused


def passed(name: str, count: str = "1") -> dict[str, str]:
    """The variables of a process that was given sockets."""
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count, "LISTEN_FDNAMES": name}


def test_those_of_another_process_are_left_alone() -> None:
    environment = {**passed(""), "LISTEN_PID": "1", "OTHER": "x"}
    assert collect_passed_sockets(Settings(), environment) == {}
    assert environment == {"OTHER": "x"}  # what this process starts has no use for them either


@pytest.mark.parametrize("count", ["", "x", "-1", "\u0661"])
def test_a_bad_number(count: str) -> None:
    with pytest.raises(ConfigError, match="LISTEN_FDS must be a number"):
        collect_passed_sockets(Settings(), passed("", count))


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def take(monkeypatch: pytest.MonkeyPatch, given: socket.socket, name: str, **settings: Any) -> str:
    """Pass this one; gives whose it is."""
    monkeypatch.setattr(activation, "FIRST_DESCRIPTOR", os.dup(given.fileno()))
    ((found, (taken,)),) = collect_passed_sockets(Settings(**settings), passed(name)).items()
    taken.close()
    return found


def test_a_port_says_it_too(monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> None:
    assert take(monkeypatch, listener, "taskyard.socket", workq_port=port_of(listener)) == "workq"
    assert take(monkeypatch, listener, "http", workq_port=port_of(listener)) == "http"


def test_a_socket_of_no_listener(monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> None:
    with pytest.raises(ConfigError, match="which is no listener's port"):
        take(monkeypatch, listener, "unknown")
    with pytest.raises(ConfigError, match="which is no listener's port"):
        take(monkeypatch, listener, "resp", resp_port=None)


def test_what_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_INET, kind) as idle, pytest.raises(ConfigError) as refusal:
            take(monkeypatch, idle, "resp")
        assert "does not listen to TCP" in str(refusal.value)


def test_what_is_no_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr(activation, "FIRST_DESCRIPTOR", file.fileno())
        with pytest.raises(ConfigError, match="is no socket"):
            collect_passed_sockets(Settings(), passed("resp"))


def test_an_address_that_others_reach_needs_users(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("0.0.0.0", 0)) as listener:
        with pytest.raises(ConfigError, match="which other machines may reach"):
            take(monkeypatch, listener, "resp")
        assert take(monkeypatch, listener, "resp", allow_anonymous=True) == "resp"
        assert take(monkeypatch, listener, "resp", users=Path("users.toml")) == "resp"


def test_a_refusal_is_the_end(tmp_path: Path, listener: socket.socket) -> None:
    server = PassedServer(tmp_path, [listener])
    server.start()
    assert server.wait() == 2
    assert "which is no listener's port" in server.log_text()
    assert "Traceback" not in server.log_text()
