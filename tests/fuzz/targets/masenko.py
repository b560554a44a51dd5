"""Masenko's lines: one reply for each, cut anywhere; and the connection goes on behind them."""

from __future__ import annotations

from fuzz.inputs import cut, with_cuts
from fuzz.talking import check_served, check_server_state, let_pass, new_server, say

LINES = [
    b"PING {}",
    b"INFO",
    b'PUSH {"name":"a"}',
    b'PUSH {"name":"b","queue":"q","payload":{"k":[1.50,null,"\xc3\xa9\\n"]},"retry":1}',
    b'PUSH {"name":"c","deadqueue":"dead","retry":0}',
    b'PUSH {"name":"d","execute_at":"2100-01-02T03:04:05.678+09:00"}',
    b'PUSH {"name":"e","blocked_by":[1,2]}',
    b"FETCH",
    b'FETCH {"queues":["q","dead"],"timeout":"1.5s"}',
    b'FETCH {"queues":["default"],"timeout":250000000}',
    b'ACK {"id":1}',
    b'NACK {"id":1}',
    b'AUTH {"user":"a","password":"b"}',
]
SEEDS = [
    with_cuts(b"\n".join(LINES) + b"\n", 100, 1, 150),
    with_cuts(b'ATOMIC\nPUSH {"name":"f"}\nPUSH {"name":"g","blocked_by":[-1]}\nDONE\nPING\n', 9),
    with_cuts(b'PUSH {"name":"a"}\nFETCH\nATOMIC\nACK {"id":1}\nDONE\nQUIT\n', 30),
    with_cuts(b'PUSH {"name":"a"}\nFETCH\nNACK {"id":1}\nFETCH {"timeout":"44s"}\nINFO\n', 30),
]
WORDS = [
    *(line.partition(b" ")[0] + b" " for line in LINES),
    b"ATOMIC\n",
    b"DONE\n",
    b'"queue":',
    b'"payload":',
    b'"retry":',
    b'"execute_at":',
    b'"blocked_by":[',
    b'"timeout":',
    b'"id":',
    b"\\ud800",
]
REPLIES = (b"OK", b"PONG", b"EMPTY", b"ERR")
AFTER = b"\nDONE\nPING {}\n"  # ends an open line, and a transaction


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    whole = _talk([sent])
    assert _talk(pieces) == whole


def _talk(pieces: list[bytes]) -> bytes:
    yard = new_server()
    peer = say(yard, "masenko", [*pieces, AFTER])
    heard = let_pass(yard, peer, b"PONG {}\n", 4.0)
    assert peer.closed or heard.endswith(b"PONG {}\n")
    if not heard.startswith(b"HTTP/"):  # what a lost browser is told
        for line in heard.splitlines():
            assert line.partition(b" ")[0] in REPLIES, line
    check_served(yard)
    check_server_state(yard)
    return heard
