"""Segments that go from the head, and what becomes of their files."""

import errno
from random import Random

import pytest
from journal.building import START, Running, picture, recover, segments
from support.effort import effort

from taskyard.engine.compaction import snapshot_queue, write_checkpoint
from taskyard.journal.errors import JournalCorrupt, RecordsRemoved, SegmentRemoved
from taskyard.journal.format import parse_header, read_segment, segment_name
from taskyard.journal.identity import JOURNAL
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalReader
from taskyard.journal.segments import PAGE_BYTES, RECYCLED_MARK, SPARE
from taskyard.journal.writer import RemoveSegments

SIZE = 1 << 16


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def run(disk: MemoryDisk) -> Running:
    """Its journal has five segments, and all jobs in them are done."""
    return grown(disk, 5)


def grown(disk: MemoryDisk, count: int) -> Running:
    run = Running(disk, SIZE)
    run.journal.settings.prepare_ahead = True
    run.commit()
    while len(segments(disk)) < count:
        work(run)
    return run


def work(run: Running, size: int = 5000) -> None:
    """One job comes and goes."""
    run.push(Random(run.now).randbytes(size))
    job = run.take()
    assert job is not None
    run.ack(job)
    run.commit()


def close(run: Running, position: int) -> None:
    """What compaction does before it drops segments, where nothing but queues lives."""
    base = max([base for base in run.journal._bases if base <= position], default=0)
    if base > run.journal.replay_start:
        for queue in run.state.queues.values():
            snapshot_queue(run.engine, queue, run.now)
        write_checkpoint(run.engine, base, run.now)
        run.commit()
        run.journal.advance_replay_start(base)


def drop(run: Running, position: int) -> RemoveSegments:
    close(run, position)
    return drop_at_once(run, position)


def drop_at_once(run: Running, position: int) -> RemoveSegments:
    dropping = run.journal.remove_segments_before(position)
    assert dropping is not None
    dropping.run()
    run.journal.on_segments_removed(dropping)
    return dropping


def test_segments_before_a_position_are_removed(disk: MemoryDisk, run: Running) -> None:
    names = segments(disk)
    bases = list(run.journal._bases)
    run.journal.settings.prepare_ahead = False  # so none of them is recycled
    assert run.journal.first_base == 0
    drop(run, bases[2] + 5)
    assert segments(disk) == names[2:]
    assert run.journal.first_base == bases[2]


def test_nothing_is_dropped_that_reaches_behind_the_position(run: Running) -> None:
    assert run.journal.remove_segments_before(0) is None
    assert run.journal.remove_segments_before(run.journal._bases[1] - 1) is None
    assert run.journal.first_base == 0


def test_neither_the_current_segment_nor_one_that_is_not_on_disk_is_dropped(
    disk: MemoryDisk,
) -> None:
    run = grown(disk, 3)
    run.journal.settings.prepare_ahead = False
    run.push(bytes(SIZE))
    run.journal.write()
    assert len(run.journal._bases) == 4
    drop_at_once(run, run.journal.written)
    assert len(run.journal._bases) == 2
    run.sync()
    drop_at_once(run, run.journal.written)
    assert len(run.journal._bases) == 1
    assert run.journal.remove_segments_before(run.journal.written) is None


def test_one_drop_at_a_time(run: Running) -> None:
    dropping = run.journal.remove_segments_before(run.journal._bases[2])
    assert dropping is not None
    assert run.journal.remove_segments_before(run.journal._bases[-1]) is None
    dropping.run()
    run.journal.on_segments_removed(dropping)
    assert run.journal.remove_segments_before(run.journal._bases[-1]) is not None


def test_a_segment_that_is_being_read_stays_with_all_behind_it(
    disk: MemoryDisk,
) -> None:
    run = grown(disk, 12)  # more than the payload cache holds
    run.journal.settings.prepare_ahead = False
    bases = list(run.journal._bases)
    load = run.load(bases[1] + 200, 1000)
    drop(run, bases[4])
    assert run.journal.first_base == bases[1]
    assert run.journal.remove_segments_before(bases[4]) is None
    run.finish_reads()
    assert load.data is not None
    drop(run, bases[4])
    assert run.journal.first_base == bases[4]


def test_of_what_was_dropped_nothing_is_given(run: Running) -> None:
    base = run.journal._bases[2]
    drop(run, base)
    assert run.journal.read_blob(base - 100, 50) is None
    load = run.load(base - 100, 50)
    assert load.is_done
    assert load.data is None


def test_the_cache_forgets_what_was_dropped(disk: MemoryDisk) -> None:
    run = Running(disk, SIZE, payload_memory=1 << 24)
    while len(segments(disk)) < 5:
        work(run)
    held = run.journal._cache.held_bytes()
    drop(run, run.journal._bases[4])
    assert 0 <= run.journal._cache.held_bytes() < held // 2


def test_what_could_not_be_removed_is_dropped_the_next_time(disk: MemoryDisk, run: Running) -> None:
    run.journal.settings.prepare_ahead = False
    bases = list(run.journal._bases)
    disk.fail_call("remove", nth=2, error=errno.EROFS)
    dropping = drop(run, bases[3])
    assert (dropping.removed_count, dropping.reason) == (1, "injected into remove")
    assert run.journal.first_base == bases[1]
    assert drop(run, bases[3]).removed_count == 2
    assert segments(disk) == [segment_name(base) for base in bases[3:]]


def test_what_an_earlier_drop_could_not_sync_is_on_disk_before_more_goes() -> None:
    """Else a crash may bring the first segment back and not the second: a gap."""
    for seed in range(8):
        disk = MemoryDisk()
        run = grown(disk, 5)
        run.journal.settings.prepare_ahead = False
        bases = list(run.journal._bases)
        close(run, bases[3])
        for position in (bases[1], bases[2]):
            disk.fail_call("sync_directory", nth=2)  # the one after the segment was removed
            assert drop_at_once(run, position).reason
        disk.crash(Random(seed))
        left = segments(disk)
        assert left == [segment_name(base) for base in bases[len(bases) - len(left) :]]


# Recycling


def test_one_of_them_becomes_the_spare(disk: MemoryDisk, run: Running) -> None:
    journal = disk.directory(JOURNAL)
    first = journal.content(segments(disk)[0])
    close(run, run.journal._bases[2])
    writes = disk.calls("write")
    assert drop_at_once(run, run.journal._bases[2]).recycled
    assert disk.calls("write") == writes + 1
    content = journal.content(SPARE)
    assert content[:PAGE_BYTES] == RECYCLED_MARK + bytes(PAGE_BYTES - len(RECYCLED_MARK))
    assert content[PAGE_BYTES:] == first[PAGE_BYTES:SIZE]
    assert len(segments(disk)) == 3
    assert journal.names() == [*segments(disk), SPARE]


def make_spare(run: Running) -> None:
    """As it is made when the next segment is near."""
    work(run, SIZE // 2)
    making = run.journal.prepare_next_segment()
    assert making is not None
    making.run()
    run.journal.on_segment_prepared(making)


def test_none_is_recycled_while_a_spare_is_being_made(run: Running) -> None:
    work(run, SIZE // 2)
    assert run.journal.prepare_next_segment() is not None
    assert not drop(run, run.journal._bases[2]).recycled


def test_while_there_is_a_spare_the_last_of_them_waits_to_be_the_next(
    disk: MemoryDisk, run: Running
) -> None:
    make_spare(run)
    bases = list(run.journal._bases)
    assert drop(run, bases[3]).bases == bases[:2]
    assert run.journal.remove_segments_before(bases[3]) is None
    assert segments(disk)[0] == segment_name(bases[2])
    while not run.journal.needs_next_segment():
        work(run)
    writes = disk.calls("write")
    assert drop_at_once(run, bases[3]).recycled
    assert disk.calls("write") == writes + 1
    assert run.journal.first_base == bases[3]


def test_one_that_is_no_good_as_a_spare_does_not_wait(disk: MemoryDisk) -> None:
    run = Running(disk, SIZE)
    work(run)
    run.journal.close()
    run = grown(disk, 3)
    make_spare(run)
    assert drop(run, run.journal._bases[1]).bases == [0]


def test_none_waits_while_there_is_no_room_for_pushes(run: Running) -> None:
    make_spare(run)
    run.journal.space.push_refusal = "the disk is full"
    bases = list(run.journal._bases)
    assert drop_at_once(run, bases[3]).bases == bases[:3]


def test_no_spare_is_made_while_one_may_be_recycled(run: Running) -> None:
    work(run, SIZE // 2)
    dropping = run.journal.remove_segments_before(run.journal._bases[1])
    assert dropping is not None
    assert run.journal.prepare_next_segment() is None
    dropping.run()
    run.journal.on_segments_removed(dropping)
    assert run.journal.prepare_next_segment() is None
    assert run.journal._allocator.ready


def test_a_segment_that_was_cut_is_not_recycled(disk: MemoryDisk) -> None:
    run = Running(disk, SIZE)
    work(run)
    run.journal.close()
    run = grown(disk, 3)
    rebase_to = run.journal._bases[1]
    assert not drop(run, rebase_to).recycled
    assert SPARE not in disk.directory(JOURNAL).names()


def test_one_that_was_made_longer_is_cut_to_its_size(disk: MemoryDisk) -> None:
    run = Running(disk, SIZE)
    run.journal.settings.prepare_ahead = True
    work(run, 2 * SIZE)
    work(run)
    assert drop(run, run.journal._bases[1]).recycled
    assert len(disk.directory(JOURNAL).content(SPARE)) == SIZE


def test_a_segment_that_cannot_be_read_is_not_used_again(disk: MemoryDisk, run: Running) -> None:
    close(run, run.journal._bases[1])
    disk.fail_call("read")
    dropping = drop_at_once(run, run.journal._bases[1])
    disk.heal()
    assert not dropping.recycled
    assert run.journal.needs_next_segment()
    assert SPARE not in disk.directory(JOURNAL).names()
    assert recover(disk).next_seq == run.journal.records.next_seq


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "open", "sync_directory"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_recycling_that_fails_loses_nothing(disk: MemoryDisk, operation: str, nth: int) -> None:
    run = grown(disk, 4)
    close(run, run.journal._bases[2])
    disk.fail_call(operation, nth=nth)
    drop_at_once(run, run.journal._bases[2])
    disk.heal()
    assert run.journal._bases == [int(name[:20]) for name in segments(disk)]
    while len(segments(disk)) < 6:
        work(run)
    drop(run, run.journal._bases[2])
    assert recover(disk).next_seq == run.journal.records.next_seq


def recycled(disk: MemoryDisk) -> Running:
    """A server that writes into a file with old frames behind its own."""
    run = grown(disk, 4)
    assert drop(run, run.journal._bases[2]).recycled
    while not parse_header(read_segment(disk.directory(JOURNAL), segments(disk)[-1])).recycled:
        work(run)
    for _ in range(3):
        work(run, 500)
    return run


def test_a_killed_server_leaves_no_torn_tail_in_a_recycled_segment(disk: MemoryDisk) -> None:
    run = recycled(disk)
    recovery = recover(disk)
    assert recovery.next_seq == run.journal.records.next_seq
    assert (recovery.torn_bytes, recovery.torn_at) == (0, "")
    again = Running(disk, SIZE, now=run.now)
    assert again.report.torn_bytes == 0
    assert len(disk.directory(JOURNAL).content(segments(disk)[-2])) == recovery.segments[-1].end


def test_bytes_of_a_torn_frame_in_a_recycled_segment_are_reported(disk: MemoryDisk) -> None:
    run = recycled(disk)
    before = recover(disk)
    end = before.segments[-1].end
    work(run, 2000)
    name = segments(disk)[-1]
    journal = disk.directory(JOURNAL)
    data = bytearray(journal.content(name))
    written = run.journal.written - run.journal._segment.base
    data[end + 100 : end + 600] = bytes(500)
    journal.put(name, bytes(data))
    recovery = recover(disk)
    assert recovery.next_seq == before.next_seq
    assert recovery.torn_at == f"{name}, byte {end}"
    assert recovery.torn_bytes == written - end


def test_damage_in_a_recycled_segment_is_found(disk: MemoryDisk) -> None:
    run = recycled(disk)
    start = recover(disk).segments[-1].end
    for _ in range(3):
        work(run, 200)
    name = segments(disk)[-1]
    journal = disk.directory(JOURNAL)
    data = bytearray(journal.content(name))
    data[start + 60] ^= 1
    journal.put(name, bytes(data))
    with pytest.raises(JournalCorrupt, match="was durable later") as raised:
        recover(disk)
    assert (raised.value.file, raised.value.offset) == (name, start)


def test_a_recycled_file_that_got_only_its_name_is_dropped_without_a_word(
    disk: MemoryDisk,
) -> None:
    run = grown(disk, 4)
    drop(run, run.journal._bases[2])
    journal = disk.directory(JOURNAL)
    content = journal.content(SPARE)
    name = segment_name(run.journal.written)
    journal.put(name, content)
    recovery = recover(disk)
    assert recovery.segments_behind == [name]
    assert (recovery.torn_bytes, recovery.torn_at) == (0, "")
    again = Running(disk, SIZE, now=run.now)
    assert again.report.torn_bytes == 0


def test_a_spare_of_an_earlier_run_is_known_to_have_been_used(disk: MemoryDisk) -> None:
    run = grown(disk, 4)
    drop(run, run.journal._bases[2])
    run.journal.close()
    again = Running(disk, SIZE, now=run.now)
    again.commit()
    directory = disk.directory(JOURNAL)
    assert parse_header(read_segment(directory, segments(disk)[-1])).recycled
    assert recover(disk).torn_bytes == 0


@pytest.mark.parametrize("seed", range(effort(60, 20)))
def test_crashes_while_segments_are_dropped_and_recycled(seed: int) -> None:
    """What is left is one history without a gap, up to all that was durable."""
    random = Random(seed)
    disk = MemoryDisk()
    now = START
    durable = 0
    for _ in range(4):
        run = Running(disk, SIZE, now=now, seed=random.randrange(1 << 30))
        run.journal.settings.prepare_ahead = True
        assert run.journal.durable_seq >= durable
        for _ in range(random.randrange(5, 40)):
            run.push(random.randbytes(random.choice((10, 3000, 30_000))))
            job = run.take()
            assert job is not None
            run.ack(job)
            run.journal.write()
            if random.random() < 0.8:
                run.sync()
            position = random.randrange(run.journal.durable)
            close(run, position)
            dropping = run.journal.remove_segments_before(position)
            if dropping is not None:
                dropping.run()
                run.journal.on_segments_removed(dropping)
        durable = int(run.journal.durable_seq)
        position = random.randrange(run.journal.durable)
        close(run, position)
        dropping = run.journal.remove_segments_before(position)
        if dropping is not None:
            operation = random.choice(("rename", "sync", "sync_directory", "remove", "write"))
            disk.fail_call(operation, nth=random.randint(1, 3))
            dropping.run()
        now = run.now
        disk.crash(random)


# Reading beside a server


def test_a_reader_that_was_passed_by_compaction_says_so(disk: MemoryDisk, run: Running) -> None:
    reader = JournalReader(disk.directory(JOURNAL), live=True)
    entries = reader.read()
    next(entries)
    drop(run, run.journal._bases[3])
    with pytest.raises(RecordsRemoved, match="records were missed"):
        list(entries)


def test_a_reader_that_starts_later_begins_with_what_is_there(
    disk: MemoryDisk, run: Running
) -> None:
    drop(run, run.journal._bases[3])
    entries = list(JournalReader(disk.directory(JOURNAL), live=True).read())
    header = parse_header(read_segment(disk.directory(JOURNAL), segments(disk)[0]))
    assert entries[0].seq == header.first_seq > 1


def test_a_segment_that_is_recycled_under_a_reader_is_not_called_damaged(
    disk: MemoryDisk, run: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened by its name, then renamed, and read when its first page was gone."""
    directory = disk.directory(JOURNAL)
    reader = JournalReader(directory, live=True)
    headers = reader.segments()
    drop(run, run.journal._bases[1])
    old = segment_name(headers[0].base)
    view = MemoryDisk.view
    monkeypatch.setattr(
        MemoryDisk, "view", lambda self, name: view(self, SPARE if name == old else name)
    )
    with pytest.raises(SegmentRemoved):
        reader._content(headers[0])


def test_a_damaged_header_is_still_called_damaged(disk: MemoryDisk, run: Running) -> None:
    directory = disk.directory(JOURNAL)
    reader = JournalReader(directory)
    headers = reader.segments()
    name = segment_name(headers[1].base)
    directory.put(name, b"x" + directory.content(name)[1:])
    with pytest.raises(JournalCorrupt):
        reader._content(headers[1])


def test_the_state_is_the_same_with_recycled_segments(disk: MemoryDisk) -> None:
    run = recycled(disk)
    job = run.push(b"waiting")
    run.commit()
    assert run.payload(job) == b"waiting"
    jobs = picture(recover(disk).state)
    assert jobs == picture(recover(disk).state)
    again = Running(disk, SIZE, now=run.now)
    assert again.payload(again.engine.job(job.id)) == b"waiting"
