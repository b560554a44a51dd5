"""Other protocols at a port that does not speak them: nothing of what they bring is executed."""

from __future__ import annotations

import logging

import pytest
from support.simulated import SimulatedServer

COMMANDS = {
    "masenko": b'PUSH {"name":"n","queue":"mail"}\n',
    "workq": b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 mail 1000 1000 1\r\nx\r\n",
    "resp": b"RPUSH mail x\r\n",
}
ANSWERS = {
    "masenko": b'ERR {"msg":"this port does not speak HTTP"}\n',
    "workq": b"-CLIENT-ERROR This port does not speak HTTP\r\n",
    "resp": b"-ERR Protocol error: this port does not speak HTTP\r\n",
}


@pytest.mark.parametrize("dialect", COMMANDS)
@pytest.mark.parametrize("head", [b"POST /x HTTP/1.1\r\nHost: localhost\r\n\r\n", b"Host: a\r\n"])
@pytest.mark.parametrize("size", [1, 1000])
def test_what_a_page_sends_is_not_carried_out(dialect: str, head: bytes, size: int) -> None:
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    sent = head + COMMANDS[dialect]
    for start in range(0, len(sent), size):
        peer.send(sent[start : start + size])
    assert peer.take() == ANSWERS[dialect]
    assert yard.engine.queue(b"mail") is None


def answer(dialect: str, text: str) -> bytes:
    form = {
        "masenko": 'ERR {"msg":"%s"}\n',
        "workq": "-CLIENT-ERROR %s\r\n",
        "resp": "-ERR Protocol error: %s\r\n",
    }[dialect]
    return (form % (text[0].upper() + text[1:] if dialect == "workq" else text)).encode()


@pytest.mark.parametrize("dialect", COMMANDS)
@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"GET http://localhost/ HTTP/1.0\r\n",
        b"PUT /x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"DELETE /x HTTP/1.1\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"M-SEARCH * HTTP/1.1\r\n",
        b"CONNECT mail:25 HTTP/1.1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_the_first_line_of_a_request_ends_it(dialect: str, size: int, head: bytes) -> None:
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    if dialect == "workq":
        head = head.replace(b"1.1\n", b"1.1\r\n")
    sent = head + COMMANDS[dialect]
    for start in range(0, len(sent), size):
        peer.send(sent[start : start + size])
    assert peer.take() == answer(dialect, "this port does not speak HTTP")
    peer.expect_closed()
    assert yard.engine.queue(b"mail") is None


def client_hello(inside: bytes) -> bytes:
    """What begins a TLS connection to a host whose name is chosen by others."""
    body = b"\x01\x00\x01\xfc\x03\x03" + b"r" * 32 + inside
    return b"\x16\x03\x01" + len(body).to_bytes(2) + body


@pytest.mark.parametrize("dialect", COMMANDS)
@pytest.mark.parametrize("size", [1, 1000])
def test_nothing_inside_of_a_tls_handshake_is_carried_out(
    dialect: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    sent = client_hello(b"\r\n" + COMMANDS[dialect])
    for start in range(0, len(sent), size):
        peer.send(sent[start : start + size])
    assert peer.take() == answer(dialect, "this port does not speak TLS")
    peer.expect_closed()
    assert yard.engine.queue(b"mail") is None
    [record] = [record for record in caplog.records if record.name == "taskyard"]
    assert record.getMessage() == "protocol error"
    assert record.__dict__["fields"]["reason"] == "this port does not speak TLS"


@pytest.mark.parametrize("dialect", ["masenko", "workq"])
def test_commands_of_redis_are_not_carried_out_word_by_word(dialect: str) -> None:
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    peer.send(b"*1\r\n$4\r\nPING\r\n" + COMMANDS[dialect])
    assert peer.take() == answer(dialect, "this port does not speak RESP")
    peer.expect_closed()
    assert yard.engine.queue(b"mail") is None


@pytest.mark.parametrize("dialect", COMMANDS)
def test_the_head_of_a_proxy_is_no_command(dialect: str) -> None:
    yard = SimulatedServer()
    peer = yard.connect(dialect)
    peer.send(b"PROXY TCP4 10.0.0.1 10.0.0.2 51000 7419\r\n" + COMMANDS[dialect])
    assert peer.take() == answer(dialect, "this port does not take the PROXY protocol")
    peer.expect_closed()
    assert yard.engine.queue(b"mail") is None


def test_a_payload_may_begin_as_a_handshake_does() -> None:
    yard = SimulatedServer()
    peer = yard.connect("workq")
    peer.send(b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 mail 1000 1000 2\r\n")
    peer.send(b"\x16\x03\r\n")
    peer.expect(b"+OK\r\n")


def test_a_word_that_looks_like_an_array_is_no_stranger_to_redis() -> None:
    peer = SimulatedServer().connect("resp")
    peer.send(b" *1\r\nPING\r\n")
    peer.expect(b"-ERR unknown command '*1', with args beginning with: \r\n+PONG\r\n")


def test_lines_of_redis_that_only_look_like_a_request_are_carried_out() -> None:
    peer = SimulatedServer().connect("resp")
    peer.send(b"SET / HTTP/1.1\r\nGET /\r\nGET HTTP/1.1\r\nRPUSH GET / HTTP/1.1\r\nGET / 1 2\r\n")
    wrong = b"-ERR wrong number of arguments for 'get' command\r\n"
    assert peer.take() == b"+OK\r\n$8\r\nHTTP/1.1\r\n$-1\r\n:2\r\n" + wrong
    assert not peer.closed
