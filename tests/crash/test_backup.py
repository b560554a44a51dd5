"""Backups of a real server under load in all protocols, and backups that are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from journal.building import Running, recover
from protocols.interop.adapters import ADAPTERS
from protocols.interop.adapters.base import Adapter, Can, Options
from support.process import WarmServer
from support.sockets import HANG_GUARD, SocketPeer
from support.tool import Tool
from support.waiting import wait_for
from support.websocket_peer import WebSocketPeer

from taskyard.backup.errors import TargetExists
from taskyard.backup.restore import create_directory
from taskyard.engine.model.job import GONE, SUCCEEDED
from taskyard.journal.disk import RealDisk
from taskyard.pipeline.journal import FileJournal, TimelineChanged

SMALL = ("--segment-size", "256KiB", "--payload-limit", "64KiB", "--retain-bytes", "1MiB")
LISTENERS = {"redis": "resp", "pqueue": "resp", "api": "http", "glovebox": "http"}
PADDING = "x" * 1500
LEFT = 5  # jobs that a client leaves in its queue


class Client(threading.Thread):
    """Pushes, takes and finishes on a queue of its own, and knows what it was told."""

    def __init__(
        self, server: WarmServer, adapter: type[Adapter], stop: threading.Event, when: str
    ) -> None:
        super().__init__(name=f"{adapter.dialect}-{when}")
        self.queue = f"of-{self.name}"
        self._server = server
        self._adapter = adapter
        self._stop_ = stop
        self.asked: list[str] = []  # in the order of the queue
        self.pushed: list[str] = []
        self.ending: list[str] = []
        self.ended: list[str] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self._adapter(self._connect))
        except BaseException as error:
            self.failure = error

    def _connect(self, dialect: str) -> SocketPeer | WebSocketPeer:
        address = self._server.address(LISTENERS.get(dialect, dialect))
        kind = WebSocketPeer if dialect == "glovebox" else SocketPeer
        return kind(address, self._server.address())

    def _work(self, client: Adapter) -> None:
        takes = bool(client.can & {Can.TAKE, Can.POP})
        for number in count():
            if self._stop_.is_set():
                client.disconnect()
                return
            if not takes and number > 10 * LEFT:
                self._stop_.wait()  # with nobody to take them they would become ever more
                continue
            name = f"{self.name}-{number}"
            self.asked.append(name)
            client.push(self.queue, json.dumps(name + PADDING).encode(), Options())
            self.pushed.append(name)
            if takes and len(self.pushed) - len(self.ended) > LEFT:
                self.ending.append(self.asked[len(self.ended)])
                client.ask(self.queue, 0)
                taken = client.arrived()
                assert _name(taken.payload) == self.ending[-1]
                if Can.TAKE in client.can:  # else it was finished when it was taken
                    client.finish(taken)
                self.ended.append(self.ending[-1])


def _name(payload: bytes) -> str:
    text = json.loads(payload)
    assert text.endswith(PADDING)
    return str(text.removesuffix(PADDING))


class Load:
    """All protocols at once, until the context is left."""

    def __init__(self, server: WarmServer, when: str) -> None:
        self._stop = threading.Event()
        self.clients = [Client(server, adapter, self._stop, when) for adapter in ADAPTERS]

    def __enter__(self) -> Load:
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for client in self.clients:
            client.join(HANG_GUARD)
        for client in self.clients:
            assert client.failure is None, (client.name, client.failure)

    def told(self) -> tuple[set[str], set[str]]:
        """What was pushed for certain by now, and what has ended for certain."""
        return (
            {name for client in self.clients for name in list(client.pushed)},
            {name for client in self.clients for name in list(client.ended)},
        )

    def tried(self) -> tuple[set[str], set[str]]:
        """What may have been pushed by now, and what may have ended."""
        return (
            {name for client in self.clients for name in list(client.asked)},
            {name for client in self.clients for name in list(client.ending)},
        )


def jobs_in(data: Path) -> set[str]:
    """The jobs that have not ended, by name."""
    disk = RealDisk(str(data))
    recovery = recover(disk)
    found: set[str] = set()
    for job in recovery.state.jobs:
        if job.state not in {GONE, SUCCEEDED}:
            found.add(_name(_blob(data, int(job.payload_at), int(job.payload_size))))
    return found


def _blob(data: Path, at: int, size: int) -> bytes:
    paths = sorted((data / "journal").glob("*.seg"))
    [*_, path] = [path for path in paths if int(path.stem) <= at]
    with path.open("rb") as file:
        file.seek(at - int(path.stem))
        return file.read(size)


def url_of(server: WarmServer) -> str:
    host, port = server.address("resp")
    return f"taskyard://{host}:{port}"


@pytest.mark.parametrize("way", ["server", "files"])
def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(
    tmp_path: Path, way: str
) -> None:
    backup = tmp_path / "backup"
    with WarmServer(tmp_path, *SMALL) as server, Load(server, "before") as load:
        tool = Tool(url_of(server))
        first = server.data / "journal" / f"{0:020}.seg"
        server.wait_for(lambda: not first.exists())  # it is being compacted
        pushed, ended = load.told()
        flags = ["--data", str(server.data)] if way == "files" else []
        [made] = tool("backup", str(backup), "--json", *flags).objects
        asked, ending = load.tried()
        wait_for(lambda: len(load.told()[1]) > len(ended) + 100)  # it goes on
        assert tool("readers", "list", "--json").objects == []

    data = tmp_path / "again" / "data"
    [restored] = tool("restore", str(backup), "--data", str(data), "--json").objects
    assert restored["was"] == made["timeline"] != restored["timeline"]
    found = jobs_in(data)
    assert not (pushed - ending) - found  # nothing is lost
    assert not found - asked  # nothing is invented
    assert not found & ended  # nothing is back
    assert len(found) <= made["jobs"]

    with WarmServer(tmp_path / "again", *SMALL) as server:
        tool = Tool(url_of(server))
        [shown] = tool("server", "--json").objects
        assert shown["accepting"]
        counts = [queue["counts"] for queue in tool("queues", "--json").objects]
        waiting = ("ready", "delayed", "blocked", "leased", "limited")
        assert sum(each[state] for each in counts for state in waiting) == len(found)
        view = FileJournal(str(server.data)).contents()
        assert view.timeline == restored["timeline"]
        view.check_timeline(made["timeline"], made["last_seq"] + 1)
        with pytest.raises(TimelineChanged):
            view.check_timeline(made["timeline"], made["last_seq"] + 2)
        with Load(server, "after"):
            server.wait_for(lambda: not (data / "journal" / _first_segment(backup)).exists())
        assert server.stop() == 0


def _first_segment(backup: Path) -> str:
    return min(path.name for path in (backup / "segments").iterdir())


# Killed

SLOW = """
import sys
from pathlib import Path
from taskyard.backup.backup import make_backup
from taskyard.backup.restore import create_directory
from taskyard.backup.backup import DirectorySource
from taskyard.journal.disk import RealDisk

class Slow(DirectorySource):
    reads = 0
    def read_bytes(self, segment, start, end):
        self.reads += 1
        if self.reads == 3:
            print("in the middle", flush=True)
            sys.stdin.read()
        return super().read_bytes(segment, start, end)

with create_directory(Path(sys.argv[2])) as disk:
    make_backup(Slow(RealDisk(sys.argv[1])), disk, 0)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    run = Running(RealDisk(str(place)), segment_size=4000)
    while len(list((place / "journal").glob("*.seg"))) < 4:
        run.push(b"x" * 500)
        run.commit()
    run.journal.close()
    return place


@pytest.fixture
def tool() -> Tool:
    return Tool("taskyard://127.0.0.1:1")


def _begin(data: Path, backup: Path) -> subprocess.Popen[str]:
    slow = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(data), str(backup)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert slow.stdout is not None
    assert slow.stdout.readline() == "in the middle\n"
    return slow


def test_a_backup_that_is_killed_leaves_nothing_that_looks_like_one(
    data: Path, tmp_path: Path, tool: Tool
) -> None:
    backup = tmp_path / "backup"
    partial = tmp_path / "backup.partial"
    with _begin(data, backup) as slow:
        assert list((partial / "segments").iterdir())  # some of it is there
        ran = tool("backup", str(backup), "--data", str(data))
        assert ran.code == 1
        assert "another process is making" in ran.err
        slow.kill()
    assert not backup.exists()
    ran = tool("restore", str(partial), "--check")
    assert ran.code == 1
    assert "manifest.json is missing" in ran.err
    tool.ok("backup", str(backup), "--data", str(data))
    assert not partial.exists()
    tool.ok("restore", str(backup), "--check")


def test_a_backup_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fill() -> None:
        with create_directory(tmp_path / "backup") as disk:
            disk.directory("segments").create("1", 10).close()
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_never_replaced(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        with create_directory(path) as disk:
            disk.create("file", 1).close()

    refused: list[Callable[[], object]] = [
        lambda: make(tmp_path),
        lambda: make(tmp_path / "none" / "backup"),
    ]
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused.append(lambda: make(tmp_path / "dangling"))
    for attempt in refused:
        with pytest.raises(TargetExists):
            attempt()
    make(tmp_path / "backup")
    assert os.listdir(tmp_path / "backup") == ["file"]
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700
