"""A real disk that takes no more: the server is read-only, and what it promised is kept.

The limit on the size of files stands for the full disk: it can be lowered while the server runs.
"""

import re
import resource
from pathlib import Path

import pytest
from support.faulty_disk import Faults, compile_shim
from support.process import ServerProcess
from support.sockets import SocketPeer
from support.wire import error_of, exchange, queue_counts

KIBIBYTE = 1024
PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 10_000)
FLAGS = ("--segment-size", "256KiB", "--payload-limit", "64KiB")


@pytest.fixture(params=["inline", "thread", "auto"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> ServerProcess:
    return ServerProcess(tmp_path, "--sync-mode", str(request.param), *FLAGS)


def push(peer: SocketPeer, count: int) -> None:
    for number in range(1, count + 1):
        exchange(peer, PUSH, b'OK {"id":%d}\n' % number)


def wait_for_spare(server: ServerProcess) -> None:
    """The next segment is there, which is made aside: without it pushes would be refused, though
    nothing has failed."""
    server.wait_for((server.data / "journal" / "spare").exists)


def limit_files(server: ServerProcess, size: int) -> None:
    """From now on the server cannot write behind this offset of any file."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, hard))


def assert_read_only(server: ServerProcess, peer: SocketPeer) -> None:
    for command in (PUSH, b"FETCH\n", b'ACK {"id":1}\n', b"INFO\n"):
        peer.send(command)
        text = error_of(peer.read_line())
        assert text.startswith("read only: the journal cannot be written: "), text
        assert "File too large" in text
    exchange(peer, b"PING\n", b"PONG {}\n")
    log = server.log_text()
    assert len(re.findall(" ERROR read only until restarted: ", log)) == 1
    assert "Traceback" not in log


def test_a_write_that_fails_makes_the_server_read_only(server: ServerProcess) -> None:
    with server:
        peer, other = server.connect(), server.connect()
        push(peer, 10)
        exchange(peer, b"FETCH\n", b'OK {"id":1,"queue":"default","name":"a","payload":')
        peer.read_line()
        exchange(peer, b'ACK {"id":1}\n', b"OK {}\n")
        wait_for_spare(server)
        limit_files(server, 64 * KIBIBYTE)
        peer.send(PUSH * 3)
        peer.expect_closed()
        assert_read_only(server, other)
        assert server.stop() == 1
        server.restart()
        assert queue_counts(server.connect()) == {"default": (9, 0, 0)}
        assert server.stop() == 0


def test_a_frame_that_is_written_in_part_is_no_frame(server: ServerProcess) -> None:
    with server:
        peer, other = server.connect(), server.connect()
        push(peer, 3)
        limit_files(server, 36 * KIBIBYTE)
        peer.send(PUSH)
        peer.expect_closed()
        assert_read_only(server, other)
        server.kill()
        server.restart()
        assert "torn tail cut off" in server.log_text()
        assert queue_counts(server.connect()) == {"default": (3, 0, 0)}


def test_a_stop_that_cannot_write_is_no_success(server: ServerProcess) -> None:
    server.flags += ["--durability", "memory"]
    with server:
        peer = server.connect()
        push(peer, 10)
        wait_for_spare(server)
        limit_files(server, 64 * KIBIBYTE)
        peer.send(PUSH)
        assert server.stop() == 1
        assert "Traceback" not in server.log_text()


def test_a_disk_without_room_for_a_segment_is_refused_at_the_start(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, *FLAGS, prepare=allow_tiny_files)
    server.start()
    assert server.wait() == 1
    log = server.log_text()
    assert "ERROR cannot start: " in log
    assert "File too large" in log
    assert "Traceback" not in log


def allow_tiny_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * KIBIBYTE, 8 * KIBIBYTE))


# A disk that does what the test says


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_shim(tmp_path_factory.mktemp("shim"))


class FaultyServer(ServerProcess):
    def __init__(self, directory: Path, shim: Path, *flags: str) -> None:
        self.faults = Faults(directory, shim)
        super().__init__(directory, *flags, environment=self.faults.environment)

    def fail(self, *words: str) -> None:
        self.faults.are(*words)


@pytest.fixture(params=["inline", "thread", "auto"])
def faulty(request: pytest.FixtureRequest, tmp_path: Path, shim: Path) -> FaultyServer:
    return FaultyServer(tmp_path, shim, "--sync-mode", str(request.param), *FLAGS)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("sync", "Input/output error"),
        ("write", "Input/output error"),
        ("full", "No space left on device"),
    ],
)
def test_a_disk_that_fails_makes_the_server_read_only_until_it_is_restarted(
    faulty: FaultyServer, fault: str, text: str
) -> None:
    with faulty as server:
        peer, other = server.connect(), server.connect()
        push(peer, 5)
        server.fail(fault)
        peer.send(PUSH)
        peer.expect_closed()
        server.fail()  # that it works again changes nothing
        for command in (PUSH, b"FETCH\n", b"INFO\n"):
            other.send(command)
            line = error_of(other.read_line())
            assert line.startswith("read only: the journal cannot be written: ")
            assert text in line
        exchange(other, b"PING\n", b"PONG {}\n")
        assert len(re.findall(" ERROR read only until restarted: ", server.log_text())) == 1
        assert server.stop() == 1
        server.restart()
        again = server.connect()
        ready = queue_counts(again)["default"][0]
        assert ready in (5, 6)  # the one without a reply may be there or not
        exchange(again, PUSH, b'OK {"id":%d}\n' % (ready + 1))


def test_short_writes_are_continued(faulty: FaultyServer) -> None:
    with faulty as server:
        server.fail("short")
        peer = server.connect()
        push(peer, 40)  # more than one segment
        server.kill()
        server.fail()
        server.restart()
        assert "torn" not in server.log_text()
        assert queue_counts(server.connect()) == {"default": (40, 0, 0)}


def test_a_disk_that_fails_at_the_start_is_named(faulty: FaultyServer) -> None:
    faulty.fail("sync")
    faulty.start()
    assert faulty.wait() == 1
    log = faulty.log_text()
    assert "ERROR cannot start: " in log
    assert "Input/output error" in log
    assert "Traceback" not in log


@pytest.fixture
def held(tmp_path: Path, shim: Path) -> FaultyServer:
    return FaultyServer(tmp_path, shim, "--sync-mode", "thread", *FLAGS)


def test_others_are_served_while_the_disk_stands_still(held: FaultyServer) -> None:
    with held as server:
        peer, other = server.connect(), server.connect()
        push(peer, 5)
        server.fail("hold")
        peer.send(PUSH)
        server.faults.wait_until_held()
        for _ in range(5):
            exchange(other, b"PING\n", b"PONG {}\n")
        other.send(PUSH)
        exchange(server.connect(), b"PING\n", b"PONG {}\n")
        server.fail()
        peer.expect(b'OK {"id":6}\n')
        other.expect(b'OK {"id":7}\n')
        assert server.stop() == 0


def test_a_disk_that_stands_still_and_fails_then_makes_the_server_read_only(
    held: FaultyServer,
) -> None:
    with held as server:
        peer, other = server.connect(), server.connect()
        push(peer, 5)
        server.fail("hold")
        peer.send(PUSH)
        server.faults.wait_until_held()
        exchange(other, b"PING\n", b"PONG {}\n")
        server.fail("sync")
        peer.expect_closed()
        other.send(PUSH)
        assert "Input/output error" in error_of(other.read_line())
        assert server.stop() == 1
        server.fail()
        server.restart()
        assert queue_counts(server.connect())["default"][0] in (5, 6)
