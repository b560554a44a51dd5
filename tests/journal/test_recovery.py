"""Torn or damaged: what recovery makes of every kind of broken journal.

Whatever is done to the files, the state it comes to is that after some whole frame, or it refuses.
"""

from random import Random

import pytest
from journal.building import (
    ORIGIN,
    START,
    Running,
    copy,
    flipped,
    fresh_state,
    picture,
    recover,
    segments,
)

from taskyard.engine.model.job import SYSTEM_ORIGIN
from taskyard.engine.records.job_lifecycle import BootRecord, FinishRecord
from taskyard.engine.records.log import RecordBuffer
from taskyard.journal.errors import JournalCorrupt, JournalIncomplete, JournalTooNew
from taskyard.journal.format import (
    SEGMENT_HEADER_BYTES,
    SegmentBytes,
    base_of,
    frame_header,
    parse_header,
    segment_name,
)
from taskyard.journal.identity import JOURNAL, load_identity, save_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.recovery import Recovery
from taskyard.journal.repair import plan_repair


class Written:
    """A journal with small frames, and the state after each of them."""

    def __init__(self, frames: int, unsynced: int = 0, segment_size: int = 64 * 1024) -> None:
        """The last `unsynced` frames were written but never synced."""
        self.disk = MemoryDisk()
        self.run = run = Running(self.disk, segment_size)
        self.ends: list[tuple[str, int]] = []  # file and offset behind each frame
        self.seqs: list[int] = []  # last record of each frame
        self.pictures: dict[int, object] = {0: picture(fresh_state())}
        for number in range(frames):
            self._work(number)
            base = run.journal._segment.base
            run.journal.write()
            if number < frames - unsynced:
                run.sync()
            seq = run.journal.records.next_seq - 1
            self.ends.append((segment_name(base), run.journal.written - base))
            self.seqs.append(seq)
            self.pictures[seq] = picture(run.state)

    def _work(self, number: int) -> None:
        if number % 3 == 2:
            job = self.run.take()
            assert job is not None
            self.run.ack(job)
        else:
            self.run.push(b"payload %d" % number)

    def start(self, frame: int) -> tuple[str, int]:
        """Where a frame begins; the journal of these tests is small enough for one file."""
        return (self.ends[0][0], SEGMENT_HEADER_BYTES) if frame == 0 else self.ends[frame - 1]

    def content(self, name: str) -> bytes:
        return self.disk.directory(JOURNAL).content(name)

    def with_segment(self, name: str, data: bytes) -> MemoryDisk:
        return copy(self.disk, name, data)

    def first_seq(self, frame: int) -> int:
        return self.seqs[frame - 1] + 1 if frame else 1


@pytest.fixture(scope="module")
def synced() -> Written:
    return Written(8)


@pytest.fixture(scope="module")
def unsynced() -> Written:
    """Its last three frames came after the last sync."""
    return Written(8, unsynced=3)


def outcome(written: Written, disk: MemoryDisk) -> Recovery | JournalCorrupt:
    """What recovery says; if it goes on, its state must be that after a whole frame."""
    try:
        recovery = recover(disk)
    except JournalCorrupt as corrupt:
        return corrupt
    assert picture(recovery.state) == written.pictures[recovery.next_seq - 1]
    return recovery


def assert_torn(result: Recovery | JournalCorrupt, written: Written, frame: int) -> None:
    """All before `frame` is there, it and what follows is cut off."""
    assert isinstance(result, Recovery), result
    name, offset = written.start(frame)
    assert result.next_seq == written.first_seq(frame)
    assert result.torn_at == f"{name}, byte {offset}"
    assert result.torn_bytes > 0


def assert_damaged(result: Recovery | JournalCorrupt, written: Written, frame: int) -> None:
    assert isinstance(result, JournalCorrupt)
    assert (result.file, result.offset) == written.start(frame)
    assert result.seq == written.first_seq(frame)
    assert "taskyard journal check" in str(result)
    assert "taskyard journal repair" in str(result)


def test_an_intact_journal_gives_its_last_state(synced: Written) -> None:
    result = outcome(synced, synced.disk)
    assert isinstance(result, Recovery)
    assert result.next_seq == synced.run.journal.records.next_seq
    assert (result.torn_at, result.torn_bytes) == ("", 0)


def test_truncation_at_every_byte_leaves_the_frames_before_it(synced: Written) -> None:
    """The end of a file is where a crash may have cut it: nothing behind says otherwise."""
    name, end = synced.ends[-1]
    data = synced.content(name)
    for size in range(synced.start(5)[1], end + 1):
        whole = sum(1 for _, offset in synced.ends if offset <= size)
        result = outcome(synced, synced.with_segment(name, data[:size]))
        assert isinstance(result, Recovery)
        assert result.next_seq == synced.first_seq(whole)
        left = data[synced.start(whole)[1] : size].rstrip(b"\0")
        assert result.torn_bytes == len(left)


def test_zeros_from_every_byte_on_leave_the_frames_before_it(synced: Written) -> None:
    name, end = synced.ends[-1]
    data = synced.content(name)
    for size in range(synced.start(6)[1], end):
        zeroed = data[:size] + bytes(len(data) - size)
        result = outcome(synced, synced.with_segment(name, zeroed))
        assert isinstance(result, Recovery)
        whole = sum(1 for _, offset in synced.ends if offset <= size)
        if data[size:end].strip(b"\0"):
            assert result.next_seq == synced.first_seq(whole)


def test_every_bit_flip_in_the_last_frame_tears_it_off(synced: Written) -> None:
    """Nothing can say that the last frame was durable."""
    name, end = synced.ends[-1]
    data = synced.content(name)
    for bit in range(synced.start(7)[1] * 8, end * 8):
        assert_torn(outcome(synced, synced.with_segment(name, flipped(data, bit))), synced, 7)


def test_every_bit_flip_in_the_frame_before_is_damage(synced: Written) -> None:
    """The last frame says that the one before it was durable."""
    name, end = synced.ends[6]
    data = synced.content(name)
    for bit in range(synced.start(6)[1] * 8, end * 8):
        assert_damaged(outcome(synced, synced.with_segment(name, flipped(data, bit))), synced, 6)


def test_bit_flips_in_earlier_frames_are_damage(synced: Written) -> None:
    name = synced.ends[0][0]
    data = synced.content(name)
    random = Random(3)
    for frame in range(6):
        start, end = synced.start(frame)[1] * 8, synced.ends[frame][1] * 8
        for bit in random.sample(range(start, end), 60):
            result = outcome(synced, synced.with_segment(name, flipped(data, bit)))
            assert_damaged(result, synced, frame)


def test_bit_flips_behind_the_end_change_nothing(synced: Written) -> None:
    name, end = synced.ends[-1]
    data = synced.content(name)
    assert len(data) > end
    random = Random(4)
    for bit in random.sample(range(end * 8, len(data) * 8), 60):
        result = outcome(synced, synced.with_segment(name, flipped(data, bit)))
        assert isinstance(result, Recovery)
        assert result.next_seq == synced.run.journal.records.next_seq


@pytest.mark.parametrize("frame", [5, 6, 7])
def test_a_bad_frame_that_was_never_synced_is_torn_whatever_follows_it(
    unsynced: Written, frame: int
) -> None:
    name, end = unsynced.ends[frame]
    data = unsynced.content(name)
    for bit in range(unsynced.start(frame)[1] * 8, end * 8, 3):
        result = outcome(unsynced, unsynced.with_segment(name, flipped(data, bit)))
        assert_torn(result, unsynced, frame)


def test_a_bad_frame_before_the_last_sync_is_damage(unsynced: Written) -> None:
    name, end = unsynced.ends[4]
    data = unsynced.content(name)
    for bit in range(unsynced.start(4)[1] * 8, end * 8, 3):
        result = outcome(unsynced, unsynced.with_segment(name, flipped(data, bit)))
        assert_damaged(result, unsynced, 4)


def test_frames_that_lie_behind_a_torn_one_never_come_back(unsynced: Written) -> None:
    """Cut off for good: also when the next run writes frames of the same length there."""
    name = unsynced.ends[5][0]
    data = flipped(unsynced.content(name), unsynced.start(5)[1] * 8 + 330)
    disk = unsynced.with_segment(name, data)
    run = Running(disk)
    assert run.report.torn_bytes > 0
    assert name in run.report.torn_at
    assert run.report.records == unsynced.seqs[4]
    assert len(disk.directory(JOURNAL).content(name)) == unsynced.start(5)[1]
    run.push(b"after")
    run.commit()
    disk.crash()
    assert picture(recover(disk).state) == picture(run.state)


def test_a_wiped_out_middle_is_damage(synced: Written) -> None:
    name = synced.ends[0][0]
    data = bytearray(synced.content(name))
    start, end = synced.start(3)[1], synced.ends[4][1]
    data[start:end] = bytes(end - start)
    assert_damaged(outcome(synced, synced.with_segment(name, bytes(data))), synced, 3)


def test_frames_of_another_salt_are_not_taken_for_ours(synced: Written) -> None:
    """A recycled file: behind our last frame stand intact frames of its earlier use."""
    other = Running(MemoryDisk(), seed=99)
    other.push(b"old")
    other.commit()
    old = other.disk.directory(JOURNAL).open(segments(other.disk)[0]).read_at(0, 1000)
    name, end = synced.ends[-1]
    data = synced.content(name)[:end] + old[SEGMENT_HEADER_BYTES:]
    result = outcome(synced, synced.with_segment(name, data))
    assert isinstance(result, Recovery)
    assert result.next_seq == synced.run.journal.records.next_seq


def test_a_frame_out_of_sequence_is_damage(synced: Written) -> None:
    name = synced.ends[0][0]
    data = synced.content(name)
    third, fourth = synced.start(3)[1], synced.start(4)[1]
    without = data[:third] + data[fourth:]
    result = outcome(synced, synced.with_segment(name, without))
    assert isinstance(result, JournalCorrupt)
    assert result.offset == third
    assert f"record {synced.first_seq(4)} stands there instead" in str(result)


@pytest.fixture(scope="module")
def many() -> Written:
    """A journal of several segments, all synced."""
    written = Written(25, segment_size=500)
    assert written.ends[-1][0] == segments(written.disk)[-1]  # it is not an empty one
    return written


def test_every_flip_in_a_header_is_damage_even_in_the_last_segment(many: Written) -> None:
    for name in segments(many.disk)[:2] + segments(many.disk)[-1:]:
        data = many.content(name)
        for bit in range(0, SEGMENT_HEADER_BYTES * 8, 5):
            result = outcome(many, many.with_segment(name, flipped(data, bit)))
            assert isinstance(result, JournalCorrupt), bit
            assert (result.file, result.offset) == (name, 0)


def test_flips_in_frames_of_earlier_segments_are_damage(many: Written) -> None:
    random = Random(5)
    for frame in range(0, 21, 4):
        name, end = many.ends[frame]
        before, offset = many.start(frame)
        start = offset if before == name else SEGMENT_HEADER_BYTES
        data = many.content(name)
        for bit in random.sample(range(start * 8, end * 8), 25):
            result = outcome(many, many.with_segment(name, flipped(data, bit)))
            assert isinstance(result, JournalCorrupt)
            assert (result.file, result.offset, result.seq) == (
                name,
                start,
                many.first_seq(frame),
            )


def test_a_missing_segment_is_damage(many: Written) -> None:
    names = segments(many.disk)
    for gone in names[1:-1]:
        disk = copy(many.disk)
        disk.directory(JOURNAL).remove(gone)
        result = outcome(many, disk)
        assert isinstance(result, JournalCorrupt)
        assert "the segment that follows it is missing" in str(result)
        assert result.file == names[names.index(gone) - 1]


def test_a_missing_first_segment_is_damage(many: Written) -> None:
    disk = copy(many.disk)
    disk.directory(JOURNAL).remove(segments(disk)[0])
    result = outcome(many, disk)
    assert isinstance(result, JournalCorrupt)
    assert "before it are missing" in str(result)


def test_a_segment_under_another_name_is_damage(many: Written) -> None:
    disk = copy(many.disk)
    names = segments(disk)
    disk.directory(JOURNAL).put(names[1], many.content(names[2]))
    result = outcome(many, disk)
    assert isinstance(result, JournalCorrupt)
    assert "its header is that of position" in str(result)


@pytest.mark.parametrize("further", [-1, 1])
def test_a_segment_that_begins_with_another_record_is_damage(many: Written, further: int) -> None:
    name = segments(many.disk)[1]
    data = many.content(name)
    header = parse_header(SegmentBytes(data, len(data)))
    expected = header.first_seq
    header.first_seq += further
    result = outcome(many, many.with_segment(name, header.encode() + data[SEGMENT_HEADER_BYTES:]))
    assert isinstance(result, JournalCorrupt)
    assert (result.file, result.offset, result.seq) == (name, 0, expected)
    assert f"it begins with record {expected + further} instead" in str(result)


def test_a_segment_of_another_journal_is_damage(many: Written) -> None:
    disk = copy(many.disk)
    identity = load_identity(disk)
    assert identity is not None
    identity.timeline = b"x" * 16
    save_identity(disk, identity)
    result = outcome(many, disk)
    assert isinstance(result, JournalCorrupt)
    assert "belongs to another journal" in str(result)


def test_a_segment_that_was_cut_short_before_others_is_damage(many: Written) -> None:
    names = segments(many.disk)
    name = names[1]
    length = base_of(names[2]) - base_of(name)
    for size in (0, 10, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 20, length - 1):
        result = outcome(many, many.with_segment(name, many.content(name)[:size]))
        assert isinstance(result, JournalCorrupt)
        assert result.file == name


def test_overlapping_segments_are_damage(many: Written) -> None:
    disk = copy(many.disk)
    names = segments(disk)
    directory = disk.directory(JOURNAL)
    data = directory.content(names[2])
    directory.remove(names[2])
    directory.put(segment_name(int(names[2][:20]) - 1), data)
    result = outcome(many, disk)
    assert isinstance(result, JournalCorrupt)
    assert "overlaps" in str(result)


def test_a_last_segment_that_was_never_finished_is_dropped(many: Written) -> None:
    """The server was creating it when the power failed."""
    end = many.run.journal.written
    for data in (b"", bytes(500), b"TASKYARD" + bytes(492), Random(1).randbytes(500)):
        disk = copy(many.disk)
        last = segments(disk)[-1]
        base = int(last[:20])
        directory = disk.directory(JOURNAL)
        directory.put(last, directory.content(last)[: end - base])
        directory.put(segment_name(end), data)
        run = Running(disk)
        assert run.report.records == many.seqs[-1]
        assert picture(recover(disk).state) == many.pictures[many.seqs[-1]]


def test_a_last_segment_without_header_whose_frames_were_durable_is_damage() -> None:
    written = Written(6)
    name = segments(written.disk)[0]
    data = written.content(name)
    for wiped in (SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 50, 512):
        result = outcome(written, written.with_segment(name, bytes(wiped) + data[wiped:]))
        assert isinstance(result, JournalCorrupt)
        assert (result.file, result.offset) == (name, 0)


def test_segments_behind_a_torn_one_are_dropped_if_nothing_says_it_was_durable() -> None:
    """Two segments were written, the second reached the disk and the end of the first did not."""
    written = Written(3)
    run = written.run
    run.push(bytes(600))
    run.journal.write()
    torn = run.journal.written
    run.journal._segment_size = 1500
    run.push(bytes(600))
    run.journal.write()
    run.push(b"in the next segment")
    run.journal.write()
    first, second = segments(written.disk)
    data = written.content(first)
    disk = written.with_segment(first, data[: torn + 10] + bytes(len(data) - torn - 10))
    again = Running(disk)
    assert again.report.records == written.seqs[-1] + 1
    assert again.report.torn_at == f"{first}, byte {torn}"
    assert second not in segments(disk)
    again.push(b"after")
    again.commit()
    disk.crash()
    assert picture(recover(disk).state) == picture(again.state)


def test_a_crash_while_a_tail_is_cut_off_does_no_harm() -> None:
    for operation in ("remove", "sync_directory", "truncate", "sync", "create"):
        for seed in range(4):
            written = Written(3)
            run = written.run
            run.journal.settings.segment_size = 1500
            run.journal._segment_size = 1500
            for _ in range(4):
                run.push(bytes(600))
                run.journal.write()
            disk = written.disk
            name = segments(disk)[0]
            data = disk.directory(JOURNAL).content(name)
            start = written.ends[-1][1]
            disk = copy(disk, name, data[:start] + bytes(30) + data[start + 30 :])
            disk.fail_always(operation)
            with pytest.raises(OSError, match="injected"):
                Running(disk)
            disk.crash(Random(seed))
            assert Running(disk).report.records == written.seqs[-1]


def one_more(synced: Written, body: bytes) -> MemoryDisk:
    """With a frame at the end whose checksum is right."""
    name, end = synced.ends[-1]
    data = synced.content(name)
    salt = int.from_bytes(data[48:56], "little", signed=True)
    frame = frame_header(body, synced.seqs[-1] + 1, 1, salt, 0) + body
    return synced.with_segment(name, data[:end] + frame)


def test_a_record_that_cannot_be_applied_is_named(synced: Written) -> None:
    log = RecordBuffer()
    log.append(FinishRecord(START, ORIGIN, 99, b"work", 1, 0))
    result = outcome(synced, one_more(synced, log.drain(0)))
    assert isinstance(result, JournalCorrupt)
    name, end = synced.ends[-1]
    assert (result.file, result.offset) == (name, end)
    assert "there is no job 99" in str(result)


@pytest.mark.parametrize(
    ("kind", "version", "said"),
    [(200, 1, "unknown kind 200"), (1, 200, "unknown version 200 of kind 1"), (63, 1, "kind 63")],
)
def test_a_record_of_a_newer_version_is_no_damage(
    synced: Written, kind: int, version: int, said: str
) -> None:
    disk = one_more(synced, b"\x0d\0\0\0" + bytes([kind, version]) + bytes(11))
    before = {name: disk.directory(JOURNAL).content(name) for name in segments(disk)}
    with pytest.raises(JournalTooNew, match=f"{synced.ends[-1][0]} was written by a newer.*{said}"):
        recover(disk)
    with pytest.raises(JournalTooNew):  # or all from there on would be moved away
        plan_repair(disk)
    with pytest.raises(JournalTooNew):
        Running(disk)
    assert before == {name: disk.directory(JOURNAL).content(name) for name in segments(disk)}


def test_a_frame_that_says_it_has_fewer_records_is_named(synced: Written) -> None:
    name, end = synced.ends[-1]
    data = synced.content(name)
    salt = int.from_bytes(data[48:56], "little", signed=True)
    log = RecordBuffer(1, 0)
    for epoch in (8, 9):
        log.append(BootRecord(synced.run.now, SYSTEM_ORIGIN, epoch, "test"))
    body = log.drain(0)
    frame = frame_header(body, synced.seqs[-1] + 1, 1, salt, 0) + body
    result = outcome(synced, synced.with_segment(name, data[:end] + frame))
    assert isinstance(result, JournalCorrupt)
    assert (result.file, result.offset) == (name, end)
    assert "another length than its records" in str(result)


@pytest.mark.parametrize("content", [b"", bytes(500)])
def test_a_first_segment_that_is_empty_is_damage_once_there_was_something_in_it(
    content: bytes,
) -> None:
    disk = MemoryDisk()
    for _ in range(2):  # the second start has seen what the first one wrote
        run = Running(disk)
        run.push()
        run.commit()
        run.journal.close()
    first, *others = segments(disk)
    for name in others:
        disk.directory(JOURNAL).remove(name)
    disk.directory(JOURNAL).put(first, content)
    with pytest.raises(JournalCorrupt, match="the journal ends there, but went on") as raised:
        recover(disk)
    assert (raised.value.file, raised.value.offset) == (first, 0)


def test_segments_that_are_all_gone_are_missed_from_the_last_record_on() -> None:
    disk = MemoryDisk()
    for _ in range(2):
        run = Running(disk)
        run.push()
        run.commit()
        run.journal.close()
    identity = load_identity(disk)
    assert identity is not None
    for name in segments(disk):
        disk.directory(JOURNAL).remove(name)
    with pytest.raises(JournalIncomplete, match="no segment is there") as raised:
        recover(disk)
    assert raised.value.seq == identity.extent.last_seq + 1 > 1


def test_other_files_in_the_directory_are_left_alone(synced: Written) -> None:
    disk = copy(synced.disk)
    disk.directory(JOURNAL).put("notes.txt", b"hello")
    assert isinstance(outcome(synced, disk), Recovery)
    Running(disk)
    assert disk.directory(JOURNAL).content("notes.txt") == b"hello"


def test_a_segment_that_cannot_be_read_ends_recovery_with_that_error() -> None:
    disk = MemoryDisk()
    run = Running(disk, segment_size=2000)
    for _ in range(40):
        run.push(b"x" * 200)
        run.commit()
    run.journal.close()
    assert len(segments(disk)) > 3
    disk.fail_call("read", nth=3)
    with pytest.raises(OSError, match="injected into read"):
        recover(disk)
    assert recover(disk).next_seq == run.journal.records.next_seq
