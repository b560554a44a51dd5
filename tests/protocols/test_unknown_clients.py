"""Who has not said who they are, where that has to be said first: no more is kept for them than it
takes to say it."""

from __future__ import annotations

import pytest
from support.fixed_gate import FixedAuthenticator
from support.replies_resp import command
from support.simulated import SimulatedPeer, SimulatedServer

from taskyard.access.principal import INSPECT, PUSH, Principal, Rule

LIMIT = 16_384
BIG = 300_000
UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
DIALECTS = ["masenko", "workq", "resp"]
OK = {"masenko": b"OK {}\n", "workq": b"+OK\r\n", "resp": b"+OK\r\n"}
PUSHED = {"masenko": b'OK {"id":1}\n', "workq": b"+OK\r\n", "resp": b":1\r\n"}
LOGIN = {
    "masenko": b'AUTH {"user":"ada","password":"ada-secret"}\n',
    "workq": b"auth ada ada-secret\r\n",
    "resp": command("AUTH", "ada", "ada-secret"),
}
TOO_MUCH = {
    "masenko": b'ERR {"msg":"line too long"}\n',
    "workq": b"-CLIENT-ERROR Line too long\r\n",
    "resp": b"-ERR Protocol error: unauthenticated bulk length\r\n",
}


def push(dialect: str, size: int) -> bytes:
    payload = b"x" * size
    if dialect == "masenko":
        return b'PUSH {"name":"n","queue":"mail","payload":"%b"}\n' % payload
    if dialect == "workq":
        return f"add {UID} mail 1000 1000 {size}\r\n".encode() + payload + b"\r\n"
    return command("RPUSH", "mail", payload)


def line(dialect: str, size: int) -> bytes:
    """What is too long for a stranger, if it is longer than the limit."""
    if dialect == "resp":
        return command("ECHO", b"x" * size)
    ending = b"\n" if dialect == "masenko" else b"\r\n"
    return b"PING ".ljust(size - len(ending) + 1, b" ") + ending


@pytest.fixture
def gate() -> FixedAuthenticator:
    return FixedAuthenticator({"ada": Principal("ada", [Rule(["mail"], [PUSH])])})


@pytest.fixture
def yard(gate: FixedAuthenticator) -> SimulatedServer:
    return SimulatedServer(gate=gate)


def recognise(yard: SimulatedServer, gate: FixedAuthenticator) -> None:
    gate.answer()
    yard.run_pending()


def in_pieces(peer: SimulatedPeer, data: bytes, size: int = 10_000) -> None:
    for at in range(0, len(data), size):
        peer.send(data[at : at + size])


# Until they have logged in


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_too_large_for_a_stranger_ends_the_connection(
    yard: SimulatedServer, dialect: str
) -> None:
    peer = yard.connect(dialect)
    peer.send(line(dialect, LIMIT))
    assert peer.take() != TOO_MUCH[dialect]
    assert not peer.closed
    peer.send(line(dialect, LIMIT + 1))
    peer.expect(TOO_MUCH[dialect])
    peer.expect_closed()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_ends_before_all_of_it_has_come(yard: SimulatedServer, dialect: str) -> None:
    peer = yard.connect(dialect)
    in_pieces(peer, line(dialect, BIG)[: LIMIT + 10])
    peer.expect(TOO_MUCH[dialect])
    peer.expect_closed()


def test_a_command_of_a_stranger_has_few_arguments(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    peer.send(command("DEL", *["k"] * 9))
    peer.expect(b"-NOAUTH Authentication required.\r\n")
    peer.send(b"*11\r\n")
    peer.expect(b"-ERR Protocol error: unauthenticated multibulk length\r\n")
    peer.expect_closed()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"*1048577\r\n", b"invalid multibulk length"),
        (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
        (b"*1\r\n$-1\r\n", b"invalid bulk length"),
        (b"x" * (LIMIT + 1), b"too big inline request"),
        (b"x" * (LIMIT + 1) + b"\r\n", b"too big inline request"),
    ],
)
def test_what_nobody_may_send_is_called_that(
    yard: SimulatedServer, words: bytes, why: bytes
) -> None:
    peer = yard.connect("resp")
    peer.send(words)
    peer.expect(b"-ERR Protocol error: " + why + b"\r\n")
    peer.expect_closed()


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1, BIG, 2_000_000])
def test_a_payload_that_will_be_denied_is_dropped_as_it_comes(
    yard: SimulatedServer, size: int
) -> None:
    peer = yard.connect("workq")
    data = push("workq", size)
    for at in range(0, len(data), 10_000):
        peer.send(data[at : at + 10_000])
        assert peer.receiver is not None
        assert peer.receiver.buffered_bytes() <= LIMIT + 10_000
    peer.expect(b"-CLIENT-ERROR Permission denied\r\n")
    peer.send(b"inspect queues 0 10\r\n")  # is read from its beginning
    peer.expect(b"+OK 0\r\n")


def test_no_transaction_is_kept_for_a_stranger(
    yard: SimulatedServer, gate: FixedAuthenticator
) -> None:
    peer = yard.connect("resp")
    peer.send(b"MULTI\r\nPING\r\nEXEC\r\n")
    peer.expect(b"-NOAUTH Authentication required.\r\n+PONG\r\n-ERR EXEC without MULTI\r\n")
    peer = yard.connect("masenko")
    peer.send(b"ATOMIC\n" + b'ACK {"id":1}\n' * 9)
    assert peer.receiver is not None
    assert peer.receiver.buffered_bytes() == 0
    peer.send(b"DONE\n")
    peer.expect(b'ERR {"msg":"permission denied: log in first"}\n')


# When they have


@pytest.mark.parametrize("dialect", DIALECTS)
def test_who_has_logged_in_may_send_what_is_large(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str
) -> None:
    peer = yard.connect(dialect)
    peer.send(LOGIN[dialect])
    recognise(yard, gate)
    peer.expect(OK[dialect])
    in_pieces(peer, push(dialect, BIG))
    peer.expect(PUSHED[dialect])


@pytest.mark.parametrize("size", [10, 10_000, 10_000_000], ids=["cut", "in pieces", "at once"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_large_may_follow_the_login_at_once(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str, size: int
) -> None:
    peer = yard.connect(dialect)
    data = LOGIN[dialect] + push(dialect, BIG)
    sent = 0
    while sent < len(data) and peer.reading:
        peer.send(data[sent : sent + size])
        sent += size
    assert peer.receiver is not None
    assert peer.receiver.buffered_bytes() <= max(LIMIT, size) + size
    peer.expect_nothing()
    recognise(yard, gate)
    assert peer.reading
    peer.send(data[sent:])
    peer.expect(OK[dialect] + PUSHED[dialect])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_large_behind_a_wrong_login_is_a_strangers(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str
) -> None:
    peer = yard.connect(dialect)
    peer.send(LOGIN[dialect].replace(b"-secret", b"-secreT") + line(dialect, LIMIT + 1))
    recognise(yard, gate)
    reply = peer.take()
    assert reply.count(b"\n") == 2
    assert reply.endswith(TOO_MUCH[dialect])
    peer.expect_closed()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_certificate_is_enough(yard: SimulatedServer, dialect: str) -> None:
    peer = yard.connect(dialect, "ada")
    peer.send(push(dialect, BIG))
    peer.expect(PUSHED[dialect])


def test_who_is_nobody_again_is_a_stranger_again(
    yard: SimulatedServer, gate: FixedAuthenticator
) -> None:
    peer = yard.connect("resp")
    peer.send(LOGIN["resp"])
    recognise(yard, gate)
    peer.expect(OK["resp"])
    peer.send(b"RESET\r\n" + push("resp", LIMIT + 1))
    peer.expect(b"+RESET\r\n" + TOO_MUCH["resp"])
    peer.expect_closed()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_strangers_who_may_do_something_are_not_bounded(dialect: str) -> None:
    gate = FixedAuthenticator({}, Principal("", [Rule(["mail"], [PUSH])]))
    peer = SimulatedServer(gate=gate).connect(dialect)
    peer.send(push(dialect, BIG))
    peer.expect(PUSHED[dialect])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_new_rules_count_for_strangers_who_are_there(
    yard: SimulatedServer, gate: FixedAuthenticator, dialect: str
) -> None:
    peer = yard.connect(dialect)
    receiver = peer.receiver
    assert receiver is not None
    gate.anonymous.set_rules([Rule(["mail"], [PUSH])], False)
    receiver.on_permissions_changed()
    peer.send(push(dialect, BIG))
    peer.expect(PUSHED[dialect])
    gate.anonymous.set_rules([], False)
    receiver.on_permissions_changed()
    peer.send(line(dialect, LIMIT + 1))
    peer.expect(TOO_MUCH[dialect])
    peer.expect_closed()


def test_rules_that_change_in_the_middle_of_a_payload_do_not_shift_what_is_read(
    yard: SimulatedServer, gate: FixedAuthenticator
) -> None:
    peer = yard.connect("workq")
    data = push("workq", BIG)
    peer.send(data[:1000])
    gate.anonymous.set_rules([Rule(["mail"], [INSPECT])], False)
    assert peer.receiver is not None
    peer.receiver.on_permissions_changed()
    peer.send(data[1000:] + b"inspect queues 0 10\r\n")
    peer.expect(b"-CLIENT-ERROR Permission denied\r\n+OK 0\r\n")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_users_nobody_is_bounded(dialect: str) -> None:
    peer = SimulatedServer().connect(dialect)
    peer.send(push(dialect, BIG))
    peer.expect(PUSHED[dialect])
