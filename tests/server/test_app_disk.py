"""A real disk that takes no more: the server is read-only, and what it promised is kept.

The limit on the size of files stands for the full disk: it can be lowered while the server runs.
"""

import re
import resource
from pathlib import Path

import pytest
from support.process import ServerProcess
from support.sockets import SocketPeer
from support.wire import error_of, exchange, queue_counts

KIBIBYTE = 1024
PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 10_000)
FLAGS = ("--segment-size", "256KiB", "--payload-limit", "64KiB")


@pytest.fixture(params=["inline", "thread"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> ServerProcess:
    return ServerProcess(tmp_path, "--sync-mode", str(request.param), *FLAGS)


def push(peer: SocketPeer, count: int) -> None:
    for number in range(1, count + 1):
        exchange(peer, PUSH, b'OK {"id":%d}\n' % number)


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
        assert "a torn tail was cut off" in server.log_text()
        assert queue_counts(server.connect()) == {"default": (3, 0, 0)}


def test_a_segment_that_cannot_be_made_makes_the_server_read_only(server: ServerProcess) -> None:
    with server:
        (server.data / "journal" / "spare.new").mkdir()  # none can be made in advance
        peer, other = server.connect(), server.connect()
        push(peer, 26)  # which fill the first segment
        limit_files(server, 128 * KIBIBYTE)
        peer.send(PUSH)
        peer.expect_closed()
        assert_read_only(server, other)
        assert server.stop() == 1
        server.restart()
        assert queue_counts(server.connect()) == {"default": (26, 0, 0)}


def test_a_stop_that_cannot_write_is_no_success(server: ServerProcess) -> None:
    server.flags += ["--durability", "memory"]
    with server:
        peer = server.connect()
        push(peer, 10)
        limit_files(server, 64 * KIBIBYTE)
        peer.send(PUSH)
        assert server.stop() == 1
        assert "Traceback" not in server.log_text()


def test_a_disk_without_room_for_a_segment_is_refused_at_the_start(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, *FLAGS, prepare=allow_small_files)
    server.start()
    assert server.wait() == 1
    log = server.log_text()
    assert "ERROR cannot start: " in log
    assert "File too large" in log
    assert "Traceback" not in log


def allow_small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 * KIBIBYTE, 128 * KIBIBYTE))
