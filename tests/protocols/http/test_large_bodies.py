"""Large requests: it is found out who sends them before their bodies are kept."""

from __future__ import annotations

import base64

import pytest
from protocols.http.rig import Rig, read
from support.simulated import SimulatedPeer
from support.users import user, users_of

from taskyard.access.authenticator import FIRST_DELAY_US
from taskyard.access.gatekeeper import UserAuthenticator
from taskyard.protocols.http.auth import RequestIdentifier, unauthenticated
from taskyard.protocols.http.wire import SMALL_BODY, Request

BIG = 300_000
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TOKEN = "Bearer ty_token"
RIGHT = "Basic " + base64.b64encode(b"ada:right").decode()
WRONG = "Basic " + base64.b64encode(b"ada:wrong").decode()


@pytest.fixture
def rig() -> Rig:
    rig = Rig(body_limit=1_000_000)
    users = users_of(
        user("ada", "right", tokens=("ty_token",), rules=(("a", "push"),)),
        user("worker", certificate="worker.example.org"),
    )
    gate = UserAuthenticator(users, rig.yard.clock, rig.yard.scheduler)
    rig.http.identify = RequestIdentifier(gate, unauthenticated).identify
    return rig


def head(authorization: str = "", size: int = BIG, more: str = "", path: str = "/echo") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: x", more or f"content-length: {size}"]
    if authorization:
        lines.append(f"authorization: {authorization}")
    return "\r\n".join([*lines, "", ""]).encode()


def chunk(size: int) -> bytes:
    return b"%x\r\n" % size + b"x" * size + b"\r\n"


def refused(peer: SimulatedPeer) -> None:
    """It is told to log in, and nothing more is read."""
    reply = read(peer)
    assert (reply.status, reply.headers["connection"]) == (401, "close")
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["www-authenticate"]
    peer.expect_closed()


def taken(peer: SimulatedPeer, size: int) -> None:
    reply = read(peer)
    assert reply.status == 200
    told = reply.json()
    assert isinstance(told, dict)
    assert len(told["body"]) == size


def holding(peer: SimulatedPeer) -> int:
    assert peer.receiver is not None
    return peer.receiver.buffered_bytes()


def is_read_from(peer: SimulatedPeer) -> bool:
    return peer.reading


# Those who do not say who they are


def test_a_stranger_is_refused_before_the_body_comes(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(head())
    refused(peer)


def test_a_stranger_is_not_asked_for_the_body(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(head(more=f"content-length: {BIG}\r\nexpect: 100-continue"))
    refused(peer)


def test_chunks_are_refused_when_they_are_too_many(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(head(more="transfer-encoding: chunked") + chunk(SMALL_BODY))
    peer.expect_nothing()
    assert is_read_from(peer)
    peer.send(chunk(1))
    refused(peer)


def test_a_small_body_is_looked_at_when_it_is_there(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(head(size=SMALL_BODY) + b"x" * SMALL_BODY)
    taken(peer, SMALL_BODY)
    assert not peer.closed, "the connection is kept for the next request"


def test_earlier_requests_are_answered_first(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\nhost: x\r\n\r\n" + head() + b"x" * 1000)
    peer.expect_nothing()
    peer.send(b"x" * BIG)
    assert holding(peer) < 2000
    [exchange] = rig.later
    rig.later.clear()
    exchange.reply(unauthenticated("Not you."))
    rig.yard.run_pending()
    assert read(peer).status == 401
    refused(peer)


def test_what_is_too_large_for_everybody_is_called_that(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(head(size=2_000_000))
    assert read(peer).status == 413
    peer.expect_closed()


def test_without_users_nobody_is_bounded() -> None:
    peer = Rig(body_limit=1_000_000).connect()
    peer.send(head())
    peer.send(b"x" * BIG)
    taken(peer, BIG)


# Those who do


@pytest.mark.parametrize("header", [TOKEN, RIGHT])
def test_who_logs_in_may_send_what_is_large(rig: Rig, header: str) -> None:
    peer = rig.connect()
    for _ in range(2):
        peer.send(head(header))
        for _ in range(3):
            peer.send(b"x" * (BIG // 3))
        taken(peer, BIG)
        peer.send(head(header, more="transfer-encoding: chunked"))
        for _ in range(3):
            peer.send(chunk(BIG // 3))
        peer.send(b"0\r\n\r\n")
        taken(peer, BIG)
    assert not peer.closed


def test_a_certificate_is_enough(rig: Rig) -> None:
    peer = rig.connect("worker.example.org")
    peer.send(head())
    peer.send(b"x" * BIG)
    taken(peer, BIG)


@pytest.mark.parametrize("header", ["Bearer ty_other", "Digest x", WRONG])
def test_who_is_not_who_they_say_is_refused(rig: Rig, header: str) -> None:
    peer = rig.connect()
    peer.send(head(header))
    rig.yard.scheduler.advance(FIRST_DELAY_US)
    refused(peer)


def test_nothing_more_is_read_while_a_password_is_checked(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(head(RIGHT, more=f"content-length: {BIG}\r\nexpect: 100-continue"))
    assert not is_read_from(peer)
    peer.expect_nothing()
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    peer.expect(CONTINUE)
    assert is_read_from(peer)
    peer.send(b"x" * BIG)
    taken(peer, BIG)


def test_a_check_that_takes_long_is_not_the_clients_fault(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(head(RIGHT))
    rig.yard.advance(200)
    peer.expect_nothing()
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    rig.yard.advance(59)
    peer.send(b"x" * BIG)
    taken(peer, BIG)


def test_a_body_that_has_come_meanwhile_is_answered_once(rig: Rig) -> None:
    """As it may before reading stops."""
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(head(WRONG))
    peer.send(b"x" * BIG)
    rig.yard.scheduler.finish_blocking()
    rig.yard.scheduler.advance(FIRST_DELAY_US)
    assert read(peer).status == 401
    peer.expect_nothing()
    assert not peer.closed
    assert is_read_from(peer)


def test_a_client_that_goes_while_it_is_looked_at_is_forgotten(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer = rig.connect()
    peer.send(head(RIGHT))
    peer.close()
    rig.yard.scheduler.finish_blocking()
    rig.yard.run_pending()
    assert rig.http.clients == 0
    peer.expect_nothing()


def test_a_principal_that_cannot_be_found_out_is_an_error_of_the_server(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def nobody_knows(request: Request, later: object) -> None:
        raise ZeroDivisionError

    rig.http.identify = nobody_knows
    peer = rig.connect()
    peer.send(head())
    assert read(peer).status == 500
    peer.expect_closed()
    assert "a request failed: POST /echo" in caplog.text


def test_a_body_that_is_held_back_behind_another_request_is_asked_for_in_its_turn(
    rig: Rig,
) -> None:
    peer = rig.connect()
    peer.send(
        b"GET /later HTTP/1.1\r\nhost: x\r\n\r\n"
        + head(TOKEN, more=f"content-length: {BIG}\r\nexpect: 100-continue")
    )
    peer.expect_nothing()
    [exchange] = rig.later
    exchange.reply(unauthenticated("Not you."))
    rig.yard.run_pending()
    assert read(peer).status == 401
    peer.expect(CONTINUE)
    peer.send(b"x" * BIG)
    taken(peer, BIG)
