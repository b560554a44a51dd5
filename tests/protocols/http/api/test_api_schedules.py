"""The JSON API: schedules are set, listed, paused, run and deleted, and push by the clock."""

from typing import Any

import pytest
from support.api import ApiClient
from support.simulated import SimulatedServer

from taskyard.engine.model.state import EngineSettings

SCHEDULES = "/api/v1/schedules"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def put(api: ApiClient, schedule: str = "nightly", /, **fields: Any) -> Any:
    body = {"queue": "mail", **fields}
    return api.call("PUT", f"{SCHEDULES}/{schedule}", body).ok()


def view(api: ApiClient, name: str = "nightly") -> Any:
    return api.get(f"{SCHEDULES}/{name}").ok()


def jobs(api: ApiClient, queue: str = "mail") -> list[int]:
    found = api.get(f"/api/v1/queues/{queue}/jobs").ok()["jobs"]
    return [job["id"] for job in found]


def test_a_schedule_pushes_its_job_at_each_tick(yard: SimulatedServer, api: ApiClient) -> None:
    put(api, every=60, payload={"to": "ada"}, name="send", priority=3, ttr=5, ttl=100)
    yard.advance(120)
    assert jobs(api) == [1, 2]
    job = api.job(1)
    assert job["payload"] == {"size": 12, "json": {"to": "ada"}, "cut": False}
    assert (job["name"], job["priority"], job["ttr"], job["ttl"]) == ("send", 3, 5, 100)
    assert job["dialect"] == "system"
    found = view(api)
    assert (found["runs"], found["last_job"], found["skipped"]) == (2, 2, 0)


def test_what_is_set_is_shown(api: ApiClient) -> None:
    path = f"{SCHEDULES}/nightly"
    body = {
        "queue": "mail",
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "missed": "skip",
        "overlap": "skip",
        "text": "hello",
        "name": "send",
        "priority": -5,
        "ttr": 30,
        "ttl": 600.5,
        "max_attempts": 3,
        "max_fails": 2,
        "backoff": "exponential",
        "backoff_base": 0.5,
        "backoff_cap": 60,
        "dead_queue": "dead",
        "key": "only one",
        "limit_key": "ada",
    }
    reply = api.call("PUT", path, body)
    assert (reply.status, reply.headers["Location"]) == (201, path)
    found = reply.body
    assert found["next_at"] is not None
    assert found["next_at"].endswith(":00:00.000000Z")
    assert found == {
        "name": "nightly",
        "cron": "0 3 * * *",
        "every": None,
        "timezone": "Europe/Berlin",
        "missed": "skip",
        "overlap": "skip",
        "paused": False,
        "set_by": "ada",
        "queue": "mail",
        "job_name": "send",
        "priority": -5,
        "ttr": 30.0,
        "ttl": 600.5,
        "max_attempts": 3,
        "max_fails": 2,
        "backoff": "exponential",
        "backoff_base": 0.5,
        "backoff_cap": 60,
        "dead_queue": "dead",
        "key": "only one",
        "limit_key": "ada",
        "payload_size": 5,
        "payload": {"size": 5, "text": "hello", "cut": False},
        "next_at": found["next_at"],
        "last_at": None,
        "last_job": None,
        "runs": 0,
        "skipped": 0,
        "missed_ticks": 0,
        "refused": None,
    }
    assert view(api) == found
    again = api.call("PUT", path, body)
    assert (again.status, again.body) == (200, found)


def test_the_payload_may_be_bytes(yard: SimulatedServer, api: ApiClient) -> None:
    put(api, every=60, base64="AP8=")
    yard.advance(60)
    assert api.job(1)["payload"] == {"size": 2, "base64": "AP8=", "cut": False}


def test_setting_it_again_leaves_its_next_tick_and_its_pause(
    yard: SimulatedServer, api: ApiClient
) -> None:
    first = put(api, every=60)
    yard.advance(30)
    assert put(api, every=60, payload=1)["next_at"] == first["next_at"]
    api.post(f"{SCHEDULES}/nightly/pause").ok()
    assert put(api, every=60, payload=2)["paused"]
    assert not put(api, every=60, payload=2, paused=False)["paused"]
    yard.advance(30)
    assert jobs(api) == [1]


def test_pause_and_resume(yard: SimulatedServer, api: ApiClient) -> None:
    put(api, every=60)
    paused = api.post(f"{SCHEDULES}/nightly/pause").ok()
    assert (paused["paused"], paused["next_at"]) == (True, None)
    yard.advance(600)
    resumed = api.post(f"{SCHEDULES}/nightly/resume").ok()
    assert (resumed["paused"], resumed["missed_ticks"]) == (False, 0)
    yard.advance(60)
    assert jobs(api) == [1]


def test_a_run_by_hand(api: ApiClient) -> None:
    put(api, every=60, paused=True)
    reply = api.post(f"{SCHEDULES}/nightly/run")
    assert reply.headers["Location"] == "/api/v1/jobs/1"
    assert reply.body == {
        "id": 1,
        "uid": api.job(1)["uid"],
        "state": "ready",
        "duplicate": False,
    }
    assert api.job(1)["dialect"] == "api"
    assert (view(api)["runs"], view(api)["last_job"]) == (1, 1)


def test_a_run_by_hand_into_a_full_queue(api: ApiClient) -> None:
    api.call("PUT", "/api/v1/queues/mail", {"max_jobs": 0}).ok()
    put(api, every=60)
    api.post(f"{SCHEDULES}/nightly/run").problem(429, "queue-full")


def test_a_refused_tick_says_why(yard: SimulatedServer, api: ApiClient) -> None:
    api.call("PUT", "/api/v1/queues/mail", {"max_jobs": 0}).ok()
    put(api, every=60)
    yard.advance(60)
    assert view(api)["refused"].startswith("queue is full")
    api.call("PATCH", "/api/v1/queues/mail", {"max_jobs": None}).ok()
    yard.advance(5)
    assert view(api)["refused"] is None
    assert jobs(api) == [1]


def test_a_deleted_schedule_leaves_its_jobs(yard: SimulatedServer, api: ApiClient) -> None:
    put(api, every=60)
    yard.advance(60)
    assert api.call("DELETE", f"{SCHEDULES}/nightly").status == 204
    api.get(f"{SCHEDULES}/nightly").problem(404, "schedule-not-found")
    yard.advance(600)
    assert jobs(api) == [1]


def test_they_are_listed_by_name(api: ApiClient) -> None:
    names = ["b", "a", "é", "z", "a.b"]
    for name in names:
        put(api, name, every=60, payload="x" * 100)
    for limit in (1, 2, 5, 100):
        found = api.walk(SCHEDULES, "schedules", limit=limit)
        assert [schedule["name"] for schedule in found] == sorted(names)
    assert "payload" not in api.get(SCHEDULES).ok()["schedules"][0]
    api.get(SCHEDULES, cursor="x").problem(400, "invalid-cursor", "cursor")


def test_they_are_there_after_a_restart(yard: SimulatedServer, api: ApiClient) -> None:
    put(api, every=60)
    yard.advance(60)
    before = view(api)
    yard.restart()
    assert view(api) == before
    yard.advance(60)
    assert jobs(api) == [1, 2]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "cron"),
        ({"cron": "* * * * *", "every": 60}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"every": 0.5}, "every"),
        ({"every": 1e9}, "every"),
        ({"every": 60, "missed": "some"}, "missed"),
        ({"every": 60, "overlap": "maybe"}, "overlap"),
        ({"every": 60, "text": "a", "base64": "YQ=="}, "base64"),
        ({"every": 60, "queue": "a b"}, "queue"),
        ({"every": 60, "delay": 5}, "delay"),
        ({"every": 60, "key": "\ud800"}, None),
        ({"every": 60, "limit_key": "\ud800"}, None),
        ({"every": 60, "limit_key": "x" * 256}, None),
    ],
)
def test_what_cannot_be_a_schedule_is_refused(
    api: ApiClient, fields: dict[str, Any], field: str | None
) -> None:
    reply = api.call("PUT", f"{SCHEDULES}/nightly", {"queue": "mail", **fields})
    if field is None:
        assert reply.status == 400
    else:
        reply.problem(400, "invalid-value", field)
    assert api.get(SCHEDULES).ok()["schedules"] == []


def test_a_payload_may_be_too_large(api: ApiClient) -> None:
    body = {"queue": "mail", "every": 60, "text": "x" * 1_048_577}
    api.call("PUT", f"{SCHEDULES}/nightly", body).problem(413, "too-large", "payload")


def test_there_may_be_too_many() -> None:
    api = ApiClient(SimulatedServer(settings=EngineSettings(max_schedules=1)))
    put(api, every=60)
    body = {"queue": "mail", "every": 60}
    api.call("PUT", f"{SCHEDULES}/other", body).problem(429, "schedules-full")


def test_a_name_must_be_one(api: ApiClient) -> None:
    body = {"queue": "mail", "every": 60}
    api.call("PUT", f"{SCHEDULES}/a b", body).problem(400, "invalid-value", "schedule")
