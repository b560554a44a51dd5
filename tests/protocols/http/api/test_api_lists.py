"""The JSON API: lists of jobs, leases and finished jobs, and cursors that stay good."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.api import ApiClient
from support.effort import effort
from support.simulated import SimulatedServer

from taskyard.engine.model.state import EngineSettings
from taskyard.protocols.http.api import jobs as api_jobs

JOBS = "/api/v1/queues/mail/jobs"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def ids_of(items: list[Any]) -> list[int]:
    return [item["id"] for item in items]


def lease(yard: SimulatedServer, queue: str, count: int = 1) -> None:
    yard.connect("workq").send(b"lease %b 0\r\n" % queue.encode() * count)


def test_ready_jobs_are_listed_in_order_of_delivery(api: ApiClient) -> None:
    ids = [api.push(priority=priority) for priority in (0, 5, -3, 5, 0, 2**63 - 1, -(2**63))]
    in_order = [ids[5], ids[1], ids[3], ids[0], ids[4], ids[2], ids[6]]
    for limit in (1, 2, 3, 7, 8):
        assert ids_of(api.walk(JOBS, "jobs", limit=limit)) == in_order


def test_delayed_jobs_are_listed_by_their_time(api: ApiClient) -> None:
    ids = [api.push(delay=delay) for delay in (30, 10, 20, 10)]
    listed = api.walk(JOBS, "jobs", state="delayed", limit=2)
    assert ids_of(listed) == [ids[1], ids[3], ids[2], ids[0]]


def test_a_list_has_no_payloads_so_the_disk_is_not_read() -> None:
    yard = SimulatedServer(payload_memory=1, inline_sync=False)
    api = ApiClient(yard)
    ids = [api.push(text="x" * 300_000) for _ in range(4)]
    yard.restart()
    yard.scheduler.slow = True
    exchange = api.begin("GET", JOBS)
    assert exchange.response is not None
    assert ids_of(json.loads(exchange.response.body)["jobs"]) == ids


@pytest.mark.parametrize("state", ["blocked", "delayed", "leased", "succeeded", "failed"])
def test_a_state_without_jobs_is_an_empty_list(api: ApiClient, state: str) -> None:
    api.push()
    assert api.get(JOBS, state=state).ok() == {"jobs": [], "next": None}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "x"}, "limit"),
        ({"limit": ""}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": 10**30}, "limit"),
        ({"state": "gone"}, "state"),
        ({"state": ""}, "state"),
        ({"page": 1}, "page"),
    ],
)
def test_bad_parameters_are_refused(api: ApiClient, query: dict[str, Any], field: str) -> None:
    api.push()
    api.get(JOBS, **query).problem(400, "invalid-value", field)


def made_up(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "====",
        "a" * 5000,
        made_up({}),
        made_up(["j"]),
        made_up(["j", "mail", "ready", 0, 0]),
        made_up(["j", "mail", "ready", 0, 0, "1"]),
        made_up(["j", "mail", "ready", 0, 0, -1]),
        made_up(["j", "mail", "ready", 0, 0, 2**63 - 1]),
        made_up(["j", "mail", "ready", 2**63, 0, 1]),
        made_up(["j", "mail", "ready", 0, -(2**63) - 1, 1]),
        made_up(["j", "other", "ready", 0, 0, 1]),
        made_up(["j", "mail", "delayed", 0, 0, 1]),
        made_up(["j", "mail", "ready", 0, 0, 1, 2]),
        made_up(["n", "mail"]),
        made_up(["r", 1]),
        base64.urlsafe_b64encode(b"\xff").decode(),
    ],
)
def test_foreign_cursors_are_refused(api: ApiClient, cursor: str) -> None:
    api.push()
    api.get(JOBS, cursor=cursor).problem(400, "invalid-cursor", "cursor")
    if cursor != made_up(["n", "mail"]):
        api.get("/api/v1/queues", cursor=cursor).problem(400, "invalid-cursor", "cursor")
    if cursor != made_up(["r", 1]):
        api.get("/api/v1/finished", cursor=cursor).problem(400, "invalid-cursor", "cursor")


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1])
def test_a_cursor_at_the_end_of_the_numbers_is_a_place_like_any(
    api: ApiClient, extreme: int
) -> None:
    api.push()
    cursor = made_up(["j", "mail", "ready", extreme, extreme, 2**63 - 2])
    assert api.get(JOBS, cursor=cursor).ok()["next"] is None


def test_a_cursor_is_good_after_a_restart(yard: SimulatedServer, api: ApiClient) -> None:
    ids = [api.push() for _ in range(5)]
    cursor = api.get(JOBS, limit=2).ok()["next"]
    yard.crash()
    assert ids_of(api.get(JOBS, cursor=cursor).ok()["jobs"]) == ids[2:]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["push", "cancel", "rescore", "take", "move away", "wake", "crash"]),
        st.integers(0, 30),
        st.sampled_from([-7, 0, 0, 0, 7]),
    ),
    max_size=8,
)


@settings(max_examples=effort(120, 25))
@given(
    st.lists(st.tuples(st.sampled_from([-7, 0, 0, 7]), st.booleans()), min_size=1, max_size=15),
    st.lists(CHANGES, max_size=6),
    st.integers(1, 5),
    st.sampled_from(["ready", "delayed"]),
)
def test_a_walk_shows_what_stays_once_and_nothing_twice(
    pushes: list[tuple[int, bool]],
    changes: list[list[tuple[str, int, int]]],
    limit: int,
    state: str,
) -> None:
    api = ApiClient(SimulatedServer())
    for priority, later in pushes:
        api.push(priority=priority, delay=50 if later else 0)
    stayed = set(ids_of(api.walk(JOBS, "jobs", state=state)))
    moved: set[int] = set()  # had another place in this list since the walk began
    seen: list[int] = []
    query: dict[str, Any] = {"state": state, "limit": limit}
    for number in range(100):
        page = api.get(JOBS, **query).ok()
        assert len(page["jobs"]) <= limit
        seen += ids_of(page["jobs"])
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
        for change, which, priority in changes[number] if number < len(changes) else []:
            touched = disturb(api, change, 1 + which % 15, priority)
            stayed -= touched
            moved |= touched
    assert stayed <= set(seen)
    for id in set(seen) - moved:
        assert seen.count(id) == 1


def disturb(api: ApiClient, change: str, id: int, priority: int) -> set[int]:
    """Do something to the queue; gives the jobs that it may have put elsewhere."""
    path = f"/api/v1/jobs/{id}"
    if change == "push":
        api.push(priority=priority)
        return set()
    if change == "crash":
        api.yard.crash()
        return set()
    if change == "take":
        before = set(ids_of(api.get(JOBS, state="leased").ok()["jobs"]))
        lease(api.yard, "mail")
        return set(ids_of(api.get(JOBS, state="leased").ok()["jobs"])) - before
    if change == "cancel":
        api.call("DELETE", path)
    elif change == "rescore":
        api.call("PATCH", path, {"priority": priority})
    elif change == "wake":
        api.post(path + "/retry")
    else:
        api.post(path + "/move", {"queue": "elsewhere"})
    return {id}


# Leases


def test_leases_are_listed_with_age_and_holder(yard: SimulatedServer, api: ApiClient) -> None:
    api.push(name="send", priority=3)
    lease(yard, "mail")
    yard.advance(5)
    [held] = api.get("/api/v1/queues/mail/leases").ok()["leases"]
    assert (held["id"], held["name"], held["priority"], held["attempts"]) == (1, "send", 3, 1)
    assert (held["lease"]["holder"], held["lease"]["age"]) == ("peer:0#1", 5)
    api.get("/api/v1/queues/other/leases").problem(404, "queue-not-found")


def test_leases_of_all_queues_are_walked_queue_by_queue(
    yard: SimulatedServer, api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = []
    for name in ("b", "a", "d", "c", "e"):
        ids = [api.push(name) for _ in range(4)]
        leased = {"a": 3, "b": 0, "c": 1, "d": 4, "e": 0}[name]
        lease(yard, name, leased)
        wanted += [(name, id) for id in ids[:leased]]
    wanted.sort()
    for at_once in (1, 100, 10_000):
        monkeypatch.setattr(api_jobs, "MAX_SCANNED_QUEUES", at_once)
        for limit in (1, 2, 3, 4, 7, 8, 9):
            found = api.walk("/api/v1/leases", "leases", limit=limit)
            assert [(held["queue"], held["id"]) for held in found] == wanted
    for limit in (1, 2, 3):
        assert len(api.walk("/api/v1/queues/a/leases", "leases", limit=limit)) == 3


def test_a_walk_over_leases_goes_on_behind_a_queue_that_was_deleted(
    yard: SimulatedServer, api: ApiClient
) -> None:
    for name in ("a", "b", "c"):
        api.push(name)
        lease(yard, name)
    page = api.get("/api/v1/leases", limit=2).ok()
    api.call("DELETE", "/api/v1/queues/b", query={"purge": "true"}).ok()
    rest = api.get("/api/v1/leases", cursor=page["next"]).ok()
    assert [held["queue"] for held in rest["leases"]] == ["c"]


# Finished jobs


def finish(api: ApiClient, id: int) -> None:
    uid = api.job(id)["uid"].encode()
    api.yard.connect("workq").send(b"complete %b 2\r\nok\r\n" % uid)


def test_finished_jobs_are_listed_last_one_first(yard: SimulatedServer, api: ApiClient) -> None:
    ids = [api.push(text="x") for _ in range(6)]
    order = [ids[3], ids[0], ids[5], ids[1]]
    for id in order:
        finish(api, id)
    api.call("DELETE", f"/api/v1/jobs/{ids[2]}").ok()
    wanted = [ids[2], *reversed(order)]
    for limit in (1, 2, 5, 6):
        assert ids_of(api.walk("/api/v1/finished", "jobs", limit=limit)) == wanted
    assert api.job(ids[3])["result"]["text"] == "ok"
    yard.crash()
    assert ids_of(api.walk("/api/v1/finished", "jobs", limit=2)) == wanted


def test_a_walk_over_finished_jobs_does_not_see_those_that_ended_since(api: ApiClient) -> None:
    ids = [api.push() for _ in range(6)]
    for id in ids[:4]:
        finish(api, id)
    page = api.get("/api/v1/finished", limit=2).ok()
    finish(api, ids[4])
    rest = api.get("/api/v1/finished", limit=5, cursor=page["next"]).ok()
    assert ids_of(rest["jobs"]) == [ids[1], ids[0]]


def test_a_walk_ends_where_the_ring_has_been_overtaken() -> None:
    api = ApiClient(SimulatedServer(settings=EngineSettings(finished_bytes=3 * 512)))
    ids = [api.push() for _ in range(10)]
    for id in ids[:3]:
        finish(api, id)
    page = api.get("/api/v1/finished", limit=2).ok()
    assert ids_of(page["jobs"]) == [ids[2], ids[1]]
    for id in ids[3:]:
        finish(api, id)
    rest = api.get("/api/v1/finished", cursor=page["next"]).ok()
    assert rest == {"jobs": [], "next": None}
    api.get(f"/api/v1/jobs/{ids[0]}").problem(404, "job-not-found")


def test_what_compaction_has_taken_of_a_finished_job_is_not_shown() -> None:
    yard = SimulatedServer(segment_size=1 << 16, payload_memory=1)
    api = ApiClient(yard)
    id = api.push(text="x" * 1000)
    finish(api, id)
    for _ in range(60):
        finish(api, api.push(text="y" * 20_000))
        yard.advance(1)
    assert yard.journal.first_base > yard.engine.state.jobs.get(id).payload_at  # type: ignore[union-attr]
    assert api.job(id)["payload"] == {"size": 1000, "cut": False}
