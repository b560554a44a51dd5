"""The JSON API: queues are listed, created, changed, paused, purged and deleted."""

import random
from typing import Any

import pytest
from support.api import ApiClient
from support.simulated import SimulatedServer

from taskyard.engine.model.state import EngineSettings
from taskyard.protocols.http.api.queues import CHUNK_JOBS


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def counts(api: ApiClient, queue: str = "mail") -> dict[str, int]:
    found: dict[str, int] = api.get(f"/api/v1/queues/{queue}").ok()["counts"]
    return {state: count for state, count in found.items() if count}


def one_in_each_state(yard: SimulatedServer, api: ApiClient) -> dict[str, int]:
    """The ids of jobs of the queue mail by their state."""
    ids = {
        "succeeded": api.push(ttl=1000),
        "failed": api.push(max_fails=1),
        "leased": api.push(),
        "ready": api.push(),
        "delayed": api.push(delay=100),
    }
    ids["blocked"] = api.push(blocked_by=[ids["ready"]])
    worker = yard.connect("workq")
    for state, command in (("succeeded", b"complete"), ("failed", b"fail")):
        uid = api.job(ids[state])["uid"].encode()
        worker.send(b"%b %b 2\r\nhm\r\n" % (command, uid))
    worker.send(b"lease mail 0\r\n")
    worker.take()
    return ids


def test_a_queue_begins_with_its_first_push(api: ApiClient) -> None:
    api.get("/api/v1/queues/mail").problem(404, "queue-not-found")
    api.push()
    view = api.get("/api/v1/queues/mail").ok()
    assert view["counts"]["ready"] == 1
    assert not view["created"]
    assert view["counters"]["pushed"] == 1


def test_counts_are_by_state(yard: SimulatedServer, api: ApiClient) -> None:
    ids = one_in_each_state(yard, api)
    assert counts(api) == dict.fromkeys(ids, 1)
    for state, id in ids.items():
        assert api.job(id)["state"] == state


def test_a_queue_is_created_with_settings_that_survive_a_restart(
    yard: SimulatedServer, api: ApiClient
) -> None:
    settings = {
        "retries": 3,
        "result_retention": 60,
        "dead_retention": 3600.5,
        "backoff": "exponential",
        "backoff_base": 0.5,
        "backoff_cap": 30,
        "max_jobs": 10,
        "max_bytes": 2**63 - 1,
        "overflow": "dead",
        "ttr": None,
        "concurrency": None,
        "rate": None,
        "key_concurrency": None,
        "key_rate": None,
        "draining": False,
        "idle_expiry": None,
    }
    reply = api.call("PUT", "/api/v1/queues/mail", settings)
    assert (reply.status, reply.headers["Location"]) == (201, "/api/v1/queues/mail")
    assert reply.body["settings"] == settings
    yard.crash()
    view = api.get("/api/v1/queues/mail").ok()
    assert (view["settings"], view["created"]) == (settings, True)


def test_put_replaces_all_settings_and_patch_those_it_names(api: ApiClient) -> None:
    api.call("PUT", "/api/v1/queues/mail", {"retries": 3, "backoff": "quartic"}).ok()
    view = api.call("PATCH", "/api/v1/queues/mail", {"retries": 4}).ok()
    assert (view["settings"]["retries"], view["settings"]["backoff"]) == (4, "quartic")
    view = api.call("PATCH", "/api/v1/queues/mail", {"backoff": None, "dead_retention": 5}).ok()
    assert (view["settings"]["backoff"], view["settings"]["dead_retention"]) == (None, 5)
    reply = api.call("PUT", "/api/v1/queues/mail", {})
    assert reply.status == 200
    assert reply.body["settings"]["retries"] is None
    assert reply.body["settings"]["dead_retention"] is None


def test_put_keeps_a_queue_paused(api: ApiClient) -> None:
    api.push()
    assert api.post("/api/v1/queues/mail/pause").ok()["paused"]
    assert api.call("PUT", "/api/v1/queues/mail", {}).ok()["paused"]


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.push(text="x")
    api.post("/api/v1/queues/mail/pause").ok()
    worker = yard.connect("workq")
    worker.send(b"lease mail 60000\r\n")
    worker.expect_nothing()
    assert api.get("/api/v1/queues/mail").ok()["waiting"] == 1
    assert not api.post("/api/v1/queues/mail/resume").ok()["paused"]
    assert worker.read_line() == b"+OK 1\r\n"


def test_the_retries_of_a_queue_are_those_of_jobs_that_say_nothing(api: ApiClient) -> None:
    api.call("PUT", "/api/v1/queues/mail", {"retries": 3}).ok()
    assert api.job(api.push("mail"))["max_fails"] == 4
    assert api.job(api.push("mail", max_fails=9))["max_fails"] == 9
    assert api.job(api.push("other"))["max_fails"] == 4


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": 2**32}, "retries"),
        ({"retries": "3"}, "retries"),
        ({"backoff": "linear"}, "backoff"),
        ({"backoff_base": -0.1}, "backoff_base"),
        ({"result_retention": None}, "result_retention"),
        ({"dead_retention": 1e10}, "dead_retention"),
        ({"max_jobs": -1}, "max_jobs"),
        ({"max_bytes": 2**63}, "max_bytes"),
        ({"overflow": "drop"}, "overflow"),
        ({"paused": True}, "paused"),
        ([], None),
    ],
)
def test_bad_settings_are_refused(api: ApiClient, settings: Any, field: str | None) -> None:
    for method in ("PUT", "PATCH"):
        reply = api.call(method, "/api/v1/queues/mail", settings)
        reply.problem(400, "invalid-value", field)
    api.get("/api/v1/queues/mail").problem(404, "queue-not-found")


@pytest.mark.parametrize("name", ["two words", "tab\t", "x" * 256, "é" * 128, "\x7f", "\x85"])
def test_bad_names_are_refused(api: ApiClient, name: str) -> None:
    for method, path, body in (
        ("GET", "", None),
        ("PUT", "", {}),
        ("DELETE", "", None),
        ("POST", "/jobs", {}),
        ("POST", "/purge", {"states": ["ready"]}),
        ("GET", "/dead", None),
    ):
        reply = api.call(method, f"/api/v1/queues/{name}{path}", body)
        reply.problem(400, "invalid-value", "queue")


def test_what_is_not_there_cannot_be_changed(api: ApiClient) -> None:
    for method, path, body in (
        ("PATCH", "", {}),
        ("DELETE", "", None),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/purge", {"states": ["ready"]}),
    ):
        reply = api.call(method, f"/api/v1/queues/mail{path}", body)
        assert "'mail'" in reply.problem(404, "queue-not-found")["detail"]


def test_queues_are_listed_by_name_page_by_page(api: ApiClient) -> None:
    names = [f"q{number:02}" for number in range(25)] + ["é", "ä:b"]
    for name in random.Random(1).sample(names, len(names)):
        api.push(name)
    in_order = sorted(names, key=str.encode)
    for limit in (1, 5, 26, 27, 28, 1000):
        assert [view["name"] for view in api.walk("/api/v1/queues", "queues", limit=limit)] == (
            in_order
        )


def test_a_list_of_queues_goes_on_where_it_was_when_queues_come_and_go(api: ApiClient) -> None:
    for name in ("a", "b", "c", "d"):
        api.call("PUT", f"/api/v1/queues/{name}", {}).ok()
    page = api.get("/api/v1/queues", limit=2).ok()
    api.call("DELETE", "/api/v1/queues/b").ok()
    api.call("PUT", "/api/v1/queues/bb", {}).ok()
    rest = api.get("/api/v1/queues", limit=9, cursor=page["next"]).ok()
    assert [view["name"] for view in rest["queues"]] == ["bb", "c", "d"]


def test_a_queue_with_jobs_is_not_deleted_unless_they_go_with_it(
    yard: SimulatedServer, api: ApiClient
) -> None:
    one_in_each_state(yard, api)
    api.call("DELETE", "/api/v1/queues/mail").problem(409, "queue-not-empty")
    reply = api.call("DELETE", "/api/v1/queues/mail", query={"purge": "true"})
    # The blocked one has failed when the job it waited for was removed, and went after that.
    assert reply.ok() == {"removed": 6}
    api.get("/api/v1/queues/mail").problem(404, "queue-not-found")
    yard.crash()
    api.get("/api/v1/queues/mail").problem(404, "queue-not-found")


def test_a_purge_takes_the_states_it_is_told(yard: SimulatedServer, api: ApiClient) -> None:
    one_in_each_state(yard, api)
    reply = api.post("/api/v1/queues/mail/purge", {"states": ["delayed", "leased", "succeeded"]})
    assert reply.ok() == {"removed": 3}
    assert counts(api) == {"ready": 1, "failed": 1, "blocked": 1}


@pytest.mark.parametrize("states", [[], ["gone"], ["ready", "ready"], "ready", ["ready", 1], None])
def test_a_purge_of_no_known_state_is_refused(api: ApiClient, states: Any) -> None:
    api.push()
    reply = api.post("/api/v1/queues/mail/purge", {"states": states})
    assert reply.body["type"].endswith("invalid-value")
    assert counts(api) == {"ready": 1}


def test_a_long_purge_lets_others_have_their_turns(yard: SimulatedServer, api: ApiClient) -> None:
    for _ in range(5):
        api.batch("mail", [{}] * CHUNK_JOBS).ok()
    exchange = api.begin("POST", "/api/v1/queues/mail/purge", {"states": ["ready"]})
    assert exchange.response is None
    between = api.begin("GET", "/api/v1/queues/mail")
    yard.run_pending()
    assert api.finish(between).ok()["counts"]["ready"] == 4 * CHUNK_JOBS
    assert api.finish(exchange).ok() == {"removed": 5 * CHUNK_JOBS}


def test_what_is_pushed_during_a_purge_stays(yard: SimulatedServer, api: ApiClient) -> None:
    api.batch("mail", [{}] * (3 * CHUNK_JOBS)).ok()
    exchange = api.begin("POST", "/api/v1/queues/mail/purge", {"states": ["ready"]})
    pushed = api.begin("POST", "/api/v1/queues/mail/jobs", {"priority": 7})
    yard.run_pending()
    assert api.finish(exchange).ok() == {"removed": 3 * CHUNK_JOBS}
    assert counts(api) == {"ready": 1}
    assert api.job(api.finish(pushed).ok()["id"])["state"] == "ready"


def test_a_queue_that_fills_up_again_meanwhile_is_not_deleted(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.batch("mail", [{}] * (2 * CHUNK_JOBS)).ok()
    exchange = api.begin("DELETE", "/api/v1/queues/mail", query={"purge": "true"})
    api.begin("POST", "/api/v1/queues/mail/jobs", {})
    yard.run_pending()
    body = api.finish(exchange).problem(409, "queue-not-empty")
    assert body["done"] == 2 * CHUNK_JOBS
    assert counts(api) == {"ready": 1}


def test_a_purge_stops_if_somebody_deletes_the_queue(yard: SimulatedServer, api: ApiClient) -> None:
    api.batch("mail", [{}] * (2 * CHUNK_JOBS)).ok()
    first = api.begin("DELETE", "/api/v1/queues/mail", query={"purge": "true"})
    second = api.begin("POST", "/api/v1/queues/mail/purge", {"states": ["ready"]})
    yard.run_pending()
    assert api.finish(first).status == 200
    # Both took turns; whether the other was done by then is a matter of one chunk.
    assert api.finish(second).status in {200, 404}


def test_what_a_purge_has_removed_is_gone_after_a_crash(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.batch("mail", [{}] * (2 * CHUNK_JOBS)).ok()
    api.post("/api/v1/queues/mail/purge", {"states": ["ready"]}).ok()
    yard.crash()
    assert counts(api) == {}


def test_a_purge_that_a_crash_interrupts_has_removed_some(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.batch("mail", [{}] * (3 * CHUNK_JOBS)).ok()
    exchange = api.begin("POST", "/api/v1/queues/mail/purge", {"states": ["ready"]})
    assert not exchange.sent
    yard.crash()
    assert 0 < counts(api)["ready"] <= 3 * CHUNK_JOBS


def test_dead_retention_is_the_queues_own() -> None:
    settings = EngineSettings(dead_retention=10**12)
    api = ApiClient(SimulatedServer(settings=settings))
    api.call("PUT", "/api/v1/queues/mail", {"dead_retention": 10}).ok()
    id = api.push(max_fails=1)
    uid = api.job(id)["uid"].encode()
    api.yard.connect("workq").send(b"fail %b 2\r\nhm\r\n" % uid)
    assert counts(api) == {"failed": 1}
    api.yard.advance(11)
    assert counts(api) == {}


@pytest.mark.parametrize(
    ("kind", "body"), [("queues", b"{}"), ("schedules", b'{"queue": "q", "every": 60}')]
)
def test_what_was_made_is_where_its_name_can_be_anything(kind: str, body: bytes) -> None:
    peer = SimulatedServer().connect("api")
    path = b"/api/v1/%s/a%%2Fb%%3F%%25%%C3%%BC" % kind.encode()
    head = b"Host: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    peer.send(b"PUT %s HTTP/1.1\r\n%s%s" % (path, head, body))
    reply = peer.take()
    assert reply.startswith(b"HTTP/1.1 201")
    assert b"Location: " + path + b"\r\n" in reply
