"""The JSON API: limits, defaults and expiry of queues, and the limit keys of jobs."""

from typing import Any

import pytest
from support.api import ApiClient
from support.replies_resp import ask, command, read, refused
from support.resp_jobs import came, no_value, push, take, take_many, wait_for
from support.simulated import SimulatedServer

from taskyard.engine.model.queue import QueueRule, QueueSettings
from taskyard.engine.model.state import EngineSettings

MAIL = "/api/v1/queues/mail"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


FULL = {
    "ttr": 90.5,
    "concurrency": 5,
    "rate": {"count": 100, "per": 60},
    "key_concurrency": 1,
    "key_rate": {"count": 2, "per": 0.5},
    "draining": False,
    "idle_expiry": 3600,
}


def test_limits_are_set_shown_and_survive_a_restart(yard: SimulatedServer, api: ApiClient) -> None:
    view = api.call("PUT", MAIL, FULL).ok()
    assert FULL.items() <= view["settings"].items()
    yard.crash()
    view = api.get(MAIL).ok()
    assert FULL.items() <= view["settings"].items()
    assert FULL.items() <= view["effective"].items()
    unset = dict.fromkeys(FULL) | {"draining": False}
    view = api.call("PATCH", MAIL, unset).ok()
    assert unset.items() <= view["settings"].items()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ttr", 86_401),
        ("ttr", -1),
        ("concurrency", -1),
        ("concurrency", 1.5),
        ("concurrency", 2_000_000_000),
        ("rate", 5),
        ("rate", {"count": -1, "per": 1}),
        ("rate", {"count": 1, "per": 0}),
        ("rate", {"count": 1, "per": 1e9}),
        ("key_rate", {"per": 1}),
        ("key_rate", {"count": 1, "burst": 3}),
        ("draining", "yes"),
        ("idle_expiry", -5),
    ],
)
def test_values_out_of_range_are_refused(api: ApiClient, field: str, value: Any) -> None:
    reply = api.call("PUT", MAIL, {field: value})
    assert reply.status == 400
    assert reply.body["field"].partition(".")[0] in (field, "burst")


def test_a_queue_shows_what_is_held_back(yard: SimulatedServer, api: ApiClient) -> None:
    api.call("PUT", MAIL, {"key_concurrency": 1}).ok()
    ids = [api.push(limit_key="ada") for _ in range(3)]
    api.push(limit_key="bob")
    peer = yard.connect("resp")
    assert [job.id for job in take_many(peer, "mail", "COUNT", 10)] == [ids[0], ids[2] + 1]
    counts = api.get(MAIL).ok()["counts"]
    assert (counts["ready"], counts["limited"], counts["leased"]) == (0, 2, 2)
    jobs = api.walk(f"{MAIL}/jobs", "jobs", state="limited", limit=1)
    assert [(job["id"], job["state"], job["limit_key"]) for job in jobs] == [
        (id, "limited", "ada") for id in ids[1:]
    ]
    assert api.job(ids[1])["state"] == "limited"


def test_held_back_jobs_are_purged_and_go_with_their_queue(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.call("PUT", MAIL, {"key_concurrency": 1}).ok()
    for _ in range(3):
        api.push(limit_key="ada")
    peer = yard.connect("resp")
    job = take(peer, "mail", "COUNT", 10)
    purge = {"states": ["ready", "limited"]}
    assert api.post(f"{MAIL}/purge", purge).ok() == {"removed": 2}
    api.push(limit_key="ada")
    assert take_many(peer, "mail") == []
    assert api.call("DELETE", MAIL, query={"purge": "true"}).ok() == {"removed": 2}
    assert refused(peer, "JOB.DONE", job.ref).startswith("STALE")


def test_a_queue_shows_when_its_rate_lets_the_next_job_go(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.call("PUT", MAIL, {"rate": {"count": 1, "per": 10}}).ok()
    api.push()
    api.push()
    assert api.get(MAIL).ok()["opens_at"] is None
    peer = yard.connect("resp")
    take(peer, "mail")
    assert take_many(peer, "mail") == []
    assert api.get(MAIL).ok()["opens_at"] is not None
    wait_for(peer, "mail")
    yard.advance(9)
    peer.expect_nothing()
    yard.advance(1)
    assert came(peer).id == 2
    yard.advance(10)
    assert api.get(MAIL).ok()["opens_at"] is None


def test_what_is_in_effect_is_shown_beside_what_is_set(yard: SimulatedServer) -> None:
    rule = QueueRule("mail*", QueueSettings(concurrency=4, retries=2, ttr=9_000_000))
    yard = SimulatedServer(settings=EngineSettings(queue_rules=[rule], idle_expiry=5_000_000))
    api = ApiClient(yard)
    id = api.push()
    view = api.get(MAIL).ok()
    assert (view["settings"]["concurrency"], view["effective"]["concurrency"]) == (None, 4)
    assert (view["settings"]["idle_expiry"], view["effective"]["idle_expiry"]) == (None, 5)
    assert api.job(id)["max_fails"] == 3
    view = api.call("PATCH", MAIL, {"concurrency": 0}).ok()
    assert (view["settings"]["concurrency"], view["effective"]["concurrency"]) == (0, 0)
    assert view["effective"]["ttr"] == 9


def test_a_limit_key_has_at_most_255_bytes(api: ApiClient) -> None:
    api.post(f"{MAIL}/jobs", {"limit_key": "ä" * 128}).problem(400, "invalid-value", "limit_key")
    api.post(f"{MAIL}/jobs", {"limit_key": ""}).problem(400, "invalid-value", "limit_key")
    id = api.push(limit_key="ä" * 127)
    assert api.job(id)["limit_key"] == "ä" * 127


# JOB.PUSH ... LIMIT


def test_job_push_takes_a_limit_key(yard: SimulatedServer, api: ApiClient) -> None:
    api.call("PUT", MAIL, {"key_concurrency": 1}).ok()
    peer = yard.connect("resp")
    first = push(peer, "mail", "a", "LIMIT", b"\xff\x00", "PRIORITY", 3)
    push(peer, "mail", "b", "LIMIT", b"\xff\x00")
    free = push(peer, "mail", "c", "LIMIT", "other")
    jobs = take_many(peer, "mail", "COUNT", 10)
    assert [job.id for job in jobs] == [first, free]
    assert api.job(first)["limit_key"] == "\\xff\x00"
    ask(peer, "JOB.DONE", jobs[0].ref)
    assert take(peer, "mail").payload == b"b"


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_job_push_refuses_a_limit_key_that_is_none(yard: SimulatedServer, key: str) -> None:
    peer = yard.connect("resp")
    text = "ERR limit_key: must be 1 to 255 bytes"
    assert refused(peer, "JOB.PUSH", "q", "body", "LIMIT", key) == text
    assert refused(peer, "JOB.PUSH", "q", "body", "LIMIT") == no_value("JOB.PUSH", "LIMIT")


def test_job_push_leaves_to_the_queue_what_it_does_not_say(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.call("PUT", MAIL, {"retries": 1, "backoff": "none", "ttr": 7}).ok()
    peer = yard.connect("resp")
    push(peer, "mail", "a", "NAME", "task")
    push(peer, "mail", "b", "FAILS", 1, "TTR", 3000)
    said_nothing, said_it = take(peer, "mail"), take(peer, "mail")
    now: int = yard.clock.now() // 1000
    assert [round(job.deadline - now, -3) for job in (said_nothing, said_it)] == [7000, 3000]
    assert ask(peer, "JOB.FAIL", said_nothing.ref, "no") == "ready"
    assert ask(peer, "JOB.FAIL", said_it.ref, "no") == "failed"
    assert ask(peer, "JOB.FAIL", take(peer, "mail").ref, "no") == "failed"


def test_a_pop_of_several_stops_where_the_rate_does(yard: SimulatedServer, api: ApiClient) -> None:
    api.call("PUT", MAIL, {"rate": {"count": 2, "per": 10}}).ok()
    peer = yard.connect("resp")
    ask(peer, "RPUSH", "mail", "a", "b", "c")
    assert ask(peer, "LPOP", "mail", 3) == [b"a", b"b"]
    assert ask(peer, "LPOP", "mail") is None
    assert ask(peer, "LLEN", "mail") == 1
    yard.advance(5)
    assert ask(peer, "BLPOP", "mail", 1) == [b"mail", b"c"]


def test_a_queue_is_purged_and_deleted_while_its_jobs_are_set_aside(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.call("PUT", MAIL, {"key_concurrency": 1}).ok()
    peer, other = yard.connect("resp"), yard.connect("resp")
    for _ in range(2600):
        peer.arrive(command("JOB.PUSH", "mail", "x", "LIMIT", "k"))
    yard.run_pending()
    peer.take()
    take(peer, "mail")
    peer.arrive(command("API", "DELETE", MAIL + "?purge=true"))
    other.arrive(command("JOB.TAKE", 1, "mail") * 500)
    yard.run_pending()
    assert read(peer) == [200, b'{"removed":2600}']
