"""API: the JSON API through a RESP connection."""

import json
from typing import Any

import pytest
from support.replies_resp import Word, ask, command, read, refused
from support.resp_jobs import push, take
from support.simulated import SimulatedPeer, SimulatedServer
from support.sockets import SocketWire
from support.wire import Peer, Wire, exchange

from taskyard.protocols.http.api.queues import CHUNK_JOBS

NDJSON = "application/x-ndjson"
PAGE = "/api/v1/queues"
ALL = '{"states": ["ready"]}'


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def peer(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("resp")


def call(peer: Peer, *words: Word) -> tuple[int, Any]:
    peer.send(command("API", *words))
    return answer(peer)


def answer(peer: Peer) -> tuple[int, Any]:
    status, body = read(peer)
    assert isinstance(status, int)
    return status, json.loads(body) if body else None


def test_a_call_is_answered_with_status_and_body(wire: Wire) -> None:
    peer = wire.connect("resp")
    exchange(
        peer,
        b"API GET /api/v1/queues/none\r\n",
        b"*2\r\n:404\r\n$",
    )
    body = peer.read_line() + peer.read_line()
    assert b'"urn:taskyard:problem:queue-not-found"' in body
    exchange(peer, b"API PUT /api/v1/queues/q {}\r\n", b"*2\r\n:201\r\n$")
    peer.read_line()
    assert b'"name":"q"' in peer.read_line()
    exchange(
        peer,
        b"API DELETE /api/v1/queues/q\r\nPING\r\n",
        b'*2\r\n:200\r\n$13\r\n{"removed":0}\r\n+PONG\r\n',
    )


def test_a_job_is_pushed_shown_and_removed(peer: SimulatedPeer) -> None:
    status, pushed = call(peer, "POST", f"{PAGE}/mail/jobs", '{"payload": {"to": "ada"}}')
    assert (status, pushed["id"]) == (201, 1)
    assert call(peer, "GET", "/api/v1/jobs/1")[1]["payload"]["json"] == {"to": "ada"}
    assert take(peer, "mail").payload == b'{"to":"ada"}'
    assert call(peer, "get", "/api/v1/leases")[1]["leases"][0]["id"] == 1
    assert call(peer, "DELETE", "/api/v1/jobs/1") == (204, None)
    assert call(peer, "GET", "/api/v1/jobs/1")[1]["state"] == "gone"


def test_a_query_and_names_in_the_path_are_decoded(peer: SimulatedPeer) -> None:
    for name in ("a", "b", "c/d", "é"):
        push(peer, name)
    page = call(peer, "GET", f"{PAGE}?limit=2")[1]
    assert [queue["name"] for queue in page["queues"]] == ["a", "b"]
    page = call(peer, "GET", f"{PAGE}?limit=2&cursor={page['next']}")[1]
    assert [queue["name"] for queue in page["queues"]] == ["c/d", "é"]
    assert call(peer, "GET", f"{PAGE}/c%2Fd")[1]["name"] == "c/d"
    assert call(peer, "GET", f"{PAGE}/é")[1]["name"] == "é"
    assert call(peer, "GET", f"{PAGE}/%C3%A9")[1]["name"] == "é"


def test_the_content_type_may_be_given(peer: SimulatedPeer) -> None:
    lines = b'{"text": "a"}\n{"text": "b", "blocked_by": [-1]}\n'
    status, body = call(peer, "POST", f"{PAGE}/mail/jobs", lines, NDJSON)
    assert (status, body["pushed"]) == (201, 2)
    assert call(peer, "POST", f"{PAGE}/mail/jobs", lines, "text/plain")[0] == 415
    assert call(peer, "POST", f"{PAGE}/mail/jobs")[0] == 415


def test_what_the_api_refuses_is_a_problem(peer: SimulatedPeer) -> None:
    cases: list[tuple[tuple[Word, ...], int]] = [
        (("GET", "/"), 404),
        (("GET", "/api/v1/nothing"), 404),
        (("GET", "/metrics"), 404),
        (("GET", "/connect"), 404),
        (("BREW", PAGE), 405),
        (("\xff", PAGE), 405),
        (("POST", PAGE), 405),
        (("GET", f"{PAGE}?limit=0"), 400),
        (("GET", f"{PAGE}?colour=red"), 400),
        (("GET", "/api/v1/jobs/x"), 400),
        (("POST", f"{PAGE}/mail/jobs", "{"), 400),
        (("POST", f"{PAGE}/mail/jobs", b"\xff"), 400),
        (("POST", f"{PAGE}/a b/jobs", "{}"), 400),
        (("GET", f"{PAGE}/%ff"), 404),
    ]
    for words, status in cases:
        found, body = call(peer, *words)
        assert (found, body["status"]) == (status, status), words
        assert body["detail"].endswith("."), words
    assert yard_is_empty(peer)


def yard_is_empty(peer: Peer) -> bool:
    return bool(call(peer, "GET", PAGE)[1]["queues"] == [])


def test_head_is_answered_without_a_body(peer: SimulatedPeer) -> None:
    assert call(peer, "HEAD", PAGE) == (200, None)


BYTES = "ERR these are bytes, not JSON: ask for them over HTTP"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("GET",), "ERR wrong number of arguments for 'api' command"),
        (("GET", PAGE, "", "", ""), "ERR wrong number of arguments for 'api' command"),
        (("GET", "api/v1/queues"), "ERR the path must begin with a slash, such as /api/v1/queues"),
        (("GET", ""), "ERR the path must begin with a slash, such as /api/v1/queues"),
        (("GET", b"/\xff"), "ERR path and content type must be UTF-8"),
        (("PUT", "/x", "", b"\xff"), "ERR path and content type must be UTF-8"),
        (("GET", "/" + "x" * 65_536), "ERR the path is longer than 65536 bytes"),
        (("GET", "/api/v1/events"), "ERR this is a stream: ask for it over HTTP"),
        (("GET", "/api/v1/events/?queue=a"), "ERR this is a stream: ask for it over HTTP"),
        (("GET", "//api/v1/events"), "ERR this is a stream: ask for it over HTTP"),
        (("GET", "//api/v1/journal/segments/0"), BYTES),
    ],
)
def test_what_is_no_call_is_refused(
    peer: SimulatedPeer, words: tuple[Word, ...], text: str
) -> None:
    assert refused(peer, "API", *words) == text
    assert ask(peer, "PING") == "PONG"


def test_a_body_may_be_as_large_as_an_argument(peer: SimulatedPeer) -> None:
    body = b'{"text": "%b"}' % (b"x" * ((1 << 20) - 12))
    assert call(peer, "POST", f"{PAGE}/mail/jobs", body)[0] == 201
    assert refused(peer, "API", "POST", f"{PAGE}/mail/jobs", body + b"  ").startswith("ERR an arg")


# Answers that come later


def test_an_answer_that_takes_many_turns_holds_up_only_its_connection(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    lines = b'{"text": "x"}\n' * (3 * CHUNK_JOBS)
    assert call(peer, "POST", f"{PAGE}/mail/jobs", lines, NDJSON)[1]["pushed"] == 3 * CHUNK_JOBS
    other = yard.connect("resp")
    peer.arrive(command("API", "POST", f"{PAGE}/mail/purge", ALL) + b"LLEN mail\r\nPING\r\n")
    other.arrive(b"PING\r\n")
    assert other.take() == b"+PONG\r\n"
    peer.expect_nothing()
    yard.run_pending()
    assert answer(peer) == (200, {"removed": 3 * CHUNK_JOBS})
    peer.expect(b":0\r\n+PONG\r\n")


def test_a_client_that_goes_is_not_answered(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    lines = b'{"text": "x"}\n' * (3 * CHUNK_JOBS)
    call(peer, "POST", f"{PAGE}/mail/jobs", lines, NDJSON)
    peer.arrive(command("API", "POST", f"{PAGE}/mail/purge", ALL) + b"RPUSH other x\r\n")
    peer.close()
    other = yard.connect("resp")
    assert ask(other, "LLEN", "other") == 0
    assert yard.resp.stats.open_connections == 1
    assert call(other, "GET", PAGE)[0] == 200


def test_a_client_that_sends_nothing_more_is_answered(
    yard: SimulatedServer, peer: SimulatedPeer
) -> None:
    lines = b'{"text": "x"}\n' * (3 * CHUNK_JOBS)
    call(peer, "POST", f"{PAGE}/mail/jobs", lines, NDJSON)
    peer.arrive(command("API", "POST", f"{PAGE}/mail/purge", ALL) + b"PING\r\n")
    assert peer.receiver is not None
    peer.receiver.on_eof()
    yard.run_pending()
    assert answer(peer) == (200, {"removed": 3 * CHUNK_JOBS})
    peer.expect(b"+PONG\r\n")
    peer.expect_closed()


def test_calls_may_be_between_multi_and_exec(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    lines = b'{"text": "x"}\n' * (2 * CHUNK_JOBS)
    call(peer, "POST", f"{PAGE}/mail/jobs", lines, NDJSON)
    peer.send(b"MULTI\r\n" + command("API", "POST", f"{PAGE}/mail/purge", ALL))
    peer.send(b"LLEN mail\r\nAPI GET /api/v1/events\r\nEXEC\r\nPING\r\n")
    peer.expect(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n")
    assert answer(peer) == (200, {"removed": 2 * CHUNK_JOBS})
    assert read(peer) == 0
    assert read(peer) == "ERR this is a stream: ask for it over HTTP"
    assert read(peer) == "PONG"


def test_what_is_only_on_disk_is_read_back(yard: SimulatedServer) -> None:
    yard = SimulatedServer(payload_memory=1)
    peer = yard.connect("resp")
    push(peer, "q", "x" * 5000)
    yard.restart()
    peer = yard.connect("resp")
    peer.send(command("API", "GET", "/api/v1/jobs/1") + b"PING\r\n")
    assert answer(peer)[1]["payload"]["text"] == "x" * 5000
    peer.expect(b"+PONG\r\n")


# Promises


def test_an_answer_waits_until_it_is_on_disk(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    seen: list[int] = []
    peer.witness = lambda data: seen.append(
        yard.journal.durable - yard.journal.records.end_position()
    )
    call(peer, "POST", f"{PAGE}/mail/jobs", "{}")
    assert seen == [0]


def test_what_follows_in_the_same_turn_is_later(socket_server: SocketWire) -> None:
    """The call takes time of its own, and records are in the order of time."""
    peer = socket_server.connect("resp")
    peer.send(
        b"".join(
            command("API", "POST", f"{PAGE}/mail/jobs", "{}") + command("RPUSH", "mail", "x")
            for _ in range(50)
        )
    )
    for _ in range(100):
        read(peer)
    jobs = call(peer, "GET", f"{PAGE}/mail/jobs?limit=100")[1]["jobs"]
    assert [job["id"] for job in jobs] == list(range(1, 101))
    times = [job["pushed_at"] for job in jobs]
    assert times == sorted(times)


def test_a_journal_that_has_failed_is_told(yard: SimulatedServer, peer: SimulatedPeer) -> None:
    push(peer)
    yard.disk.fail_always("sync")
    broken = yard.connect("resp")
    broken.send(b"RPUSH q x\r\n")
    broken.expect_closed()
    peer = yard.connect("resp")
    assert call(peer, "GET", PAGE)[0] == 503
    status, server = call(peer, "GET", "/api/v1/server")
    assert (status, server["accepting"]) == (200, False)


# The server's listeners


def test_a_client_finds_the_other_listeners(socket_server: SocketWire) -> None:
    peer = socket_server.connect("resp")
    listeners = call(peer, "GET", "/api/v1/server")[1]["listeners"]
    assert set(listeners) == {"masenko", "workq", "resp", "http"}
    for dialect, found in listeners.items():
        host, port = socket_server.address(dialect)
        assert found == {"host": host, "port": port, "tls": False}
