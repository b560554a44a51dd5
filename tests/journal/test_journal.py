"""Writing, syncing, rotating, reading back, and failing."""

import errno
from random import Random

import pytest
from journal.building import START, Running, copy, fresh_state, picture, recover, segments

from taskyard.journal.errors import JournalFailed
from taskyard.journal.format import parse_header, read_segment
from taskyard.journal.identity import JOURNAL, BadIdentity, JournalSettings
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.opening import open_journal


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_a_new_directory_gets_an_empty_journal(disk: MemoryDisk) -> None:
    state = fresh_state()
    journal, report = open_journal(disk, JournalSettings(), state, START)
    assert (report.segments, report.records, report.bytes, report.torn_bytes) == (0, 0, 0, 0)
    assert journal.durable == journal.written == journal.records.end_position()
    assert journal.records.next_seq == 1
    assert (len(journal.timeline), len(journal.salt)) == (16, 16)


def test_marks_follow_what_is_written_and_synced(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.commit()
    run.push()
    mark = run.journal.records.end_position()
    assert run.journal.written < mark
    assert run.journal.write()
    assert run.journal.written == mark == run.journal.records.end_position()
    assert run.journal.durable < mark
    run.sync()
    assert run.journal.durable == mark
    assert run.journal.durable_seq == run.journal.records.next_seq - 1


def test_there_is_nothing_to_write_without_records(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.commit()
    written = run.journal.written
    assert not run.journal.write()
    assert run.journal.written == written


def test_all_records_since_the_last_write_are_one_frame(disk: MemoryDisk) -> None:
    run = Running(disk)
    for _ in range(5):
        run.push()
    writes = disk.calls("write")
    run.commit()
    assert disk.calls("write") == writes + 1
    assert recover(disk).segments[0].frames == 1


def test_a_sync_covers_what_was_written_when_it_was_taken(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.commit()
    run.push()
    run.journal.write()
    point = run.journal.sync_point()
    before = run.journal.written
    run.push()
    run.journal.write()
    point.run()
    run.journal.on_synced(point)
    assert run.journal.durable == before < run.journal.written


def test_a_sync_that_was_not_done_is_not_believed(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.journal.write()
    with pytest.raises(ValueError, match="not been done"):
        run.journal.on_synced(run.journal.sync_point())


def test_the_first_sync_also_brings_the_files_name_to_disk(disk: MemoryDisk) -> None:
    run = Running(disk)
    before = disk.calls("sync_directory")
    run.commit()
    assert disk.calls("sync_directory") == before + 1
    run.push()
    run.commit()
    assert disk.calls("sync_directory") == before + 1


def test_a_full_segment_is_followed_by_another_where_it_ends(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=1000)
    for _ in range(40):
        run.push(b"x" * 100)
        run.commit()
    names = segments(disk)
    assert len(names) > 4
    directory = disk.directory("journal")
    end, seq = 0, 1
    for name, report in zip(names, recover(disk).segments, strict=True):
        header = parse_header(read_segment(directory, name))
        assert (header.base, header.first_seq) == (end, seq)
        assert header.timeline == run.journal.timeline
        if name != names[-1]:
            assert len(directory.content(name)) >= report.end >= 750
        end, seq = end + report.end, seq + report.records


def test_payloads_are_where_their_jobs_say_across_segments_and_restarts(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=2000)
    payloads = {}
    for number in range(60):
        job = run.push(b"%d:" % number + bytes(number * 3))
        payloads[job.id] = b"%d:" % number + bytes(number * 3)
        assert run.payload(job) == payloads[job.id]
        if number % 4 == 0:
            run.commit()
    run.journal.close()
    again = Running(disk)
    for id, payload in payloads.items():
        assert again.payload(again.engine.job(id)) == payload


def test_a_payload_larger_than_many_blocks_is_read_back(disk: MemoryDisk) -> None:
    payload = Random(1).randbytes(3_000_000)
    run = Running(disk)
    job = run.push(payload)
    assert run.journal.read_blob(job.payload_at, job.payload_size) == payload
    run.commit()
    assert run.payload(job) == payload
    run.journal.close()
    again = Running(disk)
    assert again.payload(again.engine.job(job.id)) == payload


def test_a_blob_that_is_partly_in_memory_is_put_together(disk: MemoryDisk) -> None:
    """Its end is in the block that is being filled, its start has gone from the cache."""
    run = Running(disk, segment_size=1 << 23)
    payload = Random(2).randbytes(1_500_000)
    job = run.push(payload)
    run.commit()
    assert run.journal.read_blob(job.payload_at, job.payload_size) is None
    load = run.load(job.payload_at, job.payload_size)
    assert any(part is not None for part in load.parts)
    run.push(bytes(2_000_000))
    run.commit()
    run.finish_reads()
    assert load.data == payload


def test_a_cold_read_brings_its_neighbours_into_memory(disk: MemoryDisk) -> None:
    run = Running(disk)
    jobs = [run.push(b"%05d" % number * 10) for number in range(1000)]
    run.commit()
    run.journal.close()
    again = Running(disk)
    load = again.load(jobs[0].payload_at, 50)
    assert again.journal.read_blob(jobs[0].payload_at, 50) is None
    again.finish_reads()
    reads = disk.calls("read")
    assert load.data == b"00000" * 10
    for number, job in enumerate(jobs):
        assert again.journal.read_blob(job.payload_at, 50) == b"%05d" % number * 10
    assert disk.calls("read") == reads


def test_a_cold_read_may_overlap_writing(disk: MemoryDisk) -> None:
    early = Running(disk, segment_size=5000)
    job = early.push(b"early" * 10)
    early.commit()
    early.journal.close()
    run = Running(disk, segment_size=5000)
    load = run.load(job.payload_at, job.payload_size)
    for _ in range(200):
        run.push(b"x" * 100)
        run.commit()
    assert run.finish_reads() == [load]
    assert load.data == b"early" * 10


def test_what_is_in_memory_after_all_need_not_be_read(disk: MemoryDisk) -> None:
    run = Running(disk)
    job = run.push(b"here")
    run.commit()
    load = run.load(job.payload_at, job.payload_size)
    assert load.is_done
    assert load.data == b"here"
    assert run.journal.disk_reads.next_read() is None


def test_what_is_not_there_cannot_be_read(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.commit()
    with pytest.raises(OSError, match="nothing at position"):
        run.load(run.journal.written, 10)
    assert run.load(-1, 10).data is None


def test_a_segment_that_became_shorter_is_an_error(disk: MemoryDisk) -> None:
    run = Running(disk)
    job = run.push(b"x" * 1000)
    run.commit()
    run.journal.close()
    again = Running(disk)
    directory = disk.directory("journal")
    directory.put(segments(disk)[0], directory.content(segments(disk)[0])[:500])
    load = again.load(job.payload_at, job.payload_size)
    read = again.journal.disk_reads.next_read()
    assert read is not None
    with pytest.raises(OSError, match="shorter than it was"):
        read.run()
    assert again.journal.disk_reads.on_read_done(read) == [load]
    assert load.data is None


def test_the_cache_stays_within_its_budget(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=1 << 20, payload_memory=2 << 20)
    for _ in range(100):
        run.push(bytes(100_000))
        run.commit()
        assert run.journal._cache.held_bytes() <= 2 << 20


def test_a_failed_sync_is_never_repeated(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.commit()
    durable = run.journal.durable
    run.push()
    run.journal.write()
    disk.fail_call("sync")
    point = run.journal.sync_point()
    with pytest.raises(OSError, match="injected"):
        point.run()
    syncs = disk.calls("sync")
    for call in (point.run, run.journal.write, run.journal.sync_point):
        with pytest.raises(JournalFailed, match="a sync has failed"):
            call()
    with pytest.raises(ValueError, match="not been done"):
        run.journal.on_synced(point)
    assert disk.calls("sync") == syncs
    assert run.journal.durable == durable
    assert "injected" in run.journal.failure
    run.journal.close()
    assert disk.calls("sync") == syncs


@pytest.mark.parametrize("keep", [0, 1, 39, 60])
def test_nothing_is_written_after_a_failed_write(disk: MemoryDisk, keep: int) -> None:
    run = Running(disk)
    run.push()
    run.commit()
    before = picture(recover(disk).state)
    job = run.push(b"unwritten")
    disk.fail_call("write", error=errno.ENOSPC, keep=keep)
    with pytest.raises(OSError, match="injected") as raised:
        run.journal.write()
    assert raised.value.errno == errno.ENOSPC
    run.push()
    with pytest.raises(JournalFailed, match="a write has failed"):
        run.journal.write()
    assert run.payload(job) == b"unwritten"
    run.journal.close()
    recovery = recover(disk)
    assert picture(recovery.state) == before
    assert bool(recovery.torn_bytes) == bool(keep)


def test_records_stay_in_the_log_while_there_is_no_room_for_them(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=1000)
    run.push(bytes(1000))
    disk.fail_call("allocate", error=errno.ENOSPC)
    with pytest.raises(OSError, match="injected"):
        run.journal.write()
    assert not run.journal.failure
    assert run.journal.write()
    run.sync()
    assert picture(recover(disk).state) == picture(run.state)


def test_what_is_behind_a_rotation_is_synced_before_it_counts(disk: MemoryDisk) -> None:
    """Two frames in one segment, the second unsynced when a third opens the next segment."""
    run = Running(disk, segment_size=1000)
    run.commit()
    run.push(bytes(100))
    run.journal.write()
    early = run.journal.sync_point()
    run.push(bytes(1000))
    run.journal.write()
    run.push(b"third")
    run.journal.write()
    early.run()
    run.journal.on_synced(early)
    assert run.journal.durable < run.journal.written
    run.sync()
    assert run.journal.durable == run.journal.written
    disk.crash()
    assert picture(recover(disk).state) == picture(run.state)


def test_a_segment_is_on_disk_before_the_next_is_begun(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=1000)
    for _ in range(30):
        run.push(bytes(300))
        run.journal.write()
    names = segments(disk)
    disk.crash()
    assert set(segments(disk)) >= set(names[:-1])
    for name in names[:-1]:
        parse_header(read_segment(disk.directory("journal"), name))


def test_two_syncs_may_be_out_at_once(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=1000)
    points = []
    for _ in range(2):
        run.push(bytes(1000))
        run.journal.write()
        points.append(run.journal.sync_point())
    for point in reversed(points):
        point.run()
        run.journal.on_synced(point)
    assert run.journal.durable == run.journal.written


def test_closing_writes_syncs_and_gives_room_back(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.push()
    run.journal.close()
    disk.crash()
    name = segments(disk)[0]
    recovery = recover(disk)
    assert len(disk.directory("journal").content(name)) == recovery.segments[0].end
    assert picture(recovery.state) == picture(run.state)
    with pytest.raises(JournalFailed, match="closed"):
        run.journal.write()


def test_each_start_begins_a_segment_of_its_own(disk: MemoryDisk) -> None:
    for _ in range(3):
        run = Running(disk)
        run.journal.close()
    assert len(segments(disk)) == 3


def test_an_empty_segment_at_the_end_is_used_again(disk: MemoryDisk) -> None:
    Running(disk).journal.close()
    for _ in range(3):
        open_journal(disk, JournalSettings(4096), fresh_state(), START)
        assert len(segments(disk)) == 2
    assert Running(disk).journal.records.next_seq == 3


def test_a_killed_servers_records_are_synced_before_anyone_relies_on_them(
    disk: MemoryDisk,
) -> None:
    """They were only in the page cache, and a process reads them from there as well."""
    run = Running(disk)
    run.commit()
    run.push(b"unsynced")
    run.journal.write()
    again = Running(disk)
    disk.crash()
    assert picture(recover(disk).state)[0] == picture(run.state)[0]  # type: ignore[index]
    assert again.journal.durable_seq == run.journal.records.next_seq - 1


def test_they_are_synced_also_where_they_fill_their_segment_to_the_last_byte(
    disk: MemoryDisk,
) -> None:
    run = Running(disk)
    run.commit()
    run.push()
    run.journal.write()
    base = run.journal._segment.base
    disk.directory(JOURNAL).open(segments(disk)[-1]).truncate(run.journal.written - base)
    killed_at = run.journal.records.next_seq
    Running(disk)
    disk.crash()
    assert recover(disk).next_seq >= killed_at


def test_the_stopwatch_is_the_callers(disk: MemoryDisk) -> None:
    times = iter([10.0, 12.5])
    _, report = open_journal(
        disk, JournalSettings(), fresh_state(), START, stopwatch=lambda: next(times)
    )
    assert report.seconds == 2.5


def test_the_report_says_what_was_found(disk: MemoryDisk) -> None:
    run = Running(disk, segment_size=1000)
    for _ in range(10):
        run.push(bytes(200))
        run.commit()
    run.journal.close()
    report = Running(disk).report
    assert report.segments == len(segments(disk)) - 1
    assert report.records == 11
    assert report.bytes == run.journal.written
    assert report.last_time == run.now
    assert report.torn_bytes == 0


def test_a_journal_without_its_identity_is_refused(disk: MemoryDisk) -> None:
    Running(disk).journal.close()
    disk.remove("identity.json")
    with pytest.raises(BadIdentity, match=r"identity\.json is missing"):
        open_journal(disk, JournalSettings(), fresh_state(), START)


def test_a_copy_goes_on_as_the_original_would(disk: MemoryDisk) -> None:
    run = Running(disk)
    run.push()
    run.journal.close()
    one, two = Running(copy(disk)), Running(copy(disk))
    assert picture(one.state) == picture(two.state)
    assert one.journal.timeline == two.journal.timeline == run.journal.timeline
