"""`taskyard lake run` as people run it: real processes, a live server, real signals, real Spark."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spark.lake_runs import assert_same
from spark.oracle import compute, read_records
from support.process import ServerProcess
from support.sockets import POLL_INTERVAL

from taskyard import Client
from taskyard.pipeline.lake.snapshot import last_watermark, open_lake
from taskyard.pipeline.lake.status import read_status

pytestmark = pytest.mark.usefixtures("java")
HANG_GUARD = 300.0  # Spark takes its time to start where much else runs


class LakeProcess:
    """`taskyard lake run` that follows a server."""

    def __init__(self, url: str, lake: Path, log: Path) -> None:
        command = [sys.executable, "-m", "taskyard", "lake", "run", "--url", url, "--ui"]
        command += [
            "--lake",
            str(lake),
            "--follow",
            "--trigger",
            "200ms",
            "--master",
            "local[2]",
            "--ui",
        ]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HANG_GUARD
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(POLL_INTERVAL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as running:
        yield running


def _url(server: ServerProcess, dialect: str) -> str:
    host, port = server.address(dialect)
    return f"{'http' if dialect == 'http' else 'taskyard'}://{host}:{port}"


def _work(client: Client, count: int) -> None:
    client.push_many("mail", [{"n": number} for number in range(count)])
    for _ in range(count // 2):
        for job in client.fetch("mail"):
            client.ack(job)


def _next_seq(lake: Path) -> int:
    mark = last_watermark(lake)
    return mark.next_seq if mark is not None else 0


def test_it_follows_a_live_server_through_a_kill_and_a_stop(
    server: ServerProcess, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    url = _url(server, "http")
    with Client(_url(server, "resp")) as client:
        _work(client, 200)
        first = LakeProcess(url, lake, tmp_path / "first.log")
        first.wait_for(lambda: _next_seq(lake) > 300)
        _work(client, 200)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        second = LakeProcess(url, lake, tmp_path / "second.log")
        second.wait_for(lambda: _next_seq(lake) > 600)
        [reader] = client.readers()  # the lake's own
        assert reader.next_seq > 300
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait() == 0, second.text()
    assert "Spark's UI is at http" in second.text()
    status = read_status(lake)
    assert status is not None
    assert (status["state"], status["error"]) == ("stopped", None)
    next_seq = _next_seq(lake)
    server.kill()
    records = [record for record in read_records(server.data) if record.seq < next_seq]
    assert_same(lake, compute(records))
    seen = [row["seq"] for row in open_lake(lake).arrow("events", ["seq", "part"]).to_pylist()]
    assert sorted(seen) == [record.seq for record in records]
