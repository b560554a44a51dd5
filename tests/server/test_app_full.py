"""A real server on a small disk that is full: what is refused, what goes on, how it comes back."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.mounted import SmallDisk
from support.process import ServerProcess
from support.sockets import SocketPeer
from support.wire import error_of, exchange, queue_counts

PUSH = b'PUSH {"name":"a","payload":"%b"}\n' % (b"x" * 10_000)
REFUSED = "no space: no room for the next segment of the journal: "
FULL = REFUSED + "No space left on device"
UNDER_WAY = "no space: no room in the journal: No space left on device"  # for the next segment
READ_ONLY = REFUSED + "Read-only file system"
FLAGS = ("--segment-size", "2MiB", "--payload-limit", "64KiB")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "data", "12m") as disk:
        yield disk


@pytest.fixture(params=["zero", "reserve"])
def server(request: pytest.FixtureRequest, tmp_path: Path, disk: SmallDisk) -> ServerProcess:
    flags = ("--preallocate", str(request.param), *FLAGS)
    return ServerProcess(tmp_path, *flags, wrapper=disk.wrapper)


def fill(peer: SocketPeer, reason: str = FULL, last: int = 0) -> int:
    """Push until that is refused; gives the id of the last task that was taken."""
    for _ in range(100_000):
        peer.send(PUSH)
        line = peer.read_line()
        if line.startswith(b"ERR"):
            if error_of(line) == UNDER_WAY:
                continue
            assert error_of(line) == reason
            return last
        last = int(line[len(b'OK {"id":') :].rstrip(b"}\n"))
    raise AssertionError("there is room for everything")


def finish(peer: SocketPeer, count: int) -> None:
    for _ in range(count):
        peer.send(b"FETCH\n")
        line = peer.read_line()
        assert line.startswith(b'OK {"id":'), line
        id = int(line[len(b'OK {"id":') :].partition(b",")[0])
        exchange(peer, b'ACK {"id":%d}\n' % id, b"OK {}\n")


def pushes_go_on(peer: SocketPeer) -> bool:
    peer.send(PUSH)
    return peer.read_line().startswith(b"OK")


def refusals_logged(server: ServerProcess) -> tuple[int, int]:
    """How often it was logged that pushes are refused, and that they go on."""
    log = server.log_text()
    return (
        len(re.findall(r" ERROR refusing pushes: no room for the next segment", log)),
        len(re.findall(r" INFO accepting pushes again", log)),
    )


def test_pushes_are_refused_finishing_goes_on_and_both_survive_a_kill(
    server: ServerProcess, disk: SmallDisk
) -> None:
    with server:
        peer, worker = server.connect(), server.connect()
        pushed = fill(peer)
        assert pushed > 300
        finish(worker, 50)
        exchange(peer, b"PING\n", b"PONG {}\n")
        assert queue_counts(peer) == {"default": (pushed - 50, 0, 0)}
        assert refusals_logged(server) == (1, 0)
        server.kill()
        server.restart()
        assert "torn" not in server.log_text()
        peer = server.connect()
        assert queue_counts(peer) == {"default": (pushed - 50, 0, 0)}
        fill(peer)
        finish(peer, 50)
        assert server.stop() == 0
        assert "Traceback" not in server.log_text()


def test_pushes_go_on_by_themselves_when_the_disk_has_grown(
    server: ServerProcess, disk: SmallDisk
) -> None:
    with server:
        peer = server.connect()
        pushed = fill(peer)
        disk.resize("40m")
        server.wait_for(lambda: pushes_go_on(peer))
        server.wait_for(lambda: refusals_logged(server) == (1, 1))
        for _ in range(500):
            assert pushes_go_on(peer)
        server.kill()
        server.restart()
        assert queue_counts(server.connect()) == {"default": (pushed + 501, 0, 0)}


def test_pushes_go_on_by_themselves_when_a_file_was_removed(
    server: ServerProcess, disk: SmallDisk
) -> None:
    filler = str(disk.path / "filler")
    disk.run("fallocate", "-l", "6MiB", filler)
    with server:
        peer = server.connect()
        pushed = fill(peer)
        finish(peer, pushed)
        disk.run("rm", filler)
        server.wait_for(lambda: pushes_go_on(peer))
        assert refusals_logged(server) == (1, 1)


def test_a_directory_that_turns_read_only_is_no_reason_to_stop_finishing(
    server: ServerProcess, disk: SmallDisk
) -> None:
    journal = str(disk.path / "journal")
    with server:
        peer = server.connect()
        # Less than makes the server want its next segment, and then just enough. While that is
        # on its way, the others would fill the disk, and the directory were no reason any more.
        for number in range(1, 41):
            exchange(peer, PUSH, b'OK {"id":%d}\n' % number)
        disk.run("mount", "-t", "tmpfs", "-o", "ro", "none", journal)
        taken = 40 + sum(pushes_go_on(peer) for _ in range(20))
        server.wait_for(lambda: refusals_logged(server) == (1, 0))
        pushed = fill(peer, READ_ONLY, taken)
        finish(peer, pushed // 2)
        disk.run("umount", journal)
        server.wait_for(lambda: pushes_go_on(peer))
        assert refusals_logged(server) == (1, 1)
        assert server.stop() == 0
        server.restart()
        assert queue_counts(server.connect()) == {"default": (pushed - pushed // 2 + 1, 0, 0)}


def test_a_start_without_any_room_says_so(server: ServerProcess, disk: SmallDisk) -> None:
    with server:
        pushed = fill(server.connect())
        server.stop()
        filler = str(disk.path / "filler")
        disk.run("sh", "-c", f"cat /dev/zero > {filler} 2> /dev/null || true")
        server.start()
        assert server.wait() == 1
        assert "ERROR cannot start: " in server.log_text()
        assert "No space left on device" in server.log_text()
        disk.run("rm", filler)
        server.restart()
        assert queue_counts(server.connect()) == {"default": (pushed, 0, 0)}
