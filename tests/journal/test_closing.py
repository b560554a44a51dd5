"""A compacted journal whose damage took what stood for its beginning can be made to start again."""

import random

import pytest
from journal.building import recover
from journal.compacting import LAYOUTS, compacted, fix, flip, names, starts_again
from support.effort import effort
from support.retaining import ORIGIN, SEGMENT, RetainingYard, without_ring

from taskyard.engine.model.job import FAILED, NewJob, Policy
from taskyard.engine.records.job_lifecycle import CHECKPOINT
from taskyard.journal.errors import JournalIncomplete
from taskyard.journal.format import SEGMENT_HEADER_BYTES, base_of, segment_name
from taskyard.journal.identity import JOURNAL, load_identity
from taskyard.journal.memory import MemoryDisk
from taskyard.journal.reader import JournalReader
from taskyard.journal.repair import plan_repair
from taskyard.journal.retention import RetentionLimits


def bases(disk: MemoryDisk) -> list[int]:
    """Positions of the checkpoints."""
    entries = JournalReader(disk.directory(JOURNAL)).read(snapshots=True)
    return [int(entry.position) for entry in entries if entry.record.kind() == CHECKPOINT]


@pytest.mark.parametrize("kept", LAYOUTS)
def test_damage_before_the_base_record_leaves_what_was_carried_until_then(kept: int) -> None:
    yard = compacted(kept)
    before = {job.id for job in yard.engine.state.jobs if job.queue.name == "kept"}
    next_id = yard.engine.state.next_id
    flip(yard.disk, names(yard.disk)[0], SEGMENT // 2)
    plan = plan_repair(yard.disk)
    assert plan.checkpoint_plan is not None
    assert plan.checkpoint_plan.partial
    assert plan.checkpoint_plan.counted_jobs >= plan.checkpoint_plan.jobs
    assert plan.checkpoint_plan.next_id == next_id
    fix(yard.disk)
    assert recover(yard.disk).state.entity_counts()[0] == plan.checkpoint_plan.jobs
    starts_again(yard)
    known = {job.id for job in yard.engine.state.jobs if job.queue.name == "kept"}
    assert known < before
    assert yard.push() >= next_id


@pytest.mark.parametrize("kept", LAYOUTS)
@pytest.mark.parametrize("offset", [10, SEGMENT_HEADER_BYTES + 5])
def test_damage_at_the_very_beginning_leaves_nothing(offset: int, kept: int) -> None:
    yard = compacted(kept)
    flip(yard.disk, names(yard.disk)[0], offset)
    fix(yard.disk)
    starts_again(yard)


@pytest.mark.parametrize("kept", LAYOUTS)
def test_what_is_kept_for_readers_saves_the_rest(kept: int) -> None:
    """From further back there is another checkpoint: all up to the damage is known."""
    yard = compacted(kept, readers=True)
    yard._start()  # from now on a header knows of the last base
    yard.stop()
    base = yard.journal.replay_start
    assert any(position < base for position in bases(yard.disk))
    name = next(name for name in names(yard.disk) if base_of(name) == base)
    flip(yard.disk, name, SEGMENT // 4)
    plan = plan_repair(yard.disk)
    assert plan.checkpoint_plan is not None
    assert not plan.checkpoint_plan.partial
    assert plan.checkpoint_plan.start < base
    fix(yard.disk)
    starts_again(yard)


@pytest.mark.parametrize("kept", LAYOUTS)
def test_damage_that_only_readers_meet_costs_nothing(kept: int) -> None:
    """The newest header says an older base than the last one: a start would meet the damage."""
    yard = compacted(kept, readers=True)
    yard._start()
    reader = JournalReader(yard.disk.directory(JOURNAL))
    while (recorded := reader.segments()[-1].recovery_base) == yard.journal.replay_start:
        yard.work(4000)
    yard.stop()
    before = without_ring(yard.engine.state)
    name = next(name for name in names(yard.disk) if base_of(name) == recorded)
    flip(yard.disk, name, SEGMENT // 4)
    plan = plan_repair(yard.disk)
    assert plan.skippable_damage is not None
    assert plan.skippable_damage.file == name
    assert plan.damage is None
    fix(yard.disk)
    yard.disk.crash()
    found = without_ring(recover(yard.disk).state)
    assert {**found, "time": before["time"]} == before
    starts_again(yard)


@pytest.mark.parametrize("kept", LAYOUTS)
def test_damage_in_what_is_retained_does_not_make_a_repair_lose_more(kept: int) -> None:
    """With the newest segment goes the header that knows where a replay begins."""
    yard = compacted(kept, readers=True)
    yard._start()
    for _ in range(3):
        yard.push()
    yard.stop()
    headers = JournalReader(yard.disk.directory(JOURNAL)).segments()
    last = headers[-1]
    retained = [int(header.base) for header in headers if header.base < last.recovery_base][-1]
    assert retained >= headers[-2].recovery_base
    flip(yard.disk, segment_name(retained), 1000)
    flip(yard.disk, segment_name(last.base), 1000)
    plan = plan_repair(yard.disk)
    assert plan.skippable_damage is None
    assert plan.damage is not None
    assert plan.damage.file == segment_name(last.base)
    fix(yard.disk)
    assert recover(yard.disk).next_seq == plan.last_kept + 2  # with the checkpoint of the repair
    starts_again(yard)


@pytest.mark.parametrize("kept", LAYOUTS)
def test_a_journal_whose_last_frame_was_its_base_record(kept: int) -> None:
    """That it is lost looks like the torn end of a crash; that it was needed shows."""
    yard = compacted(kept)
    last = bases(yard.disk)[-1]
    directory = yard.disk.directory(JOURNAL)
    all_names = names(yard.disk)
    index = max(i for i, name in enumerate(all_names) if base_of(name) <= last)
    data = directory.content(all_names[index])
    directory.put(all_names[index], data[: last - base_of(all_names[index]) - 40])
    for name in all_names[index + 1 :]:
        directory.remove(name)
    begin = base_of(all_names[0])
    if begin > 0:
        with pytest.raises(JournalIncomplete):
            RetainingYard(disk=yard.disk)
    fix(yard.disk)
    starts_again(yard)


def test_jobs_that_wait_for_a_lost_one_hear_that_it_is_gone() -> None:
    yard = RetainingYard(RetentionLimits(0))
    blocker = yard.push(size=10)
    compactor = yard.broker.compaction_scheduler.compactor
    compactor.target_percent = 0
    yard.work(SEGMENT + 4000)
    new = NewJob("kept", "waits", b"", Policy(), blocked_by=[blocker])
    dependent = yard.engine.push(new, ORIGIN, yard.turn())
    yard.end()
    compactor.target_percent = 200
    while not yard.journal.replay_start:
        yard.work(4000)
    assert yard.journal.replay_start < dependent.payload_at
    at = int(yard.engine.job(blocker).payload_at)  # of its carry
    assert at > dependent.payload_at
    yard.stop()
    name = [name for name in names(yard.disk) if base_of(name) <= at][-1]
    flip(yard.disk, name, at - base_of(name))
    fix(yard.disk)
    assert not plan_repair(yard.disk).is_needed()
    yard._start()
    yard.advance(1)
    assert yard.engine.state.live_job(blocker) is None
    assert yard.engine.job(dependent.id).state == FAILED
    starts_again(yard)


@pytest.mark.parametrize("seed", range(effort(25, 8)))
@pytest.mark.parametrize("readers", [False, True])
def test_a_repair_after_any_damage_gives_a_journal_that_starts(seed: int, readers: bool) -> None:
    chance = random.Random(seed)
    yard = compacted(LAYOUTS[seed % len(LAYOUTS)], readers, seed)
    before = {job.id for job in yard.engine.state.jobs if job.queue.name == "kept"}
    for _ in range(chance.randrange(1, 3)):
        name = chance.choice(names(yard.disk))
        size = len(yard.disk.directory(JOURNAL).content(name))
        flip(yard.disk, name, chance.randrange(size))
    plan = plan_repair(yard.disk)
    if plan.is_needed():
        old = load_identity(yard.disk)
        fix(yard.disk, seed + 1000)
        new = load_identity(yard.disk)
        assert old is not None
        assert new is not None
        assert old.timeline != new.timeline
    yard.disk.crash()
    starts_again(yard)
    assert {job.id for job in yard.engine.state.jobs if job.queue.name == "kept"} <= before
