"""Connections that do not log in: how long they may stay, and for whom they have to go."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest
from server.net.test_limits import OUTPUT, SECOND, Socket
from support.fixed_gate import FixedAuthenticator
from support.process import WarmServer
from support.simulated import SimulatedServer
from support.sockets import HANG_GUARD
from support.users import user, users_of

from taskyard.access.principal import INSPECT, TAKE, Principal, Rule
from taskyard.access.users import save_users
from taskyard.protocols.http.auth import RequestIdentifier, unauthenticated
from taskyard.protocols.http.connection import Http
from taskyard.protocols.http.routing import Router
from taskyard.server.net.connection import Connection, ConnectionRegistry, ProtocolFactory
from taskyard.server.net.listener import ConnectionLimits
from taskyard.server.strangers import LoginTimeouts

PATIENCE = 10 * SECOND
LOGINS = {
    "masenko": (b'AUTH {"token":"ada-secret"}\n', b"OK {}\n"),
    "workq": (b"auth ada-secret\r\n", b"+OK\r\n"),
    "resp": (b"AUTH ada-secret\r\n", b"+OK\r\n"),
}
PINGS = {
    "masenko": (b"PING\n", b"PONG {}\n"),
    "workq": (b"lease q 0\r\n", b"-TIMEOUT\r\n"),
    "resp": (b"PING\r\n", b"+PONG\r\n"),
}
ENDS = {
    "masenko": b'ERR {"msg":"permission denied: no login came in time"}\n',
    "workq": b"-CLIENT-ERROR Permission denied\r\n",
    "resp": b"-NOAUTH Authentication required.\r\n",
    "http": b"",
}
HEALTH = b"GET /none HTTP/1.1\r\nhost: a\r\n\r\n"
KNOWN = b"GET /none HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ada-secret\r\n\r\n"


class Rig:
    def __init__(
        self, total: int = 100, stranger: Principal | None = None, patience: int | None = PATIENCE
    ) -> None:
        self.gate = FixedAuthenticator({"ada": Principal("ada", is_superuser=True)}, stranger)
        self.yard = SimulatedServer(heartbeat=3600.0, output_limit=OUTPUT, gate=self.gate)
        broker = self.yard.broker
        self.strain = broker.metrics.limit_counters
        self.everyone = ConnectionRegistry()
        self.strangers = LoginTimeouts(
            broker, self.yard.scheduler, patience, self.gate.anonymous.needs_login
        )
        self.everyone.login_tracker = self.strangers
        self.admission = ConnectionLimits(total, 0, self.strain)
        self.admission.evict_oldest = self.strangers.evict_oldest
        http = Http(
            broker,
            self.yard.scheduler,
            Router([]),
            output_limit=OUTPUT,
            body_limit=OUTPUT,
            identify=RequestIdentifier(self.gate, unauthenticated).identify,
        )
        self._dialects: dict[str, ProtocolFactory] = {
            "masenko": self.yard.masenko,
            "workq": self.yard.workq,
            "resp": self.yard.resp,
            "http": http,
        }

    def connect(self, dialect: str = "resp") -> Client:
        refusal = self.admission.admit("192.0.2.1")
        assert not refusal, refusal
        return Client(self, self._dialects[dialect])


class Client:
    def __init__(self, rig: Rig, dialect: ProtocolFactory) -> None:
        self._rig = rig
        self.socket = Socket()
        self.connection = Connection(
            dialect, OUTPUT, rig.everyone, lambda: rig.admission.release("192.0.2.1")
        )
        self.socket.protocol = self.connection
        self.socket.reads = True
        self.connection.start_login_timeout()
        self.connection.connection_made(self.socket)

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        self._rig.yard.run_pending()

    def log_in(self, dialect: str) -> None:
        words, answer = LOGINS[dialect]
        self.send(words)
        self._rig.gate.answer()
        self._rig.yard.run_pending()
        assert self.take() == answer

    def take(self) -> bytes:
        received = bytes(self.socket.received)
        self.socket.received.clear()
        return received

    @property
    def ended(self) -> str:
        return self.socket.ended


@pytest.fixture
def rig() -> Rig:
    return Rig()


# How long they may stay


@pytest.mark.parametrize("dialect", ENDS)
def test_who_does_not_log_in_is_let_go(rig: Rig, dialect: str) -> None:
    client = rig.connect(dialect)
    rig.yard.advance(9.9)
    assert client.ended == ""
    rig.yard.advance(0.2)
    assert (client.take(), client.ended) == (ENDS[dialect], "closed")
    assert rig.strain.login_timeouts == 1


@pytest.mark.parametrize("dialect", LOGINS)
def test_to_ask_for_something_else_is_not_to_log_in(rig: Rig, dialect: str) -> None:
    client = rig.connect(dialect)
    for _ in range(10):
        client.send(PINGS[dialect][0])
        rig.yard.advance(0.99)
    assert client.ended == ""
    client.take()
    rig.yard.advance(0.2)
    assert (client.take(), client.ended) == (ENDS[dialect], "closed")


@pytest.mark.parametrize("dialect", LOGINS)
def test_who_has_logged_in_stays(rig: Rig, dialect: str) -> None:
    client = rig.connect(dialect)
    rig.yard.advance(9.9)
    client.log_in(dialect)
    rig.yard.advance(1000)
    client.send(PINGS[dialect][0])
    assert (client.take(), client.ended) == (PINGS[dialect][1], "")
    assert not rig.yard.scheduler.is_waiting() or dialect == "masenko"  # for its heartbeat


def test_who_has_logged_in_and_is_nobody_again_has_the_same_time(rig: Rig) -> None:
    client = rig.connect()
    client.log_in("resp")
    rig.yard.advance(11)
    client.send(b"RESET\r\n")
    assert client.take() == b"+RESET\r\n"
    rig.yard.advance(9.9)
    assert client.ended == ""
    rig.yard.advance(0.2)
    assert (client.take(), client.ended) == (ENDS["resp"], "closed")


@pytest.mark.parametrize("dialect", LOGINS)
def test_strangers_who_may_do_nothing_any_more_have_the_same_time(dialect: str) -> None:
    rules = [Rule(["*"], [TAKE])]
    rig = Rig(stranger=Principal(rules=rules))
    client = rig.connect(dialect)
    rig.yard.advance(11)
    rig.gate.anonymous.set_rules([], is_superuser=False)
    for receiver in rig.yard.broker.connections():
        receiver.on_permissions_changed()
    rig.yard.advance(10.1)
    assert (client.take(), client.ended) == (ENDS[dialect], "closed")


@pytest.mark.parametrize("dialect", LOGINS)
def test_a_login_that_is_being_checked_may_come_to_its_end(rig: Rig, dialect: str) -> None:
    client = rig.connect(dialect)
    client.send(LOGINS[dialect][0])
    rig.yard.advance(15)
    assert client.ended == ""
    rig.gate.answer()
    rig.yard.advance(1000)
    assert (client.take(), client.ended) == (LOGINS[dialect][1], "")


@pytest.mark.parametrize("dialect", LOGINS)
def test_a_wrong_login_gives_no_more_time(rig: Rig, dialect: str) -> None:
    client = rig.connect(dialect)
    client.send(LOGINS[dialect][0].replace(b"ada", b"eve"))
    rig.gate.answer()
    rig.yard.run_pending()
    client.take()
    rig.yard.advance(10)
    assert (client.take(), client.ended) == (ENDS[dialect], "closed")


@pytest.mark.parametrize("dialect", ENDS)
def test_where_strangers_may_do_something_they_stay(dialect: str) -> None:
    rig = Rig(stranger=Principal(rules=[Rule(["*"], [INSPECT])]))
    client = rig.connect(dialect)
    rig.yard.advance(50)
    assert client.ended == ""


@pytest.mark.parametrize("dialect", LOGINS)
def test_without_a_time_they_stay(dialect: str) -> None:
    rig = Rig(patience=None)
    client = rig.connect(dialect)
    rig.yard.advance(1000)
    assert client.ended == ""


def test_a_request_that_names_nobody_does_not_keep_an_http_connection(rig: Rig) -> None:
    client = rig.connect("http")
    client.send(HEALTH)
    assert client.take().startswith(b"HTTP/1.1 404 ")
    rig.yard.advance(10)
    assert client.ended == "closed"


def test_a_request_of_a_user_keeps_an_http_connection(rig: Rig) -> None:
    client = rig.connect("http")
    client.send(KNOWN)
    rig.gate.answer()
    rig.yard.run_pending()
    assert client.take().startswith(b"HTTP/1.1 404 ")
    rig.yard.advance(50)
    assert client.ended == ""


def test_a_request_that_is_on_its_way_is_waited_for(rig: Rig) -> None:
    client = rig.connect("http")
    client.send(KNOWN[:-2])
    rig.yard.advance(15)
    assert client.ended == ""
    client.send(KNOWN[-2:])
    rig.gate.answer()
    rig.yard.run_pending()
    assert client.take().startswith(b"HTTP/1.1 404 ")
    rig.yard.advance(30)
    assert client.ended == ""


def test_one_alarm_serves_all(rig: Rig) -> None:
    clients = []
    for _ in range(50):
        clients.append(rig.connect())
        rig.yard.advance(0.1)
    alarms = [alarm for _, _, alarm in rig.yard.scheduler._alarms if not alarm.cancelled]
    assert len(alarms) < 10
    rig.yard.advance(5)
    ends = [client.ended for client in clients]
    assert ends == ["closed"] * ends.count("closed") + [""] * ends.count("")
    assert 0 < ends.count("closed") < 10
    rig.yard.advance(20)
    assert all(client.ended == "closed" for client in clients)


# When the server is full


def test_the_oldest_stranger_makes_room() -> None:
    rig = Rig(total=3)
    known, first, second = rig.connect(), rig.connect("workq"), rig.connect("masenko")
    known.log_in("resp")
    third = rig.connect()
    rig.yard.run_pending()
    assert (first.ended, second.ended) == ("aborted", "")
    assert rig.admission.open_count == 3
    fourth = rig.connect()
    rig.yard.run_pending()
    assert second.ended == "aborted"
    third.log_in("resp")
    fourth.log_in("resp")
    assert rig.admission.admit("192.0.2.1") == "too many connections"
    assert (known.ended, third.ended, fourth.ended) == ("", "", "")
    assert (rig.strain.evicted_logins, rig.strain.refused_total) == (2, 1)


def test_nobody_makes_room_where_strangers_may_do_something() -> None:
    rig = Rig(total=1, stranger=Principal(rules=[Rule(["*"], [INSPECT])]))
    client = rig.connect()
    assert rig.admission.admit("192.0.2.1") == "too many connections"
    assert client.ended == ""


def test_a_login_that_is_being_checked_makes_no_room() -> None:
    rig = Rig(total=1)
    client = rig.connect()
    client.send(LOGINS["resp"][0])
    assert rig.admission.admit("192.0.2.1") == "too many connections"
    rig.gate.answer()
    rig.yard.run_pending()
    assert (client.take(), client.ended) == (b"+OK\r\n", "")


def test_who_has_not_shaken_hands_yet_makes_room() -> None:
    """With TLS: what speaks it stands in front of the connection."""
    rig = Rig(total=1)
    assert rig.admission.admit("192.0.2.1") == ""
    leave = rig.admission.release
    coming = Connection(rig.yard.resp, OUTPUT, rig.everyone, lambda: leave("192.0.2.1"))
    coming.start_login_timeout()
    assert rig.admission.admit("192.0.2.1") == "too many connections"  # it is in nobody's hands
    outer = Socket()
    outer.protocol = coming
    coming.tls_transport = outer
    rig.connect()
    assert outer.ended == "aborted"
    assert rig.admission.open_count == 1


def test_an_address_that_has_all_it_may_have_gets_no_room_from_others() -> None:
    rig = Rig(total=2)
    admission = ConnectionLimits(2, 1, rig.strain)
    admission.evict_oldest = rig.strangers.evict_oldest
    assert [admission.admit(address) for address in "ab"] == ["", ""]
    stranger = rig.connect()
    assert admission.admit("a") == "too many connections"
    assert stranger.ended == ""


def test_clients_of_this_machine_may_have_all_connections() -> None:
    rig = Rig()
    admission = ConnectionLimits(10, 5, rig.strain, exempts_local=True)
    for _ in range(10):
        assert admission.admit("127.0.0.1") == ""
    for _ in range(10):
        admission.release("127.0.0.1")
    refusals = [admission.admit("192.0.2.1") for _ in range(6)]
    assert refusals == [""] * 5 + ["too many connections from this address"]
    assert admission.admit("::1") == ""


# On a real server


def read_to_end(peer: socket.socket) -> bytes:
    found = b""
    try:
        while data := peer.recv(65536):
            found += data
    except ConnectionError:  # it was cut off
        pass
    return found


def test_a_server_with_users_lets_go_of_those_who_do_not_log_in(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    save_users(path, users_of(user("ada", tokens=("secret",), admin=True)))
    flags = ("--users", str(path), "--login-timeout", "2s", "--max-connections", "4")
    with WarmServer(tmp_path, *flags) as server:

        def connect(dialect: str) -> socket.socket:
            return socket.create_connection(server.address(dialect), timeout=HANG_GUARD)

        with closing(connect("resp")) as known:
            known.sendall(b"AUTH secret\r\n")
            assert known.recv(100) == b"+OK\r\n"
            strangers = [connect(dialect) for dialect in ("masenko", "workq", "http")]
            for stranger, words in zip(
                strangers, (b"INFO\n", b"lease q 0\r\n", HEALTH), strict=True
            ):
                stranger.sendall(words)
                assert stranger.recv(1000)  # so it has come
            with closing(connect("resp")) as late:  # the server is full
                late.sendall(b"AUTH secret\r\n")
                assert late.recv(100) == b"+OK\r\n"
                for stranger in strangers:
                    with closing(stranger):
                        read_to_end(stranger)
                for peer in (known, late):
                    peer.sendall(b"PING\r\n")
                    assert peer.recv(100) == b"+PONG\r\n"
        assert server.stop() == 0
