"""A backup is what the journal was at one record, whatever goes on meanwhile, or none at all."""

from random import Random
from typing import Self

import pytest
from journal.backing_up import (
    NOW,
    BusySource,
    back_up,
    files,
    make_used_server,
    state_of,
    with_files,
)
from journal.building import Running
from journal.compacting import flip, names
from support.effort import effort
from support.retaining import SEGMENT, RetainingYard, without_ring

from taskyard.backup import backup as making
from taskyard.backup.backup import DirectorySource, SegmentRange, make_backup
from taskyard.backup.errors import BadBackup, JournalCompactedTooFast
from taskyard.backup.manifest import MANIFEST, read_manifest
from taskyard.backup.restore import check_backup
from taskyard.journal.errors import JournalCorrupt, JournalError, SegmentRemoved
from taskyard.journal.format import SEGMENT_HEADER_BYTES, base_of
from taskyard.journal.identity import JOURNAL, BadIdentity
from taskyard.journal.memory import MemoryDisk, MemoryFile
from taskyard.journal.retention import RetentionLimits
from taskyard.journal.writer import RemoveSegments

OPERATIONS = ("create", "write", "sync", "sync_directory")


def state_in(backup: MemoryDisk) -> dict[str, object]:
    return without_ring(check_backup(backup)[1].state)


def test_it_has_everything_up_to_one_record() -> None:
    yard = make_used_server()
    last_seq, state = state_of(yard)
    backup, manifest = back_up(yard.disk)
    assert manifest.last_seq == last_seq
    assert manifest.timeline == yard.journal.timeline.hex()
    assert manifest.jobs == 30
    assert manifest.bytes == sum(
        len(data) for name, data in files(backup).items() if ".seg" in name
    )
    assert state_in(backup) == state
    assert read_manifest(backup) == manifest


@pytest.mark.parametrize("spare", [False, True], ids=["removed", "used again"])
@pytest.mark.parametrize("seed", range(effort(40, 3)))
def test_it_is_consistent_while_segments_are_dropped_under_it(
    seed: int, spare: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for readers here, so the copy has to begin anew with what is left."""
    monkeypatch.setattr(making, "CHUNK_BYTES", 20_000)  # some to a segment
    yard = make_used_server(spare=spare)
    chance = Random(seed)
    work = iter([6 * SEGMENT])

    def between() -> None:
        yard.push()
        yard.work(next(work, chance.choice([0, 0, 4000, 12_000])))

    source = BusySource(yard, between)
    backup = MemoryDisk()
    manifest = make_backup(source, backup, NOW)
    assert len(source.states) > 1
    assert (manifest.last_seq, state_in(backup)) == source.states[-1]


def test_a_reader_keeps_what_is_being_copied() -> None:
    yard = make_used_server(limits=RetentionLimits(1 << 30))
    yard.register("backup", yard.first_seq())

    def between() -> None:
        yard.push()
        yard.work(SEGMENT)

    source = BusySource(yard, between)
    manifest = make_backup(source, backup := MemoryDisk(), NOW)
    assert [(manifest.last_seq, state_in(backup))] == source.states


class Racing:
    """A directory in which each file is dropped and used again, just when it was opened."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.names = disk.names

    def directory(self, name: str) -> Self:
        return self

    def view(self, name: str) -> MemoryFile:
        file = self._disk.view(name)
        RemoveSegments(self._disk, [base_of(name)], True, 0).run()
        return file


def test_a_segment_that_is_used_again_while_it_is_read_is_not_taken_for_what_it_was() -> None:
    disk = make_used_server().disk
    [wanted, *_] = DirectorySource(disk).read_extent().segments
    source = DirectorySource(Racing(disk.directory(JOURNAL)))  # type: ignore[arg-type]
    with pytest.raises(SegmentRemoved):
        source.read_bytes(wanted, 5000, 6000)


class Passing(DirectorySource):
    """Whatever is wanted has just been dropped."""

    def read_bytes(self, segment: SegmentRange, start: int, end: int) -> bytes:
        raise SegmentRemoved(segment.name)


def test_it_gives_up_if_it_never_catches_up() -> None:
    backup = MemoryDisk()
    with pytest.raises(JournalCompactedTooFast):
        make_backup(Passing(make_used_server().disk), backup, NOW)
    assert MANIFEST not in backup.names()


def test_what_is_only_kept_for_readers_is_left_out() -> None:
    yard = make_used_server(limits=RetentionLimits(1 << 30), lake=True)
    yard.restart()  # the newest header says where a replay begins
    assert yard.retained() > 4 * SEGMENT
    _, manifest = back_up(yard.disk)
    assert manifest.first_seq > 1
    assert manifest.bytes < yard.retained()


def test_damage_in_what_is_only_kept_for_readers_does_not_matter() -> None:
    yard = make_used_server(limits=RetentionLimits(1 << 30), lake=True)
    yard.restart()
    for offset in (10, SEGMENT_HEADER_BYTES + 50):
        flip(yard.disk, names(yard.disk)[0], offset)
    backup, _ = back_up(yard.disk)
    assert check_backup(backup)[1].state.jobs.size >= 30


def test_a_torn_tail_is_left_out() -> None:
    disk = MemoryDisk()
    run = Running(disk)
    for _ in range(3):
        run.push()
        run.commit()
    run.push()
    run.journal.write()
    directory = disk.directory(JOURNAL)
    [name] = names(disk)
    data = bytearray(directory.content(name))
    end = len(bytes(data).rstrip(b"\0"))
    data[end - 3] ^= 1
    directory.put(name, bytes(data))
    _, manifest = back_up(disk)
    assert manifest.last_seq == 4


def test_what_was_written_is_in_it_though_no_later_frame_says_that_it_is_durable() -> None:
    disk = MemoryDisk()
    run = Running(disk)
    run.push()
    run.commit()
    _, manifest = back_up(disk)
    assert (manifest.last_seq, manifest.jobs) == (2, 1)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("offset", [10, SEGMENT_HEADER_BYTES + 60])
def test_there_is_none_of_a_damaged_journal(which: int, offset: int) -> None:
    disk = MemoryDisk()
    run = Running(disk, segment_size=2000)
    while len(names(disk)) < 3:
        run.push()
        run.commit()
    for _ in range(3):
        run.push()
        run.commit()
    assert len(names(disk)) == 3
    flip(disk, names(disk)[which], offset)
    backup = MemoryDisk()
    with pytest.raises(JournalCorrupt):
        make_backup(DirectorySource(disk), backup, NOW)
    assert MANIFEST not in backup.names()


def test_there_is_none_of_nothing() -> None:
    disk = MemoryDisk()
    with pytest.raises(BadIdentity):
        back_up(disk)
    disk.put("identity.json", back_up(make_used_server().disk)[1].timeline.encode())
    with pytest.raises(BadIdentity):
        back_up(disk)


def test_there_is_none_before_the_first_record() -> None:
    disk = MemoryDisk()
    run = Running(disk)
    run.journal.close()
    for name in names(disk):
        disk.directory(JOURNAL).remove(name)
    with pytest.raises(JournalError, match="nothing to back up"):
        back_up(disk)


def steps(yard: RetainingYard) -> list[tuple[str, int]]:
    tried = MemoryDisk()
    make_backup(DirectorySource(yard.disk), tried, NOW)
    return [(each, nth + 1) for each in OPERATIONS for nth in range(tried.calls(each))]


def test_a_failing_disk_leaves_nothing_that_looks_like_a_backup() -> None:
    yard = make_used_server()
    for operation, nth in steps(yard):
        disk = MemoryDisk()
        disk.fail_call(operation, nth)
        with pytest.raises(OSError, match=r"."):
            make_backup(DirectorySource(yard.disk), disk, NOW)
        disk.heal()
        disk.crash(Random(nth))
        try:
            check_backup(disk)
        except BadBackup:
            continue
        # It may have failed after all was there, and the disk kept it: that is no harm.
        assert operation in {"sync", "sync_directory"}


def test_it_survives_a_power_cut_once_it_is_made() -> None:
    yard = make_used_server()
    backup, manifest = back_up(yard.disk)
    backup.crash()
    assert check_backup(backup)[0] == manifest


# What is refused


@pytest.fixture(scope="module")
def small() -> dict[str, bytes]:
    disk = MemoryDisk()
    run = Running(disk, segment_size=700)
    while len(names(disk)) < 3:
        run.push()
        run.commit()
    return files(back_up(disk)[0])


def test_no_byte_can_change(small: dict[str, bytes]) -> None:
    for name, data in small.items():
        for at in range(0, len(data), 4 - effort(3, 1)):
            changed = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            backup = with_files({**small, name: changed})
            if name == MANIFEST and changed.split() == data.split():
                continue  # one white space for another
            with pytest.raises(BadBackup, match=name.rpartition("/")[2]):
                check_backup(backup)


def test_no_file_can_be_missing(small: dict[str, bytes]) -> None:
    for name in small:
        left = {other: data for other, data in small.items() if other != name}
        with pytest.raises(BadBackup, match=f"{name} is missing"):
            check_backup(with_files(left))


def test_no_file_can_be_cut_or_longer(small: dict[str, bytes]) -> None:
    for name, data in small.items():
        for other in (data[:-1], data[: len(data) // 2], b"", data + b"\0"):
            if name == MANIFEST and other.strip() == data.strip():
                continue
            with pytest.raises(BadBackup, match=name):
                check_backup(with_files({**small, name: other}))


def test_one_of_a_newer_version_is_refused_as_such(small: dict[str, bytes]) -> None:
    newer = small[MANIFEST].replace(b'"format": 1,\n  "version"', b'"format": 2,\n  "version"')
    with pytest.raises(BadBackup, match="has format 2, and this version of Taskyard reads up to 1"):
        check_backup(with_files({**small, MANIFEST: newer}))
