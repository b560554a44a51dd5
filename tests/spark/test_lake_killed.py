"""A lake on a real cluster, over HTTP, beside a busy server: executors, the server and the driver
are killed in the middle of batches, and the tables are those that the oracle makes.
"""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from spark.cluster import Cluster
from spark.gate import Gate
from spark.lake_load import Load
from spark.lake_process import LakeProcess, executors, kill_executors, next_seq
from spark.lake_runs import assert_same
from spark.oracle import compute, read_records
from support.effort import LONG, effort
from support.process import ServerProcess
from support.users import user, users_of

from taskyard.access.users import save_users
from taskyard.engine.records import PUSH
from taskyard.pipeline.lake.snapshot import open_lake
from taskyard.pipeline.lake.status import read_status
from taskyard.pipeline.lake.store import is_written

PASSWORD: Final = "hush%2Fhush7f3a"  # as it stands in a URL
_PLAIN: Final = "hush/hush7f3a"
_BATCH: Final = "2000"  # records: several batches in what a test reads
_PUSHES: Final = 800  # at a time: about three records each
_SEED: Final = 5


class Yard:
    """A server that is busy, a lake that follows it over HTTP, and the gate between the two."""

    def __init__(self, cluster: Cluster, base: Path, tmp_path: Path) -> None:
        self.base = base
        self.lake = tmp_path / "lake"
        self.random = Random() if LONG else Random(_SEED)
        self._cluster = cluster
        self._log = tmp_path / "lake.log"
        anonymous = (("*", "push,take,inspect"),)
        users = users_of(user("ann", _PLAIN, admin=True), anonymous=anonymous)
        save_users(tmp_path / "users.toml", users)
        self.server = ServerProcess(tmp_path, "--users", str(tmp_path / "users.toml"))
        self.load = Load(self.server, limit=_PUSHES)
        self.gate = Gate(lambda: self.server.address("http"))
        self.process: LakeProcess

    def start(self) -> None:
        url = f"http://ann:{PASSWORD}@127.0.0.1:{self.gate.port}"
        flags = ["--url", url, "--follow", "--trigger", "100ms", "--batch", _BATCH]
        flags += ["--master", self._cluster.master]
        self.process = LakeProcess(self._log, self.lake, *flags)

    def hold_a_batch(self) -> int:
        """A task is in the middle of its bytes; gives the batch's first record."""
        self.gate.close_after(self.random.randrange(500, 5000))
        self.load.more(_PUSHES)
        self.process.wait_for(lambda: self.gate.is_holding)
        return next_seq(self.lake)

    def kill_executor(self) -> None:
        self.process.wait_for(lambda: executors(self.base))
        kill_executors(self.base)

    def kill_server(self) -> None:
        self.server.kill()
        self.gate.hang_up()
        self.server.restart()

    def kill_driver(self) -> None:
        self.process.kill()
        self.start()

    def files(self) -> int:
        return sum(1 for _ in self.lake.rglob("*.parquet"))


@pytest.fixture
def yard(
    cluster: Cluster, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    made = Yard(cluster, tmp_path_factory.getbasetemp(), tmp_path)
    with made.server, made.gate, made.load:
        made.start()
        try:
            yield made
        finally:
            made.process.kill()


@pytest.mark.parametrize("kills", [effort(4, 0)] * effort(3, 1))
def test_every_record_is_there_once_whoever_is_killed(yard: Yard, kills: int) -> None:
    seq = yard.hold_a_batch()
    kill_executors(yard.base)
    yard.gate.hang_up()
    yard.process.wait_for_record(seq)

    _assert_hidden(yard)

    seq = yard.hold_a_batch()
    yard.kill_server()
    yard.process.wait_for_record(seq)
    if LONG:
        _stay_away(yard)
    _kill_at_random(yard, kills)

    seq = yard.hold_a_batch()
    yard.process.terminate()
    yard.gate.open()
    assert yard.process.wait() == 0, yard.process.text()
    assert next_seq(yard.lake) > seq  # the batch that was under way is there, and that was all
    status = read_status(yard.lake)
    assert status is not None
    assert (status["state"], status["error"]) == ("stopped", None)
    assert not is_written(yard.lake)

    yard.load.stop()
    yard.server.kill()
    _assert_all_there(yard)


def _stay_away(yard: Yard) -> None:
    """For longer than the tasks try by themselves."""
    seq = yard.hold_a_batch()
    yard.server.kill()
    yard.gate.hang_up()
    yard.process.wait_for(lambda: "; waiting for it, for up to 600 s" in yard.process.text())
    yard.server.restart()
    yard.process.wait_for_record(seq)
    yard.process.wait_for(lambda: "the server answers again" in yard.process.text())
    assert "Traceback" not in yard.process.text()


def _kill_at_random(yard: Yard, times: int) -> None:
    ways: list[Callable[[], None]] = [yard.kill_executor, yard.kill_server, yard.kill_driver]
    for _ in range(times):
        way = yard.random.choice(ways)
        if yard.random.random() < 0.5:
            seq = yard.hold_a_batch()
            way()
            yard.gate.hang_up()
        else:  # in whatever it is just doing
            yard.load.more(_PUSHES)
            seq, wanted = next_seq(yard.lake), yard.files() + yard.random.randrange(1, 20)
            yard.process.wait_for(lambda wanted=wanted: yard.files() >= wanted)  # type: ignore[misc]
            way()
        yard.process.wait_for_record(seq)


def _assert_all_there(yard: Yard) -> None:
    """Against the journal, as the oracle reads it, and against what the clients know."""
    end = next_seq(yard.lake)
    records = [record for record in read_records(yard.server.data) if record.seq < end]
    assert_same(yard.lake, compute(records))
    rows = open_lake(yard.lake).arrow("events", ["seq", "part", "event", "dialect"]).to_pylist()
    assert sorted((row["seq"], row["part"]) for row in rows) == sorted(
        {(row["seq"], row["part"]) for row in rows}
    )
    assert {row["seq"] for row in rows} == {record.seq for record in records}
    pushes = [row["dialect"] for row in rows if row["event"] == "push"]
    assert set(pushes) == {"masenko", "workq", "redis", "client"}
    every = sum(record.kind() == PUSH for record in read_records(yard.server.data))
    later = every - sum(record.kind() == PUSH for record in records)
    assert yard.load.promised <= len(pushes) + later <= yard.load.asked


def _assert_hidden(yard: Yard) -> None:
    """Nothing that others can read has the password."""
    status = read_status(yard.lake)
    assert status is not None
    shown = [_get(f"{status['ui']}/{page}/") for page in ("environment", "jobs", "stages", "SQL")]
    assert all(b"taskyard lake" in page for page in shown)
    shown.append(yard.process.text().encode())
    shown += _contents(yard.lake.rglob("*"))
    shown += _contents(yard.base.rglob("cluster*/**/std*"))  # what executors print
    shown += _contents(yard.base.rglob("cluster*/*.log"))
    lines = _contents(Path("/proc").glob("[0-9]*/cmdline"))
    assert any(str(yard.lake).encode() in line for line in lines)
    for text in (*shown, *lines):
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
