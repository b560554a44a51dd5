"""Requests that say who sends them: read, looked at by the gate, answered in their order."""

import base64
import json

import pytest
from protocols.http.rig import Rig, ask, read
from support.simulated import SimulatedPeer
from support.users import user, users_of

from taskyard.access.authenticator import FIRST_DELAY_US, OpenAuthenticator
from taskyard.access.gatekeeper import UserAuthenticator
from taskyard.broker.turns import ClientConnection
from taskyard.protocols.http.auth import (
    InvalidAuthorization,
    RequestIdentifier,
    parse_authorization,
    unauthenticated,
)
from taskyard.protocols.http.connection import UpgradableTransport
from taskyard.protocols.http.wire import SMALL_BODY, Exchange, ParsedRequest, Request, Response


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


RIGHT = basic("ada", "right")
WRONG = basic("ada", "wrong")


def get(path: str, authorization: str = "") -> bytes:
    line = f"authorization: {authorization}\r\n" if authorization else ""
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n{line}\r\n".encode()


def who(exchange: Exchange) -> None:
    exchange.reply(Response(200, json.dumps(exchange.request.principal.name).encode()))


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.add("GET", "/who", who)
    rig.add("GET", "/healthz", who)
    rig.add("GET", "/readyz", who)
    users = users_of(
        user("ada", "right", tokens=("ty_token",), rules=(("a", "push"),)),
        user("worker", certificate="worker.example.org"),
    )
    gate = UserAuthenticator(users, rig.yard.clock, rig.yard.scheduler)
    rig.http.identify = RequestIdentifier(gate, unauthenticated).identify
    return rig


def name_told(peer: SimulatedPeer) -> object:
    reply = read(peer)
    assert reply.status == 200
    return reply.json()


def end(rig: Rig, peer: SimulatedPeer) -> None:
    """The client sends nothing more, but reads."""
    assert peer.receiver is not None
    peer.receiver.on_eof()
    rig.yard.run_pending()


def is_read_from(peer: SimulatedPeer) -> bool:
    return peer.reading


# The header


@pytest.mark.parametrize(
    ("header", "name", "secret"),
    [
        ("Bearer abc", "", "abc"),
        ("bearer  abc ", "", "abc"),
        (basic("ada", "x"), "ada", "x"),
        (basic("ada", ""), "ada", ""),
        (basic("ada", "a:b"), "ada", "a:b"),
        (basic("", "token"), "", "token"),
        (basic("über", "pässwörd"), "über", "pässwörd"),
        (basic("ada", "x").replace("Basic", "BASIC"), "ada", "x"),
    ],
)
def test_the_header_is_read(header: str, name: str, secret: str) -> None:
    given = parse_authorization(header)
    assert (given.name, given.secret) == (name, secret)


def test_nothing_secret_is_in_a_repr() -> None:
    assert "hush" not in repr(parse_authorization("Bearer hush"))
    request = Request("GET", "/", headers={"authorization": "Bearer hush"}, body=b"hush")
    assert "hush" not in repr(request)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Bearer",
        "Bearer ",
        "Digest secret",
        "secret",
        "Basic secret",
        "Basic c2VjcmV0",  # no colon
        "Basic /zpzZWNyZXQ=",  # not UTF-8
        "Basic c2VjcmV0Onh=\xfc",
    ],
)
def test_a_header_that_is_none_is_refused_and_not_repeated(header: str) -> None:
    with pytest.raises(InvalidAuthorization) as refused:
        parse_authorization(header)
    assert "secret" not in str(refused.value)
    assert "c2Vj" not in str(refused.value)


def test_a_header_that_cannot_be_read_is_answered_at_once(rig: Rig) -> None:
    reply = ask(rig.connect(), get("/who", "Digest x"))
    assert reply.status == 401
    assert reply.headers["content-type"] == "application/problem+json"


# Who it is


@pytest.mark.parametrize(("header", "name"), [("", ""), (RIGHT, "ada"), ("Bearer ty_token", "ada")])
def test_a_request_is_of_the_one_who_it_says(rig: Rig, header: str, name: str) -> None:
    peer = rig.connect()
    peer.send(get("/who", header))
    assert name_told(peer) == name


@pytest.mark.parametrize(
    ("certificate", "header", "name"),
    [
        ("worker.example.org", "", "worker"),
        ("worker.example.org", RIGHT, "ada"),  # what a request says itself counts
        ("ada", "", ""),
        ("", "", ""),
    ],
)
def test_a_certificate_stands_for_its_user(
    rig: Rig, certificate: str, header: str, name: str
) -> None:
    peer = rig.connect(certificate)
    peer.send(get("/who", header) * 2)
    assert [name_told(peer), name_told(peer)] == [name, name]


@pytest.mark.parametrize("header", [WRONG, "Bearer ty_wrong", basic("nobody", "right")])
def test_who_is_not_who_they_say_is_told_so_late(rig: Rig, header: str) -> None:
    peer = rig.connect()
    peer.send(get("/who", header))
    rig.yard.scheduler.advance(FIRST_DELAY_US - 1)
    peer.expect_nothing()
    rig.yard.scheduler.advance(1)
    reply = read(peer)
    assert reply.status == 401
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json() == {
        "type": "urn:taskyard:problem:unauthenticated",
        "title": "Only for those who log in",
        "status": 401,
        "detail": "The name, the password or the token is wrong.",
    }
    peer.send(get("/who", RIGHT))  # the connection goes on
    rig.yard.scheduler.advance(FIRST_DELAY_US)
    assert name_told(peer) == "ada"


def test_how_to_log_in_is_told_with_a_refusal(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(get("/who", WRONG))
    rig.yard.scheduler.advance(FIRST_DELAY_US)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.read_line()
    assert b'www-authenticate: Basic realm="taskyard", charset="UTF-8"\r\n' in head
    assert b'www-authenticate: Bearer realm="taskyard"\r\n' in head


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz/"])
def test_probes_are_answered_whatever_they_say(rig: Rig, path: str) -> None:
    peer = rig.connect()
    peer.send(get(path, WRONG))
    assert name_told(peer) == ""


def test_where_there_are_no_users_nobody_is_asked(rig: Rig) -> None:
    rig.http.identify = RequestIdentifier(OpenAuthenticator(), unauthenticated).identify
    peer = rig.connect()
    peer.send(get("/who", WRONG) + get("/who", "Digest x"))
    assert name_told(peer) == ""
    assert name_told(peer) == ""


# Who waits


def test_requests_behind_one_that_is_looked_at_wait_and_others_do_not(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer, other = rig.connect(), rig.connect()
    peer.send(get("/who", RIGHT) + get("/who") + get("/who", "Bearer ty_token"))
    peer.expect_nothing()
    other.send(get("/who"))
    assert name_told(other) == ""
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    assert [name_told(peer) for _ in range(3)] == ["ada", "", "ada"]


def test_what_was_right_once_costs_no_check_and_no_wait(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(get("/who", RIGHT))
    assert name_told(peer) == "ada"
    rig.yard.scheduler.slow = True
    peer.send(get("/who", RIGHT) * 40)
    assert [name_told(peer) for _ in range(40)] == ["ada"] * 40


def test_who_goes_away_while_being_looked_at_is_forgotten(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer, other = rig.connect(), rig.connect()
    peer.send(get("/later", RIGHT))
    peer.close()
    other.send(get("/later", WRONG))
    other.close()
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    rig.yard.scheduler.finish_blocking()
    rig.yard.scheduler.advance(FIRST_DELAY_US)
    assert rig.http.clients == 0
    assert not rig.later, "what a client has asked for that is gone is not done"


def test_who_sends_nothing_more_still_gets_the_answer(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(get("/who", RIGHT))
    end(rig, peer)
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    assert name_told(peer) == "ada"
    peer.expect_closed()


# Other protocols

UPGRADE = (
    "GET /other HTTP/1.1\r\nconnection: upgrade\r\nupgrade: other\r\nauthorization: {}\r\n\r\n"
)


UNKNOWN = b"-CLIENT-ERROR Unknown command\r\n"  # as Workq says it


@pytest.fixture
def upgraded(rig: Rig) -> list[Request]:
    """Requests whose connections have become ones of Workq."""
    made: list[Request] = []

    def upgrade(
        socket: UpgradableTransport, incoming: ParsedRequest, rest: bytes
    ) -> ClientConnection | Response:
        made.append(incoming.request)
        receiver: ClientConnection = rig.yard.workq.connect(socket, "peer:1")
        receiver.feed(rest)
        return receiver

    rig.http.upgrades["/other"] = upgrade
    return made


def test_what_comes_while_one_is_looked_at_is_for_the_other_protocol(
    rig: Rig, upgraded: list[Request]
) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(UPGRADE.format(RIGHT).encode() + b"pi")
    peer.send(b"ng\r\n")
    peer.send(b"ping\r\npi")
    peer.expect_nothing()
    assert not upgraded
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    assert [request.principal.name for request in upgraded] == ["ada"]
    peer.expect(2 * UNKNOWN)
    peer.expect_nothing()
    peer.send(b"ng\r\n")
    peer.expect(UNKNOWN)


def test_a_client_that_sends_much_before_it_is_known_is_not_read_from(
    rig: Rig, upgraded: list[Request]
) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(UPGRADE.format(RIGHT).encode())
    peer.send(b"ping\r\n" * (SMALL_BODY // 6 + 1))
    assert not is_read_from(peer)
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    assert is_read_from(peer)
    assert upgraded
    peer.expect(100 * UNKNOWN)


def test_an_upgrade_of_one_who_is_not_who_they_say_is_refused(
    rig: Rig, upgraded: list[Request]
) -> None:
    peer = rig.connect()
    peer.send(UPGRADE.format(WRONG).encode())
    rig.yard.scheduler.advance(FIRST_DELAY_US)
    reply = read(peer)
    assert (reply.status, reply.headers["connection"]) == (401, "close")
    peer.expect_closed()
    assert not upgraded


def test_an_upgrade_comes_to_nothing_if_the_client_has_ended_meanwhile(
    rig: Rig, upgraded: list[Request]
) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(UPGRADE.format(RIGHT).encode())
    end(rig, peer)
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    assert read(peer).status == 503
    peer.expect_closed()
    assert not upgraded
    assert rig.http.clients == 0


# With a limit of requests a second


def test_who_was_recognised_has_not_to_wait_for_another_request(rig: Rig) -> None:
    rig.yard.broker.rate_limiter.commands_per_second = 1
    peer = rig.connect()
    peer.send(get("/who", RIGHT))
    rig.yard.run_pending()
    assert name_told(peer) == "ada"


def test_what_is_no_http_is_answered_though_no_request_may_follow_yet(rig: Rig) -> None:
    rig.yard.broker.rate_limiter.commands_per_second = 1
    peer = rig.connect()
    peer.send(get("/healthz"))
    assert name_told(peer) == ""
    peer.send(b"nonsense\r\n\r\n")
    rig.yard.scheduler.advance(1_000_000)
    assert read(peer).status == 400
    peer.expect_closed()
