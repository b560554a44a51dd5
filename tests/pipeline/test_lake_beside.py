"""The real lake beside a real server: it follows, and nothing is left of it when it ends."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.process import ServerProcess
from support.waiting import SPARK_GUARD, wait_for

from taskyard.client.sync import Client
from taskyard.pipeline.lake.snapshot import open_lake

pytestmark = pytest.mark.usefixtures("java")


class LakeServer(ServerProcess):
    def __init__(self, directory: Path) -> None:
        self.lake = directory / "lake"
        flags = ("--lake", str(self.lake), "--lake-master", "local[1]", "--lake-payloads")
        super().__init__(directory, *flags, "--lake-trigger", "200ms")

    def until(self, condition: Callable[[], bool]) -> None:
        wait_for(lambda: not self.is_running() or condition(), SPARK_GUARD)
        assert self.is_running(), f"the server has ended:\n{self.log_text()}"


def view(client: Client) -> Any:
    return client.call_api("GET", "/api/v1/lake")


def has_all(client: Client) -> bool:
    told = view(client)
    return told["state"] in ("idle", "running") and told["lag_records"] == 0


def members(session: int) -> list[int]:
    """The processes of a session that run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended meanwhile
                continue
            if words[0] != "Z" and int(words[3]) == session:
                found.append(int(entry.name))
    return found


def test_jobs_come_into_the_lake_by_themselves_and_nothing_is_left_at_the_end(
    tmp_path: Path,
) -> None:
    with LakeServer(tmp_path) as server:
        host, port = server.address("resp")
        with Client(f"taskyard://{host}:{port}") as client:
            client.push("mail", b"first")
            (job,) = client.fetch("mail")
            client.ack(job)
            server.until(lambda: has_all(client))
            first = view(client)
            assert first["restarts"] == 0
            assert first["last_time"].startswith("20")
            assert first["ui"] is None
            client.push("mail", b"second")
            (job,) = client.fetch("mail")
            client.fail(job, "TimeoutError: no")
            server.until(lambda: view(client)["next_seq"] > first["next_seq"] and has_all(client))
            assert len(members(first["pid"])) > 1  # the JVM
            os.kill(first["pid"], signal.SIGKILL)
            server.until(lambda: view(client)["restarts"] == 1)
            second = view(client)
            assert second["pid"] != first["pid"]
            server.until(lambda: not members(first["pid"]))
        assert server.stop() == 0
        assert not members(second["pid"])
    rows = open_lake(server.lake).arrow("jobs", ["payload", "outcome", "error_class"]).to_pylist()
    assert sorted((row["payload"], row["outcome"], row["error_class"]) for row in rows) == [
        (b"first", "succeeded", None),
        (b"second", "failed", "TimeoutError"),
    ]
