"""The JSON API: one job is shown, cancelled, retried, re-scored and moved."""

import base64
from typing import Any

import pytest
from support.api import ApiClient
from support.simulated import SimulatedPeer, SimulatedServer

UNKNOWN = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


@pytest.fixture
def api(yard: SimulatedServer) -> ApiClient:
    return ApiClient(yard)


@pytest.fixture
def worker(yard: SimulatedServer) -> SimulatedPeer:
    return yard.connect("workq")


def end(worker: SimulatedPeer, api: ApiClient, id: int, verb: bytes, result: bytes) -> None:
    uid = api.job(id)["uid"].encode()
    worker.send(b"%b %b %d\r\n%b\r\n" % (verb, uid, len(result), result))
    worker.expect(b"+OK\r\n")


def test_a_job_is_found_by_id_and_by_uid(api: ApiClient) -> None:
    id = api.push(text="x")
    job = api.job(id)
    assert api.job(job["uid"]) == job
    assert api.job(job["uid"].upper()) == job


@pytest.mark.parametrize("which", ["0", "7", "9223372036854775807", "9999999999999999999", UNKNOWN])
def test_a_job_that_is_not_there_is_not_found(api: ApiClient, which: str) -> None:
    api.push()
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("PATCH", "", {"priority": 1}),
        ("POST", "/retry", None),
        ("POST", "/move", {"queue": "x"}),
    ):
        reply = api.call(method, f"/api/v1/jobs/{which}{path}", body)
        assert which in reply.problem(404, "job-not-found")["detail"]


@pytest.mark.parametrize("which", ["x", "-1", "1.5", "12345678901234567890", UNKNOWN[:-1], "٣"])
def test_what_is_neither_id_nor_uid_is_refused(api: ApiClient, which: str) -> None:
    api.get(f"/api/v1/jobs/{which}").problem(400, "invalid-value", "job")


def test_a_lease_shows_holder_and_age(
    yard: SimulatedServer, api: ApiClient, worker: SimulatedPeer
) -> None:
    id = api.push(ttr=60)
    worker.send(b"lease mail 0\r\n")
    yard.advance(2.5)
    job = api.job(id)
    assert (job["state"], job["attempts"]) == ("leased", 1)
    assert job["lease"] == {
        "holder": "peer:0#1",
        "attempt": 1,
        "since": "2023-11-14T22:13:20.250000Z",
        "age": 2.5,
        "deadline": "2023-11-14T22:14:20.250000Z",
        "bound": False,
    }


def test_a_result_is_shown_as_long_as_it_is_kept(api: ApiClient, worker: SimulatedPeer) -> None:
    id = api.push(ttl=100)
    end(worker, api, id, b"complete", b'{"sum": 5}')
    job = api.job(id)
    assert (job["state"], job["result"]["json"]) == ("succeeded", {"sum": 5})
    assert job["finished_at"] == "2023-11-14T22:13:20.250000Z"
    api.yard.advance(101)
    assert api.job(id)["state"] == "gone"  # in the ring of finished jobs


def test_the_error_of_a_failure_is_shown(api: ApiClient, worker: SimulatedPeer) -> None:
    id = api.push(max_fails=2, backoff="none")
    end(worker, api, id, b"fail", b"no route")
    job = api.job(id)
    assert (job["state"], job["fails"], job["result"]) == ("ready", 1, None)
    assert job["error"]["text"] == "no route"
    end(worker, api, id, b"fail", b"\xff\x00")
    job = api.job(id)
    assert (job["state"], job["reason"]) == ("failed", "failures used up")
    assert base64.b64decode(job["error"]["base64"]) == b"\xff\x00"


@pytest.mark.parametrize("error", [b"no route", b""])
def test_the_error_of_a_failed_job_is_not_its_result(
    api: ApiClient, worker: SimulatedPeer, error: bytes
) -> None:
    id = api.push(max_fails=1)
    end(worker, api, id, b"fail", error)
    job = api.job(id)
    assert (job["state"], job["result"]) == ("failed", None)
    assert job["error"] == ({"size": 8, "text": "no route", "cut": False} if error else None)


@pytest.mark.parametrize(
    ("payload", "form", "shown"),
    [
        (b'{"a": 1}', "json", {"a": 1}),
        (b"[1, 2", "text", "[1, 2"),
        (b"17", "json", 17),
        ("grüße".encode(), "text", "grüße"),
        (b"\xc3", "base64", "ww=="),
        (b"[" * 5000 + b"]" * 5000, "text", "[" * 5000 + "]" * 5000),
        (b"NaN", "text", "NaN"),
        (b"", "text", ""),
    ],
)
def test_payloads_of_other_dialects_are_shown_as_what_they_are(
    api: ApiClient, worker: SimulatedPeer, payload: bytes, form: str, shown: Any
) -> None:
    worker.send(b"add %b mail 1000 9000 %d\r\n%b\r\n" % (UNKNOWN.encode(), len(payload), payload))
    worker.expect(b"+OK\r\n")
    job = api.job(UNKNOWN)
    assert job["dialect"] == "workq"
    assert job["payload"] == {"size": len(payload), form: shown, "cut": False}


def test_jobs_of_masenko_and_their_holders_are_shown(yard: SimulatedServer, api: ApiClient) -> None:
    peer = yard.connect()
    peer.send(b'HELLO {"version":"1.0"}\r\nPUSH {"name":"send","payload":{"a":1}}\r\nFETCH {}\r\n')
    job = api.job(1)
    assert (job["dialect"], job["queue"], job["name"]) == ("masenko", "default", "send")
    assert job["lease"]["bound"]
    assert job["payload"]["json"] == {"a": 1}


# Changing one


def test_a_cancelled_job_is_gone_and_its_dependents_fail(
    yard: SimulatedServer, api: ApiClient
) -> None:
    id = api.push()
    waiting = api.push(blocked_by=[id])
    reply = api.call("DELETE", f"/api/v1/jobs/{id}")
    assert (reply.status, reply.body) == (204, None)
    assert api.job(id)["state"] == "gone"
    assert api.job(waiting)["reason"] == "a job it waited for failed"
    api.call("DELETE", f"/api/v1/jobs/{id}").problem(404, "job-not-found")
    yard.crash()
    assert api.get("/api/v1/queues/mail").ok()["counts"]["failed"] == 1


def test_a_leased_job_can_be_cancelled(api: ApiClient, worker: SimulatedPeer) -> None:
    id = api.push()
    worker.send(b"lease mail 0\r\n")
    uid = api.job(id)["uid"].encode()
    worker.take()
    api.call("DELETE", f"/api/v1/jobs/{id}").ok()
    worker.send(b"complete %b 0\r\n\r\n" % uid)
    worker.expect(b"-NOT-FOUND\r\n")


def test_a_delayed_job_is_retried_now(
    yard: SimulatedServer, api: ApiClient, worker: SimulatedPeer
) -> None:
    id = api.push(delay=1000)
    worker.send(b"lease mail 60000\r\n")
    assert api.post(f"/api/v1/jobs/{id}/retry").ok()["state"] == "leased"
    assert worker.read_line() == b"+OK 1\r\n"


def test_a_dead_letter_is_retried_with_its_counts_at_zero(
    yard: SimulatedServer, api: ApiClient, worker: SimulatedPeer
) -> None:
    id = api.push(max_fails=1)
    worker.send(b"lease mail 0\r\n")
    worker.take()
    end(worker, api, id, b"fail", b"hm")
    job = api.post(f"/api/v1/jobs/{id}/retry").ok()
    assert (job["state"], job["attempts"], job["fails"], job["reason"]) == ("ready", 0, 0, None)
    yard.crash()
    assert api.job(id)["state"] == "ready"


def test_only_delayed_and_dead_jobs_can_be_retried(api: ApiClient, worker: SimulatedPeer) -> None:
    id = api.push(ttl=1000)
    waiting = api.push(blocked_by=[id])
    for which in (id, waiting):
        api.post(f"/api/v1/jobs/{which}/retry").problem(409, "wrong-state")
    worker.send(b"lease mail 0\r\n")
    worker.take()
    detail = api.post(f"/api/v1/jobs/{id}/retry").problem(409, "wrong-state")["detail"]
    assert "leased" in detail
    end(worker, api, id, b"complete", b"")
    api.post(f"/api/v1/jobs/{id}/retry").problem(409, "wrong-state")


def test_priority_changes_the_order(yard: SimulatedServer, api: ApiClient) -> None:
    ids = [api.push() for _ in range(3)]
    job = api.call("PATCH", f"/api/v1/jobs/{ids[2]}", {"priority": 5}).ok()
    assert job["priority"] == 5
    api.call("PATCH", f"/api/v1/jobs/{ids[0]}", {"priority": -(2**63)}).ok()
    yard.crash()
    listed = api.get("/api/v1/queues/mail/jobs").ok()["jobs"]
    assert [job["id"] for job in listed] == [ids[2], ids[1], ids[0]]


def test_the_priority_of_an_ended_job_is_final(api: ApiClient, worker: SimulatedPeer) -> None:
    id = api.push(ttl=1000)
    end(worker, api, id, b"complete", b"")
    api.call("PATCH", f"/api/v1/jobs/{id}", {"priority": 5}).problem(409, "wrong-state")


@pytest.mark.parametrize("body", [{}, {"priority": 2**63}, {"priority": None}, {"ttr": 5}])
def test_bad_changes_are_refused(api: ApiClient, body: Any) -> None:
    id = api.push()
    assert api.call("PATCH", f"/api/v1/jobs/{id}", body).status == 400


def test_a_job_is_moved_to_the_back_or_the_front(yard: SimulatedServer, api: ApiClient) -> None:
    first, second, third = api.push(), api.push("other"), api.push(delay=100)
    assert api.post(f"/api/v1/jobs/{first}/move", {"queue": "other"}).ok()["queue"] == "other"
    moved = api.post(f"/api/v1/jobs/{third}/move", {"queue": "other", "front": True}).ok()
    assert moved["state"] == "ready"
    yard.crash()
    listed = api.get("/api/v1/queues/other/jobs").ok()["jobs"]
    assert [job["id"] for job in listed] == [third, second, first]


def test_a_leased_job_cannot_be_moved(api: ApiClient, worker: SimulatedPeer) -> None:
    id = api.push()
    worker.send(b"lease mail 0\r\n")
    api.post(f"/api/v1/jobs/{id}/move", {"queue": "x"}).problem(409, "wrong-state")


@pytest.mark.parametrize("queue", ["", "a b", "x" * 256, "é" * 200, None, 5])
def test_a_job_is_not_moved_to_a_bad_name(api: ApiClient, queue: Any) -> None:
    id = api.push()
    reply = api.post(f"/api/v1/jobs/{id}/move", {"queue": queue})
    reply.problem(400, "invalid-value", "queue")


# Payloads on disk only


@pytest.fixture
def cold() -> ApiClient:
    """Of a server that keeps next to nothing in memory."""
    return ApiClient(SimulatedServer(payload_memory=1, inline_sync=False))


def test_payload_result_and_error_are_read_back(cold: ApiClient) -> None:
    big = "x" * 600_000
    id = cold.push(text=big, ttl=1000, max_fails=5)
    worker = cold.yard.connect("workq")
    end(worker, cold, id, b"fail", b"f" * 300_000)
    end(worker, cold, id, b"complete", b"r" * 300_000)
    cold.yard.restart()
    cold.yard.scheduler.slow = True
    exchange = cold.begin("GET", f"/api/v1/jobs/{id}")
    cold.yard.run_pending()
    assert exchange.response is None
    while cold.yard.scheduler.blocking:
        cold.yard.scheduler.finish_blocking()
        cold.yard.run_pending()
    job = cold.finish(exchange).ok()
    assert job["payload"]["text"] == big
    assert job["result"]["text"] == "r" * 300_000
    assert job["error"]["text"] == "f" * 300_000


def test_a_job_that_goes_while_it_is_read_is_shown_as_gone(cold: ApiClient) -> None:
    id = cold.push(text="x" * 600_000)
    cold.yard.restart()
    cold.yard.scheduler.slow = True
    exchange = cold.begin("GET", f"/api/v1/jobs/{id}")
    cold.begin("DELETE", f"/api/v1/jobs/{id}")
    while cold.yard.scheduler.blocking:
        cold.yard.scheduler.finish_blocking()
        cold.yard.run_pending()
    assert cold.finish(exchange).ok()["state"] == "gone"


def test_a_disk_that_cannot_be_read_is_said(cold: ApiClient) -> None:
    id = cold.push(text="x" * 600_000)
    cold.yard.restart()
    cold.yard.disk.fail_always("read")
    cold.get(f"/api/v1/jobs/{id}").problem(503, "disk-error")
    cold.yard.disk.heal()
    assert cold.job(id)["payload"]["size"] == 600_000
