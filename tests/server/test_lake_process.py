"""The lake's process beside a real server: started, watched, started again, and never left behind.

The process only acts as the lake: see support/fake_lake.py.
"""

import os
import resource
import signal
from functools import partial
from pathlib import Path
from typing import Any

from support.child import state_of
from support.lake_server import LakeServer
from support.process import ServerProcess
from support.sockets import HANG_GUARD
from support.waiting import wait_for
from support.wire import exchange

from taskyard.server.lake_supervisor import LakeProcess, RestartPolicy

PUSH = b'PUSH {"name":"a"}\n'


class Yard(LakeServer):
    def wait_for_state(self, state: str) -> Any:
        """The view that has it: the next one may have another."""
        found: list[Any] = []

        def has_it() -> bool:
            found.append(self.view())
            return bool(found[-1]["state"] == state)

        self.wait_for(has_it)
        return found[-1]

    def starts(self) -> list[int]:
        """The processes there were."""
        told = self.lake / "starts"
        return [int(line) for line in told.read_text().split()] if told.exists() else []

    def child(self) -> int:
        """Of a family."""
        return int((self.lake / "child").read_text())

    def family(self) -> list[int]:
        """All there were, and the last child; one that is just coming may not have said its own."""
        said = (self.lake / "child").read_text()
        return [*self.starts(), *map(int, said.split())]


def metrics_of(server: LakeServer) -> str:
    return server.ask("GET", "/metrics")[2].decode()


def messages_of(server: ServerProcess) -> list[str]:
    return [entry["message"] for entry in server.log_entries()]


def has_said(server: ServerProcess, message: str) -> bool:
    return message in messages_of(server)


def test_the_lake_follows_and_the_server_knows_how_far_it_is(tmp_path: Path) -> None:
    with Yard(tmp_path, "follow", "--log-format", "json") as server:
        exchange(server.connect(), PUSH * 3, b"".join(b'OK {"id":%d}\n' % n for n in (1, 2, 3)))
        server.wait_for(lambda: server.view()["lag_records"] == 0 and server.view()["running"])
        view = server.view()
        assert view["pid"] == server.starts()[0]
        assert view["restarts"] == 0
        assert view["state"] == "following"
        assert view["events_per_second"] == 12.5
        assert view["next_seq"] > 4
        assert (view["lag_seconds"], view["error"]) == (0, None)
        assert server.get("/api/v1/server")[1]["lake"]["pid"] == view["pid"]
        metrics = metrics_of(server)
        assert "\ntaskyard_lake_up 1\n" in metrics
        assert "\ntaskyard_lake_lag_records 0\n" in metrics
        assert "\ntaskyard_lake_restarts_total 0\n" in metrics
        assert 'taskyard_reader_lag_records{reader="lake"}' in metrics
        # They did not get among the reports, and come by another way, which may be longer.
        for remark in ("lake: an idle remark", "lake: Warning: a remark"):
            server.wait_for(partial(has_said, server, remark))
        messages = messages_of(server)
        assert messages.index("ready") < messages.index("lake process started")
        assert server.stop() == 0
        assert not state_of(view["pid"])


def test_it_gives_way_to_the_broker_with_all_it_has_started(tmp_path: Path) -> None:
    with Yard(tmp_path, "family") as server:
        lake = server.wait_for_state("running")["pid"]
        for pid in (lake, server.child()):
            mine = os.getpriority(os.PRIO_PROCESS, server.pid)
            assert os.getpriority(os.PRIO_PROCESS, pid) == min(mine + 10, 19)
            assert os.sched_getscheduler(pid) == os.SCHED_BATCH
            session = Path(f"/proc/{pid}/autogroup")
            if session.exists():  # the kernel was built to weigh sessions
                assert session.read_text().endswith(" nice 10\n")


def test_a_process_that_is_killed_is_started_again_and_goes_on(tmp_path: Path) -> None:
    with Yard(tmp_path, "follow") as server:
        first = server.wait_for_state("following")["pid"]
        os.kill(first, signal.SIGKILL)
        server.wait_for(lambda: len(server.starts()) == 2)
        view = server.wait_for_state("following")
        assert view["pid"] == server.starts()[1] != first
        assert (view["restarts"], view["error"]) == (1, None)
        assert "it was ended by SIGKILL" in server.log_text()
        assert "\ntaskyard_lake_restarts_total 1\n" in metrics_of(server)
        assert server.stop() == 0


def test_one_that_fails_at_once_is_tried_again_after_growing_pauses(tmp_path: Path) -> None:
    with Yard(tmp_path, "broken", "--log-format", "json") as server:
        server.wait_for(lambda: server.view()["restarts"] >= 4)
        exchange(server.connect(), PUSH, b'OK {"id":1}\n')
        view = server.wait_for_state("waiting")
        why = "it ended with code 1: RuntimeError: the tables are of another journal"
        assert (view["running"], view["pid"], view["error"]) == (False, None, why)
        # It is up for a moment each time that it is tried.
        server.wait_for(lambda: "\ntaskyard_lake_up 0\n" in metrics_of(server))
        pauses = [entry["delay"] for entry in server.log_entries() if "delay" in entry]
        assert pauses[:4] == ["0.02s", "0.04s", "0.08s", "0.1s"]
        assert server.stop() == 0
        assert not any(state_of(pid) for pid in server.starts())


def test_one_that_does_not_end_is_ended_with_all_it_has_started(tmp_path: Path) -> None:
    with Yard(tmp_path, "family") as server:
        server.wait_for_state("running")
        pids = server.family()
        assert len(pids) == 2
        assert all(state_of(pid) for pid in pids)
        assert server.stop() == 0
        wait_for(lambda: not any(state_of(pid) for pid in pids))  # who is killed may take a while


def test_a_descendant_of_one_that_has_died_is_ended(tmp_path: Path) -> None:
    with Yard(tmp_path, "family") as server:
        server.wait_for_state("running")
        child = server.child()
        os.kill(server.starts()[0], signal.SIGKILL)
        wait_for(lambda: not state_of(child))
        server.wait_for(lambda: server.view()["restarts"] == 1)
        server.kill()  # while the next one is on its way
        wait_for(lambda: not any(state_of(pid) for pid in server.family()))


def test_nothing_is_left_of_it_when_the_server_is_killed(tmp_path: Path) -> None:
    with Yard(tmp_path, "family") as server:
        server.wait_for_state("running")
        pids = server.family()
        server.kill()
        wait_for(lambda: not any(state_of(pid) for pid in pids))


def test_clients_are_answered_while_it_is_being_waited_for(tmp_path: Path) -> None:
    with Yard(tmp_path, "deaf", stop=2 * HANG_GUARD) as server:
        lake = server.wait_for_state("running")["pid"]
        peer = server.connect()
        peer.send(b"FETCH\n" + PUSH)
        peer.expect_nothing()
        server.tell(signal.SIGTERM)
        peer.expect(b'EMPTY {}\nOK {"id":1}\n')
        assert state_of(lake)
        assert server.is_running()
        os.kill(lake, signal.SIGKILL)
        assert server.wait() == 0


def test_without_spark_the_server_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyspark'] = None\n")
    server = ServerProcess(
        tmp_path,
        *("--lake", str(tmp_path / "lake")),
        environment={"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    server.start()
    assert server.wait() == 2
    (line,) = server.log_text().splitlines()
    assert line.endswith(
        " ERROR cannot start: the data pipeline needs `pip install taskyard[spark]` "
        "(pyspark is not installed)"
    )


class Heard:
    """What the process has done."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ends: list[str] = []
        self.is_over = False

    def on_start(self, pid: int) -> None: ...

    def on_progress(self, line: bytes) -> None:
        self.lines.append(line)

    def on_log_line(self, line: str) -> None: ...

    def on_crash(self, why: str, pause: float) -> None:
        self.ends.append(why)

    def on_end(self) -> None:
        self.is_over = True


def supervise(command: list[str]) -> Heard:
    """Until it has ended, and been started again."""
    heard = Heard()
    patience = RestartPolicy(first_pause=0.01, group_exit_timeout=0.1)
    process = LakeProcess(command, heard, lambda call, *given: call(*given), patience)
    process.start()
    wait_for(lambda: len(heard.ends) >= 2)
    process.stop()
    process.join()
    assert heard.is_over
    return heard


def test_a_server_with_very_many_connections_hears_it_too() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    taken = [os.dup(0) for _ in range(1200)]
    try:
        heard = supervise(["/bin/sh", "-c", "echo '{}'; printf rest; exit 3"])
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert heard.lines[:2] == [b"{}", b"rest"]
    assert heard.ends[0] == "it ended with code 3"


def test_one_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    heard = supervise([str(tmp_path / "none")])
    assert heard.ends[0].startswith("it cannot be started: [Errno 2] No such file or directory")


def test_the_last_words_are_not_those_of_a_trace() -> None:
    trace = "echo 'ValueError: no' >&2; echo '  at line 1' >&2; kill -9 $$"
    heard = supervise(["/bin/sh", "-c", trace])
    assert heard.ends[0] == "it was ended by SIGKILL: ValueError: no"
