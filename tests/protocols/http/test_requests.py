"""HTTP requests and their answers: framing, order, limits, and what holds up whom."""

from collections.abc import Iterator

import pytest
from protocols.http.rig import BODY_LIMIT, Rig, ask, read

from taskyard.access.principal import Principal
from taskyard.engine.model.job import SYSTEM_ORIGIN, NewJob, Policy
from taskyard.protocols.http import wire
from taskyard.protocols.http.connection import UpgradableTransport
from taskyard.protocols.http.wire import Exchange, ParsedRequest, Request, Response

GET = b"GET /echo HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def post(body: bytes, headers: bytes = b"") -> bytes:
    return b"POST /echo HTTP/1.1\r\ncontent-length: %d\r\n%b\r\n%b" % (len(body), headers, body)


def body_of(reply: object) -> dict[str, object]:
    assert isinstance(reply, dict)
    return reply


def test_a_request_reaches_its_handler_and_is_answered(rig: Rig) -> None:
    reply = ask(rig.connect(), b"GET /echo?a=1&b=%20x&a=2&c= HTTP/1.1\r\nX: y\r\n\r\n")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == {
        "method": "GET",
        "path": "/echo",
        "query": {"a": "2", "b": " x", "c": ""},
        "params": {},
        "body": "",
        "peer": "192.0.2.1:4321",
        "x": "y",
    }


def test_a_body_arrives_however_it_is_cut(rig: Rig) -> None:
    request = post(b"hello", b"x: 1\r\n")
    for cut in range(1, len(request)):
        peer = rig.connect()
        peer.send(request[:cut])
        peer.expect_nothing()
        assert body_of(ask(peer, request[cut:]).json())["body"] == "hello"


def test_a_body_may_come_in_chunks(rig: Rig) -> None:
    head = b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    reply = ask(rig.connect(), head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert body_of(reply.json())["body"] == "abcde"


def test_requests_in_one_piece_are_answered_in_their_order(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"".join(post(b"%d" % number) for number in range(100)))
    for number in range(100):
        assert body_of(read(peer).json())["body"] == str(number)


def test_names_of_a_route_stand_for_segments(rig: Rig) -> None:
    reply = ask(rig.connect(), b"GET /things/a%2Fb/parts/%C3%A9 HTTP/1.1\r\n\r\n")
    assert body_of(reply.json())["params"] == {"thing": "a/b", "part": "é"}


def test_a_literal_segment_wins_over_a_name(rig: Rig) -> None:
    reply = ask(rig.connect(), b"GET /things/all/parts/1 HTTP/1.1\r\n\r\n")
    assert body_of(reply.json())["params"] == {"part": "1"}


@pytest.mark.parametrize("path", [b"/", b"/nothing", b"/echo/more", b"/things//parts/1"])
def test_an_unknown_path_is_not_found(rig: Rig, path: bytes) -> None:
    reply = ask(rig.connect(), b"GET " + path + b" HTTP/1.1\r\n\r\n")
    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"


def test_another_method_is_not_allowed(rig: Rig) -> None:
    reply = ask(rig.connect(), b"DELETE /echo HTTP/1.1\r\n\r\n")
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    "request_line", [b"GET /echo HTTP/1.1", b"GET /nothing HTTP/1.1", b"GET / HTTP/2.0"]
)
def test_no_answer_is_kept_or_taken_for_something_else(secure: bool, request_line: bytes) -> None:
    rig = Rig()
    rig.http.secure = secure
    headers = ask(rig.connect(), request_line + b"\r\nhost: a\r\n\r\n").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers.get("strict-transport-security") == ("max-age=31536000" if secure else None)


def test_an_answer_may_say_how_long_it_can_be_kept(rig: Rig) -> None:
    headers = [("cache-control", "no-cache")]
    rig.add("GET", "/kept", lambda exchange: exchange.reply(Response(200, headers=headers)))
    told = ask(rig.connect(), b"GET /kept HTTP/1.1\r\nhost: a\r\n\r\n").headers
    assert told["cache-control"] == "no-cache"
    assert told["x-content-type-options"] == "nosniff"


def test_head_is_get_without_a_body(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"HEAD /echo HTTP/1.1\r\n\r\n" + GET)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += peer.read_line()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: 0" not in head
    assert read(peer).status == 200


def test_a_handler_that_breaks_is_an_error_of_the_server(rig: Rig) -> None:
    peer = rig.connect()
    reply = ask(peer, b"GET /broken HTTP/1.1\r\n\r\n")
    assert reply.status == 500
    assert ask(peer, GET).status == 200


def test_what_a_handler_did_before_it_broke_is_told_once_its_turn_is_over(rig: Rig) -> None:
    yard = rig.yard
    in_turn: list[bool] = []

    def push_and_break(exchange: Exchange) -> None:
        now = yard.broker.begin_turn()
        yard.engine.push(NewJob("default", "a", b"", Policy()), SYSTEM_ORIGIN, now)
        in_turn.append(bool(yard.engine.effects))
        raise ZeroDivisionError

    def look(exchange: Exchange) -> None:
        in_turn.append(bool(yard.engine.effects))
        exchange.reply(Response(204))

    rig.add("GET", "/push", push_and_break)
    rig.add("GET", "/look", look)
    worker, peer = yard.connect(), rig.connect()
    worker.send(b'FETCH {"timeout":"20s"}\n')
    peer.send(b"GET /push HTTP/1.1\r\n\r\nGET /look HTTP/1.1\r\n\r\n")
    assert [read(peer).status, read(peer).status] == [500, 204]
    assert in_turn == [True, True]
    worker.expect(b'OK {"id":1,"queue":"default","name":"a","payload":""}\n')


def test_an_answer_that_comes_after_its_handler_broke_is_dropped(rig: Rig) -> None:
    def break_later(exchange: Exchange) -> None:
        rig.later.append(exchange)
        raise ZeroDivisionError

    rig.add("GET", "/late", break_later)
    peer = rig.connect()
    assert ask(peer, b"GET /late HTTP/1.1\r\n\r\n").status == 500
    rig.later.pop().reply(Response(204))
    rig.yard.run_pending()
    peer.expect_nothing()
    assert ask(peer, GET).status == 200


def test_a_stream_whose_handler_breaks_is_cut_off(rig: Rig) -> None:
    closed: list[bool] = []

    def begin_and_break(exchange: Exchange) -> None:
        stream = exchange.stream(
            "text/plain", on_writable=lambda: None, on_close=lambda: closed.append(True)
        )
        stream.send(b"so far")
        raise ZeroDivisionError

    rig.add("GET", "/stream", begin_and_break)
    peer = rig.connect()
    peer.send(b"GET /stream HTTP/1.1\r\n\r\n")
    assert peer.closed
    assert b"500" not in peer.take()
    assert closed == [True]


def test_an_upgrade_that_breaks_ends_its_connection_and_nothing_else(rig: Rig) -> None:
    def break_down(socket: UpgradableTransport, incoming: ParsedRequest, rest: bytes) -> Response:
        raise ZeroDivisionError

    rig.http.upgrades["/other"] = break_down
    peer, other = rig.connect(), rig.connect()
    peer.send(b"GET /other HTTP/1.1\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n")
    peer.expect_closed()
    assert ask(other, GET).status == 200
    assert rig.http.clients == 1


def test_a_principal_that_cannot_be_found_out_is_an_error_of_the_server(rig: Rig) -> None:
    def nobody_knows(request: Request, later: object) -> Principal:
        raise ZeroDivisionError

    rig.http.identify = nobody_knows
    assert ask(rig.connect(), GET).status == 500


# Waiting


def test_an_answer_that_takes_time_holds_up_its_own_connection_only(rig: Rig) -> None:
    peer, other = rig.connect(), rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n" + GET)
    peer.expect_nothing()
    assert ask(other, GET).status == 200
    rig.later.pop().reply(Response(204))
    rig.yard.run_pending()
    assert read(peer).status == 204
    assert read(peer).status == 200


def test_an_answer_to_a_client_that_has_gone_is_dropped(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n")
    peer.close()
    rig.later.pop().reply(Response(204))
    rig.yard.run_pending()
    peer.expect_nothing()


def test_an_answer_waits_for_the_journal(rig: Rig) -> None:
    rig.yard.scheduler.slow = True
    peer, masenko = rig.connect(), rig.yard.connect()
    masenko.arrive(b'PUSH {"name":"a","payload":""}\n')
    peer.arrive(b"GET /later HTTP/1.1\r\n\r\n")
    rig.later.pop().reply(Response(200, b"{}", position=rig.yard.engine.records.end_position()))
    peer.expect_nothing()
    rig.yard.scheduler.slow = False
    rig.yard.run_pending()
    assert read(peer).status == 200


# The end of a connection


def test_a_connection_is_kept_for_the_next_request(rig: Rig) -> None:
    peer = rig.connect()
    for _ in range(3):
        assert ask(peer, GET).status == 200
    assert not peer.closed


@pytest.mark.parametrize("version", [b"1.0", b"1.1\r\nconnection: close"])
def test_a_connection_is_closed_where_the_client_wants_it(rig: Rig, version: bytes) -> None:
    peer = rig.connect()
    reply = ask(peer, b"GET /echo HTTP/" + version + b"\r\n\r\n")
    assert reply.headers["connection"] == "close"
    peer.expect_closed()


def test_a_client_that_only_ends_its_half_is_answered(rig: Rig) -> None:
    peer = rig.connect()
    peer.arrive(GET * 3)
    assert peer.receiver is not None
    peer.receiver.on_eof()
    rig.yard.run_pending()
    for _ in range(3):
        assert read(peer).status == 200
    peer.expect_closed()


# Limits


@pytest.mark.parametrize("junk", [b"\x00\x01\x02", b"NOT HTTP\r\n\r\n", b"\x16\x03"])
def test_what_is_not_http_is_refused_and_the_connection_closed(rig: Rig, junk: bytes) -> None:
    peer = rig.connect()
    reply = ask(peer, junk + b" " * 20 + b"\r\n\r\n")
    assert reply.status == 400
    assert reply.headers["connection"] == "close"
    peer.expect_closed()


LINES = [
    b"GET /echo HTTP/0.9",
    b"GET /echo HTTP/1.2",
    b"GET /echo HTTP/1.10",
    b"GET /echo HTTP/2.0",
    b"GET /echo HTTP/2",
    b"GET /echo HTTP/3.1",
    b"GET /echo http/1.1",
    b"GET /echo",
    b"GET /echo RTSP/1.0",
    b"GET /echo RTSP/1.1",
    b"OPTIONS * RTSP/1.0",
    b"SOURCE /echo ICE/1.0",
]


@pytest.mark.parametrize("cut", [None, 6, 15, 18])
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.decode())
def test_only_two_versions_are_spoken(rig: Rig, line: bytes, cut: int | None) -> None:
    peer = rig.connect()
    request = GET + line + b"\r\nhost: a\r\n\r\n"
    if cut is None:
        peer.send(request + GET)
        assert read(peer).status == 200
    else:
        assert ask(peer, request[: len(GET) + cut]).status == 200
        peer.send(request[len(GET) + cut :] + GET)
    reply = read(peer)
    assert reply.status == 505
    assert reply.headers["connection"] == "close"
    assert body_of(reply.json())["detail"] == "Only HTTP/1.1 and HTTP/1.0 are spoken here."
    peer.expect_closed()


def test_another_protocol_may_be_named_in_a_header(rig: Rig) -> None:
    request = GET.replace(b"host: a", b"user-agent: a RTSP/1.0\r\nx: / ICE/1.0")
    assert ask(rig.connect(), request).status == 200


def test_whether_another_protocol_is_named_is_looked_up_once_for_many_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Names:
        looked = 0

        def __iter__(self) -> Iterator[bytes]:
            self.looked += 1
            return iter([b" RTSP/"])

    names = Names()
    monkeypatch.setattr(wire, "_OTHER_PROTOCOLS", names)
    fed = wire.Parser(BODY_LIMIT)
    fed.feed(GET * 100)
    assert len(fed.ready) == 100
    assert names.looked == 1


def test_what_came_before_junk_is_answered_first(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(GET + b"junk junk junk\r\n\r\n")
    assert read(peer).status == 200
    assert read(peer).status == 400
    peer.expect_closed()


def test_a_body_up_to_the_limit_is_taken(rig: Rig) -> None:
    peer = rig.connect()
    assert ask(peer, post(b"x" * BODY_LIMIT)).status == 200
    reply = ask(peer, post(b"x" * (BODY_LIMIT + 1)))
    assert reply.status == 413
    peer.expect_closed()


def test_a_body_in_chunks_is_limited_as_well(rig: Rig) -> None:
    peer = rig.connect()
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
    head = b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert ask(peer, head + chunk * 11).status == 413
    peer.expect_closed()


def test_headers_are_limited(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /echo HTTP/1.1\r\n")
    for _ in range(70):
        peer.send(b"x: " + b"y" * 1000 + b"\r\n")
    assert read(peer).status == 431
    peer.expect_closed()


CHUNKED = b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\nx: y\r\n\r\n"


@pytest.mark.parametrize("line", [b"x: " + b"y" * 1000 + b"\r\n", b"y" * 1000])
def test_trailers_are_limited(rig: Rig, line: bytes) -> None:
    peer = rig.connect()
    peer.send(CHUNKED + b"1\r\nx\r\n0\r\nz: ")
    for _ in range(70):
        peer.send(line)
    assert read(peer).status == 431
    peer.expect_closed()


def test_trailers_are_no_headers(rig: Rig) -> None:
    reply = ask(rig.connect(), CHUNKED + b"1\r\na\r\n0\r\nx: z\r\nexpect: 100-continue\r\n\r\n")
    assert (reply.status, body_of(reply.json())["x"]) == (200, "y")


def test_a_body_in_many_small_chunks_has_no_trailers(rig: Rig) -> None:
    peer = rig.connect()
    chunk = b"1;%b\r\nx\r\n" % (b"y" * 1000)
    peer.send(CHUNKED)
    for _ in range(100):
        peer.send(chunk)
    assert body_of(ask(peer, b"0\r\n\r\n").json())["body"] == "x" * 100


def test_a_client_is_asked_for_a_body_that_it_holds_back(rig: Rig) -> None:
    peer = rig.connect()
    head = b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    peer.send(head)
    peer.expect(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert body_of(ask(peer, b"ab").json())["body"] == "ab"


def test_a_request_that_does_not_end_is_given_up(rig: Rig) -> None:
    peer = rig.connect()
    request = GET[:-2]
    for byte in request:
        peer.send(bytes([byte]))
        rig.yard.advance(60 / len(request) + 0.1)
    assert read(peer).status == 408
    peer.expect_closed()


def test_a_client_that_asks_nothing_is_let_go(rig: Rig) -> None:
    peer = rig.connect()
    assert ask(peer, GET).status == 200
    rig.yard.advance(59)
    assert ask(peer, GET).status == 200
    rig.yard.advance(59)
    assert not peer.closed
    rig.yard.advance(62)
    peer.expect_closed()


def test_an_answer_that_takes_long_is_no_reason_to_be_let_go(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n")
    rig.yard.advance(600)
    rig.later.pop().reply(Response(204))
    rig.yard.run_pending()
    assert read(peer).status == 204


def test_much_behind_a_request_that_waits_is_not_read(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n" + GET * 100)
    reading = [peer.reading]
    rig.later.pop().reply(Response(204))
    rig.yard.run_pending()
    assert [*reading, peer.reading] == [False, True]
    assert peer.take().count(b"HTTP/1.1 200 OK") == 100


def test_what_becomes_of_a_paused_connection_is_read_from() -> None:
    rig = Rig(body_limit=1 << 20)
    peer = rig.connect()
    masenko = rig.yard.connect().receiver
    assert masenko is not None
    rig.http.upgrades["/other"] = lambda socket, incoming, rest: masenko
    upgrade = b"GET /other HTTP/1.1\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n"
    peer.send(b"GET /later HTTP/1.1\r\n\r\n" + post(b"x" * 300_000) + upgrade)
    reading = [peer.reading]
    rig.later.pop().reply(Response(204))
    rig.yard.run_pending()
    assert [*reading, peer.reading] == [False, True]
    assert peer.receiver is masenko


# Streams


def test_a_stream_goes_on_until_the_client_goes(rig: Rig) -> None:
    closed: list[bool] = []
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n")
    stream = rig.later.pop().stream(
        "text/event-stream", on_writable=lambda: None, on_close=lambda: closed.append(True)
    )
    head = peer.take()
    assert b"transfer-encoding: chunked" in head
    assert b"cache-control: no-store\r\nx-content-type-options: nosniff\r\n" in head
    stream.send(b"data: 1\n\n")
    peer.expect(b"9\r\ndata: 1\n\n\r\n")
    rig.yard.advance(600)
    assert not closed
    peer.close()
    assert closed
    stream.send(b"data: 2\n\n")


def test_a_stream_can_be_ended(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n")
    stream = rig.later.pop().stream("text/plain", on_writable=lambda: None, on_close=lambda: None)
    peer.take()
    stream.close()
    rig.yard.run_pending()
    peer.expect(b"0\r\n\r\n")
    peer.expect_closed()


def test_a_stop_ends_streams(rig: Rig) -> None:
    peer = rig.connect()
    peer.send(b"GET /later HTTP/1.1\r\n\r\n")
    rig.later.pop().stream("text/plain", on_writable=lambda: None, on_close=lambda: None)
    peer.take()
    rig.yard.stop()
    peer.expect_closed()
