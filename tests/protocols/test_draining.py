"""Queues and servers that are drained refuse pushes, in the words of each protocol, and go on with
what they have.
"""

import json

import pytest
from support.api import NDJSON, ApiClient
from support.exchanges import get
from support.replies_resp import ask, refused
from support.resp_jobs import take
from support.simulated import SimulatedServer
from support.wire import error_of, exchange

from taskyard.access.principal import ADMIN, INSPECT, PUSH, Principal, Rule
from taskyard.protocols.http.monitoring.metrics import Health

ONE = "queue mail is being drained and takes no pushes"
ALL = "the server is being drained and takes no pushes"
UID = b"6ba7b810-9dad-11d1-80b4-00c04fd430c4"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    """One job in the queue mail, which takes no more."""
    api = ApiClient(yard)
    api.push(text="there")
    return api


@pytest.fixture(params=[ONE, ALL], ids=["queue", "server"])
def said(request: pytest.FixtureRequest, api: ApiClient) -> str:
    """Why pushes are refused now."""
    if request.param == ONE:
        api.call("PATCH", "/api/v1/queues/mail", {"draining": True}).ok()
    else:
        api.post("/api/v1/server/drain").ok()
    text: str = request.param
    return text


def test_masenko(yard: SimulatedServer, said: str) -> None:
    peer = yard.connect()
    peer.send(b'PUSH {"name":"a","queue":"mail"}\n')
    assert error_of(peer.read_line()) == f"draining: {said}"
    peer.send(b'ATOMIC\nPUSH {"name":"a","queue":"mail"}\nDONE\n')
    assert error_of(peer.read_line()) == f"message 0: PUSH: draining: {said}"
    peer.send(b'FETCH {"queues":["mail"]}\n')
    assert peer.read_line().startswith(b"OK ")


def test_workq(yard: SimulatedServer, said: str) -> None:
    peer = yard.connect("workq")
    answer = f"-SERVER-ERROR {said}\r\n".encode()
    exchange(peer, b"add %b mail 1000 60000 1\r\nx\r\n" % UID, answer)
    exchange(peer, b"run %b mail 1000 60000 1\r\nx\r\n" % UID, answer)
    exchange(peer, b"schedule %b mail 1000 60000 2999-01-01T00:00:00Z 1\r\nx\r\n" % UID, answer)
    peer.send(b"lease mail 0\r\n")
    assert b"there" in peer.take()


def test_resp(yard: SimulatedServer, said: str) -> None:
    peer = yard.connect("resp")
    assert refused(peer, "RPUSH", "mail", "a") == f"DRAINING {said}"
    assert refused(peer, "LPUSH", "mail", "a", "b") == f"DRAINING {said}"
    assert refused(peer, "JOB.PUSH", "mail", "a") == f"DRAINING {said}"
    job = take(peer, "mail")
    assert job.payload == b"there"
    assert ask(peer, "JOB.FAIL", job.ref, "again", "IN", 0) == "ready"
    assert ask(peer, "LPOP", "mail") == b"there"


def test_new_items_of_pqueue(yard: SimulatedServer) -> None:
    peer = yard.connect("resp")
    ask(peer, "UPDATE", "a", 1)
    ApiClient(yard).call("PATCH", "/api/v1/queues/pqueue", {"draining": True}).ok()
    assert ask(peer, "UPDATE", "a", 1) == 2
    assert refused(peer, "UPDATE", "b", 1).startswith("DRAINING queue pqueue")


def test_glovebox(yard: SimulatedServer, said: str) -> None:
    peer = yard.connect_glovebox()
    peer.next()
    peer.send_json(type="post", queue="mail", message=[1], label=7)
    peer.expect_json(type="error", label=7, code="Unavailable", key=said)


def test_the_api(api: ApiClient, said: str) -> None:
    problem = api.post("/api/v1/queues/mail/jobs", {}).problem(503, "draining")
    assert said in problem["detail"]
    reply = api.call("POST", "/api/v1/queues/mail/jobs", body=b"{}\n{}\n", content_type=NDJSON)
    assert reply.problem(503, "draining")["line"] == 1


def test_a_push_that_is_repeated_is_answered_as_before(api: ApiClient) -> None:
    uid = UID.decode()
    first = api.push(uid=uid)
    api.post("/api/v1/server/drain").ok()
    reply = api.post("/api/v1/queues/mail/jobs", {"uid": uid})
    assert (reply.status, reply.body["id"], reply.body["duplicate"]) == (200, first, True)


def test_the_server_says_how_far_it_is(yard: SimulatedServer, api: ApiClient) -> None:
    api.push(delay=5)
    before = api.get("/api/v1/server").ok()
    assert (before["draining"], before["unfinished"], before["accepting"]) == (False, None, True)
    view = api.post("/api/v1/server/drain").ok()
    assert (view["draining"], view["unfinished"], view["leased"]) == (True, 2, 0)
    assert (view["accepting"], view["refusing"]) == (False, "the server is being drained")
    peer = yard.connect("resp")
    first = take(peer, "mail")
    assert api.get("/api/v1/server").ok()["leased"] == 1
    ask(peer, "JOB.DONE", first.ref)
    yard.advance(5)
    ask(peer, "JOB.DONE", take(peer, "mail").ref)
    view = api.get("/api/v1/server").ok()
    assert (view["unfinished"], view["leased"], view["draining"]) == (0, 0, True)
    view = api.post("/api/v1/server/undrain").ok()
    assert (view["draining"], view["accepting"]) == (False, True)
    api.push()


def test_readiness_tells_it(yard: SimulatedServer, api: ApiClient) -> None:
    api.post("/api/v1/server/drain").ok()
    answer = get(Health(yard.broker).routes(), "/readyz").answer()
    assert (answer.status, json.loads(answer.body)["reason"]) == (503, "draining")
    api.post("/api/v1/server/undrain").ok()
    assert get(Health(yard.broker).routes(), "/readyz").answer().status == 200


def test_only_who_may_administer_all_queues_drains_the_server(yard: SimulatedServer) -> None:
    some = Principal("some", [Rule(["mail"], [ADMIN, PUSH]), Rule(["*"], [INSPECT])])
    every = Principal("every", [Rule(["*"], [ADMIN])])
    for path in ("/api/v1/server/drain", "/api/v1/server/undrain"):
        ApiClient(yard, principal=some).post(path).problem(403, "denied")
        ApiClient(yard, principal=every).post(path).ok()


def test_a_drained_queue_stays_so_over_a_restart_and_a_drained_server_does_not(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.call("PATCH", "/api/v1/queues/mail", {"draining": True}).ok()
    api.post("/api/v1/server/drain").ok()
    yard.restart()
    api.push("other")
    api.post("/api/v1/queues/mail/jobs", {}).problem(503, "draining")
