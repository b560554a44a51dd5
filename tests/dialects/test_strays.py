"""A page in a browser can make it send to any port: nothing of that is carried out."""

from __future__ import annotations

import pytest
from support.simulated import SimulatedYard

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
    yard = SimulatedYard()
    peer = yard.connect(dialect)
    sent = head + COMMANDS[dialect]
    for start in range(0, len(sent), size):
        peer.send(sent[start : start + size])
    assert peer.take() == ANSWERS[dialect]
    assert yard.engine.queue(b"mail") is None


@pytest.mark.parametrize("dialect", COMMANDS)
def test_with_another_method_it_ends_at_the_host(dialect: str) -> None:
    yard = SimulatedYard()
    peer = yard.connect(dialect)
    peer.send(b"PUT /x HTTP/1.1\r\nhost: localhost\r\n\r\n" + COMMANDS[dialect])
    assert peer.take().endswith(ANSWERS[dialect])
    assert yard.engine.queue(b"mail") is None
