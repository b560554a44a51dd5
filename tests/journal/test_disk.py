"""What a disk promises, for the real one and the one in memory; and what only each can do."""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from taskyard.journal.disk import Disk, RealDisk
from taskyard.journal.memory import SECTOR, MemoryDisk


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(str(tmp_path / "disk")) if request.param == "real" else MemoryDisk()


def test_a_new_file_is_zeros(disk: Disk) -> None:
    file = disk.create("a", 1000)
    assert file.size() == 1000
    assert file.read_at(0, 2000) == bytes(1000)
    file.close()


def test_a_file_is_not_made_twice(disk: Disk) -> None:
    disk.create("a", 0).close()
    with pytest.raises(FileExistsError):
        disk.create("a", 0)


def test_parts_are_written_one_after_the_other(disk: Disk) -> None:
    file = disk.create("a", 10)
    file.write_at(3, [b"abc", b"", b"defghijk"])
    assert file.read_at(0, 100) == bytes(3) + b"abcdefghijk"
    assert file.read_at(5, 2) == b"cd"
    assert file.read_at(500, 2) == b""
    buffer = bytearray(b"........")
    assert file.read_into(9, memoryview(buffer)) == 5
    assert buffer == b"ghijk..."
    assert file.read_into(500, memoryview(buffer)) == 0
    file.close()


def test_a_file_is_cut_and_stretched(disk: Disk) -> None:
    file = disk.create("a", 0)
    file.write_at(0, [b"abcdef"])
    file.truncate(3)
    assert file.read_at(0, 100) == b"abc"
    file.truncate(5)
    assert file.read_at(0, 100) == b"abc\0\0"
    file.sync()
    file.close()


def test_zeros_at_the_end_need_not_be_read(disk: Disk) -> None:
    file = disk.create("a", 0)
    file.truncate(1 << 20)
    assert file.data_size() == 0
    file.write_at(0, [b"a" * 5000])
    assert 5000 <= file.data_size() < 1 << 20
    file.write_at(500_000, [b"b"])
    assert 500_001 <= file.data_size() <= 1 << 20
    file.truncate(3)
    assert file.data_size() == 3
    file.close()


def test_files_are_listed_opened_renamed_and_removed(disk: Disk) -> None:
    for name in ("b", "a"):
        file = disk.create(name, 0)
        file.write_at(0, [name.encode()])
        file.close()
    assert disk.names() == ["a", "b"]
    disk.rename("a", "b")
    assert disk.names() == ["b"]
    for file in (disk.open("b"), disk.view("b")):
        assert file.read_at(0, 1) == b"a"
        file.close()
    disk.remove("b")
    disk.sync()
    assert disk.names() == []
    with pytest.raises(FileNotFoundError):
        disk.open("b")


def test_directories_have_files_of_their_own(disk: Disk) -> None:
    inner = disk.directory("inner")
    inner.create("a", 0).close()
    assert inner.names() == ["a"]
    assert "a" not in disk.names()
    disk.rename("inner/a", "b")
    assert inner.names() == []
    assert "b" in disk.names()


class Short:
    """A pwritev or pwrite that takes a few bytes at a time."""

    def __init__(self, *takes: int) -> None:
        self.takes = list(takes)
        self.real = os.pwrite

    def pwritev(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        return self.pwrite(fd, b"".join(parts), offset)

    def pwrite(self, fd: int, data: bytes, offset: int) -> int:
        return self.real(fd, data[: self.takes.pop(0)], offset) if self.takes else 0


@pytest.fixture
def short_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*takes: int) -> None:
        short = Short(*takes)
        monkeypatch.setattr(os, "pwritev", short.pwritev)
        monkeypatch.setattr(os, "pwrite", short.pwrite)

    return install


def test_a_short_write_is_continued(tmp_path: Path, short_writes: Callable[..., None]) -> None:
    file = RealDisk(str(tmp_path)).create("a", 0)
    short_writes(2, 1, 4, 100)
    file.write_at(1, [b"abc", b"defgh"])
    assert file.read_at(0, 100) == b"\0abcdefgh"
    file.close()


def test_a_disk_that_takes_no_more_is_an_error(
    tmp_path: Path, short_writes: Callable[..., None]
) -> None:
    file = RealDisk(str(tmp_path)).create("a", 0)
    short_writes(2)
    with pytest.raises(OSError, match="takes no more"):
        file.write_at(0, [b"abc"])
    file.close()


def test_only_the_owner_can_read_what_is_made(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path / "new" / "data")).directory("journal")
    disk.create("a", 10).close()
    path = tmp_path / "new" / "data" / "journal"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / "a").stat().st_mode) == 0o600


def test_room_that_cannot_be_reserved_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    disk = RealDisk(str(tmp_path))
    with pytest.raises(OSError, match="full"):
        disk.create("a", 1000)
    assert disk.names() == []


def test_where_room_cannot_be_reserved_at_all_a_file_only_gets_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "cannot")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    file = RealDisk(str(tmp_path)).create("a", 1000)
    assert file.size() == 1000
    file.close()


def test_a_hole_that_is_none_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_holes(fd: int, offset: int, how: int) -> int:
        raise OSError(errno.ENXIO, "no data")

    file = RealDisk(str(tmp_path)).create("a", 1000)
    file.write_at(10, [b"written"])
    monkeypatch.setattr(os, "lseek", all_holes)
    assert file.data_size() == 1000
    file.close()


def test_where_holes_are_not_known_all_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, offset: int, how: int) -> int:
        raise OSError(errno.EINVAL, "cannot")

    file = RealDisk(str(tmp_path)).create("a", 1000)
    monkeypatch.setattr(os, "lseek", unsupported)
    assert file.data_size() == 1000
    file.close()


def written(disk: MemoryDisk, synced: bytes, unsynced: bytes) -> MemoryDisk:
    file = disk.create("a", 0)
    file.write_at(0, [synced])
    file.sync()
    disk.sync()
    file.write_at(len(synced), [unsynced])
    return disk


def test_a_crash_drops_what_was_not_synced() -> None:
    disk = written(MemoryDisk(), b"kept", b"lost")
    disk.create("b", 0)
    disk.crash()
    assert disk.names() == ["a"]
    assert disk.content("a") == b"kept"


def test_a_crash_brings_back_what_was_removed_without_a_sync() -> None:
    disk = written(MemoryDisk(), b"kept", b"")
    disk.remove("a")
    disk.crash()
    assert disk.names() == ["a"]


def test_a_crash_tears_at_sectors_but_never_touches_what_was_synced() -> None:
    fates = set()
    for seed in range(200):
        disk = written(MemoryDisk(), b"k" * 700, b"n" * 2000)
        disk.crash(Random(seed))
        content = disk.content("a").ljust(2700, b"\0")
        assert content[:700] == b"k" * 700
        sectors = [content[max(at, 700) : at + SECTOR] for at in range(SECTOR, 2700, SECTOR)]
        fates.add(tuple(sector.count(b"n") == len(sector) for sector in sectors))
    assert (True,) * 5 in fates
    assert (False,) * 5 in fates
    assert len(fates) > 10


def test_the_same_seed_gives_the_same_crash() -> None:
    contents = set()
    for _ in range(3):
        disk = written(MemoryDisk(), b"k" * 700, b"n" * 5000)
        disk.crash(Random(5))
        contents.add(disk.content("a"))
    assert len(contents) == 1


def test_files_are_of_no_use_after_a_crash() -> None:
    disk = MemoryDisk()
    file = disk.create("a", 0)
    disk.crash()
    with pytest.raises(OSError, match="closed"):
        file.write_at(0, [b"x"])


def test_faults_come_when_they_are_due() -> None:
    disk = MemoryDisk()
    file = disk.create("a", 0)
    disk.fail_call("write", nth=2, error=errno.ENOSPC, keep=1)
    file.write_at(0, [b"ab"])
    with pytest.raises(OSError, match="injected") as raised:
        file.write_at(2, [b"cd"])
    assert raised.value.errno == errno.ENOSPC
    assert disk.content("a") == b"abc"
    file.write_at(2, [b"ef"])
    disk.fail_call("sync")
    with pytest.raises(OSError, match="injected"):
        file.sync()
    disk.crash()
    assert disk.names() == []
