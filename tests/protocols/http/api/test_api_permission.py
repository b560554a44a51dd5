"""The JSON API: what users may do, and that lists show them nothing else."""

import pytest
from support.api import ApiClient
from support.replies_resp import ask
from support.simulated import SimulatedServer

from taskyard.access.principal import Principal, Rule
from taskyard.protocols.http.api import queues as api_queues
from taskyard.protocols.http.call import Operation


@pytest.fixture
def yard() -> SimulatedServer:
    return SimulatedServer()


# What comes after it would be in vain.
ENDS = ("cancelJob", "deleteQueue", "deleteSchedule", "deleteConsumer")


def furnish(yard: SimulatedServer) -> int:
    """A schedule, a consumer, a reader and a job, of which it gives the id."""
    everybody = ApiClient(yard)
    everybody.call("PUT", "/api/v1/schedules/nightly", {"queue": "mail", "every": 60}).ok()
    everybody.call("PUT", "/api/v1/readers/lake", {}).ok()
    everybody.push("mail")
    peer = yard.connect("resp")
    assert ask(peer, "BATCH.LEASE", "spark", 1, 1, "QUEUES", "mail") == [1, 1]
    return everybody.push("mail")


def path_of(operation: Operation, id: int) -> str:
    path = operation.pattern.replace("{queue}", "mail").replace("{job}", str(id))
    path = path.replace("{reader}", "lake").replace("{consumer}", "spark").replace("{base}", "0")
    return path.replace("{schedule}", "nightly")


ACTIONS = {"GET": "inspect", "POST": "admin", "PUT": "admin", "PATCH": "admin", "DELETE": "admin"}


@pytest.mark.parametrize(("name", "status", "kind"), [("ada", 403, "denied"), ("", 401, "unauth")])
def test_every_operation_is_only_for_those_who_may(
    yard: SimulatedServer, name: str, status: int, kind: str
) -> None:
    id = furnish(yard)
    api = ApiClient(yard, principal=Principal(name, [Rule(["other"], ["journal"])]))
    for operation in api.api().operations:
        path = path_of(operation, id)
        reply = api.call(operation.method, path)
        if operation.for_everybody:  # what one logs in with, and nothing else
            assert (path, reply.status < 401 or reply.status == 415) == ("/api/v1/session", True)
            continue
        assert (reply.status, reply.body["type"].rpartition(":")[2][:6]) == (status, kind[:6])
        wanted = ACTIONS[operation.method]
        if "/journal" in path or "/readers" in path:
            wanted = "journal"
        elif operation.name in ("pushJobs", "putSchedule"):
            wanted = "push"
        assert f" has no permission to {wanted} on " in reply.body["detail"]


@pytest.mark.parametrize("action", ["push", "take", "inspect", "admin"])
def test_no_operation_asks_for_more_than_one_action(yard: SimulatedServer, action: str) -> None:
    id = furnish(yard)
    api = ApiClient(yard, principal=Principal("ada", [Rule(["*"], [action])]))
    for operation in api.api().operations:
        path = path_of(operation, id)
        if operation.for_everybody:
            continue
        if operation.action == action and operation.name not in ENDS:
            reply = api.call(operation.method, path)
            if "/lake" in path:  # this server runs none, and says so to who may know
                assert reply.body["type"].endswith(":no-lake")
            else:
                assert reply.status in (200, 201, 415, 409)


JOB_CALLS = [
    ("GET", "", None),
    ("DELETE", "", None),
    ("PATCH", "", {"priority": 1}),
    ("POST", "/retry", None),
    ("POST", "/move", {"queue": "mail"}),
]


def test_a_job_in_a_queue_that_one_may_not_see_is_not_there(yard: SimulatedServer) -> None:
    """A refusal would tell in which queue it is."""
    id = ApiClient(yard).push("secret")
    rules = [Rule(["mail"], ["inspect", "admin"])]
    api = ApiClient(yard, principal=Principal("ada", rules))
    for method, path, body in JOB_CALLS:
        told = api.call(method, f"/api/v1/jobs/{id}{path}", body).problem(404, "job-not-found")
        unknown = api.call(method, f"/api/v1/jobs/{id + 1}{path}", body).body
        assert told == {**unknown, "detail": unknown["detail"].replace(str(id + 1), str(id))}


def test_a_job_that_one_may_only_see_cannot_be_changed(yard: SimulatedServer) -> None:
    id = ApiClient(yard).push("mail")
    rules = [Rule(["mail"], ["inspect"]), Rule(["other"], ["admin"])]
    api = ApiClient(yard, principal=Principal("ada", rules))
    for method, path, body in JOB_CALLS:
        reply = api.call(method, f"/api/v1/jobs/{id}{path}", body)
        if method == "GET":
            reply.ok()
        else:
            told = reply.problem(403, "denied")["detail"]
            assert told == "User ada has no permission to admin on queue mail."


def test_a_job_is_only_moved_by_those_who_may_change_both_queues(yard: SimulatedServer) -> None:
    id = ApiClient(yard).push("mail")
    api = ApiClient(yard, principal=Principal("ada", [Rule(["mail", "post"], ["admin"])]))
    api.post(f"/api/v1/jobs/{id}/move", {"queue": "secret"}).problem(403, "denied")
    assert api.post(f"/api/v1/jobs/{id}/move", {"queue": "post"}).ok()["queue"] == "post"


def test_a_dead_queue_must_be_one_that_one_may_push_to(yard: SimulatedServer) -> None:
    api = ApiClient(yard, principal=Principal("ada", [Rule(["mail", "post"], ["push"])]))
    jobs = "/api/v1/queues/mail/jobs"
    api.post(jobs, {"dead_queue": "secret"}).problem(403, "denied")
    api.batch("mail", [{}, {"dead_queue": "secret"}]).problem(403, "denied")
    assert ApiClient(yard).get("/api/v1/queues").ok()["queues"] == []
    api.post(jobs, {"dead_queue": "post"}).ok()


def test_lists_show_what_one_may_inspect(yard: SimulatedServer) -> None:
    everybody = ApiClient(yard)
    workq = yard.connect("workq")
    for queue in ("a", "mail.in", "mail.out", "post", "z"):
        everybody.push(queue)
        everybody.push(queue)
        workq.send(f"lease {queue} 0\r\n".encode())
    for job in everybody.get("/api/v1/queues/mail.in/jobs").ok()["jobs"]:
        everybody.call("DELETE", f"/api/v1/jobs/{job['id']}")
    for job in everybody.get("/api/v1/queues/a/jobs").ok()["jobs"]:
        everybody.call("DELETE", f"/api/v1/jobs/{job['id']}")
    rules = [Rule(["mail.*", "z"], ["inspect"]), Rule(["a"], ["push", "take", "admin"])]
    api = ApiClient(yard, principal=Principal("ada", rules))
    for limit in (1, 2, 3, 4):
        queues = api.walk("/api/v1/queues", "queues", limit=limit)
        assert [queue["name"] for queue in queues] == ["mail.in", "mail.out", "z"]
        leases = api.walk("/api/v1/leases", "leases", limit=limit)
        assert [lease["queue"] for lease in leases] == ["mail.in", "mail.out", "z"]
        finished = api.walk("/api/v1/finished", "jobs", limit=limit)
        assert [job["queue"] for job in finished] == ["mail.in"]
    assert len(everybody.walk("/api/v1/finished", "jobs")) == 2


def test_a_page_of_queues_ends_somewhere_though_none_of_them_is_shown(
    yard: SimulatedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_queues, "MAX_SCANNED_QUEUES", 3)
    for number in range(8):
        ApiClient(yard).push(f"q{number}")
    api = ApiClient(yard, principal=Principal("ada", [Rule(["q7"], ["inspect"])]))
    page = api.get("/api/v1/queues").ok()
    assert page["queues"] == []
    assert page["next"] is not None
    assert [queue["name"] for queue in api.walk("/api/v1/queues", "queues")] == ["q7"]


def test_a_cursor_shows_nothing_of_another_queue(yard: SimulatedServer) -> None:
    """Also if it was written for somebody who may see more."""
    everybody = ApiClient(yard)
    workq = yard.connect("workq")
    for _ in range(3):
        everybody.push("secret")
        workq.send(b"lease secret 0\r\n")
    cursor = everybody.get("/api/v1/leases", limit=1).ok()["next"]
    api = ApiClient(yard, principal=Principal("ada", [Rule(["mail"], ["inspect"])]))
    assert api.get("/api/v1/leases", cursor=cursor).ok() == {"leases": [], "next": None}


# Schedules


def test_a_schedule_takes_push_and_admin_on_its_queue(yard: SimulatedServer) -> None:
    path = "/api/v1/schedules/nightly"
    body = {"queue": "mail", "every": 60}
    for actions, missing in ((["push"], "admin"), (["admin"], "push")):
        rules = [Rule(["mail"], actions), Rule(["other"], ["push", "admin"])]
        api = ApiClient(yard, principal=Principal("ada", rules))
        told = api.call("PUT", path, body).problem(403, "denied")["detail"]
        assert told == f"User ada has no permission to {missing} on queue mail."
    rules = [Rule(["mail"], ["push", "admin"]), Rule(["dead"], ["push"])]
    api = ApiClient(yard, principal=Principal("ada", rules))
    api.call("PUT", path, {**body, "dead_queue": "secret"}).problem(403, "denied")
    view = api.call("PUT", path, {**body, "dead_queue": "dead"}).ok()
    assert view["set_by"] == "ada"


SCHEDULE_CALLS = [
    ("GET", ""),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/run"),
    ("DELETE", ""),
]


def test_a_schedule_of_a_queue_that_one_may_not_see_is_not_there(yard: SimulatedServer) -> None:
    everybody = ApiClient(yard)
    body = {"queue": "secret", "every": 60}
    everybody.call("PUT", "/api/v1/schedules/s", body).ok()
    api = ApiClient(
        yard, principal=Principal("ada", [Rule(["mail"], ["push", "inspect", "admin"])])
    )
    for method, path in SCHEDULE_CALLS:
        told = api.call(method, f"/api/v1/schedules/s{path}").problem(404, "schedule-not-found")
        unknown = api.call(method, f"/api/v1/schedules/t{path}").body
        assert told == {**unknown, "detail": unknown["detail"].replace("'t'", "'s'")}
    assert api.get("/api/v1/schedules").ok() == {"schedules": [], "next": None}
    told = api.call("PUT", "/api/v1/schedules/s", {**body, "queue": "mail"}).problem(403, "denied")
    assert "secret" not in told["detail"]
    assert everybody.get("/api/v1/schedules/s").ok()["queue"] == "secret"


def test_a_schedule_that_one_may_only_see_cannot_be_changed(yard: SimulatedServer) -> None:
    furnish(yard)
    rules = [Rule(["mail"], ["inspect"]), Rule(["other"], ["admin"])]
    api = ApiClient(yard, principal=Principal("ada", rules))
    for method, path in SCHEDULE_CALLS:
        reply = api.call(method, f"/api/v1/schedules/nightly{path}")
        if method == "GET":
            reply.ok()
        else:
            told = reply.problem(403, "denied")["detail"]
            assert told == "User ada has no permission to admin on queue mail."


def test_a_list_of_schedules_shows_what_one_may_inspect(yard: SimulatedServer) -> None:
    everybody = ApiClient(yard)
    for number in range(9):
        body = {"queue": ("mail", "secret")[number % 2], "every": 60}
        everybody.call("PUT", f"/api/v1/schedules/s{number}", body).ok()
    api = ApiClient(yard, principal=Principal("ada", [Rule(["mail"], ["inspect"])]))
    for limit in (1, 2, 5, 6):
        found = api.walk("/api/v1/schedules", "schedules", limit=limit)
        assert [schedule["name"] for schedule in found] == ["s0", "s2", "s4", "s6", "s8"]
