"""A repair keeps all before the damage, deletes nothing, and can be repeated."""

from random import Random

import pytest
from journal.building import Running, copy, flipped, picture, recover, segments

from taskyard.journal.errors import JournalCorrupt
from taskyard.journal.format import SEGMENT_HEADER_BYTES, SegmentBytes, parse_header
from taskyard.journal.identity import IDENTITY, JOURNAL, load_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.repair import execute_repair, plan_repair

ASIDE = "damaged-now"
NOW = 1_800_000_000_000_000


@pytest.fixture
def disk() -> MemoryDisk:
    """Five segments or so, with 31 records of which each push has a frame."""
    disk = MemoryDisk()
    run = Running(disk, segment_size=700)
    for number in range(30):
        run.push(b"payload %d" % number)
        run.commit()
    run.journal.close()
    return disk


def damaged(disk: MemoryDisk, index: int, offset: int = SEGMENT_HEADER_BYTES + 60) -> MemoryDisk:
    name = segments(disk)[index]
    data = disk.directory(JOURNAL).content(name)
    return copy(disk, name, flipped(data, offset % len(data) * 8))


def fix(disk: MemoryDisk, seed: int = 5) -> None:
    execute_repair(disk, plan_repair(disk), ASIDE, Random(seed).randbytes, NOW)


def test_an_intact_journal_needs_none(disk: MemoryDisk) -> None:
    assert not plan_repair(disk).is_needed()


def test_a_torn_tail_needs_none(disk: MemoryDisk) -> None:
    assert not plan_repair(damaged(disk, -1, -5)).is_needed()


@pytest.mark.parametrize("index", [0, 1, 2, 3])
@pytest.mark.parametrize("offset", [10, SEGMENT_HEADER_BYTES + 60, 400])
def test_all_before_the_damage_is_kept(disk: MemoryDisk, index: int, offset: int) -> None:
    broken = damaged(disk, index, offset)
    with pytest.raises(JournalCorrupt) as raised:
        recover(broken)
    plan = plan_repair(broken)
    assert plan.last_kept == raised.value.seq - 1
    assert (plan.first_lost, plan.last_lost) == (raised.value.seq, 31)
    fix(broken)
    broken.crash()
    recovery = recover(broken)
    assert recovery.next_seq == raised.value.seq
    run = Running(broken)
    run.push(b"after")
    run.commit()
    broken.crash()
    assert picture(recover(broken).state) == picture(run.state)


def test_nothing_is_deleted(disk: MemoryDisk) -> None:
    broken = damaged(disk, 1, 400)
    before = {name: broken.directory(JOURNAL).content(name) for name in segments(broken)}
    fix(broken)
    journal = broken.directory(JOURNAL)
    aside = journal.directory(ASIDE)
    for name, data in list(before.items())[1:]:
        assert aside.content(name).rstrip(b"\0") == data.rstrip(b"\0")
    kept = segments(broken)
    assert kept == list(before)[:2]
    assert before[kept[1]].startswith(journal.content(kept[1]))


def test_what_is_lost_is_counted(disk: MemoryDisk) -> None:
    broken = damaged(disk, 1, SEGMENT_HEADER_BYTES + 60)
    plan = plan_repair(broken)
    lost = plan.last_lost - plan.first_lost + 1
    assert plan.readable == lost - 1


def test_the_timeline_changes_and_the_old_one_is_remembered(disk: MemoryDisk) -> None:
    before = load_identity(disk)
    broken = damaged(disk, 2)
    fix(broken)
    after = load_identity(broken)
    assert before is not None
    assert after is not None
    assert after.timeline != before.timeline
    assert after.salt == before.salt
    assert [past.timeline for past in after.earlier] == [before.timeline]
    run = Running(broken)
    run.journal.close()
    assert run.journal.timeline == after.timeline
    recover(broken)


def test_repairs_add_up(disk: MemoryDisk) -> None:
    timelines = set()
    for index in (3, 2, 1):
        disk = damaged(disk, index)
        fix(disk, index)
        run = Running(disk, segment_size=700)
        for _ in range(20):
            run.push()
            run.commit()
        run.journal.close()
        timelines.add(run.journal.timeline)
        assert picture(recover(disk).state) == picture(run.state)
    assert len(timelines) == 3


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_directory", "rename"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_repair_that_was_cut_off_is_repeated(disk: MemoryDisk, operation: str, nth: int) -> None:
    for seed in range(6):
        broken = damaged(disk, 2, 400)
        wanted = plan_repair(broken).last_kept
        plan = plan_repair(broken)
        broken.fail_call(operation, nth)
        try:
            execute_repair(broken, plan, ASIDE, Random(seed).randbytes, NOW)
        except OSError:
            broken.crash(Random(seed))
        if plan_repair(broken).is_needed():
            execute_repair(broken, plan_repair(broken), ASIDE, Random(seed).randbytes, NOW)
        assert recover(broken).next_seq - 1 == wanted


def test_a_missing_segment_is_repaired(disk: MemoryDisk) -> None:
    broken = copy(disk)
    gone = segments(broken)[2]
    broken.directory(JOURNAL).remove(gone)
    plan = plan_repair(broken)
    fix(broken)
    assert recover(broken).next_seq - 1 == plan.last_kept
    assert len(segments(broken)) == 2


def test_a_lost_identity_is_made_anew(disk: MemoryDisk) -> None:
    for content in (b"", b"{}", None):
        broken = copy(disk)
        if content is None:
            broken.remove(IDENTITY)
        else:
            broken.put(IDENTITY, content)
        plan = plan_repair(broken)
        assert plan.damage is None
        assert plan.lost_identity
        fix(broken)
        run = Running(broken)
        assert run.report.records == 31
        run.journal.close()
        assert recover(broken).next_seq == 33


def test_a_lost_identity_after_a_repair_is_made_anew(disk: MemoryDisk) -> None:
    broken = damaged(disk, 2)
    fix(broken)
    Running(broken).journal.close()
    records = recover(broken).next_seq - 1
    broken.remove(IDENTITY)
    fix(broken)
    assert recover(broken).next_seq - 1 == records
    Running(broken)


def test_a_lost_identity_and_a_damage_are_repaired_together(disk: MemoryDisk) -> None:
    broken = damaged(disk, 2)
    broken.remove(IDENTITY)
    plan = plan_repair(broken)
    fix(broken)
    assert recover(broken).next_seq - 1 == plan.last_kept


def test_an_identity_is_made_of_the_headers_that_can_be_read(disk: MemoryDisk) -> None:
    whole = load_identity(disk)
    assert whole is not None
    broken = damaged(disk, 2, 10)
    broken.remove(IDENTITY)
    plan = plan_repair(broken)
    fix(broken)
    assert recover(broken).next_seq - 1 == plan.last_kept > 0
    made = load_identity(broken)
    assert made is not None
    assert made.earlier[-1].timeline == whole.timeline


def test_without_any_header_nothing_can_be_kept_but_all_is_moved_aside(disk: MemoryDisk) -> None:
    broken = disk
    for index in range(len(segments(disk))):
        broken = damaged(broken, index, 10)
    names = segments(broken)
    broken.remove(IDENTITY)
    plan = plan_repair(broken)
    assert (plan.last_kept, plan.moved) == (0, names)
    fix(broken)
    assert segments(broken) == []
    assert sorted(broken.directory(JOURNAL).directory(ASIDE).names()) == names
    assert Running(broken).report.records == 0


def test_what_an_earlier_use_of_a_file_has_left_is_not_counted_as_lost(disk: MemoryDisk) -> None:
    """A recycled segment has old frames behind its own, which nobody misses."""
    name = segments(disk)[2]
    data = disk.directory(JOURNAL).content(name)
    header = parse_header(SegmentBytes(data, len(data)))
    damaged_at = SEGMENT_HEADER_BYTES + 60
    plain = plan_repair(copy(disk, name, flipped(data, damaged_at * 8)))
    header.recycled = True
    old = b"left over" * 100
    recycled = header.encode() + flipped(data, damaged_at * 8)[SEGMENT_HEADER_BYTES:] + old
    plan = plan_repair(copy(disk, name, recycled))
    assert (plan.bytes, plan.first_lost, plan.last_lost) == (
        plain.bytes,
        plain.first_lost,
        plain.last_lost,
    )
