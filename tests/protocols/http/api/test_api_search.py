"""GET /api/v1/jobs and /api/v1/search: finding jobs, queues, names and schedules."""

from typing import Any

import pytest
from support.api import ApiClient
from support.simulated import SimulatedServer

from taskyard.access.principal import Principal, Rule
from taskyard.protocols.http.api import search as api_search

JOBS = "/api/v1/jobs"
UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def found(api: ApiClient, **query: Any) -> list[int]:
    return [job["id"] for job in api.walk(JOBS, "jobs", **query)]


# Jobs


def test_jobs_of_all_queues_and_states(yard: SimulatedServer, api: ApiClient) -> None:
    a = [api.push("a"), api.push("a", delay=60), api.push("a")]
    b = [api.push("b", blocked_by=[a[0]]), api.push("b")]
    yard.connect("workq").send(b"lease a 0\r\n")
    for limit in (1, 2, 3, 200):
        assert sorted(found(api, limit=limit)) == [*a, *b]
        assert found(api, queue="b", limit=limit) == b
        assert sorted(found(api, state="ready", limit=limit)) == [a[2], b[1]]
        assert found(api, state="leased", limit=limit) == [a[0]]
        assert found(api, state="delayed", queue="a", limit=limit) == [a[1]]
        assert found(api, state="delayed", queue="b", limit=limit) == []


def test_by_the_beginning_of_a_name(api: ApiClient) -> None:
    ids = [api.push(queue, name=name) for queue in ("a", "b") for name in ("mail.in", "mail", "x")]
    assert found(api, name="mail") == [ids[0], ids[1], ids[3], ids[4]]
    assert found(api, name="mail.", queue="b", limit=1) == [ids[3]]
    assert found(api, name="nothing") == []


def test_by_id_or_uid(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push("mail", uid=UID)
    api.push("mail")
    assert found(api, q=str(id)) == found(api, q=UID) == [id]
    assert found(api, q=UID, queue="mail", state="ready") == [id]
    assert found(api, q=UID, state="leased") == []
    assert found(api, q="999") == found(api, q="no id") == []
    yard.connect("resp").send(b"LPOP mail\r\n")
    assert found(api, q=str(id)) == [id]  # while the ring has it


def test_jobs_that_have_ended_a_short_while_ago(yard: SimulatedServer, api: ApiClient) -> None:
    ids = [api.push(queue, name=name) for queue in ("a", "b") for name in ("x", "y")]
    yard.connect("resp").send(b"LPOP a\r\nLPOP a\r\nLPOP b\r\nLPOP b\r\n")
    for limit in (1, 3, 200):
        assert found(api, state="gone", limit=limit) == ids[::-1]
        assert found(api, state="gone", queue="a", limit=limit) == [ids[1], ids[0]]
        assert found(api, state="gone", name="y", limit=limit) == [ids[3], ids[1]]
    assert found(api) == []


def test_a_call_looks_at_so_many_and_no_more(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_search, "CHUNK_STEPS", 5)
    monkeypatch.setattr(api_search, "MAX_SCANNED", 20)
    api.batch("a", [{"name": "other"}] * 50).ok()
    for number in range(30):
        api.push(f"q{number:02}", name="other")
    wanted = [api.push("a", name="this"), api.push("z", name="this")]
    page = api.get(JOBS, name="this").ok()
    assert page["jobs"] == []
    assert 0 < page["looked_at"] <= 30
    assert page["next"] is not None
    assert found(api, name="this") == wanted


def test_a_walk_shows_each_job_that_stays_though_others_go(api: ApiClient) -> None:
    ids = [api.push("a") for _ in range(6)] + [api.push("c") for _ in range(2)]
    page = api.get(JOBS, limit=3).ok()
    for id in ids[2:4]:
        api.call("DELETE", f"/api/v1/jobs/{id}").ok()
    rest: list[Any] = []
    while page["next"] is not None:
        page = api.get(JOBS, limit=3, cursor=page["next"]).ok()
        rest += page["jobs"]
    assert [job["id"] for job in rest] == ids[4:]


def test_a_cursor_of_another_search_is_refused(api: ApiClient) -> None:
    for queue in ("a", "a", "b"):
        api.push(queue)
    cursor = api.get(JOBS, queue="a", limit=1).ok()["next"]
    for query in ({"queue": "b"}, {"state": "leased"}, {"state": "gone"}):
        api.get(JOBS, cursor=cursor, **query).problem(400, "invalid-cursor", "cursor")


def test_what_cannot_be_asked_for(api: ApiClient) -> None:
    api.get(JOBS, state="lost").problem(400, "invalid-value", "state")
    api.get(JOBS, limit=201).problem(400, "invalid-value", "limit")
    api.get(JOBS, queue="a b").problem(400, "invalid-value", "queue")
    api.get(JOBS, queue="none").problem(404, "queue-not-found")


def test_only_jobs_that_one_may_see(yard: SimulatedServer, api: ApiClient) -> None:
    for queue in ("mail", "secret", "z"):
        api.push(queue, name="n")
        api.push(queue, name="n")
    yard.connect("resp").send(b"LPOP mail\r\nLPOP secret\r\n")
    ada = ApiClient(yard, principal=Principal("ada", [Rule(["mail", "z"], ["inspect"])]))
    assert {job["queue"] for job in ada.walk(JOBS, "jobs", limit=1)} == {"mail", "z"}
    assert [job["queue"] for job in ada.walk(JOBS, "jobs", state="gone")] == ["mail"]
    assert found(ada, q="3") == found(ada, q="4") == []
    ada.get(JOBS, queue="secret").problem(403, "denied")
    shown = ada.get("/api/v1/search", q="n").ok()
    assert shown["names"] == ["n"]
    assert ada.get("/api/v1/search", q="sec").ok()["queues"] == []


# Whatever a text may stand for


def test_a_text_is_looked_for_in_all_names(api: ApiClient) -> None:
    api.push("Mail", name="send.Mail")
    api.push("mailbox", name="other")
    api.push("print", name="send.mail")
    api.call("PUT", "/api/v1/schedules/mailing", {"queue": "print", "every": 60}).ok()
    shown = api.get("/api/v1/search", q="mail").ok()
    assert shown == {
        "jobs": [],
        "queues": ["Mail", "mailbox"],
        "names": ["send.Mail", "send.mail"],
        "schedules": ["mailing"],
        "complete": True,
    }


def test_a_number_or_a_uid_is_looked_for_among_jobs(api: ApiClient) -> None:
    id = api.push("mail7", uid=UID)
    assert [job["id"] for job in api.get("/api/v1/search", q=str(id)).ok()["jobs"]] == [id]
    assert [job["id"] for job in api.get("/api/v1/search", q=UID.upper()).ok()["jobs"]] == [id]
    assert api.get("/api/v1/search", q="7").ok()["queues"] == ["mail7"]


def test_of_many_some_are_shown(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        api.push(f"mail{number}", name=f"mail.{number}")
    shown = api.get("/api/v1/search", q="mail", limit=5).ok()
    assert (len(shown["queues"]), len(shown["names"]), shown["complete"]) == (5, 5, False)
    monkeypatch.setattr(api_search, "_NAMES_PER_CHUNK", 4)
    assert len(api.get("/api/v1/search", q="mail", limit=100).ok()["queues"]) == 12
    monkeypatch.setattr(api_search, "MAX_NAMES", 10)
    shown = api.get("/api/v1/search", q="mail", limit=100).ok()
    assert (len(shown["queues"]) < 12, shown["complete"]) == (True, False)


def test_no_text_finds_nothing(api: ApiClient) -> None:
    api.push()
    shown = api.get("/api/v1/search").ok()
    assert (shown["jobs"], shown["queues"], shown["names"]) == ([], [], [])
