"""A data directory made of a backup: the same state, and nothing later is mixed up with it."""

from random import Random
from typing import Final

import pytest
from journal.backing_up import NOW, back_up, make_used_server, restored, state_of
from journal.building import recover
from journal.compacting import names
from support.retaining import ORIGIN, RetainingYard, without_ring

from taskyard.backup.manifest import MANIFEST, Manifest
from taskyard.backup.restore import restore
from taskyard.engine.model.events import FetchRequest, JobNotFound, NotLeaseholder
from taskyard.engine.model.job import SECOND
from taskyard.journal.errors import JournalError
from taskyard.journal.format import segment_name
from taskyard.journal.identity import IDENTITY, JOURNAL, RESTORING, load_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalReader
from taskyard.pipeline.journal import JournalContents, TimelineChanged
from taskyard.pipeline.journal_http import HttpJournal

OPERATIONS: Final = ("create", "write", "sync", "rename", "sync_directory")


def go_on(disk: MemoryDisk) -> RetainingYard:
    return RetainingYard(disk=disk)


def test_all_is_as_it_was() -> None:
    yard = make_used_server()
    _, was = state_of(yard)
    backup, _ = back_up(yard.disk)
    disk, _ = restored(backup)
    found = without_ring(recover(disk).state)
    changed = {name for name in was if found[name] != was[name]}
    assert changed <= {"epoch", "next_id", "time", "sessions"}


def test_a_server_goes_on_with_it_and_compacts_it() -> None:
    yard = make_used_server()
    backup, _ = back_up(yard.disk)
    kept = sorted(job.id for job in yard.engine.state.jobs if job.queue.name == "kept")
    disk, _ = restored(backup)
    other = go_on(disk)
    first = other.journal.first_base
    for _ in range(40):
        other.work(1 << 15)
    assert other.journal.first_base > first
    other.restart()
    found = sorted(job.id for job in other.engine.state.jobs if job.queue.name == "kept")
    assert found == kept
    assert other.read(other.first_seq())


def test_it_has_a_timeline_of_its_own_from_the_backup_on() -> None:
    yard = make_used_server()
    backup, manifest = back_up(yard.disk)
    disk, identity = restored(backup)
    loaded = load_identity(disk)
    assert loaded is not None
    assert loaded.timeline == identity.timeline != yard.journal.timeline
    assert loaded.salt == yard.journal.salt  # or jobs would have other uids
    [past] = loaded.earlier
    assert past.timeline == yard.journal.timeline
    assert (past.end, past.last_seq) == (manifest.end, manifest.last_seq)
    assert restored(backup, seed=4)[1].timeline != identity.timeline


def test_a_backup_of_what_was_restored_knows_all_timelines() -> None:
    yard = make_used_server()
    disk, first = restored(back_up(yard.disk)[0])
    other = go_on(disk)
    other.work(1 << 16)
    _, second = restored(back_up(other.disk)[0], seed=8)
    timelines = [past.timeline for past in second.earlier]
    assert timelines == [yard.journal.timeline, first.timeline]


def view_of(yard: RetainingYard) -> JournalContents:
    identity = yard.journal.identity
    earlier = tuple((past.timeline.hex(), int(past.last_seq)) for past in identity.earlier)
    durable = int(yard.journal.durable_seq)
    return JournalContents(
        HttpJournal("http://unused"), identity.timeline.hex(), 1, durable, (), earlier
    )


def test_readers_are_told_if_they_had_read_more_than_the_backup_has() -> None:
    yard = make_used_server()
    yard.register("lake", yard.first_seq())
    backup, manifest = back_up(yard.disk)
    was = yard.journal.timeline.hex()
    yard.commit("lake", int(yard.engine.records.next_seq))
    other = go_on(restored(backup)[0])
    other.work(1 << 16)
    assert other.journal.durable_seq > manifest.last_seq + 2
    view = view_of(other)
    view.check_timeline(was, manifest.last_seq + 1)
    with pytest.raises(TimelineChanged) as raised:
        view.check_timeline(was, manifest.last_seq + 2)
    assert raised.value.last_common == manifest.last_seq


def test_readers_are_where_they_were_and_get_what_follows() -> None:
    yard = make_used_server()
    position = int(yard.engine.records.next_seq)
    yard.register("lake", position)
    backup, manifest = back_up(yard.disk)
    yard.commit("lake", int(yard.engine.records.next_seq))
    disk, _ = restored(backup)
    other = go_on(disk)
    reader = other.engine.reader("lake")
    assert reader is not None
    assert reader.next_seq == position
    entries = list(JournalReader(disk.directory(JOURNAL), live=True).read(position))
    assert [entry.seq for entry in entries][:2] == [position, manifest.last_seq + 1]
    assert entries[1].record.kind() == 1  # that it was restored is the first that happened


def test_what_was_leased_after_the_backup_cannot_be_finished() -> None:
    yard = make_used_server()
    backup, _ = back_up(yard.disk)

    def lease(of: RetainingYard) -> tuple[int, int, int]:
        now = of.turn()
        take = FetchRequest(
            [b"kept"], of.engine.new_owner(), ORIGIN, bound_to_connection=False, ttr=60 * SECOND
        )
        job = of.engine.fetch(take, now)
        assert job is not None
        assert job.lease is not None
        of.end()
        return int(job.id), int(job.lease.epoch), int(job.lease.attempt)

    late = lease(yard)
    yard.restart()
    other = go_on(restored(backup)[0])
    ours = lease(other)
    assert ours[::2] == late[::2]  # the same job, for the same time
    with pytest.raises((NotLeaseholder, JobNotFound)):
        other.engine.finish_with_token(*late, b"", ORIGIN, other.turn())
    other.engine.finish_with_token(*ours, b"", ORIGIN, other.turn())
    assert other.engine.state.epoch > yard.engine.state.epoch


def test_ids_and_uids_given_after_the_backup_are_not_given_again() -> None:
    yard = make_used_server()
    backup, _ = back_up(yard.disk)
    later = [yard.push() for _ in range(5)]
    other = go_on(restored(backup)[0])
    again = [other.push() for _ in range(5)]
    third = go_on(restored(backup, seed=9)[0])
    assert min(again) > max(later) + 1_000_000
    assert not set(again) & {third.push() for _ in range(5)}
    other.restart()
    assert other.push() == again[-1] + 1
    for _ in range(40):  # through compaction, too
        other.work(1 << 15)
    other.restart()
    assert other.push() > again[-1] + 1


# Where it goes wrong


def steps(backup: MemoryDisk) -> list[tuple[str, int]]:
    tried = MemoryDisk()
    restore(backup, tried, Random(1).randbytes, NOW)
    return [(each, nth + 1) for each in OPERATIONS for nth in range(tried.calls(each))]


def test_a_restore_that_is_stopped_leaves_nothing_that_a_server_would_take() -> None:
    backup, manifest = back_up(make_used_server().disk)
    for operation, nth in steps(backup):
        disk = MemoryDisk()
        disk.fail_call(operation, nth)
        with pytest.raises(OSError, match=r"."):
            restore(backup, disk, Random(1).randbytes, NOW)
        disk.heal()
        disk.crash(Random(nth))
        _refused_or_whole(disk, manifest)
        restore(backup, disk, Random(2).randbytes, NOW)  # it can be run again
        disk.crash()
        assert RESTORING not in disk.names()
        assert recover(disk).next_seq == manifest.last_seq + 2


def _refused_or_whole(disk: MemoryDisk, manifest: Manifest) -> None:
    if not disk.names() and not names(disk):
        return  # nothing of it is there
    if RESTORING in disk.names():
        with pytest.raises(JournalError, match="was not finished"):
            go_on(disk)
        return
    assert IDENTITY in disk.names()
    assert recover(disk).next_seq == manifest.last_seq + 2


def test_a_bad_backup_changes_nothing() -> None:
    backup, manifest = back_up(make_used_server().disk)
    name = manifest.segments[0].name
    segments = backup.directory("segments")
    data = bytearray(segments.content(name))
    data[500] ^= 1
    segments.put(name, bytes(data))
    disk = MemoryDisk()
    with pytest.raises(JournalError, match=f"{name} is damaged"):
        restore(backup, disk, Random(1).randbytes, NOW)
    assert disk.names() == []
    assert backup.content(MANIFEST)


def test_the_restored_segments_are_those_of_the_backup() -> None:
    yard = make_used_server()
    backup, manifest = back_up(yard.disk)
    disk, _ = restored(backup)
    expected = [part.name for part in manifest.segments]
    assert names(disk) == [*expected, segment_name(manifest.end)]
    for name in expected:
        assert disk.directory(JOURNAL).content(name) == backup.directory("segments").content(name)
