"""A frame always fits into room that the disk has; when there is none, that is known before."""

import errno
from pathlib import Path
from random import Random

import pytest
from journal.building import Running, picture, recover, segments

from taskyard.engine.model.events import NoSpace
from taskyard.engine.model.state import EngineSettings, State
from taskyard.journal.disk import RealDisk
from taskyard.journal.identity import JOURNAL, JournalSettings
from taskyard.journal.memory import NO_SPACE, MemoryDisk
from taskyard.journal.opening import open_journal
from taskyard.journal.writer import Journal

SIZE = 1 << 16
NO_NEXT = f"no room for the next segment of the journal: {NO_SPACE}"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def running(disk: MemoryDisk, size: int = SIZE) -> Running:
    run = Running(disk, size)
    run.engine.journal_space = run.journal.space
    run.commit()
    return run


def allocated(run: Running) -> int:
    """The size of the file that is being written."""
    assert isinstance(run.disk, MemoryDisk)
    return len(run.disk.directory(JOURNAL).content(segments(run.disk)[-1]))


def fill_up(disk: MemoryDisk) -> None:
    disk.set_capacity(disk.used())


def make_spare(journal: Journal) -> bool:
    """As the broker does it; whether there was anything to do."""
    work = journal.prepare_next_segment()
    if work is None:
        return False
    work.run()
    journal.on_segment_prepared(work)
    return True


def test_the_room_is_what_is_left_of_the_segment(disk: MemoryDisk) -> None:
    run = running(disk)
    assert run.journal.space.free_bytes == SIZE - run.journal.records.start_position
    run.push(bytes(1000))
    run.commit()
    assert run.journal.space.free_bytes == SIZE - run.journal.records.start_position


def test_a_segment_is_made_longer_for_what_does_not_fit(disk: MemoryDisk) -> None:
    run = running(disk)
    for _ in range(5):
        run.push(bytes(40_000))
    assert allocated(run) >= run.journal.records.start_position + run.journal.records.size() > SIZE
    run.commit()
    assert picture(recover(disk).state) == picture(run.state)


def test_what_was_too_much_of_that_is_given_back(disk: MemoryDisk) -> None:
    run = running(disk)
    assert run.journal.try_extend(10 * SIZE)
    assert allocated(run) > 10 * SIZE
    first = segments(disk)[0]
    run.push(bytes(SIZE))
    run.commit()
    assert len(disk.directory(JOURNAL).content(first)) == run.journal._bases[1]


def test_frames_are_never_written_behind_what_is_allocated(disk: MemoryDisk) -> None:
    """Whatever their sizes are: a full disk is not met by a write."""
    for seed in range(20):
        disk = MemoryDisk()
        run = running(disk)
        random = Random(seed)
        for _ in range(150):
            for _ in range(random.randint(1, 5)):
                run.push(bytes(random.choice((0, 100, 5000, 30_000))))
            fill_up(disk)
            assert run.journal._write_frame()
            disk.set_capacity(-1)
            run.journal._rotate() if run.journal._is_full() else None
            run.journal._update_space()


def test_without_room_a_push_is_refused_and_nothing_is_written(disk: MemoryDisk) -> None:
    run = running(disk)
    fill_up(disk)
    with pytest.raises(NoSpace, match=f"no room in the journal: {NO_SPACE}"):
        run.push(bytes(SIZE))
    assert not run.journal.write()
    run.push(bytes(SIZE // 2))
    run.commit()
    assert not run.journal.failure


def test_a_smaller_piece_is_taken_where_the_usual_one_is_not_there(disk: MemoryDisk) -> None:
    run = running(disk)
    need = run.journal.space.free_bytes + 100
    disk.set_capacity(disk.used() + 100)
    assert run.journal.try_extend(need)
    assert run.journal.space.free_bytes == need
    assert not run.journal.try_extend(need + 1)


def test_more_than_one_frame_can_hold_is_refused(disk: MemoryDisk) -> None:
    run = running(disk)
    assert not run.journal.try_extend(1 << 31)
    assert "too much is waiting" in run.journal.space.extend_failure


def test_a_failed_journal_has_no_room(disk: MemoryDisk) -> None:
    run = running(disk)
    run.push()
    disk.fail_call("write")
    with pytest.raises(OSError, match="injected"):
        run.journal.write()
    assert not run.journal.try_extend(1 << 20)
    assert "a write has failed" in run.journal.space.extend_failure


def test_a_segment_is_used_to_its_end_while_the_next_cannot_be_made(disk: MemoryDisk) -> None:
    run = running(disk)
    jobs = [run.push(bytes(100)) for _ in range(30)]
    while not run.journal._is_full():
        run.push(bytes(700))
        fill_up(disk)
        run.commit()
    assert run.journal.space.push_refusal == NO_NEXT
    with pytest.raises(NoSpace, match=NO_NEXT):
        run.push()
    assert len(segments(disk)) == 1
    taken = run.take()
    assert taken is jobs[0]
    run.ack(taken)
    run.commit()
    assert not run.journal.failure
    assert allocated(run) == SIZE


def test_it_goes_on_when_there_is_room_again(disk: MemoryDisk) -> None:
    run = running(disk)
    fill_up(disk)
    while not run.journal.space.push_refusal:
        run.push(bytes(700))
        run.commit()
    assert make_spare(run.journal)
    assert not make_spare(run.journal)  # not before it is told to try again
    disk.set_capacity(-1)
    run.journal.retry_preparation()
    assert make_spare(run.journal)
    assert not run.journal.space.push_refusal
    assert len(segments(disk)) == 2
    run.push()
    run.commit()
    run.journal.close()
    assert picture(recover(disk).state) == picture(run.state)


def test_a_push_that_fits_only_the_next_segment_goes_there(disk: MemoryDisk) -> None:
    run = running(disk)
    run.journal.settings.prepare_ahead = True
    run.push(bytes(40_000))
    run.commit()
    assert make_spare(run.journal)
    fill_up(disk)
    assert len(segments(disk)) == 1
    run.push(bytes(28_000))
    assert len(segments(disk)) == 2
    run.commit()
    assert picture(recover(disk).state) == picture(run.state)


@pytest.mark.parametrize("operation", ["create", "open", "rename", "write"])
def test_a_next_segment_that_fails_on_the_way_leaves_nothing(
    disk: MemoryDisk, operation: str
) -> None:
    run = running(disk)
    before = disk.directory(JOURNAL).names()
    disk.fail_always(operation, errno.EACCES)
    run.journal._rotate()
    disk.heal()
    assert disk.directory(JOURNAL).names() == before
    assert f"injected into {operation}" in run.journal.space.push_refusal
    assert make_spare(run.journal)
    run.push()
    run.commit()
    assert picture(recover(disk).state) == picture(run.state)


def test_a_start_on_a_disk_that_is_almost_full_takes_what_there_is(disk: MemoryDisk) -> None:
    open_journal(disk, JournalSettings(1 << 20), State(EngineSettings()), 1)[0].close()
    disk.set_capacity(disk.used() + 100_000)
    journal, _ = open_journal(disk, JournalSettings(1 << 20), State(EngineSettings()), 2)
    assert 50_000 < journal.space.free_bytes < 100_000


def test_a_start_without_any_room_is_refused(disk: MemoryDisk) -> None:
    open_journal(disk, JournalSettings(1 << 20), State(EngineSettings()), 1)[0].close()
    disk.set_capacity(disk.used() + 10_000)
    with pytest.raises(OSError, match=NO_SPACE):
        open_journal(disk, JournalSettings(1 << 20), State(EngineSettings()), 2)


def test_leftovers_of_an_attempt_are_removed_at_the_start(disk: MemoryDisk) -> None:
    journal = disk.directory(JOURNAL)
    for name in ("spare.new", "spare.now"):
        journal.put(name, bytes(1000))
    open_journal(disk, JournalSettings(SIZE), State(EngineSettings()), 1)[0].close()
    assert len(journal.names()) == 1


@pytest.mark.parametrize("preallocate", ["zero", "reserve"])
def test_a_real_disk_keeps_the_room_it_has_promised(tmp_path: Path, preallocate: str) -> None:
    settings = JournalSettings(1 << 20, preallocate=preallocate)
    journal, _ = open_journal(RealDisk(str(tmp_path)), settings, State(EngineSettings()), 1)
    file = next((tmp_path / JOURNAL).glob("*.seg"))
    assert file.stat().st_blocks * 512 >= 1 << 20
    assert journal.try_extend(5 << 20)
    assert file.stat().st_blocks * 512 >= 5 << 20
    journal.close()
    assert file.stat().st_size == 128
