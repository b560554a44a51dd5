"""A repair that is stopped at any step, whatever the damage took, forgets nothing it knew."""

import contextlib
from functools import cache
from random import Random

import pytest
from journal.building import Running, copy, flipped, recover, segments
from journal.compacting import LAYOUTS, NOW, compacted, fix, flip, names
from support.effort import effort
from support.retaining import SEGMENT, RetainingYard

from taskyard.journal.errors import JournalCorrupt, JournalIncomplete
from taskyard.journal.format import SEGMENT_HEADER_BYTES, base_of
from taskyard.journal.identity import JOURNAL, load_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalReader
from taskyard.journal.repair import execute_repair, plan_repair

OPERATIONS = ("create", "write", "sync", "rename", "sync_directory", "truncate")
HEADER, FIRST_FRAME, LATER = 10, SEGMENT_HEADER_BYTES, SEGMENT // 2


class Found:
    """What there was before the damage."""

    def __init__(self, kept: int, readers: bool) -> None:
        yard = compacted(kept, readers)
        self.disk = yard.disk
        self.next_id = int(yard.engine.state.next_id)
        self.epoch = int(yard.engine.state.epoch)

    def damaged(self, offset: int) -> MemoryDisk:
        """All segments up to the one where a replay may begin are damaged."""
        disk = copy(self.disk)
        start = recover(disk).state.replay_start
        for name in names(disk):
            if base_of(name) <= start:
                flip(disk, name, offset)
        return disk


@cache
def found(kept: int, readers: bool = False) -> Found:
    return Found(kept, readers)


def steps(disk: MemoryDisk) -> list[tuple[str, int]]:
    """Each call by which a repair of this journal changes the disk."""
    tried = copy(disk)
    before = {operation: tried.calls(operation) for operation in OPERATIONS}
    fix(tried)
    return [
        (operation, nth + 1)
        for operation in OPERATIONS
        for nth in range(tried.calls(operation) - before[operation])
    ]


def knows_its_numbers(disk: MemoryDisk, known: Found) -> None:
    """Neither ids nor epochs are given twice, and the journal can be used."""
    assert not plan_repair(disk).is_needed()
    assert recover(disk).state.next_id >= known.next_id
    yard = RetainingYard(disk=disk)
    assert yard.engine.state.epoch > known.epoch
    id = yard.push()
    assert id >= known.next_id
    yard.restart()
    assert yard.engine.job(id).queue.name == "kept"
    yard.stop()


@pytest.mark.parametrize("kept", LAYOUTS)
@pytest.mark.parametrize("offset", [HEADER, FIRST_FRAME, LATER])
@pytest.mark.parametrize("readers", [False, True])
def test_numbers_that_were_given_are_not_given_again(kept: int, offset: int, readers: bool) -> None:
    known = found(kept, readers)
    disk = known.damaged(offset)
    plan = plan_repair(disk)
    assert plan.checkpoint_plan is not None
    assert plan.checkpoint_plan.partial
    assert plan.checkpoint_plan.next_id == known.next_id
    execute_repair(disk, plan, "damaged-now", Random(1).randbytes, NOW)
    disk.crash()
    assert recover(disk).next_seq == plan.last_kept + 2  # with the checkpoint of the repair
    knows_its_numbers(disk, known)


@pytest.mark.parametrize("kept", [29, 32])
@pytest.mark.parametrize("offset", [HEADER, FIRST_FRAME, LATER])
@pytest.mark.parametrize("readers", [False, True])
def test_a_journal_is_refused_until_its_repair_is_done(
    kept: int, offset: int, readers: bool
) -> None:
    known = found(kept, readers)
    for operation, nth in steps(known.damaged(offset)):
        disk = known.damaged(offset)
        disk.fail_call(operation, nth)
        with pytest.raises(OSError, match="injected"):
            fix(disk)
        disk.crash()
        with pytest.raises(JournalCorrupt):
            recover(disk)
        fix(disk, 6)
        disk.crash()
        knows_its_numbers(disk, known)


@pytest.mark.parametrize("seed", range(effort(40, 15)))
def test_a_repair_that_is_stopped_again_and_again(seed: int) -> None:
    chance = Random(seed)
    known = found(chance.choice(LAYOUTS), chance.random() < 0.5)
    disk = known.damaged(chance.choice([HEADER, FIRST_FRAME, LATER]))
    for _ in range(chance.randrange(1, 5)):
        if not plan_repair(disk).is_needed():
            break
        disk.fail_call(*chance.choice(steps(disk)))
        with contextlib.suppress(OSError):  # what is parked already is not copied again
            fix(disk)
        disk.crash(chance)
    if plan_repair(disk).is_needed():
        fix(disk, seed)
    disk.crash()
    knows_its_numbers(disk, known)


@pytest.mark.parametrize("kept", LAYOUTS)
def test_what_readers_have_saves_all_if_a_header_is_lost(kept: int) -> None:
    """Without that header nothing says which record comes next, but what is before it does."""
    known = found(kept, True)
    disk = copy(known.disk)
    RetainingYard(disk=disk).stop()  # from now on a header knows of the last base
    start = recover(disk).replay_start
    name = next(name for name in names(disk) if base_of(name) == start)
    first_seq = next(
        header.first_seq
        for header in JournalReader(disk.directory(JOURNAL)).segments()
        if header.base == start
    )
    flip(disk, name, HEADER)
    plan = plan_repair(disk)
    assert plan.checkpoint_plan is not None
    assert plan.checkpoint_plan.begins_in_retained
    assert plan.last_kept == first_seq - 1
    fix(disk)
    disk.crash()
    assert not plan_repair(disk).is_needed()
    assert recover(disk).next_seq == first_seq + 1  # with the checkpoint of the repair


# Segments that are missing at the end


@pytest.fixture
def twice() -> MemoryDisk:
    """A journal of two runs."""
    disk = MemoryDisk()
    for _ in range(2):
        run = Running(disk, segment_size=700)
        for _ in range(12):
            run.push()
            run.commit()
        run.journal.close()
    return disk


def ends_of_runs(disk: MemoryDisk) -> int:
    identity = load_identity(disk)
    assert identity is not None
    return int(identity.extent.end)


def test_a_start_notes_how_far_the_journal_goes(twice: MemoryDisk) -> None:
    end = recover(twice).end
    assert 0 < ends_of_runs(twice) < end
    Running(twice).journal.close()
    assert ends_of_runs(twice) == end


def test_a_missing_newest_segment_that_an_earlier_start_has_seen_is_noticed(
    twice: MemoryDisk,
) -> None:
    reach = ends_of_runs(twice)
    directory = twice.directory(JOURNAL)
    last = [name for name in segments(twice) if base_of(name) < reach][-1]
    for name in segments(twice):
        if base_of(name) >= reach:
            directory.remove(name)
    recover(twice)  # these may have been taken back by a crash, for all that can be known
    directory.remove(last)
    with pytest.raises(JournalCorrupt, match=f"went on up to byte {reach}"):
        recover(twice)
    plan = plan_repair(twice)
    assert plan.last_lost == 13  # the last one that the first run has written
    fix(twice)
    twice.crash()
    assert recover(twice).next_seq == plan.last_kept + 1
    Running(twice).journal.close()


def test_an_end_that_was_there_at_an_earlier_start_is_not_taken_for_torn(
    twice: MemoryDisk,
) -> None:
    reach = ends_of_runs(twice)
    directory = twice.directory(JOURNAL)
    last = [name for name in segments(twice) if base_of(name) < reach][-1]
    for name in segments(twice):
        if base_of(name) >= reach:
            directory.remove(name)
    data = directory.content(last)
    directory.put(last, flipped(data, (reach - base_of(last) - 3) * 8))
    with pytest.raises(JournalCorrupt, match=f"went on up to byte {reach}"):
        recover(twice)
    fix(twice)
    assert recover(twice).next_seq - 1 == 12
    assert directory.directory("damaged-now").content(last).startswith(data[:SEGMENT_HEADER_BYTES])


def test_that_all_segments_are_missing_is_noticed(twice: MemoryDisk) -> None:
    jobs = recover(twice).state.next_id - 1
    Running(twice).journal.close()
    for name in segments(twice):
        twice.directory(JOURNAL).remove(name)
    with pytest.raises(JournalIncomplete, match="no segment is there"):
        Running(twice)
    fix(twice)
    twice.crash()
    run = Running(twice)
    assert not list(run.state.jobs)
    assert run.push().id == jobs + 1
    run.journal.close()


def test_a_full_disk_keeps_the_older_note(twice: MemoryDisk) -> None:
    before = ends_of_runs(twice)
    twice.fail_call("create")  # of the new identity.json
    Running(twice).journal.close()
    assert ends_of_runs(twice) == before
    recover(twice)
