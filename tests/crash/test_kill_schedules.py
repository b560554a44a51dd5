"""kill -9 of a real server between the ticks of its schedules: none is lost, none comes twice."""

import json
import urllib.request
from pathlib import Path
from typing import Any

from support.process import WarmServer

from taskyard.engine.records.entities import ScheduleTick
from taskyard.engine.records.job_lifecycle import PushRecord
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JOURNAL
from taskyard.journal.reader import JournalReader

SECOND = 1_000_000
SCHEDULE = "/api/v1/schedules/beat"


def call(server: WarmServer, method: str, body: Any = None) -> Any:
    host, port = server.address("http")
    request = urllib.request.Request(
        f"http://{host}:{port}{SCHEDULE}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def wait_for_runs(server: WarmServer, count: int) -> Any:
    server.wait_for(lambda: call(server, "GET")["runs"] >= count)
    return call(server, "GET")


def test_a_schedule_survives_kills(tmp_path: Path) -> None:
    server = WarmServer(tmp_path)
    with server:
        call(server, "PUT", {"queue": "q", "every": 1})
        runs = 0
        for _ in range(3):
            runs = wait_for_runs(server, runs + 1)["runs"]
            server.kill()
            server.restart()
        assert call(server, "GET")["runs"] >= runs
        assert server.stop() == 0
    directory = RealDisk(str(server.data)).directory(JOURNAL)
    records = [entry.record for entry in JournalReader(directory).read()]
    ticks = [record for record in records if isinstance(record, ScheduleTick)]
    assert [tick.job for tick in ticks] == [r.id for r in records if isinstance(r, PushRecord)]
    due = ticks[0].due
    for tick in ticks[1:]:
        assert tick.due == due + (tick.missed + 1) * SECOND
        due = tick.due
