"""`taskyard lake run` as people run it: real processes, a live server, real signals, real Spark."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline.cluster import Driver
from pipeline.lake_runs import assert_right, assert_same, read_in
from pipeline.oracle import compute, read_records
from pipeline.servers import Server
from pyspark.sql import SparkSession

from taskyard.pipeline.lake.snapshot import last_watermark, open_lake
from taskyard.pipeline.lake.storage import Storage

pytestmark = pytest.mark.usefixtures("java")


class LakeProcess(Driver):
    def __init__(self, directory: Path, *flags: str) -> None:
        self.lake = directory / "lake"
        command = [sys.executable, "-m", "taskyard", "lake", "run", "--lake", str(self.lake)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        super().__init__(directory, [*command, "--ui", *flags], env=environment)

    def next_seq(self) -> int:
        mark = last_watermark(Storage(self.lake))
        return 0 if mark is None else mark.next_seq

    def wait_for_record(self, seq: int) -> None:
        """It does not look all the time, which would take some of the processor from it."""
        self.wait_until(lambda: self.next_seq() > seq, pause=0.1)


def reports(process: LakeProcess) -> list[dict[str, Any]]:
    lines = process.log().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


def states(process: LakeProcess) -> list[str]:
    return [told["state"] for told in reports(process)]


def test_it_follows_a_live_server_through_kills_and_a_stop(server: Server, tmp_path: Path) -> None:
    flags = ["--url", server.http_url(), "--follow", "--json", "--trigger", "200ms"]
    flags += ["--master", "local[2]"]
    server.work(100, left=100)
    with LakeProcess(tmp_path, *flags) as first:
        first.wait_for_record(300)
        assert "Spark's UI is at http" in first.log()
        server.work(100, left=100)
        first.kill()
    with LakeProcess(tmp_path, *flags) as second:
        second.wait_for_record(600)
        with server.client() as client:
            (reader,) = client.readers()  # the lake's own
            assert reader.next_seq > 300
        second.wait_until(lambda: "idle" in states(second))
        server.kill()
        second.wait_until(lambda: "waiting" in states(second))
        server.restart()
        server.work(50, left=50)
        second.wait_for_record(900)
        second.tell(signal.SIGTERM)
        assert second.wait() == 0, second.log()
    said = [line for line in second.log().splitlines() if not line.startswith("{")]
    assert said[1].startswith(f"no answer from {server.http_url()}: ")
    assert said[1].endswith("; waiting for it, for up to 600 s")
    assert said[2].startswith("the server answers again, after ")
    told = reports(second)
    assert (told[0]["state"], told[-1]["state"], told[-1]["error"]) == ("starting", "stopped", None)
    assert told[0]["next_seq"] > 300  # where the first one was
    server.kill()
    assert told[-1]["next_seq"] == second.next_seq()
    assert_right(second.lake, server.data)


def test_it_gives_up_on_a_server_that_stays_away_and_on_a_journal_that_is_damaged(
    server: Server, tmp_path: Path
) -> None:
    """With a password and options of storage, which nobody gets to see."""
    server.work(25, left=25)
    flags = ["--follow", "--patience", "1s", "--trigger", "200ms", "--master", "local[2]"]
    url = server.http_url().replace("//", "//ann:hunter2@")
    flags += ["--url", url, "--storage-option", "aws_secret_access_key=hunter3"]
    with LakeProcess(tmp_path, *flags) as process:
        process.wait_for_record(80)
        line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"//ann:*******@" in line
        assert b"aws_secret_access_key=*******\0" in line
        server.kill()
        assert process.wait() == 3
        said = process.log().splitlines()
    assert said[-1].startswith("taskyard lake run: no answer from http://127.0.0.1:")
    assert "the lake has waited for 1 s, and goes on where it is when it is run again" in said[-1]
    assert "hunter" not in process.log()
    lake = process.lake
    assert not [path for path in lake.rglob("*") if path.is_file() and holds_secret(path)]
    # The rest of what is there, by its path, until that goes wrong.
    records = [*read_records(server.data)]
    flags = ["--data", str(server.data), "--follow", "--trigger", "200ms", "--master", "local[2]"]
    with LakeProcess(tmp_path, *flags) as process:
        process.wait_for_record(records[-1].seq)
        (server.data / "identity.json").unlink()
        assert process.wait() == 1
        said = process.log().splitlines()
    assert said[-1].startswith("taskyard lake run: identity.json is missing; ")
    assert len(said) <= 3  # without the traces of Java and Python
    assert_same(open_lake(lake), compute(records))


def holds_secret(path: Path) -> bool:
    return b"hunter" in path.read_bytes()


def test_a_run_that_is_told_to_stop_says_so(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    server.work(100, left=100)
    flags = ("--data", str(server.data), "--batch", "100", "--master", "local[2]")
    with LakeProcess(tmp_path, *flags) as process:
        process.wait_for_record(100)
        os.kill(process.pid, signal.SIGINT)
        code = process.wait()
    if code:  # else it was faster
        assert code == 130
        assert process.log().splitlines()[-1].startswith("stopped before the end; it goes on from")
    server.kill()
    read_in(spark, server.data, process.lake)
    assert process.next_seq() > 400
