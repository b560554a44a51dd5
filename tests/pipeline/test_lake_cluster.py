"""A lake on a real cluster, over HTTP, beside a server: executors, the server and the driver
are killed in the middle of batches, and the tables are those that the oracle makes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pipeline.cluster import Cluster
from pipeline.gate import StoppingProxy
from pipeline.lake_driver import GOOD, Drivers
from pipeline.lake_runs import assert_right
from pipeline.oracle import read_records
from pipeline.servers import Server
from support.effort import LONG, effort
from support.users import user, users_of
from support.waiting import SPARK_GUARD, wait_for

from taskyard.access.users import save_users
from taskyard.engine.records.job_lifecycle import PUSH
from taskyard.pipeline.lake.snapshot import open_lake

PASSWORD: Final = "hush%2Fhush7f3a"  # as it stands in a URL
_PLAIN: Final = "hush/hush7f3a"
_RECORDS: Final = 1000  # in a batch: several in what a test reads
_ROUNDS: Final = 67  # at a time: of nine pushes, with about three records each


class Yard:
    """A server that is used now and then, drivers that read it over HTTP, and a gate between."""

    def __init__(self, cluster: Cluster, base: Path, tmp_path: Path) -> None:
        self.base = base
        self.cluster = cluster
        self.lake = tmp_path / "lake"
        self.random = Random() if LONG else Random(5)
        anonymous = (("*", "push,take,inspect"),)
        users = users_of(user("ann", _PLAIN, admin=True), anonymous=anonymous)
        save_users(tmp_path / "users.toml", users)
        self.server = Server(tmp_path, "--users", str(tmp_path / "users.toml"))
        self.pushed = 0
        self.gate = StoppingProxy(lambda: self.server.address("http"))
        self.drivers = Drivers(tmp_path, cluster.master)

    def start_and_hold(self) -> int:
        """A task is in the middle of its bytes; gives the driver's pid."""
        self.pushed += self.server.speak_all_dialects(_ROUNDS)
        self.gate.stop_after(self.random.randrange(500, 5000))
        url = f"http://ann:{PASSWORD}@127.0.0.1:{self.gate.port}"
        pid = self.drivers.start(None, self.lake, url=url, max_records=_RECORDS)
        wait_for(lambda: self.gate.is_holding, SPARK_GUARD)
        return pid

    def kill_executors(self) -> None:
        self.cluster.kill_executors()
        self.gate.hang_up()

    def kill_server(self) -> None:
        self.server.kill()
        self.gate.hang_up()
        self.server.restart()


@pytest.fixture
def yard(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    made = Yard(cluster, tmp_path_factory.getbasetemp(), tmp_path)
    with made.server, made.gate, made.drivers:
        yield made


@pytest.mark.parametrize("rounds", [effort(4, 1)] * effort(3, 1))
def test_every_record_is_there_once_whoever_is_killed(yard: Yard, rounds: int) -> None:
    for _ in range(rounds):
        yard.start_and_hold()
        yard.kill_executors()
        assert yard.drivers.wait() == GOOD, yard.drivers.log()
        yard.start_and_hold()
        yard.kill_server()
        assert yard.drivers.wait() == GOOD, yard.drivers.log()
        os.kill(yard.start_and_hold(), signal.SIGKILL)
        assert yard.drivers.wait() == "SIGKILL"
        yard.gate.hang_up()
    yard.start_and_hold()
    _assert_hidden(yard)
    yard.gate.resume()
    assert yard.drivers.wait() == GOOD, yard.drivers.log()
    yard.server.kill()
    assert_right(yard.lake, yard.server.data)
    _assert_all_pushes(yard)


def _assert_all_pushes(yard: Yard) -> None:
    events = open_lake(yard.lake).arrow("events", ["event", "dialect"]).to_pylist()
    pushes = [row["dialect"] for row in events if row["event"] == "push"]
    assert set(pushes) == {"masenko", "workq", "redis", "client"}
    every = sum(record.kind() == PUSH for record in read_records(yard.server.data))
    assert every == len(pushes) == yard.pushed


def _assert_hidden(yard: Yard) -> None:
    """Nothing that others can read has the password."""
    pages = ("environment", "jobs", "stages", "SQL", "StreamingQuery")
    shown = [_get(f"{yard.drivers.ui}/{page}/") for page in pages]
    assert any(b"taskyard lake" in page for page in shown)
    shown.append(yard.drivers.log().encode())
    shown += _contents(yard.lake.rglob("*"))
    shown += _contents(yard.base.rglob("cluster*/**/std*"))  # what executors print
    shown += _contents(yard.base.rglob("cluster*/*.log"))
    shown += _contents(Path("/proc").glob("[0-9]*/cmdline"))
    for text in shown:
        assert PASSWORD.encode() not in text
        assert _PLAIN.encode() not in text


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


def _contents(paths: Iterable[Path]) -> list[bytes]:
    found = []
    for path in paths:
        with contextlib.suppress(OSError):  # it is a directory, or gone meanwhile
            found.append(path.read_bytes())
    return found
