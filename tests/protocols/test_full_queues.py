"""A queue that is full, in the words of each protocol."""

import pytest
from support.api import NDJSON, ApiClient
from support.simulated import SimulatedServer
from support.wire import error_of, exchange


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    api = ApiClient(yard)
    api.call("PUT", "/api/v1/queues/mail", {"max_jobs": 2}).ok()
    api.push()
    api.push()
    return api


FULL = "queue is full: it may have 2 jobs"


@pytest.mark.usefixtures("api")
def test_masenko(yard: SimulatedServer) -> None:
    peer = yard.connect()
    peer.send(b'PUSH {"name":"a","queue":"mail"}\n')
    assert error_of(peer.read_line()) == FULL
    peer.send(
        b'ATOMIC\nPUSH {"name":"a","queue":"other"}\nPUSH {"name":"a","queue":"mail"}\nDONE\n'
    )
    assert error_of(peer.read_line()) == f"message 1: PUSH: {FULL}"
    assert yard.engine.queue(b"other") is None


@pytest.mark.usefixtures("api")
def test_workq(yard: SimulatedServer) -> None:
    peer = yard.connect("workq")
    uid = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"
    answer = f"-SERVER-ERROR {FULL}\r\n".encode()
    exchange(peer, b"add %b mail 1000 60000 1\r\nx\r\n" % uid, answer)
    exchange(peer, b"run %b mail 1000 60000 1\r\nx\r\n" % uid, answer)
    exchange(peer, b"schedule %b mail 1000 60000 2999-01-01T00:00:00Z 1\r\nx\r\n" % uid, answer)


@pytest.mark.usefixtures("api")
def test_resp(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    answer = f"-OOM {FULL}\r\n".encode()
    exchange(peer, b"RPUSH mail a\r\n", answer)
    exchange(peer, b"RPUSH mail a b\r\n", answer)
    exchange(peer, b"LLEN mail\r\n", b":2\r\n")


def test_new_items_of_pqueue(yard: SimulatedServer) -> None:
    ApiClient(yard).call("PUT", "/api/v1/queues/pqueue", {"max_jobs": 1}).ok()
    peer = yard.connect("resp")
    peer.send(b"UPDATE a 1\r\nUPDATE a 1\r\nUPDATE b 1\r\n")
    assert peer.take().endswith(b"-OOM queue is full: it may have 1 jobs\r\n")


@pytest.mark.usefixtures("api")
def test_glovebox(yard: SimulatedServer) -> None:
    peer = yard.connect_glovebox()
    peer.next()
    peer.send_json(type="post", queue="mail", message=[1], label=7)
    peer.expect_json(type="error", label=7, code="Unavailable", key=FULL)


def test_the_api(api: ApiClient) -> None:
    problem = api.post("/api/v1/queues/mail/jobs", {}).problem(429, "queue-full")
    assert FULL in problem["detail"]
    reply = api.call("POST", "/api/v1/queues/mail/jobs", body=b"{}\n{}\n", content_type=NDJSON)
    assert reply.problem(429, "queue-full")["line"] == 1


def test_dead_letters_instead(api: ApiClient) -> None:
    api.call("PATCH", "/api/v1/queues/mail", {"overflow": "dead"}).ok()
    id = api.push()
    dead = api.get("/api/v1/queues/mail/dead").ok()
    assert [(group["reason"], group["sample"]) for group in dead["groups"]] == [
        ("queue full", [id])
    ]
    assert api.get("/api/v1/queues/mail").ok()["counts"]["ready"] == 2


def test_a_bound_is_lifted_while_the_queue_is_full(api: ApiClient) -> None:
    api.call("PATCH", "/api/v1/queues/mail", {"max_jobs": None}).ok()
    api.push()
    view = api.get("/api/v1/queues/mail").ok()
    assert view["counts"]["ready"] == 3
    assert view["settings"]["max_jobs"] is None
