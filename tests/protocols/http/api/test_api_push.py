"""The JSON API: jobs are pushed, one by one or in batches, and never twice under one uid."""

import base64
import json
import random
import uuid
from typing import Any

import pytest
from support.api import NDJSON, ApiClient
from support.fake_loop import START
from support.simulated import SimulatedServer

from taskyard.engine.model.state import EngineSettings
from taskyard.protocols.http.api.queues import CHUNK_JOBS

JOBS = "/api/v1/queues/mail/jobs"
UID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
OTHER_UID = "6ba7b811-9dad-11d1-80b4-00c04fd430c8"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


def total(api: ApiClient) -> int:
    jobs: int = api.get("/api/v1/server").ok()["jobs"]
    return jobs


def test_a_push_is_answered_with_the_new_job(api: ApiClient) -> None:
    reply = api.post(JOBS, {"payload": {"to": "ada"}})
    assert (reply.status, reply.headers["Location"]) == (201, "/api/v1/jobs/1")
    assert uuid.UUID(reply.body.pop("uid")).version == 4
    assert reply.body == {"id": 1, "state": "ready", "duplicate": False}


@pytest.mark.parametrize("batch", [False, True])
def test_a_push_that_is_popped_at_once_is_answered(batch: bool) -> None:
    """Also if nothing of the job is kept."""
    yard = SimulatedServer(settings=EngineSettings(finished_bytes=0))
    api = ApiClient(yard)
    waiting = yard.connect("resp")
    waiting.send(b"BLPOP mail 10\r\n")
    reply = api.batch("mail", [{"payload": 1}]) if batch else api.post(JOBS, {"payload": 1})
    assert reply.status == 201
    job = reply.body["jobs"][0] if batch else reply.body
    assert uuid.UUID(job.pop("uid")).version == 4
    assert job == {"id": 1, "state": "gone", "duplicate": False}
    waiting.expect(b"*2\r\n$4\r\nmail\r\n$1\r\n1\r\n")


def test_a_push_is_there_after_a_crash(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push(payload=[1, 2])
    yard.crash()
    assert api.job(id)["payload"]["json"] == [1, 2]


def test_the_answer_waits_for_the_disk() -> None:
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = True
    api = ApiClient(yard)
    exchange = api.begin("POST", JOBS, {})
    yard.run_pending()
    assert exchange.response is not None
    assert not exchange.sent
    while yard.scheduler.blocking:
        yard.scheduler.finish_blocking()
        yard.run_pending()
    assert exchange.sent


def test_every_option_is_kept(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push(
        text="héllo",
        name="send",
        priority=-5,
        run_at="2030-01-31T08:00:00.25+01:00",
        ttr=1.5,
        ttl=60,
        max_attempts=3,
        max_fails=2,
        dead_queue="graves",
        uid=UID,
    )
    yard.restart()
    job = api.job(UID)
    assert job["id"] == id
    for field, value in {
        "uid": UID,
        "queue": "mail",
        "name": "send",
        "state": "delayed",
        "priority": -5,
        "dialect": "api",
        "payload_size": 6,
        "pushed_at": "2023-11-14T22:13:20.250000Z",
        "run_at": "2030-01-31T07:00:00.250000Z",
        "due_at": "2030-01-31T07:00:00.250000Z",
        "expires_at": "2030-01-31T07:01:00.250000Z",
        "finished_at": None,
        "ttr": 1.5,
        "ttl": 60,
        "max_attempts": 3,
        "max_fails": 2,
        "max_losses": 10,
        "dead_queue": "graves",
        "blocked_by": [],
        "dependents": 0,
        "lease": None,
        "result": None,
        "error": None,
        "reason": None,
    }.items():
        assert job[field] == value, field
    assert job["payload"] == {"size": 6, "text": "héllo", "cut": False}


def test_a_job_that_says_nothing_has_the_defaults(api: ApiClient) -> None:
    job = api.job(api.push())
    assert (job["name"], job["priority"], job["payload_size"]) == ("mail", 0, 0)
    assert (job["max_attempts"], job["max_fails"], job["ttr"], job["ttl"]) == (None, 4, None, None)
    assert job["payload"] == {"size": 0, "text": "", "cut": False}


@pytest.mark.parametrize("value", [None, 0, "x", [], {"a": [1.5, "ü"]}, 2**70])
def test_any_json_is_a_payload(api: ApiClient, value: Any) -> None:
    assert api.job(api.push(payload=value))["payload"]["json"] == value


def test_json_is_kept_as_it_was_written_but_for_white_space(api: ApiClient) -> None:
    body = b'{"payload": {"b": 1.0, \n "a" : "\\u00e9  x", "b":2}}'
    api.post(JOBS, body=body).ok()
    worker = api.yard.connect("workq")
    worker.send(b"lease mail 0\r\n")
    assert worker.take().endswith(b'\r\n{"b":1.0,"a":"\\u00e9  x","b":2}\r\n')


def test_bytes_are_pushed_as_base64(api: ApiClient) -> None:
    data = bytes(range(256))
    payload = api.job(api.push(base64=base64.b64encode(data).decode()))["payload"]
    assert base64.b64decode(payload["base64"]) == data
    assert payload["size"] == 256


def test_a_delay_is_counted_from_now(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push(delay=1.5)
    assert api.job(id)["state"] == "delayed"
    assert yard.engine.job(id).run_at == START + 1_500_000
    yard.advance(1.4)
    assert api.job(id)["state"] == "delayed"
    yard.advance(0.2)
    assert api.job(id)["state"] == "ready"
    assert api.job(api.push(delay=0))["state"] == "ready"


def test_a_job_waits_for_its_blockers(api: ApiClient) -> None:
    first = api.push()
    second = api.push(blocked_by=[first, 999_999, 2**63 - 2])
    assert api.job(second)["blocked_by"] == [first]
    assert api.job(first)["dependents"] == 1


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"payload": 1, "text": "x"}, "text"),
        ({"text": "x", "base64": ""}, "base64"),
        ({"base64": "x"}, "base64"),
        ({"base64": "aGVs bG8="}, "base64"),
        ({"base64": "aGVsbG8é"}, "base64"),
        ({"text": 5}, "text"),
        ({"name": "two words"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "é" * 200}, "name"),
        ({"dead_queue": "a b"}, "dead_queue"),
        ({"dead_queue": "é" * 200}, "dead_queue"),
        ({"priority": 2**63}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"run_at": "2030-01-31T08:00:00"}, "run_at"),
        ({"run_at": "2030-02-31T08:00:00Z"}, "run_at"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"run_at": "2030-01-31T08:00:00Z", "delay": 5}, "delay"),
        ({"delay": -1}, "delay"),
        ({"delay": 1e12}, "delay"),
        ({"ttr": 0}, "ttr"),
        ({"ttr": 86_401}, "ttr"),
        ({"ttl": 0}, "ttl"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 2**32}, "max_attempts"),
        ({"max_fails": 0}, "max_fails"),
        ({"blocked_by": [0]}, "blocked_by"),
        ({"blocked_by": [-1]}, "blocked_by"),
        ({"blocked_by": [2**63]}, "blocked_by"),
        ({"blocked_by": [1] * 256}, "blocked_by"),
        ({"uid": "x"}, "uid"),
        ({"uid": UID.replace("-", "")}, "uid"),
        ({"uid": UID + "\n"}, "uid"),
        ({"name": "send\n"}, "name"),
        ({"prioritty": 1}, "prioritty"),
        ({"key": "x"}, "key"),
        ("x", None),
    ],
)
def test_bad_jobs_are_refused(api: ApiClient, job: Any, field: str | None) -> None:
    api.post(JOBS, job).problem(400, "invalid-value", field)
    refused = api.batch("mail", [{}, job])
    if job != {"blocked_by": [-1]}:
        body = refused.problem(400, "invalid-value", field)
        assert body["line"] == 2
        assert body["detail"].startswith("Line 2: ")
        assert total(api) == 0


@pytest.mark.parametrize(
    "body", [b"{", b"", b"\xff", b'{"payload":"\xff"}', b'{"text":NaN}', b"{}{}"]
)
def test_what_is_no_json_is_refused(api: ApiClient, body: bytes) -> None:
    reply = api.post(JOBS, body=body or b" ")
    reply.problem(400, "bad-request")
    assert total(api) == 0


def test_deeply_nested_payloads_are_refused(api: ApiClient) -> None:
    body = b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    api.post(JOBS, body=body).problem(400, "bad-request")


def test_a_whole_number_may_be_written_with_a_point(api: ApiClient) -> None:
    body = b'{"priority": 5.0, "max_fails": 2e0, "blocked_by": [7.0], "payload": [1.0, 1.5]}'
    id = api.post(JOBS, body=body).ok()["id"]
    job = api.job(id)
    assert (job["priority"], job["max_fails"]) == (5, 2)
    assert api.yard.broker.cached_payload(api.yard.engine.job(id)) == b"[1.0,1.5]"
    assert api.batch("mail", [{"priority": 5.0}]).status == 201


@pytest.mark.parametrize("number", [b"1.5", b"1e400", b"-1e400", b"9.3e18", b"1e300"])
def test_a_number_that_is_not_whole_or_too_large_is_refused(api: ApiClient, number: bytes) -> None:
    body = b'{"priority": %b, "max_fails": 2.0}' % number
    assert api.post(JOBS, body=body).status == 400
    assert total(api) == 0


def test_half_a_character_is_refused(api: ApiClient) -> None:
    for body in (b'{"text":"\\ud800"}', b'{"name":"\\ud800"}'):
        assert api.post(JOBS, body=body).status == 400
    assert total(api) == 0


@pytest.mark.parametrize("sent", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_the_content_type_must_be_one_that_is_understood(api: ApiClient, sent: str) -> None:
    reply = api.post(JOBS, {}, content_type=sent)
    assert "application/json" in reply.problem(415, "unsupported-media-type")["detail"]
    assert total(api) == 0


def test_the_content_type_may_have_parameters(api: ApiClient) -> None:
    assert api.post(JOBS, {}, content_type="Application/JSON; charset=utf-8").status == 201


def test_a_payload_beyond_the_limit_is_refused() -> None:
    api = ApiClient(SimulatedServer(settings=EngineSettings(payload_limit=10)))
    api.push(text="x" * 10)
    api.post(JOBS, {"text": "x" * 11}).problem(413, "too-large", "payload")
    body = api.batch("mail", [{"text": "x"}, {"text": "x" * 11}])
    assert body.problem(413, "too-large", "payload")["line"] == 2


# Uids


def test_a_push_that_is_repeated_pushes_nothing(yard: SimulatedServer, api: ApiClient) -> None:
    first = api.post(JOBS, {"uid": UID, "text": "x"})
    assert first.status == 201
    for _ in range(2):
        again = api.post(JOBS, {"uid": UID.upper(), "text": "x"})
        assert again.status == 200
        assert again.body == first.body | {"duplicate": True}
        yard.crash()
    assert total(api) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_push_that_a_crash_left_unanswered_is_repeated(seed: int) -> None:
    yard = SimulatedServer(inline_sync=False)
    yard.scheduler.slow = seed % 2 == 0
    api = ApiClient(yard)
    exchange = api.begin("POST", JOBS, {"uid": UID})
    for _ in range(seed):
        yard.scheduler.step()
    answered = exchange.sent
    yard.crash(random.Random(seed))
    again = api.post(JOBS, {"uid": UID}).ok()
    assert again["duplicate"] or not answered
    assert total(api) == 1


def test_a_push_is_repeated_after_its_job_was_moved_and_leased(
    yard: SimulatedServer, api: ApiClient
) -> None:
    id = api.push(uid=UID)
    api.post(f"/api/v1/jobs/{id}/move", {"queue": "elsewhere"}).ok()
    yard.connect("workq").send(b"lease elsewhere 0\r\n")
    again = api.post(JOBS, {"uid": UID})
    assert again.status == 200
    assert again.body == {"id": id, "uid": UID, "state": "leased", "duplicate": True}


def test_a_uid_is_remembered_for_a_while_after_its_job_is_done(
    yard: SimulatedServer, api: ApiClient
) -> None:
    id = api.push(uid=UID)
    yard.connect("workq").send(b"complete %b 0\r\n\r\n" % UID.encode())
    again = api.post(JOBS, {"uid": UID})
    assert again.status == 200
    assert again.body == {"id": id, "uid": UID, "state": "gone", "duplicate": True}
    assert api.job(UID)["state"] == "gone"
    yard.advance(700)
    assert api.post(JOBS, {"uid": UID}).status == 201


def test_the_uid_of_a_cancelled_job_is_free(api: ApiClient) -> None:
    first = api.push(uid=UID)
    api.call("DELETE", f"/api/v1/jobs/{UID}").ok()
    assert api.push(uid=UID) == first + 1


def test_a_derived_uid_cannot_be_given_to_another_job(api: ApiClient) -> None:
    first = api.post(JOBS, {}).ok()
    api.post(JOBS, {"uid": first["uid"]}).problem(409, "uid-taken", "uid")
    assert total(api) == 1


def test_a_uid_of_another_queue_is_taken(yard: SimulatedServer, api: ApiClient) -> None:
    id = api.push(uid=UID)
    for _ in range(2):
        reply = api.post("/api/v1/queues/elsewhere/jobs", {"uid": UID})
        problem = reply.problem(409, "uid-taken", "uid")
        assert str(id) not in problem["detail"]
        yard.crash()
    batch = api.batch("elsewhere", [{"text": "a"}, {"uid": UID}])
    assert batch.problem(409, "uid-taken", "uid")["line"] == 2
    api.call("GET", "/api/v1/queues/elsewhere").problem(404, "queue-not-found")


# Batches


def test_a_batch_is_pushed_as_a_whole(yard: SimulatedServer, api: ApiClient) -> None:
    reply = api.batch("mail", [{"payload": number} for number in range(100)])
    assert (reply.status, reply.body["pushed"], reply.body["duplicates"]) == (201, 100, 0)
    ids = [job["id"] for job in reply.body["jobs"]]
    assert ids == list(range(1, 101))
    yard.crash()
    assert api.job(ids[41])["payload"]["json"] == 41


def test_a_batch_with_one_bad_line_pushes_nothing(api: ApiClient) -> None:
    body = b'{"text":"a"}\n{"text":"b"\n{"text":"c"}\n'
    reply = api.post(JOBS, body=body, content_type=NDJSON)
    assert reply.problem(400, "bad-request")["line"] == 2
    assert total(api) == 0


def test_the_last_line_of_a_batch_may_end_or_not(api: ApiClient) -> None:
    for body, count in ((b"{}\n{}", 2), (b"{}\r\n{}\r\n", 2), (b"{}", 1)):
        reply = api.post(JOBS, body=body, content_type=NDJSON)
        assert reply.ok()["pushed"] == count


def test_a_batch_without_lines_or_with_an_empty_one_is_refused(api: ApiClient) -> None:
    api.post(JOBS, body=b"\n", content_type=NDJSON).problem(400, "bad-request")
    reply = api.post(JOBS, body=b"{}\n\n{}\n", content_type=NDJSON)
    assert reply.problem(400, "bad-request")["line"] == 2


def test_a_batch_of_more_than_ten_thousand_is_refused(api: ApiClient) -> None:
    assert api.batch("mail", [{}] * 10_000).ok()["pushed"] == 10_000
    api.batch("mail", [{}] * 10_001).problem(413, "too-large")
    assert total(api) == 10_000


def test_a_long_batch_is_read_in_portions_and_pushed_in_one_turn(
    yard: SimulatedServer, api: ApiClient
) -> None:
    lines = b'{"text":"x"}\n' * (2 * CHUNK_JOBS + 1)
    exchange = api.begin("POST", JOBS, body=lines, content_type=NDJSON)
    counts = set()
    while exchange.response is None:
        counts.add(yard.engine.state.next_id)
        yard.scheduler.step()
    assert counts == {1}
    yard.run_pending()
    assert api.finish(exchange).ok()["pushed"] == 2 * CHUNK_JOBS + 1


def test_a_long_batch_that_a_crash_interrupts_is_not_there_at_all(
    yard: SimulatedServer, api: ApiClient
) -> None:
    api.begin("POST", JOBS, body=b"{}\n" * (2 * CHUNK_JOBS), content_type=NDJSON)
    yard.scheduler.step()
    yard.crash()
    assert total(api) == 0


def test_the_last_line_of_a_long_batch_can_be_at_fault(api: ApiClient) -> None:
    reply = api.batch("mail", [{}] * (2 * CHUNK_JOBS) + [{"ttr": 0}])
    assert reply.problem(400, "invalid-value", "ttr")["line"] == 2 * CHUNK_JOBS + 1
    assert total(api) == 0


def test_a_batch_that_is_repeated_pushes_only_what_is_new(api: ApiClient) -> None:
    jobs = [{"uid": str(uuid.UUID(int=number))} for number in range(1, 6)]
    first = api.batch("mail", jobs[:3]).ok()
    again = api.batch("mail", jobs)
    assert (again.status, again.body["pushed"], again.body["duplicates"]) == (201, 2, 3)
    assert [job["id"] for job in again.body["jobs"]] == [1, 2, 3, 4, 5]
    assert [job["uid"] for job in again.body["jobs"]] == [job["uid"] for job in jobs]
    assert [job["id"] for job in first["jobs"]] == [1, 2, 3]
    once_more = api.batch("mail", jobs)
    assert (once_more.status, once_more.body["pushed"]) == (200, 0)


def test_a_uid_that_stands_twice_in_a_batch_is_refused(api: ApiClient) -> None:
    reply = api.batch("mail", [{"uid": OTHER_UID}, {"uid": UID}, {}, {"uid": UID}])
    assert reply.problem(409, "duplicate-uid", "uid")["line"] == 4
    assert total(api) == 0


def test_the_line_of_a_refused_step_counts_those_that_were_there_before(api: ApiClient) -> None:
    api.push(uid=OTHER_UID)
    reply = api.batch("mail", [{"uid": OTHER_UID}, {"uid": UID}, {"uid": UID}])
    assert reply.problem(409, "duplicate-uid", "uid")["line"] == 3


def test_jobs_of_a_batch_wait_for_those_before_them(api: ApiClient) -> None:
    known = api.push(uid=UID)
    reply = api.batch(
        "mail",
        [
            {},
            {"uid": UID},
            {"blocked_by": [-2]},
            {"blocked_by": [-2, -1, -3]},
            {"blocked_by": [known]},
        ],
    )
    first, _, third, fourth, fifth = [job["id"] for job in reply.ok()["jobs"]]
    assert api.job(third)["blocked_by"] == [first]
    assert api.job(fourth)["blocked_by"] == sorted([known, third, first])
    assert api.job(fifth)["blocked_by"] == [known]


@pytest.mark.parametrize("blocker", [0, -2, -10_000])
def test_a_line_cannot_wait_for_itself_or_for_what_is_not_there(
    api: ApiClient, blocker: int
) -> None:
    reply = api.batch("mail", [{}, {"blocked_by": [blocker]}])
    assert reply.problem(400, "invalid-value", "blocked_by")["line"] == 2
    assert total(api) == 0


def test_waiting_workers_get_the_jobs_of_a_batch(yard: SimulatedServer, api: ApiClient) -> None:
    worker = yard.connect("workq")
    worker.send(b"lease mail 60000\r\n")
    reply = api.batch("mail", [{"text": "one"}, {"text": "two"}]).ok()
    assert [job["state"] for job in reply["jobs"]] == ["leased", "ready"]
    assert b"one" in worker.take()


def test_json_pushed_here_is_json_for_masenko(yard: SimulatedServer, api: ApiClient) -> None:
    peer = yard.connect()
    peer.send(b'HELLO {"version":"1.0"}\r\n')
    peer.take()
    api.push("default", payload={"a": [1]}, name="send")
    peer.send(b"FETCH {}\r\n")
    assert json.loads(peer.take().partition(b" ")[2])["payload"] == {"a": [1]}
