"""Records are read from the files alone, also beside the server that writes them."""

import pytest
from journal.building import Running, copy, flipped, segments

from taskyard.engine import compaction
from taskyard.engine.records.job_lifecycle import EVENT_NAMES, PushRecord
from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalCorrupt, RecordsRemoved
from taskyard.journal.identity import JOURNAL
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalEntry, JournalReader


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def entries(
    disk: Disk, from_seq: int = 1, blobs: bool = False, live: bool = False
) -> list[JournalEntry]:
    return list(JournalReader(disk.directory(JOURNAL), blobs, live).read(from_seq))


def seqs(disk: Disk, from_seq: int = 1, live: bool = False) -> list[int]:
    return [entry.seq for entry in entries(disk, from_seq, live=live)]


def filled(disk: MemoryDisk, pushes: int = 30) -> Running:
    run = Running(disk, segment_size=700)
    for number in range(pushes):
        run.push(b"payload %d" % number)
        run.commit()
    return run


def test_an_empty_journal_has_no_records(disk: MemoryDisk) -> None:
    Running(disk)
    assert seqs(disk) == []
    assert seqs(disk, live=True) == []


def test_all_records_come_in_order(disk: MemoryDisk) -> None:
    run = filled(disk)
    job = run.take()
    assert job is not None
    run.ack(job)
    run.journal.close()
    assert len(segments(disk)) > 3
    found = entries(disk)
    assert [entry.seq for entry in found] == list(range(1, 34))
    assert [entry.record.seq for entry in found] == list(range(1, 34))
    kinds = [EVENT_NAMES[entry.record.kind()] for entry in found]
    assert kinds == ["boot", *["push"] * 30, "lease", "finish"]


@pytest.mark.parametrize("first", [1, 2, 7, 8, 15, 30, 31])
def test_reading_can_start_anywhere(disk: MemoryDisk, first: int) -> None:
    filled(disk).journal.close()
    assert seqs(disk, first) == list(range(first, 32))


def test_reading_behind_the_end_gives_nothing(disk: MemoryDisk) -> None:
    filled(disk).journal.close()
    assert seqs(disk, 32) == []
    assert seqs(disk, 1000) == []


def test_blobs_come_if_they_are_wanted(disk: MemoryDisk) -> None:
    run = filled(disk)
    run.journal.close()
    with_blobs, without = entries(disk, blobs=True), entries(disk)
    for number in range(30):
        full, bare = with_blobs[number + 1].record, without[number + 1].record
        assert full.blob == b"payload %d" % number
        assert bare.blob == b""
        assert bare.blob_at == full.blob_at
        assert bare.blob_size == len(full.blob)
        assert isinstance(full, PushRecord)
        assert run.engine.job(full.id).payload_at == full.blob_at


def test_positions_lie_within_the_journal_in_order(disk: MemoryDisk) -> None:
    run = filled(disk)
    positions = [entry.position for entry in entries(disk)]
    assert positions == sorted(set(positions))
    assert positions[-1] < run.journal.written


def test_a_segment_before_the_first_wanted_one_is_not_read(disk: MemoryDisk) -> None:
    filled(disk).journal.close()
    name = segments(disk)[0]
    data = disk.directory(JOURNAL).content(name)
    damaged = copy(disk, name, flipped(data, 8 * 200))
    assert seqs(damaged, 20) == list(range(20, 32))
    with pytest.raises(JournalCorrupt):
        seqs(damaged)


def test_beside_a_writer_only_what_is_known_to_be_durable_is_read(disk: MemoryDisk) -> None:
    """What was synced last is only known from the next frame."""
    run = Running(disk)
    run.commit()
    assert seqs(disk, live=True) == []
    run.push()
    run.commit()
    assert seqs(disk, live=True) == [1]
    run.push()
    run.journal.write()
    run.push()
    run.journal.write()
    assert seqs(disk, live=True) == [1, 2]
    assert seqs(disk) == [1, 2, 3, 4]
    run.sync()
    run.push()
    run.journal.write()
    assert seqs(disk, live=True) == [1, 2, 3, 4]


def test_beside_a_writer_all_durable_records_come_across_segments(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=500)
    for _ in range(40):
        run.push(b"x" * 50)
        durable = int(run.journal.durable_seq)
        run.journal.write()
        assert seqs(disk, live=True) == list(range(1, durable + 1))
        run.sync()


def test_a_frame_that_is_just_being_written_is_the_end_beside_a_writer(disk: MemoryDisk) -> None:
    run = filled(disk, 5)
    name = segments(disk)[-1]
    data = disk.directory(JOURNAL).content(name)
    end = run.journal.written - run.journal._segment.base
    half = copy(disk, name, data[: end - 10] + bytes(len(data) - end + 10))
    assert seqs(half, live=True) == seqs(disk, live=True)[: len(seqs(half, live=True))]
    assert seqs(half, live=True)[-1] >= 4


def test_a_damage_is_named(disk: MemoryDisk) -> None:
    filled(disk).journal.close()
    name = segments(disk)[2]
    data = disk.directory(JOURNAL).content(name)
    damaged = copy(disk, name, flipped(data, 8 * 150))
    for live in (False, True):
        with pytest.raises(JournalCorrupt) as raised:
            seqs(damaged, live=live)
        assert raised.value.file == name


def test_a_torn_tail_is_just_the_end(disk: MemoryDisk) -> None:
    run = filled(disk, 5)
    run.journal.close()
    name = segments(disk)[-1]
    data = disk.directory(JOURNAL).content(name)
    torn = copy(disk, name, data[:-3])
    assert seqs(torn) == list(range(1, 6))


def test_a_segment_that_is_just_being_made_is_not_there_yet(disk: MemoryDisk) -> None:
    run = filled(disk, 5)
    run.journal.close()
    disk.directory(JOURNAL).put(f"{int(run.journal.written):020}.seg", bytes(700))
    assert seqs(disk) == list(range(1, 7))


def dropped(run: Running, count: int) -> int:
    """Drop the first segments; gives the first record that is left."""
    work = run.journal.remove_segments_before(run.journal._bases[count])
    assert work is not None
    work.run()
    run.journal.on_segments_removed(work)
    return int(run.journal.first_seq_of(run.journal.first_base))


def test_who_wants_what_is_gone_is_told_how_much_it_missed(disk: MemoryDisk) -> None:
    run = filled(disk)
    first = dropped(run, 2)
    for live in (False, True):
        with pytest.raises(RecordsRemoved) as raised:
            seqs(disk, 2, live)
        told = raised.value
        assert (told.wanted, told.first, told.missed) == (2, first, first - 2)
        assert f"records 2 to {first - 1} are not there any more" in str(told)
        assert f"{first - 2} records were missed; the first one left is {first}" in str(told)
        assert seqs(disk, first, live)[0] == first
        assert seqs(disk, 0, live)[0] == first
    with pytest.raises(RecordsRemoved, match=f"record {first - 1} is .* 1 record was missed"):
        seqs(disk, first - 1)
    assert run.journal.missed_records(2) == first - 2
    assert run.journal.missed_records(first) == run.journal.missed_records(first + 5) == 0


def test_large_numbers_can_be_read() -> None:
    text = "records 1 to 5210 are not there any more: 5,210 records were missed; "
    assert str(RecordsRemoved(1, 5211)) == text + "the first one left is 5211"


def test_a_segment_that_goes_while_it_is_read(disk: MemoryDisk) -> None:
    run = filled(disk)
    reader = JournalReader(disk.directory(JOURNAL), live=True)
    entries = reader.read(1)
    got = [next(entries).seq]
    first = dropped(run, 4)
    with pytest.raises(RecordsRemoved) as raised:
        got.extend(entry.seq for entry in entries)
    assert got == list(range(1, raised.value.wanted))
    assert raised.value.first == first
    assert reader.next_seq == raised.value.wanted


def test_carries_are_no_events(disk: MemoryDisk) -> None:
    run = Running(disk)
    job = run.push()
    compaction.snapshot_job(
        run.engine, job, compaction.blobs_to_move(job, 1 << 40), b"payload", run.now
    )
    run.push()
    compaction.snapshot_queue(run.engine, job.queue, run.now)
    run.journal.close()
    assert seqs(disk) == [1, 2, 4]
    reader = JournalReader(disk.directory(JOURNAL))
    assert [entry.seq for entry in reader.read(snapshots=True)] == [1, 2, 3, 4, 5]
    list(reader.read(3))
    assert reader.next_seq == 6


def test_a_damaged_header_stops_only_who_wants_what_is_behind_it(disk: MemoryDisk) -> None:
    run = filled(disk)
    run.journal.close()
    name = segments(disk)[1]
    data = disk.directory(JOURNAL).content(name)
    damaged = copy(disk, name, flipped(data, 8 * 40))
    first = int(run.journal.first_seq_of(run.journal._bases[2]))
    assert seqs(damaged, first) == list(range(first, 32))
    with pytest.raises(JournalCorrupt) as raised:
        seqs(damaged)
    assert raised.value.file == name
