"""The JSON API: consumers of batches are listed, looked at and dropped."""

import pytest
from support.api import ApiClient
from support.replies_resp import ask
from support.simulated import SimulatedServer

from taskyard.access.principal import ADMIN, INSPECT, Principal, Rule
from taskyard.protocols.resp.connection import RespConnection

CONSUMERS = "/api/v1/consumers"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def lease(api: ApiClient, name: str, *queues: str, ttr: int = 60_000) -> None:
    for queue in queues:
        for _ in range(3):
            api.push(queue)
    peer = api.yard.connect("resp")
    got = ask(peer, "BATCH.LEASE", name, 1, 100, "TTR", ttr, "QUEUES", *queues)
    assert got == [1, 3 * len(queues)]


def test_a_consumer_is_shown_and_dropped(yard: SimulatedServer, api: ApiClient) -> None:
    yard.engine.batch_chunk_jobs = 2
    lease(api, "spark", "a", "b")
    [view] = api.get(CONSUMERS).ok()["consumers"]
    assert api.get(f"{CONSUMERS}/spark").ok() == view
    assert (view["name"], view["batch"], view["open"], view["jobs"]) == ("spark", 1, True, 6)
    assert (view["queues"], view["expired"]) == (["a", "b"], False)
    assert view["deadline"] is not None
    assert api.call("DELETE", f"{CONSUMERS}/spark").status == 204
    assert len(api.get("/api/v1/queues/a/jobs").ok()["jobs"]) == 3
    api.get(f"{CONSUMERS}/spark").problem(404, "consumer-not-found")
    api.call("DELETE", f"{CONSUMERS}/spark").problem(404, "consumer-not-found")


def test_it_is_told_whose_one_is(yard: SimulatedServer, api: ApiClient) -> None:
    lease(api, "nobodys", "a")
    api.push("b")
    peer = yard.connect("resp")
    assert isinstance(peer.receiver, RespConnection)
    peer.receiver.switch_principal(Principal("ada", is_superuser=True))
    assert ask(peer, "BATCH.LEASE", "adas", 1, 100, "QUEUES", "b") == [1, 1]
    views = api.get(CONSUMERS).ok()["consumers"]
    assert [(view["name"], view["user"]) for view in views] == [("adas", "ada"), ("nobodys", None)]


def test_one_that_came_too_late_says_so(yard: SimulatedServer, api: ApiClient) -> None:
    lease(api, "spark", "a", ttr=5000)
    yard.advance(6)
    view = api.get(f"{CONSUMERS}/spark").ok()
    assert (view["expired"], view["open"], view["jobs"]) == (True, False, 0)
    assert view["deadline"] is None


def test_consumers_come_in_pages(api: ApiClient) -> None:
    for name in "cab":
        lease(api, name, f"q{name}")
    assert [each["name"] for each in api.walk(CONSUMERS, "consumers", limit=1)] == [*"abc"]


def test_one_sees_consumers_of_queues_that_one_sees(yard: SimulatedServer, api: ApiClient) -> None:
    lease(api, "both", "a", "b")
    lease(api, "one", "a")
    some = ApiClient(yard, principal=Principal("some", [Rule(["a"], [INSPECT])]))
    assert [each["name"] for each in some.get(CONSUMERS).ok()["consumers"]] == ["one"]
    some.get(f"{CONSUMERS}/both").problem(404, "consumer-not-found")
    some.call("DELETE", f"{CONSUMERS}/one").problem(403, "denied")
    boss = ApiClient(yard, principal=Principal("boss", [Rule(["a"], [ADMIN])]))
    boss.call("DELETE", f"{CONSUMERS}/both").problem(404, "consumer-not-found")
    assert boss.call("DELETE", f"{CONSUMERS}/one").status == 204
