"""The JSON API: dead letters are grouped, listed, replayed and purged."""

from typing import Any

import pytest
from support.api import ApiClient
from support.simulated import SimulatedServer

from taskyard.protocols.http.api import dead_letters as api_dead
from taskyard.protocols.http.api.queues import CHUNK_JOBS

DEAD = "/api/v1/queues/mail/dead"
FAILS = "failures used up"
BLOCKER = "a job it waited for failed"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def die(api: ApiClient, count: int, error: bytes = b"no route") -> list[int]:
    """Have jobs fail for good; gives their ids in that order."""
    jobs = api.batch("mail", [{"max_fails": 1}] * count).ok()["jobs"]
    worker = api.yard.connect("workq")
    for job in jobs:
        worker.send(b"fail %b %d\r\n%b\r\n" % (job["uid"].encode(), len(error), error))
    return [job["id"] for job in jobs]


def die_for_a_blocker(api: ApiClient, count: int) -> list[int]:
    blocker = api.push("other")
    jobs = api.batch("mail", [{"blocked_by": [blocker]}] * count).ok()["jobs"]
    api.call("DELETE", f"/api/v1/jobs/{blocker}").ok()
    return [job["id"] for job in jobs]


def counts(api: ApiClient) -> dict[str, int]:
    found: dict[str, int] = api.get("/api/v1/queues/mail").ok()["counts"]
    return {state: count for state, count in found.items() if count}


def test_they_are_grouped_by_reason(api: ApiClient) -> None:
    failed = die(api, 12)
    blocked = die_for_a_blocker(api, 20)
    last = die(api, 1, b"the last error")
    groups = api.get(DEAD).ok()
    assert (groups["total"], groups["scanned"], groups["complete"]) == (33, 33, True)
    assert groups["bytes"] > 0
    first, second = groups["groups"]
    assert (first["reason"], first["count"], first["last_error"]) == (BLOCKER, 20, None)
    assert first["sample"] == blocked[:-11:-1]
    assert (second["reason"], second["count"]) == (FAILS, 13)
    assert second["last_error"]["text"] == "the last error"
    assert second["last_at"] == "2023-11-14T22:13:20.250000Z"
    assert second["sample"] == [*last, *failed[:-10:-1]]


def test_only_the_newest_of_very_many_are_looked_at(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_dead, "MAX_SCANNED", 10)
    die_for_a_blocker(api, 5)
    die(api, 8)
    groups = api.get(DEAD).ok()
    assert (groups["total"], groups["scanned"], groups["complete"]) == (13, 10, False)
    assert [(group["reason"], group["count"]) for group in groups["groups"]] == [
        (FAILS, 8),
        (BLOCKER, 2),
    ]


def test_a_queue_without_dead_letters_has_no_groups(api: ApiClient) -> None:
    api.push()
    groups = api.get(DEAD).ok()
    assert (groups["total"], groups["complete"], groups["groups"]) == (0, True, [])


def test_they_are_listed_with_their_errors(yard: SimulatedServer, api: ApiClient) -> None:
    ids = die(api, 5)
    for limit in (1, 2, 5, 6):
        letters = api.walk(DEAD + "/jobs", "jobs", limit=limit)
        assert [letter["id"] for letter in letters] == ids
        assert {letter["error"]["text"] for letter in letters} == {"no route"}
        assert {letter["reason"] for letter in letters} == {FAILS}


def test_they_are_listed_by_reason(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for _ in range(4):
        ids += die(api, 1)
        die_for_a_blocker(api, 3)
    for scanned in (1, 3, 4, 100):
        monkeypatch.setattr(api_dead, "MAX_SCANNED", scanned)
        for limit in (1, 2, 4, 5):
            letters = api.walk(DEAD + "/jobs", "jobs", limit=limit, reason=FAILS)
            assert [letter["id"] for letter in letters] == ids
    assert api.walk(DEAD + "/jobs", "jobs", reason="no such") == []


def test_a_long_error_is_shown_in_part_and_cold_ones_are_read_back() -> None:
    yard = SimulatedServer(payload_memory=1, inline_sync=False)
    api = ApiClient(yard)
    die(api, 3, b"x" + "é".encode() * 200_000)
    die(api, 1, b"\xff" * 300_000)
    yard.restart()
    yard.scheduler.slow = True
    exchanges = [api.begin("GET", DEAD + "/jobs"), api.begin("GET", DEAD)]
    yard.run_pending()
    assert exchanges[0].response is None
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    letters = api.finish(exchanges[0]).ok()["jobs"]
    for letter in letters[:3]:
        assert letter["error"] == {"size": 400_001, "text": "x" + "é" * 2047, "cut": True}
    assert len(letters[3]["error"]["base64"]) == 5464
    [group] = api.finish(exchanges[1]).ok()["groups"]
    assert (group["count"], group["last_error"]["cut"]) == (4, True)


TRACEBACK = b"""Traceback (most recent call last):
  File "app.py", line 3, in send
    raise TimeoutError("no route")
TimeoutError: no route
"""
DEEP = (
    b"Traceback (most recent call last):\n"
    + b'  File "app.py", line 5, in go\n    go(depth - 1)\n' * 20_000
    + b"RecursionError: too deep\n"
)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TRACEBACK, "TimeoutError: no route"),
        (DEEP, "RecursionError: too deep"),
        (b"no route\nto host", "no route"),
        (b"x" * 300_000, "x" * 500),
        (b'{"code": 1}', None),
        (b"\xff\xff", None),
    ],
    ids=["traceback", "deep", "text", "long", "JSON", "bytes"],
)
@pytest.mark.parametrize("cold", [False, True], ids=["in memory", "on disk"])
def test_an_error_has_a_line_which_of_a_traceback_is_the_exception(
    error: bytes, line: str | None, cold: bool
) -> None:
    yard = SimulatedServer(payload_memory=1)
    api = ApiClient(yard)
    die(api, 2, error)
    if cold:
        yard.restart()
    [group] = api.get(DEAD).ok()["groups"]
    assert (group["last_error_line"], group["last_error"]["size"]) == (line, len(error))
    letters = api.get(DEAD + "/jobs").ok()["jobs"]
    assert [letter["error_line"] for letter in letters] == [line, line]
    events = api.get(f"/api/v1/jobs/{letters[0]['id']}/events").ok()["events"]
    assert [event["error_line"] for event in events if "error" in event] == [line]


def test_a_letter_without_an_error_has_no_line(api: ApiClient) -> None:
    die_for_a_blocker(api, 1)
    [group] = api.get(DEAD).ok()["groups"]
    assert group["last_error_line"] is None
    assert api.get(DEAD + "/jobs").ok()["jobs"][0]["error_line"] is None


def test_a_letter_that_is_replayed_while_its_error_is_read_is_left_out() -> None:
    yard = SimulatedServer(payload_memory=1, inline_sync=False)
    api = ApiClient(yard)
    ids = die(api, 2, b"x" * 300_000)
    yard.restart()
    yard.scheduler.slow = True
    exchange = api.begin("GET", DEAD + "/jobs")
    api.begin("POST", f"/api/v1/jobs/{ids[0]}/retry")
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert [letter["id"] for letter in api.finish(exchange).ok()["jobs"]] == ids[1:]


# Replay


def test_some_are_replayed_by_their_ids(yard: SimulatedServer, api: ApiClient) -> None:
    ids = die(api, 4)
    alive, elsewhere = api.push(), api.push("other")
    wanted = [ids[2], alive, ids[0], ids[2], elsewhere, 2**63 - 2]
    reply = api.post(DEAD + "/replay", {"ids": wanted}).ok()
    assert reply == {"replayed": 2, "skipped": [alive, elsewhere, 2**63 - 2]}
    yard.crash()
    assert counts(api) == {"ready": 3, "failed": 2}
    listed = api.get("/api/v1/queues/mail/jobs").ok()["jobs"]
    assert [job["id"] for job in listed] == [alive, ids[2], ids[0]]


def test_all_are_replayed(yard: SimulatedServer, api: ApiClient) -> None:
    die(api, 3)
    die_for_a_blocker(api, 2)
    assert api.post(DEAD + "/replay", {"all": True}).ok() == {"replayed": 5, "skipped": []}
    yard.crash()
    assert counts(api) == {"ready": 5}


def test_those_of_one_reason_are_replayed(api: ApiClient) -> None:
    die(api, 3)
    die_for_a_blocker(api, 2)
    reply = api.post(DEAD + "/replay", {"all": True, "reason": BLOCKER}).ok()
    assert reply["replayed"] == 2
    assert counts(api) == {"ready": 2, "failed": 3}


def test_a_long_replay_lets_others_have_their_turns(yard: SimulatedServer, api: ApiClient) -> None:
    count = 2 * CHUNK_JOBS + 1
    ids = die_for_a_blocker(api, count)
    exchange = api.begin("POST", DEAD + "/replay", {"all": True})
    assert exchange.response is None
    yard.run_pending()
    assert api.finish(exchange).ok()["replayed"] == count
    api.post("/api/v1/queues/mail/purge", {"states": ["ready"]}).ok()
    ids = die_for_a_blocker(api, count)
    exchange = api.begin("POST", DEAD + "/replay", {"ids": ids})
    assert exchange.response is None
    yard.run_pending()
    assert api.finish(exchange).ok() == {"replayed": count, "skipped": []}


def test_a_letter_that_dies_again_meanwhile_is_not_replayed_again(
    yard: SimulatedServer, api: ApiClient
) -> None:
    [first] = die(api, 1)
    die_for_a_blocker(api, 2 * CHUNK_JOBS)
    uid = api.job(first)["uid"].encode()
    exchange = api.begin("POST", DEAD + "/replay", {"all": True})
    worker = yard.connect("workq")
    worker.arrive(b"fail %b 2\r\nhm\r\n" % uid)
    yard.run_pending()
    assert api.finish(exchange).ok()["replayed"] == 2 * CHUNK_JOBS + 1
    assert api.job(first)["state"] == "failed"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"ids": []},
        {"ids": [0]},
        {"ids": ["x"]},
        {"ids": [1] * 10_001},
        {"ids": [1], "all": True},
        {"ids": [1], "reason": FAILS},
        {"reason": FAILS},
        {"all": False},
        {"all": 1},
        {"everything": True},
    ],
)
def test_bad_replays_are_refused(api: ApiClient, body: Any) -> None:
    die(api, 1)
    reply = api.post(DEAD + "/replay", body)
    assert (reply.status, reply.body["type"]) == (400, "urn:taskyard:problem:invalid-value")
    assert counts(api) == {"failed": 1}


# Purge


def test_all_or_those_of_one_reason_are_purged(yard: SimulatedServer, api: ApiClient) -> None:
    die(api, 3)
    die_for_a_blocker(api, 2)
    assert api.post(DEAD + "/purge", {"reason": BLOCKER}).ok() == {"removed": 2, "skipped": []}
    assert counts(api) == {"failed": 3}
    assert api.post(DEAD + "/purge", {"reason": "no such"}).ok() == {"removed": 0, "skipped": []}
    assert api.post(DEAD + "/purge", {}).ok() == {"removed": 3, "skipped": []}
    yard.crash()
    assert counts(api) == {}
    assert api.post(DEAD + "/purge", {}).ok() == {"removed": 0, "skipped": []}


def test_some_are_purged_by_their_ids(yard: SimulatedServer, api: ApiClient) -> None:
    ids = die(api, 3)
    alive, elsewhere = api.push(), api.push("other")
    wanted = [ids[2], alive, ids[0], ids[2], elsewhere, 2**63 - 2]
    reply = api.post(DEAD + "/purge", {"ids": wanted}).ok()
    assert reply == {"removed": 2, "skipped": [alive, elsewhere, 2**63 - 2]}
    yard.crash()
    assert counts(api) == {"ready": 1, "failed": 1}
    api.get(f"/api/v1/jobs/{ids[1]}").ok()


def test_a_long_purge_of_ids_lets_others_have_their_turns(
    yard: SimulatedServer, api: ApiClient
) -> None:
    count = 2 * CHUNK_JOBS + 1
    ids = die(api, count)
    exchange = api.begin("POST", DEAD + "/purge", {"ids": ids})
    assert counts(api)["failed"] >= count - 2 * CHUNK_JOBS
    assert api.finish(exchange).ok() == {"removed": count, "skipped": []}


@pytest.mark.parametrize(
    "body", [{"ids": []}, {"ids": [0]}, {"ids": [1] * 10_001}, {"ids": [1], "reason": FAILS}]
)
def test_bad_purges_are_refused(api: ApiClient, body: Any) -> None:
    die(api, 1)
    reply = api.post(DEAD + "/purge", body)
    assert (reply.status, reply.body["type"]) == (400, "urn:taskyard:problem:invalid-value")
    assert counts(api) == {"failed": 1}


def test_what_is_asked_of_a_queue_that_is_not_there_is_refused(api: ApiClient) -> None:
    api.get(DEAD).problem(404, "queue-not-found")
    api.get(DEAD + "/jobs").problem(404, "queue-not-found")
    api.post(DEAD + "/replay", {"all": True}).problem(404, "queue-not-found")
    api.post(DEAD + "/purge", {}).problem(404, "queue-not-found")
    api.push()
    api.get(DEAD + "/jobs", cursor="x").problem(400, "invalid-cursor", "cursor")
    api.get(DEAD + "/jobs", limit=0).problem(400, "invalid-value", "limit")
    api.post(DEAD + "/purge", {"all": True}).problem(400, "invalid-value", "all")
