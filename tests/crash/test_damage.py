"""A journal that was cut off or damaged behind the server's back, on a real disk."""

import hashlib
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from support.process import WarmServer
from support.wire import error_of, exchange, queue_counts

from taskyard.journal.format import FRAME_HEADER_BYTES, SEGMENT_HEADER_BYTES

PUSHES = 12
FLAGS = ("--segment-size", "1MiB", "--payload-limit", "64KiB", "--sync-mode", "inline")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a server has left that was killed after pushes with a frame each."""
    directory = tmp_path_factory.mktemp("killed")
    with WarmServer(directory, *FLAGS) as server:
        peer = server.connect()
        for number in range(1, PUSHES + 1):
            exchange(peer, b'PUSH {"name":"a","payload":[%d]}\n' % number, pushed(number))
        server.kill()
    return directory / "data"


def pushed(number: int) -> bytes:
    return b'OK {"id":%d}\n' % number


def task(number: int) -> bytes:
    return b'OK {"id":%d,"queue":"default","name":"a","payload":[%d]}\n' % (number, number)


def last_segment(data: Path) -> Path:
    return max((data / "journal").glob("*.seg"))


class Frame(NamedTuple):
    offset: int
    end: int


def frames_of(segment: Path) -> list[Frame]:
    """Each frame begins with the length of its records; a length of 0 is the end."""
    data = segment.read_bytes()
    found = []
    at = SEGMENT_HEADER_BYTES
    while length := int.from_bytes(data[at : at + 4], "little"):
        frame = Frame(at, at + FRAME_HEADER_BYTES + length)
        found.append(frame)
        at = frame.end
    return found


def server_on_copy(killed: Path, directory: Path) -> WarmServer:
    shutil.copytree(killed, directory / "data")
    return WarmServer(directory, *FLAGS)


def digest(data: Path) -> dict[str, str]:
    """All files of the journal, to tell whether one was changed."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((data / "journal").iterdir())
    }


def test_each_push_was_written_as_a_frame(killed: Path) -> None:
    assert len(frames_of(last_segment(killed))) == PUSHES + 1  # and the start of the server


def test_a_server_that_was_killed_has_no_torn_tail(killed: Path, tmp_path: Path) -> None:
    with server_on_copy(killed, tmp_path) as server:
        assert "torn tail" not in server.log_text()
        peer = server.connect()
        for number in range(1, PUSHES + 1):
            exchange(peer, b"FETCH\n", task(number))


@pytest.mark.parametrize("kept", [PUSHES - 1, 1])
@pytest.mark.parametrize("part", ["nothing", "byte", "header", "most"])
def test_a_journal_that_was_cut_off_starts_with_what_is_whole(
    killed: Path, tmp_path: Path, kept: int, part: str
) -> None:
    """`kept` pushes stay, and of the one behind them this part."""
    server = server_on_copy(killed, tmp_path)
    segment = last_segment(server.data)
    cut = frames_of(segment)[kept + 1]
    torn = {"nothing": 0, "byte": 1, "header": 40, "most": cut.end - cut.offset - 1}[part]
    with segment.open("r+b") as file:
        file.truncate(cut.offset + torn)
    with server:
        log = server.log_text()
        if torn:
            assert "WARNING torn tail cut off" in log
            assert f'where="{segment.name}, byte {cut.offset}"' in log
        else:
            assert "torn tail" not in log
        peer = server.connect()
        assert queue_counts(peer) == {"default": (kept, 0, 0)}
        for number in range(1, kept + 1):
            exchange(peer, b"FETCH\n", task(number))
        exchange(peer, b'PUSH {"name":"a"}\n', pushed(kept + 1))
        assert server.stop() == 0
        server.restart()
        assert "torn tail" not in server.log_text()


def test_a_torn_tail_is_reported_in_a_log_of_json_too(killed: Path, tmp_path: Path) -> None:
    server = server_on_copy(killed, tmp_path)
    server.flags += ["--log-format", "json"]
    segment = last_segment(server.data)
    cut = frames_of(segment)[-1]
    with segment.open("r+b") as file:
        file.truncate(cut.end - 3)
    with server:
        torn = [entry for entry in server.log_entries() if "torn" in entry["message"]]
        assert len(torn) == 1
        assert torn[0]["level"] == "warning"
        assert 0 < torn[0]["bytes"] <= cut.end - 3 - cut.offset
        assert torn[0]["where"] == f"{segment.name}, byte {cut.offset}"


@pytest.mark.parametrize("damaged", [0, PUSHES // 2, PUSHES - 1])
@pytest.mark.parametrize("where", ["length", "checksum", "sequence", "salt", "record"])
def test_a_bit_that_has_turned_over_keeps_the_server_from_starting(
    killed: Path, tmp_path: Path, damaged: int, where: str
) -> None:
    server = server_on_copy(killed, tmp_path)
    segment = last_segment(server.data)
    frame = frames_of(segment)[damaged]
    at = {"length": 0, "checksum": 4, "sequence": 8, "salt": 24, "record": 55}[where]
    flip(segment, frame.offset + at)
    before = digest(server.data)
    server.start()
    assert server.wait() == 1
    log = server.log_text()
    assert f"ERROR cannot start: {segment.name} is damaged at byte {frame.offset}" in log
    assert "`taskyard journal check`" in log
    assert "`taskyard journal repair`" in log
    assert "Traceback" not in log
    assert not server.ports_file.exists()
    assert digest(server.data) == before


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))


def test_a_missing_segment_keeps_the_server_from_starting(tmp_path: Path) -> None:
    with WarmServer(tmp_path, *FLAGS) as server:
        for number in range(1, 4):
            exchange(server.connect(), b'PUSH {"name":"a"}\n', pushed(number))
            assert server.stop() == 0
            server.restart()
        server.kill()
        segments = sorted((server.data / "journal").glob("*.seg"))
        segments[1].unlink()
        server.start()
        assert server.wait() == 1
        log = server.log_text()
        assert f"{segments[0].name} is damaged at byte {segments[0].stat().st_size}" in log
        assert "missing" in log


def test_an_error_after_the_cut_tells_of_nothing_that_was_cut_off(
    killed: Path, tmp_path: Path
) -> None:
    server = server_on_copy(killed, tmp_path)
    segment = last_segment(server.data)
    with segment.open("r+b") as file:
        file.truncate(frames_of(segment)[-1].offset + 5)
    with server:
        peer = server.connect()
        peer.send(b'ACK {"id":%d}\n' % PUSHES)
        assert error_of(peer.read_line()) == "task not acquired"
