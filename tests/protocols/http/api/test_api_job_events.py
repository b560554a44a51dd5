"""GET /api/v1/jobs/{job}/events and /graph: what happened to a job, and whom it waits for."""

from typing import Any

import pytest
from support.api import ApiClient
from support.listening import recorded
from support.replies_resp import ask
from support.retaining import RetainingYard
from support.simulated import SimulatedServer

from taskyard.access.principal import Principal, Rule
from taskyard.protocols.http.api import jobs as api_job_events


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def events_of(api: ApiClient, job: int | str, **query: Any) -> Any:
    return api.get(f"/api/v1/jobs/{job}/events", **query).ok()


def kinds(page: Any) -> list[str]:
    return [event["event"] for event in page["events"]]


# Events


def test_all_that_happened_to_a_job_with_the_errors_of_its_attempts(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.push("other")
    id = api.push("mail", text="x", max_fails=2, backoff="none")
    api.push("mail")
    peer = yard.connect("resp")
    for attempt in (1, 2):
        assert ask(peer, "JOB.TAKE", 1, "mail")
        ask(peer, "JOB.FAIL", f"{id}-1-{attempt}", "it broke")
        yard.advance(60)
    page = events_of(api, id)
    assert (page["complete"], page["next"]) == (True, None)
    assert kinds(page)[0] == "push"
    assert kinds(page)[-1] == "fail"
    assert kinds(page).count("lease") == 2
    assert all(event["id"] == id for event in page["events"])
    told = [event for event in recorded(yard) if event.get("id") == id]
    without = [
        {name: value for name, value in event.items() if name not in ("error", "error_line")}
        for event in page["events"]
    ]
    assert without == told
    failed = [event["error"]["text"] for event in page["events"] if "error" in event]
    assert failed == ["it broke", "it broke"]
    assert events_of(api, api.job(id)["uid"]) == page


def test_a_job_that_has_ended_a_short_while_ago(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push("mail")
    yard.connect("resp").send(b"LPOP mail\r\n")
    assert api.job(id)["state"] == "gone"
    page = events_of(api, id)
    assert (kinds(page)[0], kinds(page)[-1]) == ("push", "finish")
    assert page["complete"]


def test_a_batch_is_told_without_the_other_jobs_of_it(
    yard: SimulatedServer, api: ApiClient
) -> None:
    ids = [api.push("mail") for _ in range(3)]
    peer = yard.connect("resp")
    ask(peer, "BATCH.LEASE", "spark", 1, 3, "QUEUES", "mail")
    ask(peer, "BATCH.ACK", "spark", 1)
    page = events_of(api, ids[1])
    assert kinds(page) == ["push", "batch", "finish"]
    batch = page["events"][1]
    assert (batch["consumer"], batch["id"], batch["attempt"]) == ("spark", ids[1], 1)
    assert "ids" not in batch


def test_the_id_of_a_session_stays_its_clients_secret(
    yard: SimulatedServer, api: ApiClient
) -> None:
    peer = yard.connect_glovebox(durable=True)
    peer.next()
    peer.send_json(type="create", queue="q", label=1)
    peer.send_json(type="post", queue="q", label=2, message="x", notify=["finish"])
    yard.advance(0.01)
    (session,) = yard.engine.state.sessions
    assert str(session) not in str(events_of(api, 1))


def test_a_number_that_only_looks_like_the_job_is_no_event_of_it(api: ApiClient) -> None:
    id = api.push("mail")
    api.push("mail", priority=id, text="\x00" * 100)  # its bytes stand in this record too
    assert kinds(events_of(api, id)) == ["push"]


def test_what_compaction_took_is_said_to_be_missing() -> None:
    yard = RetainingYard()
    api = ApiClient(yard)
    id = yard.push()
    assert events_of(api, id)["complete"]
    yard.work(3_000_000)
    assert yard.first_seq() > 10
    page = events_of(api, id)
    assert (page["events"], page["complete"], page["next"]) == ([], False, None)
    api.call("PATCH", f"/api/v1/jobs/{id}", {"priority": 5}).ok()
    page = events_of(api, id)
    assert (kinds(page), page["complete"]) == (["rescore"], False)


def test_a_long_life_comes_in_pages(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_job_events, "MAX_EVENTS", 3)
    id = api.push("mail")
    for priority in range(7):
        api.call("PATCH", f"/api/v1/jobs/{id}", {"priority": priority + 1}).ok()
        api.push("other")
    pages = [events_of(api, id)]
    while pages[-1]["next"] is not None:
        pages.append(events_of(api, id, cursor=pages[-1]["next"]))
    assert [event["priority"] for page in pages for event in page["events"]] == list(range(8))
    assert max(len(page["events"]) for page in pages) == 3
    assert all(page["complete"] for page in pages)


@pytest.mark.parametrize("remembered", [True, False])
def test_a_call_reads_so_much_and_no_more(
    monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    monkeypatch.setattr(api_job_events, "MAX_CHUNKS", 1)
    if not remembered:
        monkeypatch.setattr(api_job_events, "_MAX_REMEMBERED_POSITIONS", 0)
    yard = SimulatedServer(segment_size=1 << 25, compaction=10_000)
    api = ApiClient(yard)
    id = api.push("mail")
    for _ in range(12):
        api.push("mail", text="x" * 1_000_000)
    api.call("PATCH", f"/api/v1/jobs/{id}", {"priority": 5}).ok()
    page = events_of(api, id)
    assert (kinds(page), page["complete"]) == (["push"], True)
    assert page["next"] is not None
    found = api.walk(f"/api/v1/jobs/{id}/events", "events")
    assert [event["event"] for event in found] == ["push", "rescore"]


def test_the_disk_is_read_beside_the_loop_for_one_client_at_a_time(
    yard: SimulatedServer, api: ApiClient
) -> None:
    id = api.push("mail")
    yard.scheduler.slow = True
    asked = [api.begin("GET", f"/api/v1/jobs/{id}/events") for _ in range(3)]
    yard.run_pending()
    assert len(yard.scheduler.blocking) == 1
    for _ in range(3):
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert all(kinds(api.finish(exchange).ok()) == ["push"] for exchange in asked)


def test_a_cursor_of_another_job_is_refused(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_job_events, "MAX_EVENTS", 1)
    first, second = api.push(), api.push()
    for id in (first, second):
        api.call("PATCH", f"/api/v1/jobs/{id}", {"priority": 5}).ok()
    cursor = events_of(api, first)["next"]
    path = f"/api/v1/jobs/{second}/events"
    api.get(path, cursor=cursor).problem(400, "invalid-cursor", "cursor")
    api.get(path, cursor="nonsense").problem(400, "invalid-cursor", "cursor")


def test_what_happened_in_another_queue_names_nobody(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push("secret", name="task", text="x", max_fails=5)
    spark, peer = yard.connect("resp"), yard.connect("resp")
    ask(peer, "JOB.TAKE", 1, "secret")
    ask(peer, "JOB.PROGRESS", f"{id}-1-1", 500, "half of their secret")
    ask(peer, "JOB.FAIL", f"{id}-1-1", "their secret")
    yard.advance(60)
    api.post(f"/api/v1/jobs/{id}/move", {"queue": "mail"}).ok()
    api.push("secret")
    ask(spark, "BATCH.LEASE", "theirs", 1, 2, "QUEUES", "secret", "mail")
    ask(spark, "BATCH.DROP", "theirs")
    ask(peer, "JOB.TAKE", 1, "mail")
    ask(peer, "JOB.FAIL", f"{id}-1-3", "our own")
    ada = ApiClient(yard, principal=Principal("ada", [Rule(["mail"], ["inspect"])]))
    whole, shown = events_of(api, id)["events"], events_of(ada, id)["events"]
    assert "their secret" in str(whole)
    assert "secret" not in str([{**event, "queue": ""} for event in shown])
    moved = kinds({"events": shown}).index("move")
    personal = {"user", "holder", "owner", "error", "error_size", "message", "consumer"}
    hidden = shown[: moved + 1]
    assert [personal & event.keys() for event in hidden] == [set()] * len(hidden)
    assert all("holder" in event for event in whole if event["event"] == "lease")
    assert shown[moved + 1 :] == whole[moved + 1 :]
    assert [event["error"]["text"] for event in shown if "error" in event] == ["our own"]


# The graph


def graph_of(api: ApiClient, job: int) -> Any:
    return api.get(f"/api/v1/jobs/{job}/graph").ok()


def test_jobs_that_wait_and_those_they_wait_for_on_several_levels(api: ApiClient) -> None:
    a, b = api.push("in", name="a"), api.push("in")
    c = api.push("mid", blocked_by=[a, b])
    d = api.push("out", blocked_by=[c])
    e = api.push("out", blocked_by=[c, d])
    api.push("alone")
    graph = graph_of(api, c)
    assert {node["id"]: node["level"] for node in graph["nodes"]} == {
        c: 0,
        a: -1,
        b: -1,
        d: 1,
        e: 1,
    }
    assert graph["edges"] == [[a, c], [b, c], [c, d], [c, e], [d, e]]
    assert not graph["cut"]
    node = next(node for node in graph["nodes"] if node["id"] == a)
    assert (node["queue"], node["name"], node["state"]) == ("in", "a", "ready")
    assert {node["id"]: node["level"] for node in graph_of(api, a)["nodes"]} == {
        a: 0,
        c: 1,
        d: 2,
        e: 2,
    }


def test_a_job_by_itself(api: ApiClient) -> None:
    id = api.push()
    graph = graph_of(api, id)
    assert ([node["id"] for node in graph["nodes"]], graph["edges"]) == ([id], [])


def test_a_large_graph_is_cut(api: ApiClient) -> None:
    first = api.push("in")
    api.batch("out", [{"blocked_by": [first]}] * 300).ok()
    graph = graph_of(api, first)
    assert (len(graph["nodes"]), graph["cut"]) == (100, True)
    before = [job["id"] for job in api.batch("in", [{}] * 120).ok()["jobs"]]
    last = api.push("out", blocked_by=before)
    after = api.push("out", blocked_by=[last])
    graph = graph_of(api, last)
    assert graph["cut"]
    assert after in [node["id"] for node in graph["nodes"]]  # both ways have their share


def test_jobs_that_one_may_not_see_are_not_in_it(yard: SimulatedServer, api: ApiClient) -> None:
    hidden = api.push("secret")
    id = api.push("mail", blocked_by=[hidden])
    ada = ApiClient(yard, principal=Principal("ada", [Rule(["mail"], ["inspect"])]))
    graph = graph_of(ada, id)
    assert ([node["id"] for node in graph["nodes"]], graph["edges"]) == ([id], [])
    for path in ("events", "graph"):
        ada.get(f"/api/v1/jobs/{hidden}/{path}").problem(404, "job-not-found")
        api.get(f"/api/v1/jobs/999/{path}").problem(404, "job-not-found")
