"""What a server has done with its lake on request: jobs looked up, reports written.

The process that follows the journal only acts as the lake (support/fake_lake.py); the tables are
real, and so are the processes that are sent for.
"""

import gzip
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.child import state_of
from support.lake_server import LakeServer
from support.process import ServerProcess
from support.small_lake import BEGAN, SmallLake, closed_job
from support.sockets import SocketPeer
from support.users import user, users_of
from support.waiting import wait_for

from taskyard.access.users import save_users
from taskyard.server.lake_supervisor import OneShotProcess, ProcessResult

ADMIN, MAILER, BOTH, SEES = "ty_admin", "ty_mailer", "ty_both", "ty_sees"
POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
UID = "0123456789abcdef0123456789abcdef"


def fill(path: Path) -> None:
    lake = SmallLake(path)
    event = {"queue": "mail", "name": "send", "time": BEGAN}
    lake.fill(
        jobs=[
            closed_job(7, payload=b'{"n":12345678901234567890}', uid=UID),
            closed_job(7, run=2, outcome="succeeded", payload=None, uid=UID),
            closed_job(8, payload=b"\xff\x00", first_queue="secret"),
        ],
        attempts=[{"job_id": 7, "run": 1, "attempt": n, "queue": "mail", "seq": n} for n in (2, 1)],
        events=[
            {**event, "seq": seq, "part": 0, "event": name, "job_id": id}
            for seq, name, id in ((3, "lease", 7), (2, "push", 7), (4, "push", 8))
        ],
        open_jobs=[
            {"job_id": 9, "run": 1, "queue": "mail", "name": "send", "state": "ready", "ids": 0}
        ],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeServer]:
    place = tmp_path_factory.mktemp("lake")
    everybody = users_of(
        user("admin", tokens=(ADMIN,), admin=True),
        user("mailer", tokens=(MAILER,), rules=(("mail", "inspect"),)),
        user("both", tokens=(BOTH,), rules=(("mail,secret", "inspect"),)),
        user("sees", tokens=(SEES,), rules=(("*", "inspect"),)),
        user("pusher", tokens=("ty_pusher",), rules=(("*", "push"),)),
    )
    save_users(place / "users.toml", everybody)
    fill(place / "lake")
    flags = ("--users", str(place / "users.toml"))
    with LakeServer(place, "follow", *flags, token=ADMIN) as running:
        running.wait_for(lambda: running.get("/api/v1/lake")[0] == 200)
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log_text()


def read_answer(peer: SocketPeer) -> tuple[int, bytes]:
    """The next one of several that were asked for on a connection."""
    status = int(peer.read_line().split()[1])
    size = 0
    while (line := peer.read_line()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    return status, peer.read_exactly(size)


def kind_of(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["type"].rpartition(":")[2]


# Jobs


def test_a_job_that_the_server_has_forgotten_is_in_the_lake(server: LakeServer) -> None:
    assert kind_of(server.get("/api/v1/jobs/7")) == (404, "job-not-found")
    status, found = server.get("/api/v1/lake/jobs/7")
    assert (status, found["id"], found["open"], found["cut"]) == (200, 7, None, False)
    assert [(run["run"], run["outcome"]) for run in found["runs"]] == [
        (1, "failed"),
        (2, "succeeded"),
    ]
    assert found["runs"][0]["payload"]["json"] == {"n": 12345678901234567890}
    assert found["runs"][0]["finished_at"] == "2030-01-31T08:07:00Z"
    assert found["runs"][1]["payload"] is None
    assert [attempt["attempt"] for attempt in found["attempts"]] == [1, 2]
    assert [(event["seq"], event["event"]) for event in found["events"]] == [
        (2, "push"),
        (3, "lease"),
    ]
    assert "holder" not in found["events"][0]


def test_it_is_found_by_its_uid_too(server: LakeServer) -> None:
    uid = f"{UID[:8]}-{UID[8:12]}-{UID[12:16]}-{UID[16:20]}-{UID[20:]}"
    assert server.get(f"/api/v1/lake/jobs/{uid}")[1]["id"] == 7
    assert server.get(f"/api/v1/lake/jobs/{uid.upper()}")[1]["id"] == 7


def test_a_job_that_is_still_open_is_found_as_well(server: LakeServer) -> None:
    found = server.get("/api/v1/lake/jobs/9")[1]
    assert (found["runs"], found["open"]["state"]) == ([], "ready")


@pytest.mark.parametrize(
    ("which", "status", "kind"),
    [
        ("6", 404, "job-not-found"),
        ("0", 404, "job-not-found"),
        ("9999999999999999999", 404, "job-not-found"),
        ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", 404, "job-not-found"),
        ("seven", 400, "invalid-value"),
        ("--help", 400, "invalid-value"),
        ("7%20--lake%20x", 400, "invalid-value"),
    ],
)
def test_what_is_not_there(server: LakeServer, which: str, status: int, kind: str) -> None:
    assert kind_of(server.get(f"/api/v1/lake/jobs/{which}")) == (status, kind)


def test_a_job_is_shown_to_those_who_may_see_all_queues_it_was_in(server: LakeServer) -> None:
    assert server.get("/api/v1/lake/jobs/8", BOTH)[1]["runs"][0]["payload"] == {
        "size": 2,
        "base64": "/wA=",
        "cut": False,
    }
    assert server.get("/api/v1/lake/jobs/7", MAILER)[0] == 200
    told = server.get("/api/v1/lake/jobs/8", MAILER)
    unknown = server.get("/api/v1/lake/jobs/6", MAILER)
    assert kind_of(told) == kind_of(unknown) == (404, "job-not-found")
    assert told[1]["detail"] == unknown[1]["detail"].replace("6", "8")
    assert kind_of(server.get("/api/v1/lake/jobs/7", "ty_pusher")) == (403, "denied")
    assert kind_of(server.get("/api/v1/lake/jobs/7", "")) == (401, "unauthenticated")


def test_several_are_looked_up_one_after_the_other(server: LakeServer) -> None:
    found: list[tuple[int, int]] = []

    def ask(id: int) -> None:
        status, body = server.get(f"/api/v1/lake/jobs/{id}")
        found.append((id, body.get("id", status)))

    threads = [threading.Thread(target=ask, args=(id,)) for id in (7, 8, 9, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(6, 404), (7, 7), (8, 8), (9, 9)]


# The report


def test_a_report_is_shown_in_a_sandbox(server: LakeServer) -> None:
    page = b"<!doctype html><title>Report</title><script>1</script>" * 50
    file = server.lake / "report.html"
    file.write_bytes(page)
    try:
        status, headers, body = server.ask("GET", "/lake/report")
        assert (status, headers["content-type"], body) == (200, "text/html; charset=utf-8", page)
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        tag = headers["etag"]
        known = server.ask("GET", "/lake/report", **{"If-None-Match": tag})
        assert (known[0], known[1]["content-security-policy"], known[2]) == (304, POLICY, b"")
        packed = server.ask("GET", "/lake/report", **{"Accept-Encoding": "gzip"})
        assert (packed[1]["content-encoding"], gzip.decompress(packed[2])) == ("gzip", page)
        head = server.ask("HEAD", "/lake/report")
        assert (head[0], head[1]["content-length"], head[2]) == (200, str(len(page)), b"")
        view = server.get("/api/v1/lake")[1]
        assert view["report"]["bytes"] == len(page)
        assert view["report"]["made_at"].endswith("Z")
        assert server.ask("GET", "/lake/report", SEES)[0] == 200
        for token, code in ((BOTH, 403), ("ty_pusher", 403), ("", 401)):
            assert server.ask("GET", "/lake/report", token)[0] == code
        file.write_bytes(page + b"\n")
        assert server.ask("GET", "/lake/report", **{"If-None-Match": tag})[0] == 200
    finally:
        file.unlink()


def test_where_there_is_no_report_it_is_said_how_to_get_one(server: LakeServer) -> None:
    status, headers, body = server.ask("GET", "/lake/report")
    assert (status, headers["content-type"]) == (404, "application/problem+json")
    assert "POST /api/v1/lake/report" in json.loads(body)["detail"]
    status, headers, body = server.ask("GET", "/lake/report", Accept="text/html,*/*")
    assert (status, headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert b"taskyard lake report" in body
    assert server.get("/api/v1/lake")[1]["report"] is None


def test_only_an_admin_has_a_report_written(server: LakeServer) -> None:
    for token, status in ((SEES, 403), (MAILER, 403), ("", 401)):
        assert server.ask("POST", "/api/v1/lake/report", token)[0] == status
    assert server.get("/api/v1/lake")[1]["making"] is False


def test_a_report_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    """There is no lake yet, which is found out before Spark is started."""
    with LakeServer(tmp_path, "follow", "--lake-master", "local[1]") as server:
        server.wait_for(lambda: server.get("/api/v1/lake")[0] == 200)
        # Both at once, so that the second is asked for before the first can have failed.
        peer = server.connect("http")
        peer.send(b"POST /api/v1/lake/report HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2)
        for _ in range(2):
            status, body = read_answer(peer)
            assert (status, json.loads(body)["making"]) == (202, True)
        server.wait_for(lambda: not server.get("/api/v1/lake")[1]["making"])
        told = server.get("/api/v1/lake")[1]["report_error"]
        assert "there is no lake in" in told
        assert server.log_text().count("lake report started") == 1
        assert kind_of(server.get("/api/v1/lake/jobs/1")) == (404, "job-not-found")
        assert server.stop() == 0


def test_a_lake_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    fill(tmp_path / "lake")
    for file in (tmp_path / "lake" / "jobs" / "_delta_log").iterdir():
        file.write_bytes(b"nonsense")
    with LakeServer(tmp_path, "follow") as server:
        server.wait_for(lambda: server.get("/api/v1/lake")[0] == 200)
        assert kind_of(server.get("/api/v1/lake/jobs/7", "")) == (503, "lake-failed")
        assert server.stop() == 0


def test_without_a_lake_there_is_none(tmp_path: Path) -> None:
    told = []
    with ServerProcess(tmp_path) as server:
        for method, path in [
            ("GET", "/api/v1/lake"),
            ("GET", "/api/v1/lake/jobs/7"),
            ("POST", "/api/v1/lake/report"),
            ("GET", "/lake/report"),
        ]:
            with closing(http.client.HTTPConnection(*server.address("http"))) as connection:
                connection.request(method, path)
                answer = connection.getresponse()
                assert answer.status == 404
                told.append(json.loads(answer.read()))
    assert told[0]["type"] == "urn:taskyard:problem:no-lake"
    assert not [each for each in told if "--lake" not in each["detail"]]


# Errands


def run(code: str, seconds: float = 60.0) -> ProcessResult:
    found: list[ProcessResult] = []
    command = [sys.executable, "-c", code]
    errand = OneShotProcess(command, seconds, lambda call, *args: call(*args), found.append)
    errand.start()
    wait_for(lambda: bool(found))
    return found[0]


def test_an_errand_tells_how_it_ended() -> None:
    said = (
        "import sys; print('out'); sys.stderr.write('first\\nlast\\n  at line 1\\n'); sys.exit(3)"
    )
    assert run(said) == ProcessResult(3, b"out\n", "last")
    assert run("pass") == ProcessResult(0, b"", "")


def test_an_errand_that_takes_too_long_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    child = (
        "import subprocess, sys, time; c = [sys.executable, '-c', 'import time; time.sleep(99)']"
    )
    file = tmp_path / "pids"
    code = (
        f"{child}; p = subprocess.Popen(c); open({str(file)!r}, 'w').write(str(p.pid)); "
        "time.sleep(99)"
    )
    seconds = 1
    while not (file.exists() and file.read_text()):  # it was ended before it has started anything
        seconds *= 2
        ended = run(code, seconds)
        assert (ended.code, ended.message) == (-1, f"it took longer than {seconds} seconds")
    wait_for(lambda: not state_of(int(file.read_text())))


def test_an_errand_that_cannot_be_started_says_so() -> None:
    found: list[ProcessResult] = []
    errand = OneShotProcess(["/nowhere/at/all"], 60, lambda call, *args: call(*args), found.append)
    errand.start()
    wait_for(lambda: bool(found))
    assert found[0].code == -1
    assert "it cannot be started" in found[0].message


def test_an_errand_ends_with_its_server(tmp_path: Path) -> None:
    """Also when that is killed: what it watches is closed then."""
    code = (
        "import os, sys, time\n"
        "from taskyard.cli import lake_child, main\n"
        "def act(argv):\n"
        f"    open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(99)\n"
        "main.main = act\n"
        "lake_child.main([])\n"
    )
    server = (
        "import sys, time\n"
        "from taskyard.server.lake_supervisor import OneShotProcess\n"
        "OneShotProcess([sys.executable, '-c', sys.argv[1]], 99, print, print).start()\n"
        "time.sleep(99)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", server, code])
    try:
        wait_for(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
        pid = int((tmp_path / "pid").read_text())
        assert state_of(pid)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not state_of(pid))
