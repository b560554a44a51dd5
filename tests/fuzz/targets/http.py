"""HTTP/1.1 requests: the same requests, answers and verdict wherever the bytes are cut."""

from __future__ import annotations

from http import HTTPStatus

import httptools
from fuzz.inputs import cut, with_cuts
from fuzz.talking import check_served, check_server_state, let_pass, new_server, say

from taskyard.protocols.http.wire import BadRequest, Parser

LIMIT = 300  # of a body, where only the parser is tried
KNOWN = {status.value for status in HTTPStatus}
SEEDS = [
    with_cuts(b"GET /api/v1/queues?limit=2&cursor= HTTP/1.1\r\nHost: a\r\n\r\n", 5, 40),
    with_cuts(
        b"POST /api/v1/queues/q/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b'Content-Length: 13\r\n\r\n{"payload":1}GET /healthz HTTP/1.1\r\n\r\n',
        100,
        22,
    ),
    with_cuts(
        b"POST /api/v1/queues/q/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        b'Content-Type: application/json\r\n\r\n7;x\r\n{"paylo\r\n6\r\nad":1}\r\n0\r\nA: b\r\n\r\n'
        b"HEAD /api/v1/server HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        110,
        3,
        20,
    ),
    with_cuts(
        b"PUT http://x/api/v1/queues/%71 HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
        b"Content-Type: application/json\r\n\r\n{}",
        119,
    ),
    with_cuts(
        b"GET /connect HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nrest",
        60,
    ),
    with_cuts(b"GET / HTTP/1.1\r\nAuthorization: Basic YTpi\r\nCookie: taskyard_session=x\r\n\r\n"),
    with_cuts(b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"),
    with_cuts(b"OPTIONS * HTTP/1.1\r\n\r\nCONNECT a:1 HTTP/1.1\r\n\r\n"),
]
WORDS = [
    b"GET ",
    b"POST ",
    b"HTTP/1.1\r\n",
    b"\r\n\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: Upgrade\r\n",
    b"Upgrade: websocket\r\n",
    b"Expect: 100-continue\r\n",
    b"/api/v1/",
    b"0\r\n\r\n",
]


def fuzz(data: bytes) -> None:
    sent, pieces = cut(data)
    assert _parse([sent]) == _parse(pieces)
    whole = _talk([sent])
    assert _talk(pieces) == whole


def _parse(pieces: list[bytes]) -> list[object]:
    parser = Parser(LIMIT)
    found: list[object] = []
    fed = 0
    rest = b""
    for piece in pieces:
        fed += len(piece)
        try:
            parser.feed(piece)
        except BadRequest as error:
            assert 400 <= error.status < 500
            return [*found, *_taken(parser), error.status]
        found += _taken(parser)
        assert 0 <= parser.buffered_bytes() <= 2 * fed
        rest = parser.upgrade_bytes
    return [*found, parser.upgrade, rest]


def _taken(parser: Parser) -> list[object]:
    found: list[object] = []
    while (incoming := parser.next_request()) is not None:
        request = incoming.request
        assert len(request.body) <= LIMIT
        found.append((request.method, request.path, request.query, request.headers, request.body))
        found.append((incoming.raw_path, incoming.keep_alive))
    return found


def _talk(pieces: list[bytes]) -> bytes:
    yard = new_server()
    peer = say(yard, "api", pieces)
    heard = let_pass(yard, peer, b"", 30.0)
    check_answers(heard)
    check_served(yard)
    check_server_state(yard)
    return b"".join(line for line in heard.splitlines(True) if b"100 Continue" not in line)


class Answers:
    """Reads what the server says, as a client does."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        self.statuses.append(self._parser.get_status_code())


def check_answers(heard: bytes) -> list[int]:
    """Well-formed answers, none of which says that the server made a mistake."""
    answers = Answers()
    if b"HEAD" not in heard:
        answers.feed(heard)
    for line in heard.split(b"\r\n"):
        if line.startswith(b"HTTP/1.1 "):
            assert int(line[9:12]) in KNOWN
            assert not line.startswith(b"HTTP/1.1 500"), heard
    return answers.statuses
